//! Expansions of the attributes, as pages to read: `tests/expansions/*.rs`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{expand_lock, expand_optimistic, table};

/// Compares with the page, or writes it when `DLOCK_BLESS` is set.
fn assert_page(name: &str, found: TokenStream) {
    let file = syn::parse2(found).expect("an expansion that parses");
    let found = prettyplease::unparse(&file);
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expansions").join(name).with_extension("rs");
    if std::env::var_os("DLOCK_BLESS").is_some() {
        std::fs::write(&path, &found).expect("write the page");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, page, "{} is stale: run this test with DLOCK_BLESS=1 and review it", path.display());
}

#[test]
fn an_async_function_expands_to_its_page() {
    let attribute = quote!(key = "stock:<id>", ttl = "30s", backend = "redis", wait = "5s", renew = true);
    let item = quote! {
        /// Takes `n` off the stock.
        pub async fn deduct(id: u64, n: u32) -> Result<(), OrderError> {
            stock::take(id, n).await?;
            Ok(())
        }
    };
    assert_page("async_fn", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn a_blocking_method_expands_to_its_page() {
    let attribute = quote!(key = "shop:<self.id>:<order.item.0>", crate = crate::other, retry = "5, 100ms..2s");
    let item = quote! {
        fn restock(&mut self, order: Order) -> Result<&mut u32, Error> {
            self.sold += order.count()?;
            Ok(&mut self.sold)
        }
    };
    assert_page("sync_fn", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn a_function_that_async_trait_has_boxed_expands_to_its_page() {
    let item = quote! {
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
    };
    assert_page("async_trait", expand_lock(&table::LOCK, quote!(key = "nightly"), item));
}

#[test]
fn the_options_of_a_call_expand_to_their_page() {
    let attribute = quote!(
        key = order_key(&order),
        ttl = self.config.ttl,
        wait = limit * 2,
        backend = &self.store,
        mode = permits(3),
        guard = held,
        fence = token
    );
    let item = quote! {
        async fn ship(&self, order: Order, limit: Duration) -> Result<impl Display, Error> {
            send(order, held.slot(), token).await
        }
    };
    assert_page("per_call", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn several_keys_expand_to_their_page() {
    let attribute = quote!(keys = ["account:<from>", "account:<to>", "audit:<day>:<ids..>:x"], guard = held);
    let item = quote! {
        async fn transfer(from: u64, to: u64, day: u32, ids: &[u64]) -> Result<(), Error> {
            book(from, to, held[0].fence()?).await
        }
    };
    assert_page("several_keys", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn a_function_that_is_skipped_expands_to_its_page() {
    let attribute =
        quote!(key = "report", once_per = "1m", offset = "10s", rerun = on_crash, on_busy = skip, on_outage = skip);
    let item = quote! {
        async fn report() {
            write().await;
        }
    };
    assert_page("skip", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn a_call_of_another_function_expands_to_its_page() {
    let attribute = quote!(key = "cache:<page>", wait = "none", on_busy = call(Self::stale));
    let item = quote! {
        async fn rebuild(&self, mut page: u32) -> Result<Page, Error> {
            page += 1;
            render(page).await
        }
    };
    assert_page("call_instead", expand_lock(&table::LOCK, attribute, item));
}

#[test]
fn a_scheduled_task_expands_to_its_page() {
    let attribute = quote!(name = "nightly-report", at_most = "30m", at_least = "5m");
    let item = quote! {
        fn report() -> Option<Report> {
            Some(write())
        }
    };
    assert_page("scheduled", expand_lock(&table::SCHEDULED, attribute, item));
}

#[test]
fn optimistic_functions_expand_to_their_page() {
    let item = quote! {
        async fn deduct(&self, n: u32) -> Result<u32, StockError> {
            let row = self.read().await?;
            self.write(row.version, row.stock - n).await
        }
    };
    assert_page("optimistic", expand_optimistic(quote!(retries = 5, backoff = "10ms..1s"), item));
    let item = quote! {
        fn deduct(&self, n: u32) -> Result<u32, StockError> {
            self.write(self.read()?, n)
        }
    };
    assert_page("optimistic_sync", expand_optimistic(quote!(), item));
}

#[test]
fn a_function_with_mistakes_stays_as_it_was() {
    let item = quote! {
        pub async fn deduct(id: u64) -> Result<(), Error> {
            write(held.fence()?)
        }
    };
    assert_page("mistakes", expand_lock(&table::LOCK, quote!(key = "<idd>", tll = "30s", guard = held), item));
}

/// A body that syn could not parse is no concern of the attribute.
#[test]
fn the_body_is_not_parsed() {
    let item = quote! { async fn tomorrow() -> Result<(), Error> { some syntax => of the future @ } };
    let found = expand_lock(&table::LOCK, quote!(key = "a"), item);
    assert!(found.to_string().contains("some syntax => of the future @"), "{found}");
}
