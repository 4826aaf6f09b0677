//! The truth table of `README.md`: each of its rows is tried, once with connections that break and once with silence.

use std::sync::Arc;

use dlock_contract::{Attempt, Backend, Claim, Hold, Queue, Released, Result, Standing};
use dlock_paired::{GateDown, Paired};
use dlock_testkit::holds::claim;
use dlock_testkit::{Mode, holds};
use futures::StreamExt;

use crate::kit::{Holder, Kit, Member, TTL, abandon, bounded};

/// One row: the setting of `gate_down`, the request, the state of both stores before it, the answer, and the state of both
/// stores after it, when both can be reached again.
type Row = [&'static str; 7];

const ROWS: [Row; 36] = [
    ["fail", "acquire", "free", "free", "granted", "ours", "ours"],
    ["fail", "acquire", "free", "taken", "contended", "free", "other's"],
    ["fail", "acquire", "free", "down", "outage", "free", "free"],
    ["fail", "acquire", "taken", "free", "contended", "other's", "free"],
    ["fail", "acquire", "taken", "taken", "contended", "other's", "other's"],
    ["fail", "acquire", "taken", "down", "contended", "other's", "free"],
    ["fail", "acquire", "down", "free", "outage", "free", "free"],
    ["fail", "acquire", "down", "taken", "outage", "free", "other's"],
    ["fail", "acquire", "down", "down", "outage", "free", "free"],
    ["authority", "acquire", "free", "free", "granted", "ours", "ours"],
    ["authority", "acquire", "free", "taken", "contended", "free", "other's"],
    ["authority", "acquire", "free", "down", "outage", "free", "free"],
    ["authority", "acquire", "taken", "free", "contended", "other's", "free"],
    ["authority", "acquire", "taken", "taken", "contended", "other's", "other's"],
    ["authority", "acquire", "taken", "down", "contended", "other's", "free"],
    ["authority", "acquire", "down", "free", "granted", "free", "ours"],
    ["authority", "acquire", "down", "taken", "contended", "free", "other's"],
    ["authority", "acquire", "down", "down", "outage", "free", "free"],
    ["either", "renew", "ours", "ours", "renewed", "ours", "ours"],
    ["either", "renew", "ours", "taken", "lost", "free", "other's"],
    ["either", "renew", "ours", "down", "unknown", "ours", "ours"],
    ["either", "renew", "taken", "ours", "renewed", "other's", "ours"],
    ["either", "renew", "taken", "taken", "lost", "other's", "other's"],
    ["either", "renew", "taken", "down", "unknown", "other's", "ours"],
    ["either", "renew", "down", "ours", "renewed", "ours", "ours"],
    ["either", "renew", "down", "taken", "lost", "free", "other's"],
    ["either", "renew", "down", "down", "unknown", "ours", "ours"],
    ["either", "release", "ours", "ours", "released", "free", "free"],
    ["either", "release", "ours", "taken", "not owner", "free", "other's"],
    ["either", "release", "ours", "down", "unknown", "ours", "ours"],
    ["either", "release", "taken", "ours", "released", "other's", "free"],
    ["either", "release", "taken", "taken", "not owner", "other's", "other's"],
    ["either", "release", "taken", "down", "unknown", "other's", "ours"],
    ["either", "release", "down", "ours", "released", "free", "free"],
    ["either", "release", "down", "taken", "not owner", "free", "other's"],
    ["either", "release", "down", "down", "unknown", "ours", "ours"],
];

#[test]
fn the_page_has_these_rows_and_no_others() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let table = page.split("| `gate_down` |").nth(1).expect("README.md has the truth table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('*')).collect())
        .collect();
    assert_eq!(rows, ROWS.map(Vec::from));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_holds_where_connections_break() {
    all_rows("broken", Mode::Refuse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_row_holds_where_a_store_is_silent() {
    all_rows("silent", Mode::BLACKHOLE).await;
}

/// Several rows beside each other, since those with a silent store wait most of the time. Rows in which no store is down
/// are the same in both runs.
async fn all_rows(how: &'static str, down: Mode) {
    const SIDE_BY_SIDE: usize = 8;
    let trials = ROWS.iter().enumerate().filter(|(_, row)| down == Mode::Refuse || row[2..4].contains(&"down"));
    // Each is started when it is polled first.
    let trials =
        trials.map(|(number, row)| async move { tokio::spawn(trial(format!("{how} {number}"), *row, down)).await });
    let ended = futures::stream::iter(trials).buffer_unordered(SIDE_BY_SIDE);
    let broken = ended.filter_map(|ended| async move { ended.err().map(|error| error.to_string()) });
    let broken: Vec<_> = broken.collect().await;
    assert!(broken.is_empty(), "{} rows do not hold: {broken:#?}", broken.len());
}

async fn trial(name: String, row: Row, down: Mode) {
    let settings = match row[0] {
        "fail" => vec![GateDown::Fail],
        "authority" => vec![GateDown::Authority],
        _ => vec![GateDown::Fail, GateDown::Authority],
    };
    for setting in settings {
        let mut wrong = None;
        for round in 0..5 {
            wrong = once(&format!("{name} {setting:?} {round}"), row, setting, down).await;
            let Some(said) = &wrong else { break };
            // A store that is up was too slow: the request had no answer, or the pair has passed over the gate.
            let passed_over = setting == GateDown::Authority && row[2] != "down" && row[3] != "taken";
            let may_be_late = ["outage", "unknown"].contains(said) || passed_over;
            assert!(may_be_late, "the answer in row {row:?} ({name}, {setting:?}) was: {said}");
        }
        assert_eq!(wrong, None, "the answer in row {row:?} ({name}, {setting:?})");
    }
}

/// The wrong answer, if it is not that of the row, or if the stores do not come into the states of the row.
async fn once(name: &str, row: Row, setting: GateDown, down: Mode) -> Option<&'static str> {
    let [_, request, gate, authority, answer, gate_after, authority_after] = row;
    let kit = Kit::new().await;
    let pair = kit.pair(setting).await;
    let claim = claim(&format!("row {name}"), TTL);
    // The connections are open.
    let warm = holds::claim(&format!("warm {name}"), TTL);
    while bounded(pair.release(&holds::take(&pair, &warm).await)).await.is_err() {}
    let hold = if request == "acquire" { None } else { Some(holds::take(&pair, &claim).await) };
    bring(&kit.gate, gate, &claim, down).await;
    bring(&kit.authority, authority, &claim, down).await;
    let (said, hold) = ask(&pair, request, &claim, hold).await;
    kit.gate.mend();
    kit.authority.mend();
    if said == "outage" {
        abandon(&pair, &claim).await;
    }
    if said != answer {
        return Some(said);
    }
    let is_gate_right = kit.gate.becomes(&claim, holder(gate_after)).await;
    if !is_gate_right || !kit.authority.becomes(&claim, holder(authority_after)).await {
        return Some("right, but not the states of the stores");
    }
    if let Some(hold) = hold.filter(|_| ["granted", "renewed", "unknown"].contains(&said)) {
        end(&pair, &kit, &claim, &hold).await;
    }
    None
}

/// Brings a store into the state that a row begins with.
async fn bring(member: &Member, state: &str, claim: &Arc<Claim>, down: Mode) {
    match state {
        "free" | "ours" => {}
        "taken" => {
            member.evict(claim).await;
            member.taken_by_another(&claim.key).await;
        }
        _ => member.cut(down),
    }
}

async fn ask(pair: &Paired, request: &str, claim: &Arc<Claim>, hold: Option<Hold>) -> (&'static str, Option<Hold>) {
    let Some(hold) = hold else {
        return match bounded(pair.try_acquire(claim, Queue::Leave)).await {
            Ok(Attempt::Acquired(hold)) => ("granted", Some(hold)),
            Ok(_) => ("contended", None),
            Err(_) => ("outage", None),
        };
    };
    let said = match request {
        "renew" => match bounded(async { pair.renew(&[&hold]).await.remove(0) }).await {
            Ok(Standing::Renewed(_)) => "renewed",
            Ok(Standing::Lost) => "lost",
            Err(_) => "unknown",
        },
        _ => released(bounded(pair.release(&hold)).await),
    };
    (said, Some(hold))
}

fn released(answer: Result<Released>) -> &'static str {
    match answer {
        Ok(Released::Released) => "released",
        Ok(Released::NotOwner) => "not owner",
        Err(_) => "unknown",
    }
}

/// A hold that is left can be released, and then nothing of it is left.
async fn end(pair: &Paired, kit: &Kit, claim: &Arc<Claim>, hold: &Hold) {
    let clock = dlock_store::Clock::system();
    let end = clock.now().after(crate::kit::SOON);
    while let Err(error) = bounded(pair.release(hold)).await {
        assert!(clock.now() < end, "a hold cannot be released after an outage: {error}");
    }
    for member in [&kit.gate, &kit.authority] {
        let other = member.holder(claim).await;
        if other != Holder::Other {
            member.until(claim, Holder::Nobody).await;
        }
    }
}

fn holder(state: &str) -> Holder {
    match state {
        "ours" => Holder::Ours,
        "other's" => Holder::Other,
        _ => Holder::Nobody,
    }
}
