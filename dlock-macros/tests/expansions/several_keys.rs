async fn transfer(from: u64, to: u64, day: u32, ids: &[u64]) -> Result<(), Error> {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::transfer"),
        templates: &["account:<from>", "account:<to>", "audit:<day>:<ids..>:x"],
        computed: false,
        is_async: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: __dlock::Options::DEFAULT,
        on_busy: __dlock::Otherwise::Error,
        on_outage: __dlock::Otherwise::Error,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::several({
        use __dlock::EachOf as _;
        let mut __dlock_keys = __dlock::Vec::new();
        __dlock::Vec::push(
            &mut __dlock_keys,
            {
                let mut __dlock_k = __dlock::KeyBuilder::new();
                __dlock::KeyBuilder::text(&mut __dlock_k, "account:");
                __dlock::KeyBuilder::value(&mut __dlock_k, &from);
                __dlock::KeyBuilder::finish(__dlock_k)
            },
        );
        __dlock::Vec::push(
            &mut __dlock_keys,
            {
                let mut __dlock_k = __dlock::KeyBuilder::new();
                __dlock::KeyBuilder::text(&mut __dlock_k, "account:");
                __dlock::KeyBuilder::value(&mut __dlock_k, &to);
                __dlock::KeyBuilder::finish(__dlock_k)
            },
        );
        for __dlock_each in (*ids).__dlock_each() {
            let mut __dlock_k = __dlock::KeyBuilder::new();
            __dlock::KeyBuilder::text(&mut __dlock_k, "audit:");
            __dlock::KeyBuilder::value(&mut __dlock_k, &day);
            __dlock::KeyBuilder::text(&mut __dlock_k, ":");
            __dlock::KeyBuilder::value(&mut __dlock_k, __dlock_each);
            __dlock::KeyBuilder::text(&mut __dlock_k, ":x");
            __dlock::Vec::push(
                &mut __dlock_keys,
                __dlock::KeyBuilder::finish(__dlock_k),
            );
        }
        __dlock_keys
    });
    match __dlock::begin(&__DLOCK_SITE, __dlock_call).await {
        ::core::result::Result::Ok(__dlock_guards) => {
            let __dlock_held = __dlock_guards.to_held();
            let __dlock_ran = __dlock::hold(
                    &__DLOCK_SITE,
                    __dlock_guards,
                    async move {
                        if false {
                            return __dlock::unreached::<Result<(), Error>>();
                        }
                        let from = from;
                        let _ = &from;
                        let to = to;
                        let _ = &to;
                        let day = day;
                        let _ = &day;
                        let held = __dlock_held;
                        book(from, to, held[0].fence()?).await
                    },
                )
                .judged_by(<Result<(), Error> as __dlock::LockReturn>::succeeded)
                .await;
            {
                use __dlock::{ReturnsValue as _, ReturnsWork as _};
                __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
            }
            <Result<(), Error> as __dlock::LockReturn>::from_ran(__dlock_ran)
        }
        ::core::result::Result::Err(__dlock_error) => {
            <Result<
                (),
                Error,
            > as __dlock::LockReturn>::from_ran(__dlock::Ran::Failed(__dlock_error))
        }
    }
}
