//! The log of an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dlock_contract::{Backend, Error};
use dlock_memory::Memory;
use dlock_runtime::__private::{Ran, Skip, SkipReturn};
use dlock_runtime::{Clock, Key, Registry, Retry, Wait};
use tracing::Level;

use crate::support::{Faulty, MS, Op, SECOND, Step, World, calm, test, until};
use crate::user_code::layer::{Does, Layer, Line};

pub(crate) fn warnings(store: &str) -> Vec<String> {
    Layer::lines(store).into_iter().filter(|(.., level)| *level <= Level::WARN).map(|(line, ..)| line).collect()
}

#[test]
fn half_a_minute_with_three_hundred_calls_a_second_is_three_lines_and_a_few_losses() {
    test(async {
        let store = "a store whose outage is told";
        let world = World::new();
        let failing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        let mut held = Vec::new();
        for key in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            held.push(world.lock(key).backend(store).ttl(10 * SECOND).acquire().await.unwrap());
        }
        for op in [Op::Acquire, Op::Renew, Op::Release] {
            failing.always(op, Step::Fail);
        }
        for _ in 0..310 {
            for _ in 0..30 {
                world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
            }
            world.clock.advance(100 * MS);
            calm().await;
        }
        // The log has a thread of its own, and reads the clock when it gets an event.
        world.events.expect("Lost", 8).await;
        for op in [Op::Acquire, Op::Renew, Op::Release] {
            failing.always(op, Step::Pass);
        }
        drop(held);
        world.pass(10 * SECOND).await;
        world.lock("k").backend(store).acquire().await.unwrap().release().await.unwrap();
        let has_ended = until("the end", || warnings(store).iter().any(|line| line.contains("no longer")));
        world.pass_until(SECOND, has_ended).await;
        let told = warnings(store);
        let (losses, outage): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|line| line.starts_with("the lock was lost"));
        assert!((1..=4).contains(&losses.len()), "{losses:?}");
        let begins = ["the store fails; further", "the store still fails", "the store no longer fails"];
        assert!(outage.iter().map(String::as_str).zip(begins).all(|(line, text)| line.starts_with(text)), "{outage:?}");
        assert_eq!(outage.len(), 3, "{outage:?}");
        // The page shows them as they are.
        let page = include_str!("../../../docs/operations.md");
        for line in &outage {
            let text = line.split(" backend").next().unwrap();
            assert!(page.contains(&format!("dlock: {text} backend=")), "{line}");
        }
    });
}

#[test]
fn calls_that_are_refused_or_run_out_of_time_are_no_warnings() {
    test(async {
        let store = "a store whose lock is held";
        let world = World::new();
        world.registry.install(store, Memory::with_clock(&world.clock)).unwrap();
        Layer::meets(store, Does::Nothing);
        let held = world.lock("k").backend(store).acquire().await.unwrap();
        world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
        world.pass_until(SECOND, world.lock("k").backend(store).wait(Wait::UpTo(SECOND)).acquire()).await.unwrap_err();
        held.release().await.unwrap();
        world.registry.shutdown(SECOND).await;
        world.lock("k").backend(store).acquire().await.unwrap_err();
        assert!(Layer::lines(store).len() >= 4, "the level debug has them");
        assert_eq!(warnings(store), Vec::<String>::new());
    });
}

#[test]
fn five_hundred_locks_that_are_lost_in_one_moment_are_two_lines() {
    test(async {
        let store = "a store that loses many locks";
        let world = World::new();
        world.registry.install(store, Memory::with_clock(&world.clock)).unwrap();
        Layer::meets(store, Does::Nothing);
        let mut held = Vec::new();
        for number in 0..500 {
            let key = Key::text("k").value(&number);
            held.push(world.registry.lock(key).backend(store).ttl(10 * SECOND).acquire().await.unwrap());
        }
        // The process stood still.
        world.clock.advance(60 * SECOND);
        until("the losses", || held.iter().all(|guard| guard.check().is_err())).await;
        let lost = || Layer::lines(store).iter().filter(|(line, ..)| line.starts_with("the lock was lost")).count();
        until("a line of each at the level debug", || lost() == 500).await;
        world.pass_until(SECOND, until("the line that counts the others", || warnings(store).len() == 2)).await;
        let told = warnings(store);
        assert!(told.iter().all(|line| line.starts_with("the lock was lost")), "{told:?}");
        assert!(!told[0].contains("left_out") && told[1].contains("left_out=498"), "{told:?}");
    });
}

#[test]
fn calls_that_are_wrong_have_one_line_a_second_whatever_is_wrong_with_them() {
    test(async {
        let store = "a store that refuses for good";
        let world = World::new();
        let refusing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, refusing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        let kinds = [
            (Step::RefuseTtl, "ttl_out_of_range"),
            (Step::Mixed, "key_conflict"),
            (Step::Regressed, "fence_regression"),
        ];
        for _ in 0..50 {
            for (step, _) in &kinds {
                refusing.always(Op::Acquire, *step);
                for _ in 0..10 {
                    world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
                }
            }
            world.clock.advance(100 * MS);
            calm().await;
        }
        // The thread of the lines may be late, and the clock stands still meanwhile.
        let is_told = |(_, kind): &(_, &str)| warnings(store).iter().any(|line| line.contains(kind));
        until("a line of each kind", || kinds.iter().all(is_told)).await;
        let told = warnings(store);
        assert!((3..=6).contains(&told.len()), "five seconds: {told:?}");
    });
}

/// As the call of a function that returns nothing. Such a call uses the global registry, and so the machine's clock.
#[test]
fn an_error_that_a_function_cannot_return_waits_for_its_turn_among_the_lines_of_the_store() {
    test(async {
        let store = "a store whose functions return nothing";
        let failing = Faulty::around(&Memory::new(), &Clock::system(), |_| {});
        failing.always(Op::Acquire, Step::Fail);
        Registry::global().install(store, failing).unwrap();
        Layer::meets(store, Does::Nothing);
        let began = Instant::now();
        let call = Registry::global().lock("k").backend(store).wait(Wait::None);
        let error = call.acquire().await.unwrap_err();
        <() as SkipReturn>::from_ran(Ran::Failed(error), Skip { busy: true, outage: false });
        let untold = |level| {
            let is_untold = |(line, _, of): &&Line| *of == level && line.contains("did not run to its end");
            Layer::lines(store).iter().filter(is_untold).count()
        };
        let at_once = untold(Level::ERROR);
        assert!(at_once == 0 || began.elapsed() > SECOND, "{:?}", warnings(store));
        until("the line", || untold(Level::ERROR) == 1).await;
        let told = warnings(store);
        assert!(told.len() == 2 && told[0].starts_with("the store fails"), "{told:?}");
    });
}

/// Callers that ask again until the store is back see no failure, and wait for half a minute.
#[test]
fn an_outage_that_every_caller_sits_out_is_three_lines() {
    test(async {
        let store = "a store whose callers ask again";
        let world = World::new();
        let failing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        failing.always(Op::Acquire, Step::Fail);
        let retry = Retry { times: 1000, backoff: None };
        let waits = tokio::spawn(world.lock("k").backend(store).wait(Wait::Forever).retry(retry).acquire());
        let told = |text: &str| warnings(store).iter().filter(|line| line.starts_with(text)).count();
        let lasts = until("half a minute", || told("the store still fails") == 1);
        world.pass_until(SECOND, lasts).await;
        failing.always(Op::Acquire, Step::Pass);
        let held = world.pass_until(SECOND, waits).await.unwrap().unwrap();
        world.pass(10 * SECOND).await;
        held.confirm().await.unwrap();
        world.lock("other").backend(store).acquire().await.unwrap().release().await.unwrap();
        until("the end", || told("the store no longer fails") == 1).await;
        assert_eq!((told("the store fails; further"), warnings(store).len()), (1, 3), "{:?}", warnings(store));
    });
}

/// Nobody asks for the lines that wait, once the process has ended.
#[test]
fn a_shutdown_writes_the_lines_that_wait() {
    test(async {
        let store = "a store with lines that wait";
        let world = World::new();
        let refusing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, refusing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        for step in [Step::RefuseTtl, Step::Mixed, Step::Mixed, Step::Regressed] {
            refusing.always(Op::Acquire, step);
            world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
        }
        assert_eq!(warnings(store).len(), 1);
        world.pass_until(MS, world.registry.shutdown(SECOND)).await;
        until("the lines", || warnings(store).len() == 3).await;
        let told = warnings(store);
        assert!(told[1].contains("key_conflict") && told[1].contains("left_out=1"), "{told:?}");
        assert!(told[2].contains("fence_regression"), "{told:?}");
    });
}

/// The process of a job ends with the outage that has ended the job.
#[test]
fn a_shutdown_in_an_outage_says_what_has_failed() {
    test(async {
        let store = "a store that fails to the end";
        let world = World::new();
        let failing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        failing.always(Op::Acquire, Step::Fail);
        world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
        until("the first line", || warnings(store).len() == 1).await;
        // The end of its connections is no answer.
        world.pass(6 * SECOND).await;
        world.pass_until(SECOND, world.registry.shutdown(SECOND)).await;
        until("the last line", || warnings(store).len() == 2).await;
        let told = warnings(store);
        assert!(told[1].starts_with("the registry is shut down while the store fails"), "{told:?}");
    });
}

/// A store that refuses writes answers reads, and a page asks it each second.
#[test]
fn answers_to_reads_end_no_outage() {
    test(async {
        let store = "a store that is read and not written";
        let world = World::new();
        let failing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        failing.always(Op::Acquire, Step::Fail);
        for _ in 0..4 {
            world.lock("k").backend(store).wait(Wait::None).acquire().await.unwrap_err();
            for _ in 0..6 {
                world.pass(SECOND).await;
                world.registry.ready(store).await.unwrap();
                world.lock("k").backend(store).holders().await.unwrap();
            }
        }
        let told = warnings(store);
        assert!(matches!(&told[..], [line] if line.starts_with("the store fails; further")), "{told:?}");
    });
}

/// A program starts while its store is down, and its first call asks again until the store is there.
#[test]
fn an_opening_that_keeps_failing_is_logged() {
    test(async {
        let store = "a lazy store that is down";
        let world = World::new();
        Layer::meets(store, Does::Nothing);
        let memory: Arc<dyn Backend> = Arc::new(Memory::with_clock(&world.clock));
        let is_up = Arc::new(AtomicBool::new(false));
        let opens = is_up.clone();
        let open = move |_| {
            let opened = if opens.load(Ordering::SeqCst) { Ok(memory.clone()) } else { Err(Error::outage("down")) };
            async { opened }
        };
        world.registry.install_lazy(store, open).unwrap();
        let retry = Retry { times: 1000, backoff: None };
        let waits = tokio::spawn(world.lock("k").backend(store).wait(Wait::Forever).retry(retry).acquire());
        let told = |text: &str| warnings(store).iter().filter(|line| line.starts_with(text)).count();
        world.pass_until(SECOND, until("half a minute", || told("the store still fails") == 1)).await;
        is_up.store(true, Ordering::SeqCst);
        let held = world.pass_until(SECOND, waits).await.unwrap().unwrap();
        world.pass(6 * SECOND).await;
        held.release().await.unwrap();
        world.lock("k").backend(store).acquire().await.unwrap().release().await.unwrap();
        until("the end", || told("the store no longer fails") == 1).await;
        assert_eq!((told("the store fails; further"), warnings(store).len()), (1, 3), "{:?}", warnings(store));
    });
}

/// The store has said that the hold is over, so it answers.
#[test]
fn a_loss_by_the_store_ends_its_outage() {
    test(async {
        let store = "a store that forgets after its outage";
        let world = World::new();
        let memory = Memory::with_clock(&world.clock);
        let failing = Faulty::around(&memory, &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        let held = world.lock("k").backend(store).ttl(60 * SECOND).acquire().await.unwrap();
        failing.always(Op::Acquire, Step::Fail);
        world.lock("other").backend(store).wait(Wait::None).acquire().await.unwrap_err();
        until("the first line", || warnings(store).len() == 1).await;
        world.clock.advance(10 * SECOND);
        memory.forget(held.key());
        held.confirm().await.unwrap_err();
        let has_ended = until("the end", || warnings(store).iter().any(|line| line.contains("no longer fails")));
        world.pass_until(SECOND, has_ended).await;
    });
}

/// A hold that a shutdown cuts off is in its report.
#[test]
fn a_shutdown_that_cuts_a_body_off_is_no_warning() {
    test(async {
        let store = "a store that is shut down";
        let world = World::new();
        world.registry.install(store, Memory::with_clock(&world.clock)).unwrap();
        Layer::meets(store, Does::Nothing);
        let body = |key: &'static str| world.lock(key).backend(store).run(|_| std::future::pending::<()>());
        let runs = [tokio::spawn(body("a")), tokio::spawn(body("b"))];
        let _kept = world.lock("kept").backend(store).acquire().await.unwrap();
        calm().await;
        let report = world.pass_until(SECOND, world.registry.shutdown(SECOND)).await;
        assert_eq!((report.cut_off, report.left_to_ttl), (3, 1));
        for run in runs {
            assert!(run.await.unwrap().is_err());
        }
        let told = || Layer::lines(store).iter().filter(|(.., level)| *level == Level::INFO).count();
        // One for each hold, and one for the hold that is left.
        until("the lines", || told() == 4).await;
        world.pass(3 * SECOND).await;
        assert_eq!(warnings(store), Vec::<String>::new());
    });
}

/// Its attempts are answered, so there is no outage.
#[test]
fn waits_that_fail_for_a_moment_are_one_line_a_second() {
    test(async {
        let store = "a store whose waits fail";
        let world = World::new();
        let failing = Faulty::around(&Memory::with_clock(&world.clock), &world.clock, |_| {});
        world.registry.install(store, failing.clone()).unwrap();
        Layer::meets(store, Does::Nothing);
        failing.always(Op::Acquire, Step::BrokenSignal);
        let waiting = [0; 5].map(|_| tokio::spawn(world.lock("k").backend(store).wait(Wait::Forever).acquire()));
        until("the first line", || !warnings(store).is_empty()).await;
        world.pass(10 * SECOND).await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        let lines = warnings(store);
        let text = "a waiter gets no news from the store, and polls";
        assert!(lines.iter().all(|line| line.starts_with(text) && line.contains("outage")), "{lines:?}");
        assert!((2..=11).contains(&lines.len()), "{lines:?}");
        assert!(include_str!("../../../docs/operations.md").contains(text));
    });
}
