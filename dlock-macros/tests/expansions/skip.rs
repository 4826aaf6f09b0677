async fn report() {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::report"),
        templates: &["report"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: ::dlock::__private::Options {
            once_per: ::core::option::Option::Some(::dlock::__private::OncePer {
                period: ::core::time::Duration::new(60u64, 0u32),
                offset: ::core::time::Duration::new(10u64, 0u32),
                rerun: true,
            }),
            ..::dlock::__private::Options::DEFAULT
        },
        on_busy: ::dlock::__private::Otherwise::Skip,
        on_outage: ::dlock::__private::Otherwise::Skip,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::new({
        let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
        __dlock_k.text("report");
        __dlock_k.finish()
    });
    let __dlock_ran = ::dlock::__private::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return ::dlock::__private::unreached::<()>();
                }
                write().await;
            },
        )
        .judged_by(<() as ::dlock::__private::SkipReturn>::succeeded)
        .await;
    <() as ::dlock::__private::SkipReturn>::from_ran(
        __dlock_ran,
        ::dlock::__private::Skip {
            busy: true,
            outage: true,
        },
    )
}
