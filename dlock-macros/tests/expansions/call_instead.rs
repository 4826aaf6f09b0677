async fn rebuild(&self, mut page: u32) -> Result<Page, Error> {
    static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
        name: ::core::concat!(::core::module_path!(), "::rebuild"),
        templates: &["cache:<page>"],
        computed: false,
        file: ::core::file!(),
        line: ::core::line!(),
        backend: ::core::option::Option::None,
        per_call: &[],
        options: ::dlock::__private::Options {
            wait: ::core::option::Option::Some(::dlock::__private::Wait::None),
            ..::dlock::__private::Options::DEFAULT
        },
        on_busy: ::dlock::__private::Otherwise::Call,
        on_outage: ::dlock::__private::Otherwise::Error,
    };
    ::dlock::__private::inventory::submit! {
        ::dlock::__private::Registered(& __DLOCK_SITE)
    }
    let __dlock_call = ::dlock::__private::Call::new({
        let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
        __dlock_k.text("cache:");
        __dlock_k.value(&page);
        __dlock_k.finish()
    });
    match ::dlock::__private::begin(&__DLOCK_SITE, __dlock_call).await {
        ::core::result::Result::Ok(__dlock_guards) => {
            let __dlock_ran = ::dlock::__private::hold(
                    &__DLOCK_SITE,
                    __dlock_guards,
                    async move {
                        if false {
                            return ::dlock::__private::unreached::<
                                Result<Page, Error>,
                            >();
                        }
                        page += 1;
                        render(page).await
                    },
                )
                .await;
            <Result<
                Page,
                Error,
            > as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
        }
        ::core::result::Result::Err(__dlock_error) if __dlock_error.is_contention() => {
            ::dlock::__private::Instead::<
                Result<Page, Error>,
            >::output({
                use ::dlock::__private::{MadeFuture as _, MadeValue as _};
                let __dlock_made = ::dlock::__private::Made::new(
                    Self::stale(self, page),
                );
                (&__dlock_made).how().output(__dlock_made).await
            })
        }
        ::core::result::Result::Err(__dlock_error) => {
            <Result<
                Page,
                Error,
            > as ::dlock::__private::LockReturn>::from_ran(
                ::dlock::__private::Ran::Failed(__dlock_error),
            )
        }
    }
}
