async fn report() {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::report"),
        templates: &["report"],
        computed: false,
        is_async: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: __dlock::Options {
            once_per: ::core::option::Option::Some(
                __dlock::OncePer::new(::core::time::Duration::new(60u64, 0u32))
                    .offset(::core::time::Duration::new(10u64, 0u32))
                    .rerun(true),
            ),
            ..__dlock::Options::DEFAULT
        },
        on_busy: __dlock::Otherwise::Skip,
        on_outage: __dlock::Otherwise::Skip,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::new({
        let mut __dlock_k = __dlock::KeyBuilder::new();
        __dlock::KeyBuilder::text(&mut __dlock_k, "report");
        __dlock::KeyBuilder::finish(__dlock_k)
    });
    let __dlock_ran = __dlock::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return __dlock::unreached::<()>();
                }
                write().await;
            },
        )
        .judged_by(<() as __dlock::SkipReturn>::succeeded)
        .await;
    {
        use __dlock::{ReturnsValue as _, ReturnsWork as _};
        __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
    }
    <() as __dlock::SkipReturn>::from_ran(
        __dlock_ran,
        __dlock::Skip {
            busy: true,
            outage: true,
        },
    )
}
