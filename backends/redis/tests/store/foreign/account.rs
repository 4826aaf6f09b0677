//! The account that the server keeps of the time of foreign clients and of ours.

use std::sync::Arc;

use dlock::backends::redis::Literal;
use dlock_contract::{Backend, Claim, Hold, Released};
use dlock_testkit::holds::{stand, wait};
use dlock_testkit::wait_until;
use redis::Script;

use super::bench::{Bench, LONG};

/// The server's note, in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Account {
    began: i64,
    ended: i64,
    owed: i64,
}

impl Account {
    fn theirs(self) -> i64 {
        self.ended - self.began
    }

    /// The time that is owed after our time that has ended then.
    fn owed_at(self, us: i64) -> i64 {
        (self.owed + (us - self.ended) - self.theirs()).clamp(-250_000, 250_000)
    }
}

fn name(bench: &Bench) -> String {
    crate::names::memory_of_foreign_clients(&bench.name)
}

fn account(bench: &Bench) -> Account {
    let text: String = redis::cmd("GET").arg(name(bench)).query(&mut bench.raw()).unwrap();
    let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    let [began, ended, _, _, _, owed] = numbers[..] else { panic!("{text}") };
    Account { began, ended, owed }
}

/// Writes that a turn of theirs of this length ended so long ago, and that one of them was seen just now.
fn write(bench: &Bench, theirs: i64, ended_ago: i64, owed: i64) -> Account {
    let script = "local t=redis.call('TIME') local us=t[1]*1000000+t[2] local ended=us-ARGV[2] \
        redis.call('SET',KEYS[1],string.format('%.0f %.0f %.0f 0 0 %.0f',ended-ARGV[1],ended,us,ARGV[3]),'PX','60000')";
    let () =
        Script::new(script).key(name(bench)).arg(theirs).arg(ended_ago).arg(owed).invoke(&mut bench.raw()).unwrap();
    account(bench)
}

fn set(bench: &Bench) {
    let () = redis::cmd("SET").arg(&bench.name).arg("theirs").arg("PX").arg(30_000).query(&mut bench.raw()).unwrap();
}

fn delete(bench: &Bench) {
    let () = redis::cmd("DEL").arg(&bench.name).query(&mut bench.raw()).unwrap();
}

/// A hold of ours after one of a foreign client, and a claim that waits.
async fn held_after_a_foreign_client(bench: &Bench) -> (Literal, Hold, Arc<Claim>) {
    let ours = bench.literal().await;
    let (first, next) = (bench.claim(LONG), bench.claim(LONG));
    set(bench);
    drop(stand(&ours, &first).await);
    delete(bench);
    let hold = wait(&ours, &first, LONG).await;
    drop(stand(&ours, &next).await);
    (ours, hold, next)
}

async fn release(store: &Literal, hold: &Hold) {
    assert_eq!(store.release(hold).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_foreign_clients_lasts_as_long_as_the_time_that_they_are_owed() {
    // The second one is owed more than one turn may have.
    for (theirs, owed) in [(200_000, 20_000), (0, 10_000_000)] {
        let bench = Bench::new();
        let (ours, hold, next) = held_after_a_foreign_client(&bench).await;
        let before = write(&bench, theirs, 300_000, owed);
        release(&ours, &hold).await;
        let after = account(&bench);
        assert_eq!(bench.value(), None, "the lock is free meanwhile");
        assert_eq!((after.theirs(), after.owed), (before.owed_at(after.began), before.owed_at(after.began)));
        assert!((5_000..=250_000).contains(&after.theirs()), "{after:?}");
        ours.abandon(&next).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_clients_that_had_more_than_their_share_get_no_turn_before_ours_has_its_own() {
    let bench = Bench::new();
    let (ours, hold, next) = held_after_a_foreign_client(&bench).await;
    let before = write(&bench, 60_000_000, 300_000, 0);
    release(&ours, &hold).await;
    let value: String = redis::cmd("GET").arg(&bench.name).query(&mut bench.raw()).unwrap();
    assert!(value.starts_with(&next.owner.to_hex()), "the next one in line has it: {value}");
    assert_eq!(account(&bench), before);
    ours.abandon(&next).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turn_of_foreign_clients_ends_when_one_of_ours_gets_the_lock() {
    let bench = Bench::new();
    let (ours, hold, next) = held_after_a_foreign_client(&bench).await;
    write(&bench, 0, 300_000, 0);
    release(&ours, &hold).await;
    let planned = account(&bench);
    let hold = wait(&ours, &next, LONG).await;
    let after = account(&bench);
    assert!(after.ended > planned.ended, "{planned:?} {after:?}");
    assert_eq!((after.began, after.owed), (planned.began, planned.owed));
    release(&ours, &hold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_before_a_foreign_client_came_by_itself_is_not_counted_as_its_own() {
    let bench = Bench::new();
    let ours = bench.literal().await;
    let before = write(&bench, 30_000, 5_000_000, 7);
    set(&bench);
    let claim = bench.claim(LONG);
    drop(stand(&ours, &claim).await);
    let found = account(&bench);
    assert_eq!((found.theirs(), found.owed), (before.theirs(), before.owed));
    assert!(found.ended >= before.ended + 5_000_000);
    // The hold goes on: that is its own time. A server that stands still between its readings of two clocks takes it for another.
    let mut found = found;
    let goes_on = async || {
        drop(stand(&ours, &claim).await);
        let later = account(&bench);
        let before = std::mem::replace(&mut found, later);
        later.began == before.began && later.ended > before.ended
    };
    wait_until("the hold is known again", goes_on).await.unwrap();
    delete(&bench);
    ours.abandon(&claim).await.unwrap();
}
