//! What the attribute turns into, to be read next to `expand.rs`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::lock;

fn assert_same(found: &TokenStream, expected: &TokenStream) {
    // Without blanks: whether `>>` is one token is of no interest.
    let text = |tokens: &TokenStream| tokens.to_string().replace(' ', "");
    assert_eq!(text(found), text(expected));
}

#[test]
fn an_async_function() {
    let found = lock(
        quote!(key = "stock:<id>", ttl = "30s", backend = "redis", wait = "5s", renew = true),
        quote! {
            /// Takes `n` off the stock.
            pub async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
                stock::take(id, n).await?;
                Ok(())
            }
        },
    );
    let expected = quote! {
        /// Takes `n` off the stock.
        pub async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
            static __DLOCK_SITE: ::dlock::__private::Site = ::dlock::__private::Site {
                name: ::core::concat!(::core::module_path!(), "::deduct"),
                templates: &["stock:<id>"],
                computed: false,
                file: ::core::file!(),
                line: ::core::line!(),
                backend: ::core::option::Option::Some("redis"),
                per_call: &[],
                options: ::dlock::__private::Options {
                    ttl: ::core::option::Option::Some(::core::time::Duration::new(30u64, 0u32)), wait: ::core::option::Option::Some(::dlock::__private::Wait::UpTo(::core::time::Duration::new(5u64, 0u32))), renew: ::core::option::Option::Some(::dlock::__private::Renew::Auto),
                    ..::dlock::__private::Options::DEFAULT
                },
                on_busy: ::dlock::__private::Otherwise::Error,
                on_outage: ::dlock::__private::Otherwise::Error,
            };
            ::dlock::__private::inventory::submit! { ::dlock::__private::Registered(&__DLOCK_SITE) }
            let __dlock_key = {
                let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
                __dlock_k.text("stock:");
                __dlock_k.value(&id);
                __dlock_k.finish()
            };
            let __dlock_ran = ::dlock::__private::run(&__DLOCK_SITE, ::dlock::__private::Call::new(__dlock_key), async move {
                #[allow(unreachable_code, clippy::all, clippy::pedantic)]
                if false {
                    let __dlock_return: Result<(), OrderError> = loop {};
                    return __dlock_return;
                }
                stock::take(id, n).await?;
                Ok(())
            }).await;
            <Result<(), OrderError> as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
        }
    };
    assert_same(&found, &expected);
}

#[test]
fn a_function_that_async_trait_has_boxed() {
    let found = lock(
        quote!(key = "nightly"),
        quote! {
            fn report<'life0, 'async_trait>(
                &'life0 self,
            ) -> ::core::pin::Pin<
                Box<dyn ::core::future::Future<Output = Result<(), Error>> + ::core::marker::Send + 'async_trait>,
            >
            where
                'life0: 'async_trait,
                Self: 'async_trait,
            {
                Box::pin(async move { write().await })
            }
        },
    );
    let expected = quote! {
        fn report<'life0, 'async_trait>(
            &'life0 self,
        ) -> ::core::pin::Pin<
            Box<dyn ::core::future::Future<Output = Result<(), Error>> + ::core::marker::Send + 'async_trait>,
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
                options: ::dlock::__private::Options {
                    ttl: ::core::option::Option::None, wait: ::core::option::Option::None, renew: ::core::option::Option::None,
                    ..::dlock::__private::Options::DEFAULT
                },
                on_busy: ::dlock::__private::Otherwise::Error,
                on_outage: ::dlock::__private::Otherwise::Error,
            };
            ::dlock::__private::inventory::submit! { ::dlock::__private::Registered(&__DLOCK_SITE) }
                let __dlock_key = {
                    let mut __dlock_k = ::dlock::__private::KeyBuilder::new();
                    __dlock_k.text("nightly");
                    __dlock_k.finish()
                };
                let __dlock_ran = ::dlock::__private::run(&__DLOCK_SITE, ::dlock::__private::Call::new(__dlock_key), async move {
                    #[allow(unreachable_code, clippy::all, clippy::pedantic)]
                    if false {
                        let __dlock_return: Result<(), Error> = loop {};
                        return __dlock_return;
                    }
                    write().await
                }).await;
                <Result<(), Error> as ::dlock::__private::LockReturn>::from_ran(__dlock_ran)
            })
        }
    };
    assert_same(&found, &expected);
}

#[test]
fn a_function_with_mistakes_stays_as_it_was() {
    let item = quote! {
        pub async fn deduct(id: u64) -> Result<(), Error> {
            Ok(())
        }
    };
    let found = lock(quote!(key = "<idd>", tll = "30s"), item.clone());
    let expected = quote! {
        ::core::compile_error! { "unknown option `tll`; did you mean `ttl`?" }
        ::core::compile_error! { "no parameter named `idd`; did you mean `id`? `deduct` has `id`" }
        #item
    };
    assert_same(&found, &expected);
}

/// A body that syn could not parse is no concern of the attribute.
#[test]
fn the_body_is_not_parsed() {
    let found =
        lock(quote!(key = "a"), quote! { async fn tomorrow() -> Result<(), Error> { some syntax => of the future @ } });
    assert!(found.to_string().contains("some syntax => of the future @"), "{found}");
}
