fn restock(&mut self, order: Order) -> Result<&mut u32, Error> {
    static __DLOCK_SITE: crate::other::__private::Site = crate::other::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::restock"),
        templates: &["shop:<self.id>:<order.item.0>"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: crate::other::__private::Options {
            retry: ::core::option::Option::Some(crate::other::__private::Retry {
                times: 5u32,
                backoff: crate::other::__private::Backoff {
                    from: ::core::time::Duration::new(0u64, 100000000u32),
                    to: ::core::time::Duration::new(2u64, 0u32),
                },
            }),
            ..crate::other::__private::Options::DEFAULT
        },
        on_busy: crate::other::__private::Otherwise::Error,
        on_outage: crate::other::__private::Otherwise::Error,
    };
    crate::other::__private::inventory::submit! {
        crate ::other::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = crate::other::__private::Call::new({
        let mut __dlock_k = crate::other::__private::KeyBuilder::new();
        __dlock_k.text("shop:");
        __dlock_k.value(&self.id);
        __dlock_k.text(":");
        __dlock_k.value(&order.item.0);
        __dlock_k.finish()
    });
    let __dlock_ran = crate::other::__private::run_sync(
        &__DLOCK_SITE,
        __dlock_call,
        ::core::option::Option::None,
        move || {
            if false {
                return crate::other::__private::unreached::<Result<&mut u32, Error>>();
            }
            self.sold += order.count()?;
            Ok(&mut self.sold)
        },
    );
    <Result<
        &mut u32,
        Error,
    > as crate::other::__private::LockReturn>::from_ran(__dlock_ran)
}
