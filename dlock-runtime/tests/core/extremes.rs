//! The smallest and the largest value of each option: taken, or refused with the option's name. None panics, overflows or
//! keeps a processor busy.

use std::time::Duration;

use dlock_runtime::{Backoff, Cohort, Defaults, Error, ErrorKind, Lock, Mode, OncePer, Registry, Renew, Retry, Wait};

use crate::support::{MS, World, calm, test};

const MAX: Duration = Duration::MAX;
const NANO: Duration = Duration::from_nanos(1);
/// The longest time of an option.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
const BEYOND: Duration = LONGEST.saturating_add(NANO);

const fn every(time: Duration) -> Renew {
    Renew::Every(time)
}

const fn up_to(time: Duration) -> Wait {
    Wait::UpTo(time)
}

const fn pauses(from: Duration, to: Duration) -> Backoff {
    Backoff::new(from, to)
}

const fn retry(times: u32, from: Duration, to: Duration) -> Retry {
    Retry { times, backoff: Some(pauses(from, to)) }
}

const fn cohort(passes: u32, span: Duration) -> Option<Cohort> {
    Some(Cohort { passes, span: Some(span) })
}

type Row = (&'static str, fn(Lock) -> Lock);

/// The name in the error, and the options.
const REFUSED: &[Row] = &[
    ("ttl", |lock| lock.ttl(Duration::ZERO)),
    ("ttl", |lock| lock.ttl(MAX)),
    ("ttl", |lock| lock.ttl(BEYOND)),
    ("ttl", |lock| lock.ttl(MAX).renew(every(Duration::ZERO))),
    ("ttl", |lock| lock.ttl(MAX).renew(every(MAX)).max_hold(MAX).timeout(MAX).min_hold(MAX)),
    ("wait", |lock| lock.wait(up_to(MAX))),
    ("wait", |lock| lock.wait(up_to(BEYOND))),
    ("renew", |lock| lock.renew(every(Duration::ZERO))),
    ("renew", |lock| lock.renew(every(NANO))),
    ("renew", |lock| lock.renew(every(MS - NANO))),
    ("renew", |lock| lock.renew(every(MAX))),
    ("renew", |lock| lock.ttl(LONGEST).renew(every(LONGEST))),
    ("renew", |lock| lock.ttl(NANO).renew(every(MS))),
    ("max_hold", |lock| lock.max_hold(Duration::ZERO)),
    ("max_hold", |lock| lock.max_hold(MAX)),
    ("timeout", |lock| lock.timeout(Duration::ZERO)),
    ("timeout", |lock| lock.timeout(MAX)),
    ("timeout", |lock| lock.timeout(LONGEST).renew(Renew::Off)),
    ("min_hold", |lock| lock.min_hold(Duration::ZERO)),
    ("min_hold", |lock| lock.min_hold(MAX)),
    ("min_hold", |lock| lock.min_hold(LONGEST)),
    ("attempts", |lock| lock.attempts(0)),
    ("max_waiters", |lock| lock.max_waiters(0)),
    ("backoff", |lock| lock.backoff(pauses(Duration::ZERO, MAX))),
    ("backoff", |lock| lock.backoff(pauses(NANO, NANO))),
    ("backoff", |lock| lock.backoff(pauses(MAX, MAX))),
    ("backoff", |lock| lock.backoff(pauses(LONGEST, MS))),
    ("retry", |lock| lock.retry(retry(u32::MAX, NANO, NANO))),
    ("retry", |lock| lock.retry(retry(u32::MAX, MS, MAX))),
    ("cohort", |lock| lock.cohort(cohort(0, MS))),
    ("cohort", |lock| lock.cohort(cohort(1, Duration::ZERO))),
    ("cohort", |lock| lock.cohort(cohort(u32::MAX, MAX))),
    ("once_per", |lock| lock.once_per(OncePer::new(Duration::ZERO))),
    ("once_per", |lock| lock.once_per(OncePer::new(MAX))),
    ("offset", |lock| lock.once_per(OncePer::new(MS).offset(MAX))),
];

const TAKEN: &[Row] = &[
    ("ttl", |lock| lock.ttl(10 * MS)),
    ("ttl", |lock| lock.ttl(LONGEST / 10)),
    ("wait", |lock| lock.wait(up_to(Duration::ZERO))),
    ("wait", |lock| lock.wait(up_to(LONGEST))),
    ("renew", |lock| lock.renew(every(MS))),
    ("renew", |lock| lock.ttl(LONGEST / 10).renew(every(LONGEST / 20))),
    ("max_hold", |lock| lock.max_hold(LONGEST)),
    ("timeout", |lock| lock.timeout(NANO)),
    ("timeout", |lock| lock.timeout(LONGEST)),
    ("min_hold", |lock| lock.min_hold(NANO)),
    ("min_hold", |lock| lock.ttl(LONGEST / 10).min_hold(LONGEST / 10)),
    ("attempts", |lock| lock.attempts(u32::MAX)),
    ("max_waiters", |lock| lock.max_waiters(usize::MAX)),
    ("backoff", |lock| lock.backoff(pauses(MS, MS))),
    ("backoff", |lock| lock.backoff(pauses(LONGEST, LONGEST))),
    ("retry", |lock| lock.retry(retry(0, MS, MS))),
    ("retry", |lock| lock.retry(retry(u32::MAX, LONGEST, LONGEST))),
    ("permits", |lock| lock.mode(Mode::permits(0))),
    ("permits", |lock| lock.mode(Mode::permits(u32::MAX))),
    ("cohort", |lock| lock.cohort(cohort(1, NANO))),
    ("cohort", |lock| lock.cohort(cohort(u32::MAX, LONGEST))),
    ("once_per", |lock| lock.once_per(OncePer::new(MS))),
    ("once_per", |lock| lock.once_per(OncePer::new(LONGEST).offset(LONGEST - NANO))),
];

fn names(error: &Error, option: &str) -> bool {
    matches!(error.kind(), ErrorKind::ConfigInvalid { field } if field == option) && error.to_string().contains(option)
        || option == "backoff" && error.to_string().contains("pause")
        || option == "retry" && error.to_string().contains("pause")
}

#[test]
fn the_extremes_of_the_builder_are_taken_or_refused_by_name() {
    test(async {
        for (index, (option, extreme)) in REFUSED.iter().enumerate() {
            let error = extreme(World::new().lock("k")).run(|_| async {}).await.expect_err(option);
            assert!(names(&error, option), "row {index}, {option}: {error}");
        }
        for (option, extreme) in TAKEN {
            let world = World::new();
            let run = extreme(world.lock("k")).run(|_| async {}).await;
            run.unwrap_or_else(|error| panic!("{option}: {error}"));
            // A caller that waits makes its pauses, and a release its hand-over.
            let (end, ended) = tokio::sync::oneshot::channel::<()>();
            let holding = tokio::spawn(extreme(world.lock("other")).run(|_| ended));
            calm().await;
            let waiting = tokio::spawn(extreme(world.lock("other")).run(|_| async {}));
            world.pass(MS * 20).await;
            drop(end);
            let _ = holding.await.unwrap();
            waiting.abort();
        }
    });
}

type Setting = (&'static str, fn(&mut Defaults));

#[test]
fn the_extremes_of_the_defaults_are_taken_or_refused_by_name() {
    let refused: &[Setting] = &[
        ("ttl", |defaults| defaults.ttl = Duration::ZERO),
        ("ttl", |defaults| defaults.ttl = MAX),
        ("ttl", |defaults| (defaults.ttl, defaults.max_hold) = (MAX, MAX)),
        ("wait", |defaults| defaults.wait = up_to(MAX)),
        ("max_hold", |defaults| defaults.max_hold = Duration::ZERO),
        ("max_hold", |defaults| defaults.max_hold = MAX),
        ("max_waiters", |defaults| defaults.max_waiters = 0),
        ("retry", |defaults| defaults.retry = retry(1, Duration::ZERO, MS)),
        ("retry", |defaults| defaults.retry = retry(u32::MAX, MAX, MAX)),
    ];
    for (field, extreme) in refused {
        let registry = Registry::new();
        let error = registry.configure(*extreme).expect_err(field);
        assert!(names(&error, field), "{field}: {error}");
        assert_eq!(*registry.defaults(), Defaults::default());
    }
    let taken: &[fn(&mut Defaults)] = &[
        |defaults| (defaults.ttl, defaults.max_hold) = (LONGEST, LONGEST),
        |defaults| defaults.wait = up_to(LONGEST),
        |defaults| defaults.max_waiters = usize::MAX,
        |defaults| defaults.retry = retry(u32::MAX, LONGEST, LONGEST),
    ];
    taken.iter().for_each(|extreme| Registry::new().configure(*extreme).unwrap());
}

#[test]
fn the_extremes_of_an_election_and_of_a_shutdown_are_taken_or_refused_by_name() {
    test(async {
        let world = World::new();
        let election = || world.registry.elect("leader");
        for poll in [Duration::ZERO, MAX, BEYOND] {
            let error = election().poll(poll).observe().unwrap_err();
            assert!(names(&error, "poll"), "{error}");
        }
        drop(election().poll(LONGEST).observe().unwrap());
        for (field, extreme) in [("ttl", election().ttl(MAX)), ("max_hold", election().max_hold(MAX))] {
            assert!(names(&extreme.try_campaign().await.unwrap_err(), field), "{field}");
        }
        assert!(names(&election().wait(MAX).campaign().await.unwrap_err(), "wait"));
        election().max_hold(LONGEST).wait(LONGEST).campaign().await.unwrap().resign().await.unwrap();
        assert_eq!(world.registry.shutdown(MAX).await.cut_off, 0);
    });
}
