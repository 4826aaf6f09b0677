//! A hold that is passed on inside of one process.

use crate::arena::{Arena, PATIENCE};

pub(super) fn a_pass_wakes_no_other_thread(arena: &Arena) {
    let mut process = arena.child("pass on");
    let passes: u64 = process.wait_line("passes ", PATIENCE).unwrap().parse().unwrap();
    let mut others = 0;
    loop {
        let line = process.wait_line("woken ", PATIENCE).unwrap();
        let Some((wakes, name)) = line.split_once(" times: ") else { break };
        // Now and then there is a renewal, or further tokens are asked for.
        assert!(wakes.parse::<u64>().unwrap() < passes / 10, "{passes} passes have woken `{name}` {wakes} times");
        others += 1;
    }
    assert!(others > 0, "dlock's own thread was not looked at");
    arena.run(arena.assert_nothing_left());
}
