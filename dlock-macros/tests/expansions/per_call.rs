async fn ship(&self, order: Order, limit: Duration) -> Result<impl Display, Error> {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::ship"),
        templates: &["order_key (& order)"],
        computed: true,
        is_async: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &["backend", "ttl", "wait"],
        options: __dlock::Options {
            mode: __dlock::Mode::permits(3u32),
            fence: true,
            ..__dlock::Options::DEFAULT
        },
        on_busy: __dlock::Otherwise::Error,
        on_outage: __dlock::Otherwise::Error,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::computed(order_key(&order))
        .backend(&&self.store)
        .ttl(self.config.ttl)
        .wait(limit * 2);
    let __dlock_ran = __dlock::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return __dlock::unreached::<Result<_, Error>>();
                }
                let order = order;
                let _ = &order;
                let limit = limit;
                let _ = &limit;
                let held = match __dlock::holding_now() {
                    ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                    ::core::result::Result::Err(__dlock_error) => {
                        return __dlock::LockReturn::from_ran(
                            __dlock::Ran::Failed(__dlock_error),
                        );
                    }
                };
                let token = match __dlock::fence_now() {
                    ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                    ::core::result::Result::Err(__dlock_error) => {
                        return __dlock::LockReturn::from_ran(
                            __dlock::Ran::Failed(__dlock_error),
                        );
                    }
                };
                send(order, held.slot(), token).await
            },
        )
        .judged_by(__dlock::LockReturn::succeeded)
        .await;
    {
        use __dlock::{ReturnsValue as _, ReturnsWork as _};
        __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
    }
    __dlock::LockReturn::from_ran(__dlock_ran)
}
