fn report<'life0, 'async_trait>(
    &'life0 self,
) -> ::core::pin::Pin<
    Box<
        dyn ::core::future::Future<
            Output = Result<(), Error>,
        > + ::core::marker::Send + 'async_trait,
    >,
>
where
    'life0: 'async_trait,
    Self: 'async_trait,
{
    Box::pin(async move {
        use ::dlock::__private as __dlock;
        static __DLOCK_SITE: __dlock::Site = __dlock::Site {
            name: ::core::concat!(::core::module_path!(), "::report"),
            templates: &["nightly"],
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
        let __dlock_call = __dlock::Call::new({
            let mut __dlock_k = __dlock::KeyBuilder::new();
            __dlock::KeyBuilder::text(&mut __dlock_k, "nightly");
            __dlock::KeyBuilder::finish(__dlock_k)
        });
        let __dlock_ran = __dlock::run(
                &__DLOCK_SITE,
                __dlock_call,
                async move {
                    if false {
                        return __dlock::unreached::<Result<(), Error>>();
                    }
                    write().await
                },
            )
            .judged_by(<Result<(), Error> as __dlock::LockReturn>::succeeded)
            .await;
        {
            use __dlock::{ReturnsValue as _, ReturnsWork as _};
            __dlock::has_run((&__dlock::Returned::of(&__dlock_ran)).__dlock_kind());
        }
        <Result<(), Error> as __dlock::LockReturn>::from_ran(__dlock_ran)
    })
}
