//! The check at the start repeats what stores have refused.

use std::sync::Arc;

use dlock_contract::{Backend, ErrorKind};
use dlock_memory::Memory;
use futures::executor::block_on;

use super::*;

const TTL: Duration = Duration::from_secs(20);

fn site(backend: Option<&'static str>) -> SiteInfo {
    SiteInfo(Box::leak(Box::new(Site {
        name: "sell",
        templates: &["stock"],
        computed: false,
        is_async: true,
        file: "shop.rs",
        line: 1,
        backend,
        per_call: &[],
        options: Options { ttl: Some(TTL), ..Options::default() },
        on_busy: Otherwise::Error,
        on_outage: Otherwise::Error,
    })))
}

fn schema() -> Error {
    Error::new(ErrorKind::SchemaMismatch, "no unique index")
}

#[test]
fn an_opening_that_failed_is_repeated_until_the_store_is_installed() {
    let (registry, named, unnamed) = (Registry::new(), site(Some("rows")), site(None));
    let kind = |site| registry.verify_site(site).map_err(|error| error.kind().clone());
    assert!(matches!(kind(named), Err(ErrorKind::BackendNotRegistered { .. })));
    block_on(registry.install_opened("rows", async { Err(schema()) })).unwrap_err();
    let error = registry.verify_site(named).unwrap_err();
    assert_eq!((error.kind(), error.backend()), (&ErrorKind::SchemaMismatch, Some("rows")));
    assert_eq!(kind(unnamed), Err(ErrorKind::SchemaMismatch));
    assert!(matches!(kind(site(Some("other"))), Err(ErrorKind::BackendNotRegistered { .. })));
    block_on(registry.install_opened("rows", async { Ok(Arc::new(Memory::new()) as Arc<dyn Backend>) })).unwrap();
    assert_eq!((kind(named), kind(unnamed)), (Ok(()), Ok(())));
}

#[test]
fn what_a_store_has_refused_is_repeated_with_its_name() {
    let registry = Registry::new();
    registry.install("rows", Memory::new()).unwrap();
    registry.verify_site(site(None)).unwrap();
    block_on(registry.context().opened(None, Duration::ZERO)).unwrap().findings.note_health(&Err(schema()));
    let error = registry.verify_site(site(None)).unwrap_err();
    assert_eq!((error.kind(), error.backend()), (&ErrorKind::SchemaMismatch, Some("rows")));
    block_on(registry.ready("rows")).unwrap();
    registry.verify_site(site(None)).unwrap();
}

#[test]
fn of_a_store_that_is_not_open_only_a_refusal_for_good_is_a_finding() {
    let (registry, site) = (Registry::new(), site(None));
    let answers = Arc::new(std::sync::Mutex::new(vec![None, Some(schema()), Some(Error::outage("down"))]));
    let open = move |_| {
        let answer = answers.lock().unwrap().pop().unwrap();
        std::future::ready(answer.map_or_else(|| Ok(Arc::new(Memory::new()) as Arc<dyn Backend>), Err))
    };
    registry.install_lazy("rows", open).unwrap();
    let shown = || registry.explain_site(site, &registry.defaults()).backend;
    for found in [None, Some(ErrorKind::SchemaMismatch)] {
        assert_eq!(shown(), "rows (not opened yet)");
        registry.verify_site(site).unwrap();
        block_on(registry.ready("rows")).unwrap_err();
        assert_eq!(registry.verify_site(site).map_err(|error| error.kind().clone()).err(), found);
    }
    block_on(registry.ready("rows")).unwrap();
    registry.verify_site(site).unwrap();
    assert_eq!(shown(), "rows (memory)");
}
