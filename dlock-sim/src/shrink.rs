//! Makes a plan that breaks a promise smaller, as long as it still breaks that promise.

use crate::check::{Rule, check};
use crate::plan::Plan;
use crate::simulation::run;

/// No plan is tried for longer than this many runs.
const MOST_RUNS: u32 = 2000;

/// A smaller plan that breaks the same promise; this one if none was found.
#[must_use]
pub fn shrink(plan: Plan, rule: Rule) -> Plan {
    let (mut smallest, mut runs) = (plan, 0);
    'again: loop {
        for smaller in smallest.smaller() {
            runs += 1;
            if runs > MOST_RUNS {
                return smallest;
            }
            if check(&run(&smaller, false)).iter().any(|violation| violation.rule == rule) {
                smallest = smaller;
                continue 'again;
            }
        }
        return smallest;
    }
}
