//! The log of an outage.

use dlock_memory::Memory;
use dlock_runtime::Wait;
use tracing::Level;

use crate::support::{Faulty, MS, Op, SECOND, Step, World, calm, test, until};
use crate::user_code::layer::{Does, Layer};

fn warnings(store: &str) -> Vec<String> {
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
        for op in [Op::Acquire, Op::Renew, Op::Release] {
            failing.always(op, Step::Pass);
        }
        drop(held);
        world.pass(10 * SECOND).await;
        world.lock("k").backend(store).acquire().await.unwrap().release().await.unwrap();
        until("the end of the outage", || warnings(store).iter().any(|line| line.contains("no longer"))).await;
        let told = warnings(store);
        let (losses, outage): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|line| line.starts_with("the lock was lost"));
        assert!((1..=4).contains(&losses.len()), "{losses:?}");
        let begins = ["the store fails; further", "the store still fails", "the store no longer fails"];
        assert!(outage.iter().map(String::as_str).zip(begins).all(|(line, text)| line.starts_with(text)), "{outage:?}");
        assert_eq!(outage.len(), 3, "{outage:?}");
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
