fn report() -> Option<Report> {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::report"),
        templates: &["nightly-report"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: ::dlock::__private::Options {
            ttl: ::core::option::Option::Some(
                ::core::time::Duration::new(1800u64, 0u32),
            ),
            wait: ::core::option::Option::Some(::dlock::__private::Wait::None),
            renew: ::core::option::Option::Some(::dlock::__private::Renew::Off),
            min_hold: ::core::option::Option::Some(
                ::core::time::Duration::new(300u64, 0u32),
            ),
            record: true,
            ..::dlock::__private::Options::DEFAULT
        },
        on_busy: ::dlock::__private::Otherwise::Skip,
        on_outage: ::dlock::__private::Otherwise::Error,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::new({
        let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
        __dlock_k.text("nightly-report");
        __dlock_k.finish()
    });
    let __dlock_ran = ::dlock::__private::run_sync(
        &__DLOCK_SITE,
        __dlock_call,
        ::core::option::Option::Some(
            <Option<Report> as ::dlock::__private::SkipReturn>::succeeded,
        ),
        move || {
            if false {
                return ::dlock::__private::unreached::<Option<Report>>();
            }
            Some(write())
        },
    );
    <Option<
        Report,
    > as ::dlock::__private::SkipReturn>::from_ran(
        __dlock_ran,
        ::dlock::__private::Skip {
            busy: true,
            outage: false,
        },
    )
}
