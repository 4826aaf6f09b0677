pub async fn deduct(id: u64) -> Result<(), Error> {
    let __dlock_mistake = {
        ::core::compile_error! {
            "unknown option `tll`; did you mean `ttl`?"
        }
        ::core::compile_error! {
            "no parameter named `idd`; did you mean `id`? `deduct` has `id`"
        }
    };
    let _ = async {
        ();
        __dlock_mistake
    };
    let held = __dlock_mistake;
    write(held.fence()?)
}
