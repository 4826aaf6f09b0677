fn restock(&mut self, order: Order) -> Result<&mut u32, Error> {
    use crate::other::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::restock"),
        templates: &["shop:<self.id>:<order.item.0>"],
        computed: false,
        is_async: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: __dlock::Options {
            retry: ::core::option::Option::Some(__dlock::Retry {
                times: 5u32,
                backoff: ::core::option::Option::Some(
                    __dlock::Backoff::new(
                        ::core::time::Duration::new(0u64, 100000000u32),
                        ::core::time::Duration::new(2u64, 0u32),
                    ),
                ),
            }),
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
        __dlock::KeyBuilder::text(&mut __dlock_k, "shop:");
        __dlock::KeyBuilder::value(&mut __dlock_k, &self.id);
        __dlock::KeyBuilder::text(&mut __dlock_k, ":");
        __dlock::KeyBuilder::value(&mut __dlock_k, &order.item.0);
        __dlock::KeyBuilder::finish(__dlock_k)
    });
    let __dlock_ran = __dlock::run_sync(
        &__DLOCK_SITE,
        __dlock_call,
        ::core::option::Option::Some(
            <Result<&mut u32, Error> as __dlock::LockReturn>::succeeded,
        ),
        move || {
            if false {
                return __dlock::unreached::<Result<&mut u32, Error>>();
            }
            let order = order;
            let _ = &order;
            self.sold += order.count()?;
            Ok(&mut self.sold)
        },
    );
    {
        use __dlock::{ReturnsValue as _, ReturnsWork as _};
        __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
    }
    <Result<&mut u32, Error> as __dlock::LockReturn>::from_ran(__dlock_ran)
}
