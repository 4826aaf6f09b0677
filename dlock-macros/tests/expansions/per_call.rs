async fn ship(&self, order: Order, limit: Duration) -> Result<impl Display, Error> {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::ship"),
        templates: &["order_key (& order)"],
        computed: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &["backend", "ttl", "wait"],
        options: ::dlock::__private::Options {
            kind: ::dlock::__private::Kind::permits(3u32),
            fence: true,
            ..::dlock::__private::Options::DEFAULT
        },
        on_busy: ::dlock::__private::Otherwise::Error,
        on_outage: ::dlock::__private::Otherwise::Error,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::computed(order_key(&order))
        .backend(&&self.store)
        .ttl(self.config.ttl)
        .wait(limit * 2);
    let __dlock_ran = ::dlock::__private::run(
            &__DLOCK_SITE,
            __dlock_call,
            async move {
                if false {
                    return ::dlock::__private::unreached::<Result<_, Error>>();
                }
                let held = match ::dlock::__private::holding_now() {
                    ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                    ::core::result::Result::Err(__dlock_error) => {
                        return ::dlock::__private::LockReturn::from_ran(
                            ::dlock::__private::Ran::Failed(__dlock_error),
                        );
                    }
                };
                let token = match ::dlock::__private::fence_now() {
                    ::core::result::Result::Ok(__dlock_value) => __dlock_value,
                    ::core::result::Result::Err(__dlock_error) => {
                        return ::dlock::__private::LockReturn::from_ran(
                            ::dlock::__private::Ran::Failed(__dlock_error),
                        );
                    }
                };
                send(order, held.slot(), token).await
            },
        )
        .await;
    ::dlock::__private::LockReturn::from_ran(__dlock_ran)
}
