/// Takes `n` off the stock.
pub async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::deduct"),
        templates: &["stock:<id>"],
        computed: false,
        is_async: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::Some("redis"),
        per_call: &[],
        options: __dlock::Options {
            ttl: ::core::option::Option::Some(::core::time::Duration::new(30u64, 0u32)),
            wait: ::core::option::Option::Some(
                __dlock::Wait::UpTo(::core::time::Duration::new(5u64, 0u32)),
            ),
            renew: ::core::option::Option::Some(__dlock::Renew::Auto),
            ..__dlock::Options::DEFAULT
        },
        on_busy: __dlock::Otherwise::Error,
        on_outage: __dlock::Otherwise::Error,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::new({
        let mut __dlock_k = __dlock::KeyBuilder::new();
        __dlock::KeyBuilder::text(&mut __dlock_k, "stock:");
        __dlock::KeyBuilder::value(&mut __dlock_k, &id);
        __dlock::KeyBuilder::finish(__dlock_k)
    });
    let __dlock_ran = __dlock::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return __dlock::unreached::<Result<(), OrderError>>();
                }
                let id = id;
                let _ = &id;
                let n = n;
                stock::take(id, n).await?;
                Ok(())
            },
        )
        .judged_by(<Result<(), OrderError> as __dlock::LockReturn>::succeeded)
        .await;
    {
        use __dlock::{ReturnsValue as _, ReturnsWork as _};
        __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
    }
    <Result<(), OrderError> as __dlock::LockReturn>::from_ran(__dlock_ran)
}
