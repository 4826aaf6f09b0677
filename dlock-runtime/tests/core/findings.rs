//! `verify()` repeats a ttl that the store has refused, whichever request has asked for it, and warns of what `ready` has found.

use std::time::Duration;

use dlock_memory::Memory;
use dlock_runtime::__private::{self, Options, Otherwise, Registered, Site};
use dlock_runtime::{ErrorKind, Key};

use crate::acquire::neighbours;
use crate::outage_log::warnings;
use crate::support::{Faulty, LONG, Op, Step, World, calm, test, until};
use crate::user_code::layer::{Does, Layer};

const TTL: Duration = Duration::from_secs(20);

static SELL: Site = Site {
    name: "sell",
    templates: &["stock"],
    computed: false,
    is_async: true,
    file: "shop.rs",
    line: 1,
    backend: None,
    per_call: &[],
    options: Options { ttl: Some(TTL), ..Options::DEFAULT },
    on_busy: Otherwise::Error,
    on_outage: Otherwise::Error,
};

__private::inventory::submit! { Registered(&SELL) }

/// Whether the check at the start says that the store refuses the ttl.
fn is_found(world: &World) -> bool {
    match world.registry.verify() {
        Ok(()) => false,
        Err(found) => found.iter().all(|(_, error)| matches!(error.kind(), ErrorKind::TtlOutOfRange { .. })),
    }
}

#[test]
fn a_ttl_that_was_refused_or_granted_to_several_keys_or_by_a_release_is_known() {
    test(async {
        let (world, stranger) = neighbours();
        let both = || world.registry.lock_all(["a", "b"].map(Key::text)).ttl(TTL);
        let waiter = || tokio::spawn(world.lock("k").ttl(TTL).wait(LONG).acquire());
        let held = world.lock("k").ttl(TTL).acquire().await.unwrap();
        let next = waiter();
        calm().await;
        assert!(!is_found(&world));

        world.store.next(Op::Together, [Step::RefuseTtl]);
        both().acquire().await.unwrap_err();
        assert!(is_found(&world), "several keys were refused");
        held.release().await.unwrap();
        let held = next.await.unwrap().unwrap();
        assert_eq!((world.store.calls(Op::Acquire), world.store.calls(Op::Carry)), (1, 1));
        assert!(!is_found(&world), "a release has asked, and the ttl was granted");

        let next = waiter();
        calm().await;
        world.store.always(Op::Acquire, Step::Hang);
        world.store.next(Op::Release, [Step::RefuseTtl]);
        let _ = held.release().await;
        assert_eq!(world.store.calls(Op::Carry), 2);
        assert!(is_found(&world), "a release has asked, and the ttl was refused");
        both().acquire().await.unwrap().release().await.unwrap();
        assert!(!is_found(&world), "it was granted to several keys");
        next.abort();

        world.store.always(Op::Acquire, Step::Pass);
        let theirs = stranger.lock("w").acquire().await.unwrap();
        let waiter = tokio::spawn(world.lock("w").ttl(TTL).wait(LONG).acquire());
        calm().await;
        world.store.next(Op::Together, [Step::RefuseTtl]);
        both().acquire().await.unwrap_err();
        assert!(is_found(&world));
        theirs.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert!(!is_found(&world), "a waiter was granted it");
    });
}

#[test]
fn what_ready_has_found_is_a_warning_of_verify_until_it_is_mended() {
    test(async {
        let store = "a store with a finding";
        let world = World::new();
        let other = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, other.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        other.next(Op::Ready, [Step::Finding]);
        assert_eq!(world.registry.ready(store).await.unwrap().findings, ["scripted finding"]);
        world.registry.verify().unwrap();
        until("the warning", || !warnings(store).is_empty()).await;
        world.registry.ready(store).await.unwrap();
        world.registry.verify().unwrap();
        let text = "a promise of this store is smaller";
        assert_eq!(warnings(store), [format!("{text} finding=\"scripted finding\"")]);
        assert!(include_str!("../../../docs/operations.md").contains(text));
    });
}
