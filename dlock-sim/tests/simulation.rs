//! Some seconds of the simulation: it is the same each time, finds nothing in the engine as it is, and finds planted faults.
//! `cargo xtask sim` runs more of it.

use dlock_sim::{Lie, Plan, Rule, check, draw, run, shrink};

#[test]
fn one_seed_gives_one_history() {
    for seed in 0..50 {
        let plan = Plan::of(seed);
        assert_eq!(
            run(&plan, false).hash(),
            run(&plan, false).hash(),
            "cargo xtask sim --seeds 1 --from {seed} --twice"
        );
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
    for seed in 0..1000 {
        let found = check(&run(&Plan::of(seed), false));
        assert!(found.is_empty(), "{}\ncargo xtask sim --seeds 1 --from {seed}", found[0]);
    }
}

/// The first seed that finds it.
fn found(seeds: u64, plan: impl Fn(Plan) -> Plan) -> Option<(Plan, Rule)> {
    (0..seeds).map(|seed| plan(Plan::of(seed))).find_map(|plan| {
        let rule = check(&run(&plan, false)).first()?.rule;
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
    ] {
        let found = found(500, |plan| plan.mutated(mutant));
        assert_eq!(found.map(|(_, rule)| rule), Some(rule), "{mutant}");
    }
}

#[test]
fn a_failing_seed_is_made_smaller_and_drawn() {
    let (plan, rule) = found(500, |plan| plan.lied_to(Lie::ReleaseTakesAll)).unwrap();
    let before = run(&plan, false);
    let smaller = run(&shrink(plan, rule), true);
    let violations = check(&smaller);
    assert!(violations.iter().any(|violation| violation.rule == rule));
    assert!(check(&before).iter().any(|violation| violation.rule == rule));
    let asked = |history: &dlock_sim::History| {
        history.events.iter().filter(|event| matches!(event.what, dlock_sim::What::Asks { .. })).count()
    };
    assert!(asked(&smaller) < asked(&before), "{smaller}");
    let picture = draw(&smaller, &violations);
    assert!(picture.contains("#c22") && picture.contains(&violations[0].to_string()), "{picture}");
}
