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
        static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
            name: ::core::concat!(::core::module_path!(), "::report"),
            templates: &["nightly"],
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
        let __dlock_call = ::dlock::__private::Call::new({
            let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
            __dlock_k.text("nightly");
            __dlock_k.finish()
        });
        let __dlock_ran = ::dlock::__private::run(
                &__DLOCK_SITE,
                __dlock_call,
                async move {
                    if false {
                        return ::dlock::__private::unreached::<Result<(), Error>>();
                    }
                    write().await
                },
            )
            .await;
        <Result<(), Error> as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
    })
}
