//! Some seconds of the simulation: it is the same each time, finds nothing in the engine as it is, and finds planted faults.
//! `cargo xtask sim` runs more of it.

use dlock_sim::{History, Lie, Plan, Rule, Terms, What, check, draw, run, shrink, watch};

/// The history of a plan. One that does not end ends this program, and names its seed.
fn simulated(plan: &Plan) -> History {
    watch(|hang| eprintln!("{hang}"));
    run(plan, false)
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 0..50 {
        let plan = Plan::of(seed);
        let hash = || simulated(&plan).hash();
        assert_eq!(hash(), hash(), "{} --twice", plan.command());
    }
}

/// A history is the same on a thread that has run others before.
#[test]
fn a_history_does_not_depend_on_what_ran_before() {
    let hash = |seed| run(&Plan::of(seed), false).hash();
    (1000..1019).for_each(|seed| drop(run(&Plan::of(seed), false)));
    let after_others = Some(hash(1019));
    let alone = std::thread::spawn(move || hash(1019)).join().unwrap();
    assert_eq!(after_others, Some(alone));
}

#[test]
fn the_engine_keeps_its_promises() {
    // The same each time: a new one that finds something must not turn an unrelated change red.
    for seed in 0..1000 {
        let found = check(&simulated(&Plan::of(seed)));
        assert!(found.is_empty(), "{}\n{}", found[0], Plan::of(seed).command());
    }
}

/// The first seed that finds it.
fn found(seeds: u64, plan: impl Fn(Plan) -> Plan) -> Option<(Plan, Rule)> {
    (0..seeds).map(|seed| plan(Plan::of(seed))).find_map(|plan| {
        let rule = check(&simulated(&plan)).first()?.rule;
        Some((plan, rule))
    })
}

#[test]
fn lies_of_a_store_are_found() {
    for lie in [
        Lie::ReleaseTakesAll,
        Lie::GrantTakesAll,
        Lie::ShortLease,
        Lie::ShortRenewal,
        Lie::SameToken,
        Lie::FromTheReply,
    ] {
        assert!(found(500, |plan| plan.lied_to(lie)).is_some(), "{lie:?}");
    }
}

#[test]
fn planted_faults_of_the_engine_are_found() {
    for (mutant, rule) in [
        ("no check before a body", Rule::ActsWithoutLock),
        ("no check after a body", Rule::OkIsCovered),
        ("a loss wakes nobody", Rule::LossIsTold),
        ("a release is tried once", Rule::NothingIsLeft),
        ("a failed renewal prolongs", Rule::OneBeliever),
        ("a hold leaves the schedule early", Rule::LossIsTold),
        ("no renewal is sent", Rule::ErrorKind),
        ("a panic in the engine", Rule::NothingIsLeft),
        ("the schedule does not sleep", Rule::NothingIsLeft),
    ] {
        let found = found(500, |plan| plan.mutated(mutant));
        assert_eq!(found.map(|(_, rule)| rule), Some(rule), "{mutant}");
    }
}

#[test]
fn a_failing_seed_is_made_smaller_and_drawn() {
    let (plan, rule) = found(500, |plan| plan.lied_to(Lie::ReleaseTakesAll)).unwrap();
    let before = simulated(&plan);
    let smaller = run(&shrink(plan, rule), true);
    let violations = check(&smaller);
    assert!(violations.iter().any(|violation| violation.rule == rule));
    assert!(check(&before).iter().any(|violation| violation.rule == rule));
    let asked =
        |history: &History| history.events.iter().filter(|event| matches!(event.what, What::Asks { .. })).count();
    assert!(asked(&smaller) < asked(&before), "{smaller}");
    let picture = draw(&smaller, &violations);
    assert!(picture.contains("#c22") && picture.contains(&violations[0].to_string()), "{picture}");
    assert!(picture.contains("marker-end"), "no request is an arrow: {picture}");
}

#[test]
fn a_fault_is_a_band_from_its_begin_to_its_end() {
    let mut history = History::default();
    history.add(0, 1, 1, What::Asks { keys: vec![0], terms: Terms::plain(1, 1) });
    history.add(20, 0, 0, What::Note("the network is cut".into()));
    history.add(60, 0, 0, What::Note("end of: the network is cut".into()));
    history.add(100, 1, 1, What::GivenUp);
    let picture = draw(&history, &[]);
    let bands: Vec<_> = picture.lines().filter(|line| line.contains("the network is cut")).collect();
    let [band] = bands[..] else { panic!("{picture}") };
    let width = band.split_once("width=\"").and_then(|(_, rest)| rest.split_once('"')?.0.parse::<u32>().ok());
    assert!(width > Some(300), "{band}");
}
