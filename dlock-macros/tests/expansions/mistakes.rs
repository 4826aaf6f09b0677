::core::compile_error! {
    "unknown option `tll`; did you mean `ttl`?"
}
::core::compile_error! {
    "no parameter named `idd`; did you mean `id`? `deduct` has `id`"
}
pub async fn deduct(id: u64) -> Result<(), Error> {
    let held = match ::dlock::__private::holding_now() {
        ::core::result::Result::Ok(__dlock_value) => __dlock_value,
        ::core::result::Result::Err(_) => loop {}
    };
    write(held.fence()?)
}
