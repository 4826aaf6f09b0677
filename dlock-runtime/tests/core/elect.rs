//! Leadership: campaigning, the term, resigning.

use std::collections::BTreeSet;
use std::time::Duration;

use dlock_contract::Fencing;
use dlock_runtime::{Clock, Election, ErrorKind, HoldId, Key, LockKey, LossCause};

use crate::acquire::neighbours;
use crate::support::{LONG, Op, SECOND, World, calm, freed, test};

/// Its renewals come every 200 s, so that a long time passes in few steps.
const TTL: Duration = Duration::from_secs(600);

#[test]
fn a_leadership_lasts_longer_than_the_default_max_hold() {
    test(async {
        let world = World::new();
        let leadership = world.registry.elect("billing").ttl(TTL).campaign().await.unwrap();
        let plain = world.lock("plain").ttl(TTL).acquire().await.unwrap();
        world.pass(2 * Duration::from_secs(3600)).await;
        assert_eq!(plain.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::MaxHold));
        leadership.check().unwrap();
        assert!(leadership.remaining() > TTL / 3);
        leadership.resign().await.unwrap();
    });
}

/// Metrics and the log have the name of the election, and observers see the candidate.
#[test]
fn an_election_is_known_by_its_name_and_a_leader_by_its_candidate() {
    test(async {
        let world = World::new();
        let leads = async |election: Election, noted: &str| {
            let leadership = election.campaign().await.unwrap();
            let note = world.registry.held()[0].note.clone();
            assert!(note.site().unwrap().starts_with(noted), "{note}");
            leadership.resign().await.unwrap();
        };
        leads(world.registry.elect("billing").candidate("web-3"), "web-3").await;
        leads(world.registry.elect("billing"), "dlock-runtime/tests/core/elect.rs:").await;
        leads(world.registry.elect(Key::text("shard:").value(&7)), "dlock-runtime/tests/core/elect.rs:").await;
        let labels: BTreeSet<_> = world.events.all().into_iter().map(|(label, _)| label).collect();
        let names = ["billing [billing] on m", "shard:<> [shard:<>] on m"];
        assert_eq!(labels, names.map(str::to_owned).into());
    });
}

#[test]
fn a_leadership_with_a_longest_time_ends_after_it() {
    test(async {
        let world = World::new();
        let election = world.registry.elect("billing").ttl(TTL).max_hold(2 * TTL);
        let leadership = election.campaign().await.unwrap();
        world.pass(2 * TTL + SECOND).await;
        assert_eq!(leadership.lost().await.kind(), &ErrorKind::Lost(LossCause::MaxHold));
    });
}

#[test]
fn a_candidate_waits_until_the_leader_resigns_and_has_a_higher_term() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").campaign().await.unwrap();
        assert_eq!(leader.term(), &leader.fence().unwrap());
        let campaign = other.registry.elect("billing");
        assert_eq!(campaign.try_campaign().await.unwrap_err().kind(), &ErrorKind::Busy);
        let next = tokio::spawn(campaign.campaign());
        calm().await;
        assert!(!next.is_finished());
        let first = leader.term().get();
        // No time passes: the next candidate comes in at once.
        leader.resign().await.unwrap();
        let next = next.await.unwrap().unwrap();
        assert!(next.term().get() > first);
        next.resign().await.unwrap();
    });
}

#[test]
fn a_campaign_has_no_end_of_its_wait() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").ttl(TTL).campaign().await.unwrap();
        let election = other.registry.elect("billing").ttl(TTL);
        let next = tokio::spawn(election.campaign());
        world.pass(2 * Duration::from_secs(3600)).await;
        assert!(!next.is_finished());
        leader.resign().await.unwrap();
        next.await.unwrap().unwrap().resign().await.unwrap();
    });
}

#[test]
fn a_campaign_with_a_longest_wait_ends_after_it_and_leaves_nothing() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").ttl(TTL).campaign().await.unwrap();
        let election = other.registry.elect("billing").ttl(TTL).wait(10 * SECOND);
        let campaign = tokio::spawn(election.campaign());
        world.pass(9 * SECOND).await;
        assert!(!campaign.is_finished());
        world.pass(2 * SECOND).await;
        assert_eq!(campaign.await.unwrap().unwrap_err().kind(), &ErrorKind::WaitTimeout);
        assert_eq!(election.candidates().await.unwrap().waiting, Some(0));
        // The loop has no such end: it keeps its place in the queue.
        let left = other.store.calls(Op::Abandon);
        let leads = tokio::spawn(election.lead(async |leader| leader.term().get()));
        world.pass(60 * SECOND).await;
        assert!(!leads.is_finished());
        assert_eq!(other.store.calls(Op::Abandon), left);
        leader.resign().await.unwrap();
        leads.await.unwrap().unwrap();
    });
}

#[test]
fn candidates_are_counted_and_named_in_their_order() {
    test(async {
        let (world, other) = neighbours();
        let election = world.registry.elect("billing").candidate("one");
        let nobody = election.candidates().await.unwrap();
        assert_eq!((nobody.leader, nobody.waiting, nobody.waiters), (None, Some(0), Some(Vec::new())));
        let leader = election.campaign().await.unwrap();
        let next = tokio::spawn(other.registry.elect("billing").candidate("two").campaign());
        calm().await;
        let seen = election.candidates().await.unwrap();
        assert_eq!(seen.leader.unwrap().id, Some(leader.id()));
        let names: Vec<_> = seen.waiters.iter().flatten().filter_map(|note| note.site()).collect();
        assert_eq!((seen.waiting, names), (Some(1), vec!["two"]));
        leader.resign().await.unwrap();
        let next = next.await.unwrap().unwrap();
        let seen = election.candidates().await.unwrap();
        assert_eq!((seen.leader.unwrap().id, seen.waiting), (Some(next.id()), Some(0)));
    });
}

#[test]
fn a_leadership_that_is_dropped_ends() {
    test(async {
        let (world, other) = neighbours();
        drop(world.registry.elect("billing").campaign().await.unwrap());
        other.registry.elect("billing").campaign().await.unwrap().resign().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_campaign_that_is_dropped_leaves_nothing() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").campaign().await.unwrap();
        let election = other.registry.elect("billing");
        let campaign = tokio::spawn(election.campaign());
        calm().await;
        campaign.abort();
        assert!(campaign.await.unwrap_err().is_cancelled());
        leader.resign().await.unwrap();
        world.empty().await;
    });
}

#[test]
fn a_lost_leadership_says_so_and_cannot_resign() {
    test(async {
        let world = World::new();
        let leadership = world.registry.elect("billing").campaign().await.unwrap();
        assert!(world.lock("billing").break_hold(leadership.id()).because("a test").await.unwrap());
        world.pass(11 * SECOND).await;
        assert_eq!(leadership.check().unwrap_err().kind(), &ErrorKind::Lost(LossCause::Broken));
        assert_eq!(leadership.resign().await.unwrap_err().kind(), &ErrorKind::Lost(LossCause::Broken));
    });
}

#[test]
fn an_election_is_the_lock_of_its_key() {
    test(async {
        let (world, other) = neighbours();
        let leadership = world.registry.elect("billing").campaign().await.unwrap();
        assert_eq!(other.lock("billing").try_acquire().await.unwrap_err().kind(), &ErrorKind::Busy);
        assert_eq!(world.registry.held()[0].id, leadership.id());
        leadership.resign().await.unwrap();
        freed(&other, "billing").await;
    });
}

#[test]
fn elections_of_two_namespaces_do_not_meet() {
    test(async {
        let (world, other) = neighbours();
        let here = world.registry.elect("billing").campaign().await.unwrap();
        let elsewhere = other.registry.elect("billing").namespace("test");
        let there = elsewhere.try_campaign().await.unwrap();
        assert_eq!(there.key(), &LockKey::new("test", Key::text("billing")).unwrap());
        assert_eq!(elsewhere.leader().await.unwrap().unwrap().id, Some(there.id()));
        assert_eq!(other.registry.elect("billing").leader().await.unwrap().unwrap().id, Some(here.id()));
        let wrong = other.registry.elect("billing").namespace("a:b").campaign().await.unwrap_err();
        assert_eq!(wrong.kind(), &ErrorKind::ConfigInvalid { field: "namespace".into() });
    });
}

#[test]
fn the_note_has_the_name_of_the_candidate_or_the_place_in_the_source() {
    test(async {
        let world = World::new();
        let named = world.registry.elect("a").candidate("web-3");
        let _leads = named.campaign().await.unwrap();
        assert_eq!(named.leader().await.unwrap().unwrap().candidate(), Some("web-3"));
        let unnamed = world.registry.elect("b");
        let _leads = unnamed.campaign().await.unwrap();
        let place = unnamed.leader().await.unwrap().unwrap().candidate().unwrap().to_owned();
        assert!(place.contains("elect.rs:"), "{place}");
    });
}

#[test]
fn a_candidate_that_the_note_cannot_carry_is_refused() {
    test(async {
        let world = World::new();
        for name in ["", "web 3", "wéb", &"x".repeat(81)] {
            let election = world.registry.elect("billing").candidate(name);
            let error = election.campaign().await.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::ConfigInvalid { field: "candidate".into() }, "{name}");
            assert!(election.campaign_blocking().is_err() && election.try_campaign().await.is_err());
        }
        assert!(world.memory.is_empty());
        let longest = "x".repeat(80);
        let election = world.registry.elect("billing").candidate(&longest);
        let _leads = election.campaign().await.unwrap();
        assert_eq!(election.leader().await.unwrap().unwrap().candidate(), Some(&*longest));
    });
}

#[test]
fn a_store_without_tokens_has_no_terms_and_is_refused() {
    test(async {
        let world = World::with(&Clock::manual(), |store| store.fencing = Fencing::None);
        let error = world.registry.elect("billing").campaign().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { need } if need.contains("fencing")), "{error}");
        // A plain lock asks for no token.
        world.lock("billing").acquire().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_campaign_ends_with_a_shutdown() {
    test(async {
        let (world, other) = neighbours();
        let leader = world.registry.elect("billing").campaign().await.unwrap();
        let election = other.registry.elect("billing");
        let campaign = tokio::spawn(election.campaign());
        calm().await;
        other.pass_until(SECOND, other.registry.shutdown(SECOND)).await;
        assert_eq!(campaign.await.unwrap().unwrap_err().kind(), &ErrorKind::ShutDown);
        leader.resign().await.unwrap();
    });
}

#[test]
fn a_thread_that_is_not_async_campaigns_and_resigns() {
    let (world, other) = neighbours();
    let leader = world.registry.elect("billing").campaign_blocking().unwrap();
    let first = leader.term().get();
    let election = other.registry.elect("billing");
    let next = std::thread::spawn(move || {
        let next = election.campaign_blocking().unwrap();
        let term = next.term().get();
        next.resign_blocking().unwrap();
        term
    });
    leader.resign_blocking().unwrap();
    assert!(next.join().unwrap() > first);
}

#[test]
fn two_leaderships_have_two_ids() {
    test(async {
        let world = World::new();
        let mut ids: Vec<HoldId> = Vec::new();
        for _ in 0..3 {
            let leadership = world.registry.elect("billing").campaign().await.unwrap();
            assert!(!ids.contains(&leadership.id()));
            ids.push(leadership.id());
            leadership.resign().await.unwrap();
        }
        let plain = world.lock("billing").wait(LONG).acquire().await.unwrap();
        plain.release().await.unwrap();
    });
}
