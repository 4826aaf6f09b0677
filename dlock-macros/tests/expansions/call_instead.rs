async fn rebuild(&self, page: u32) -> Result<Page, Error> {
    use ::dlock::__private as __dlock;
    static __DLOCK_SITE: __dlock::Site = __dlock::Site {
        name: ::core::concat!(::core::module_path!(), "::rebuild"),
        templates: &["cache:<page>"],
        computed: false,
        is_async: true,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: __dlock::Options {
            wait: ::core::option::Option::Some(__dlock::Wait::None),
            ..__dlock::Options::DEFAULT
        },
        on_busy: __dlock::Otherwise::Call,
        on_outage: __dlock::Otherwise::Error,
    };
    __dlock::inventory::submit! {
        __dlock::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = __dlock::Call::new({
        let mut __dlock_k = __dlock::KeyBuilder::new();
        __dlock::KeyBuilder::text(&mut __dlock_k, "cache:");
        __dlock::KeyBuilder::value(&mut __dlock_k, &page);
        __dlock::KeyBuilder::finish(__dlock_k)
    });
    match __dlock::begin(&__DLOCK_SITE, __dlock_call).await {
        ::core::result::Result::Ok(__dlock_guards) => {
            let __dlock_ran = __dlock::hold(
                    &__DLOCK_SITE,
                    __dlock_guards,
                    async move {
                        if false {
                            return __dlock::unreached::<Result<Page, Error>>();
                        }
                        let mut page = page;
                        let _ = &page;
                        page += 1;
                        render(page).await
                    },
                )
                .judged_by(<Result<Page, Error> as __dlock::LockReturn>::succeeded)
                .await;
            {
                use __dlock::{ReturnsValue as _, ReturnsWork as _};
                __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
            }
            <Result<Page, Error> as __dlock::LockReturn>::from_ran(__dlock_ran)
        }
        ::core::result::Result::Err(__dlock_error) if __dlock_error.is_contention() => {
            __dlock::SameOutput::<
                Result<Page, Error>,
            >::output({
                use __dlock::{FallbackIsFuture as _, FallbackIsValue as _};
                let __dlock_fallback = __dlock::FallbackCall::new(
                    Self::stale(self, page),
                );
                (&__dlock_fallback).__dlock_kind().output(__dlock_fallback).await
            })
        }
        ::core::result::Result::Err(__dlock_error) => {
            <Result<
                Page,
                Error,
            > as __dlock::LockReturn>::from_ran(__dlock::Ran::Failed(__dlock_error))
        }
    }
}
