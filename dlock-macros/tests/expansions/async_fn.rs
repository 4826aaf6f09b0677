/// Takes `n` off the stock.
pub async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::deduct"),
        templates: &["stock:<id>"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::Some("redis"),
        per_call: &[],
        options: ::dlock::__private::Options {
            ttl: ::core::option::Option::Some(::core::time::Duration::new(30u64, 0u32)),
            wait: ::core::option::Option::Some(
                ::dlock::__private::Wait::UpTo(::core::time::Duration::new(5u64, 0u32)),
            ),
            renew: ::core::option::Option::Some(::dlock::__private::Renew::Auto),
            ..::dlock::__private::Options::DEFAULT
        },
        on_busy: ::dlock::__private::Otherwise::Error,
        on_outage: ::dlock::__private::Otherwise::Error,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::new({
        let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
        __dlock_k.text("stock:");
        __dlock_k.value(&id);
        __dlock_k.finish()
    });
    let __dlock_ran = ::dlock::__private::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return ::dlock::__private::unreached::<Result<(), OrderError>>();
                }
                stock::take(id, n).await?;
                Ok(())
            },
        )
        .await;
    <Result<(), OrderError> as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
}
