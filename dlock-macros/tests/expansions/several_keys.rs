async fn transfer(from: u64, to: u64, day: u32, ids: &[u64]) -> Result<(), Error> {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::transfer"),
        templates: &["account:<from>", "account:<to>", "audit:<day>:<ids..>:x"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: ::dlock::__private::Options::DEFAULT,
        on_busy: ::dlock::__private::Otherwise::Error,
        on_outage: ::dlock::__private::Otherwise::Error,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::several({
        let mut __dlock_keys = ::dlock::__private::Vec::new();
        __dlock_keys
            .push({
                let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
                __dlock_k.text("account:");
                __dlock_k.value(&from);
                __dlock_k.finish()
            });
        __dlock_keys
            .push({
                let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
                __dlock_k.text("account:");
                __dlock_k.value(&to);
                __dlock_k.finish()
            });
        for __dlock_each in ids.iter() {
            let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
            __dlock_k.text("audit:");
            __dlock_k.value(&day);
            __dlock_k.text(":");
            __dlock_k.value(__dlock_each);
            __dlock_k.text(":x");
            __dlock_keys.push(__dlock_k.finish());
        }
        __dlock_keys
    });
    match ::dlock::__private::begin(&__DLOCK_SITE, __dlock_call).await {
        ::core::result::Result::Ok(__dlock_guards) => {
            let __dlock_held = __dlock_guards.to_held();
            let __dlock_ran = ::dlock::__private::hold(
                    &__DLOCK_SITE,
                    __dlock_guards,
                    async move {
                        if false {
                            return ::dlock::__private::unreached::<Result<(), Error>>();
                        }
                        let held = __dlock_held;
                        book(from, to, held[0].fence()?).await
                    },
                )
                .await;
            <Result<(), Error> as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
        }
        ::core::result::Result::Err(__dlock_error) => {
            <Result<
                (),
                Error,
            > as ::dlock::__private::LockReturn>::from_ran(
                ::dlock::__private::Ran::Failed(__dlock_error),
            )
        }
    }
}
