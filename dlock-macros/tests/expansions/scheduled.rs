fn report() -> Option<Report> {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::report"),
        templates: &["nightly-report"],
        computed: false,
        is_async: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: __dlock::Options {
            ttl: ::core::option::Option::Some(
                ::core::time::Duration::new(1800u64, 0u32),
            ),
            wait: ::core::option::Option::Some(__dlock::Wait::None),
            renew: ::core::option::Option::Some(__dlock::Renew::Off),
            min_hold: ::core::option::Option::Some(
                ::core::time::Duration::new(300u64, 0u32),
            ),
            record: true,
            ..__dlock::Options::DEFAULT
        },
        on_busy: __dlock::Otherwise::Skip,
        on_outage: __dlock::Otherwise::Error,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::new({
        let mut __dlock_k = __dlock::KeyBuilder::new();
        __dlock::KeyBuilder::text(&mut __dlock_k, "nightly-report");
        __dlock::KeyBuilder::finish(__dlock_k)
    });
    let __dlock_ran = __dlock::run_sync(
        &__DLOCK_SITE,
        __dlock_call,
        ::core::option::Option::Some(<Option<Report> as __dlock::SkipReturn>::succeeded),
        move || {
            if false {
                return __dlock::unreached::<Option<Report>>();
            }
            Some(write())
        },
    );
    {
        use __dlock::{ReturnsValue as _, ReturnsWork as _};
        __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
    }
    <Option<
        Report,
    > as __dlock::SkipReturn>::from_ran(
        __dlock_ran,
        __dlock::Skip {
            busy: true,
            outage: false,
        },
    )
}
