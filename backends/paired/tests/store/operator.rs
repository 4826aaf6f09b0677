//! The work of an operator: readiness, holders, and the end of a hold from outside.

use dlock_contract::{Backend, BreakRecord, ErrorKind, HoldId, Standing};
use dlock_paired::GateDown;
use dlock_testkit::Mode;
use dlock_testkit::holds::{claim, confirm, stand, take};

use crate::kit::{Holder, Kit, TTL, abandon, bounded};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_is_ready_if_both_are_and_says_which_one_is_not() {
    let kit = Kit::new().await;
    let [strict, loose] = [kit.pair(GateDown::Fail).await, kit.pair(GateDown::Authority).await];
    let health = strict.ready().await.unwrap();
    let version = health.version.unwrap_or_default();
    assert!(version.contains("gate: ") && version.contains(", authority: "), "{version}");
    for how in [Mode::Refuse, Mode::BLACKHOLE] {
        kit.gate.cut(how);
        assert!(bounded(strict.ready()).await.is_err());
        let findings = bounded(loose.ready()).await.unwrap().findings;
        assert!(findings.iter().any(|text| text.ends_with("locks are taken without the gate")), "{findings:?}");
        kit.gate.mend();
    }
    kit.authority.cut(Mode::Refuse);
    for pair in [&strict, &loose] {
        let error = bounded(pair.ready()).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Outage);
        assert!(error.message().starts_with("the authority: "), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holders_are_the_authoritys_also_while_the_gate_is_silent() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Fail).await;
    let (first, second) = (claim("looked at", TTL), claim("looked at", TTL));
    let hold = take(&pair, &first).await;
    drop(stand(&pair, &second).await);
    kit.gate.cut(Mode::BLACKHOLE);
    let state = bounded(pair.look(&first.key)).await.unwrap();
    assert_eq!(state.holders[0].id, Some(HoldId::of(&first.owner)));
    assert_eq!(state.waiters, None);
    let names = pair.identify(&first.key).unwrap().names();
    assert_eq!(names.len(), 2, "the lock has a name in each store: {names:?}");
    kit.gate.mend();
    abandon(&pair, &second).await;
    while bounded(pair.release(&hold)).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_hold_is_ended_in_both_stores() {
    let kit = Kit::new().await;
    let pair = kit.pair(GateDown::Fail).await;
    let held = claim("broken", TTL);
    let hold = take(&pair, &held).await;
    let record = BreakRecord::new("alice", 1, "it hangs");
    let inspect = pair.inspect().unwrap();
    assert!(inspect.break_hold(&held.key, HoldId::of(&held.owner), &record).await.unwrap());
    kit.gate.until(&held, Holder::Nobody).await;
    kit.authority.until(&held, Holder::Nobody).await;
    assert_eq!(confirm(&pair, &hold).await, Standing::Lost);
    assert_eq!(inspect.record_of(&hold).await.unwrap(), Some(record));
}
