//! etcd: cycles of a lock that nobody else wants, and hand-overs of one that everybody wants, beside Go's
//! `concurrency.Mutex`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dlock::backends::etcd::client::{
    Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
};
use dlock::{Registry, distributed_lock};
use dlock_testkit::child::Child;
use dlock_testkit::servers::{Tree, shared};

use crate::Failed;
use crate::contended::{Lock, ROUND, ROUNDS, Section, Work, contender, measure_at};
use crate::peers::{self, GO_MUTEX};
use crate::table::{Contender, Row, median, percentile};
use crate::used::Used;

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "bench-etcd")]
async fn locked(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

const RAW: &str = "put and delete, raw";
const OWN: &str = "own transactions, raw";
const ALONE: [&str; 3] = [RAW, OWN, "dlock"];
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(500);

fn url() -> Result<String, Failed> {
    Ok(shared().etcd()?.replace("http://", "etcd://"))
}

/// Each task has a key of its own.
pub(crate) fn uncontended_row(tasks: usize) -> Result<Row, Failed> {
    let name = format!("etcd-{tasks}");
    let version = peers::version(GO_MUTEX, &name)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let floor = runtime.block_on(async {
        if let Err(error) = Registry::global().connect("bench-etcd", &url()?).await
            && *error.kind() != dlock::ErrorKind::AlreadyRegistered
        {
            return Err(Failed::from(error));
        }
        Floor::connect().await
    })?;
    let mut rounds: Vec<Vec<[f64; 5]>> = vec![Vec::new(); ALONE.len() + 1];
    for turn in 0..=TURNS {
        let mut order: Vec<usize> = (0..rounds.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let measured = if at < ALONE.len() {
                runtime.block_on(measure(at, tasks, &floor))?
            } else {
                // It tells no times of single cycles.
                [go(&name, tasks, Duration::ZERO, true, TURN)?, f64::NAN, f64::NAN, f64::NAN, f64::NAN]
            };
            // The first turns warm connections and code up.
            if turn > 0 {
                rounds[at].push(measured);
            }
        }
    }
    let floors = rounds[0].clone();
    let contenders = ALONE.iter().chain([&GO_MUTEX]).zip(rounds).map(|(name, rounds)| {
        // Round by round, so that a slow second of the machine hits both sides.
        let ratio = median(rounds.iter().zip(&floors).map(|(own, floor)| own[0] / floor[0]).collect());
        Contender::of_cycles(name, &rounds, ("throughput × floor", ratio))
    });
    let mut row = Row {
        about: format!(
            "Acquire and release on etcd, one member, {tasks} task(s) with a key each; a cycle is two commits, one \
             by one. dlock's transactions leave together while others are under way. Beside it Go's `concurrency.Mutex` ({version}), a session for each task."
        ),
        name,
        contenders: contenders.collect(),
        aims: Vec::new(),
    };
    let ratio = |row: &Row, name| row.figure(name, "throughput × floor");
    let (ours, own) = (ratio(&row, "dlock"), ratio(&row, OWN));
    let aim = match tasks {
        1 => 0.95,
        64 => 0.88,
        _ => 0.82,
    };
    let text = format!("at least {aim} of the floor, or within 5 % of its own transactions");
    row.aim(&text, ours, ours >= aim || ours >= own * 0.95);
    let ahead = row.figure("dlock", "cycles/s") / row.figure(GO_MUTEX, "cycles/s");
    row.aim("ahead of Go's Mutex, ×", ahead, ahead > 1.0);
    Ok(row)
}

/// One key that all want.
pub(crate) fn contended_row(processes: usize, tasks: usize) -> Result<Row, Failed> {
    let name = match processes {
        1 => format!("etcd-contended-{tasks}"),
        _ => format!("etcd-contended-{processes}x{tasks}"),
    };
    let version = peers::version(GO_MUTEX, &name)?;
    let url = url()?;
    let work = Work { lock: Lock::Dlock, processes, tasks, section: Section::Long };
    let (mut ours, mut theirs, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for _ in 0..ROUNDS {
        ours.push(measure_at(&url, work, ROUND)?);
        theirs.push(go(&name, processes * tasks, Duration::from_millis(1), false, ROUND)?);
        limits.push(runtime.block_on(limit())?);
    }
    let mut dlock = contender("dlock", &ours);
    let limit = median(limits);
    dlock.figures.push(("hold and one commit alone, /s", limit));
    let mut figures = dlock.figures.clone();
    figures.iter_mut().for_each(|(_, value)| *value = f64::NAN);
    if let Some(first) = figures.first_mut() {
        first.1 = median(theirs);
    }
    let mut row = Row {
        about: format!(
            "One key on etcd, one member, {processes} process(es) × {tasks} tasks, 1 ms hold. Beside it Go's \
             `concurrency.Mutex` ({version}), a session for each task of one process; its holds are counted."
        ),
        name,
        contenders: vec![dlock, Contender { name: GO_MUTEX.to_owned(), figures }],
        aims: Vec::new(),
    };
    let hand_overs = row.figure("dlock", "hand-overs/s");
    let text = "at least 560 hand-overs per second, or 0.9 of what hold and commit allow";
    row.aim(text, hand_overs, hand_overs >= 560.0 || hand_overs >= 0.9 * limit);
    let ahead = hand_overs / row.figure(GO_MUTEX, "hand-overs/s");
    row.aim("ahead of Go's Mutex, ×", ahead, ahead > 1.0);
    let least = row.figure("dlock", "least share of a task");
    // In a round of 128 tasks each has a few turns only, so one turn is more than 5 % of a share.
    let one_turn = (processes * tasks) as f64 / (hand_overs * ROUND.as_secs_f64());
    let fair = least >= (1.0 - one_turn).min(0.95);
    row.aim("every task within 5 % of its share, or within one turn of it: least", least, fair);
    Ok(row)
}

/// Holds per second of Go's `Mutex`.
fn go(name: &str, sessions: usize, hold: Duration, own: bool, time: Duration) -> Result<f64, Failed> {
    let prefix = format!("go/{name}/{}", fastrand::u32(..));
    let mut command = std::process::Command::new(Tree::named(GO_MUTEX).root().join(GO_MUTEX));
    command.args(["-endpoint", &shared().etcd()?, "-prefix", &prefix, "-sessions", &sessions.to_string()]);
    command.args([format!("-own={own}"), format!("-hold={hold:?}"), format!("-for={time:?}")]);
    let mut child = Child::of(command)?;
    child.wait_line("up", Duration::from_secs(60))?;
    let line = child.wait_line("seen ", time + Duration::from_secs(60))?;
    let holds: f64 = line.split(' ').next().ok_or("Go's Mutex said nothing")?.parse()?;
    Ok(holds / time.as_secs_f64())
}

/// Cycles per second, the median and 99th percentile of a cycle in µs, and what each costs the client.
async fn measure(contender: usize, tasks: usize, floor: &Arc<Floor>) -> Result<[f64; 5], Failed> {
    let (start, before) = (Instant::now(), Used::now());
    let end = start + TURN;
    let running = (0..tasks).map(|task| {
        let floor = floor.clone();
        tokio::spawn(async move {
            let mut times = Vec::new();
            loop {
                let begun = Instant::now();
                if begun >= end {
                    return Ok::<_, Failed>(times);
                }
                match contender {
                    0 => floor.classic(task).await?,
                    1 => floor.own(task).await?,
                    _ => locked(task).await?,
                }
                times.push(begun.elapsed().as_nanos() as u64);
            }
        })
    });
    let mut times = Vec::new();
    for task in running.collect::<Vec<_>>() {
        times.extend(task.await??);
    }
    let wall = start.elapsed().as_secs_f64();
    times.sort_unstable();
    let micros = |share| percentile(&times, share) as f64 / 1000.0;
    let [processor, sleeps] = Used::since_per_cycle(&before, times.len());
    Ok([times.len() as f64 / wall, micros(0.5), micros(0.99), processor, sleeps])
}

/// How many hand-overs per second there would be if each took the hold and one commit, and nothing else.
async fn limit() -> Result<f64, Failed> {
    let mut client = Client::connect([shared().etcd()?], None).await?;
    let (mut holds, mut commits) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        holds.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        client.put("limit", "", None).await?;
        commits.push(begun.elapsed().as_secs_f64());
    }
    Ok(1.0 / (median(holds) + median(commits)))
}

/// One client of the same library, and one lease for all keys.
struct Floor {
    client: Client,
    lease: i64,
}

impl Floor {
    async fn connect() -> Result<Arc<Self>, Failed> {
        let client = Client::connect([shared().etcd()?], None).await?;
        let lease = client.lease_client().grant(600, None).await?.id();
        Ok(Arc::new(Self { client, lease }))
    }

    /// A put if the key is absent, and a delete.
    async fn classic(&self, task: usize) -> Result<(), Failed> {
        let key = format!("floor/{task}");
        let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let put = TxnOp::put(key.as_str(), "", Some(PutOptions::new().with_lease(self.lease)));
        let mut client = self.client.kv_client();
        let taken = client.txn(Txn::new().when([absent]).and_then([put])).await?;
        client.delete(key, None).await?;
        if taken.succeeded() { Ok(()) } else { Err("the floor's lock was not free".into()) }
    }

    /// The transactions that dlock sends.
    async fn own(&self, task: usize) -> Result<(), Failed> {
        let (start, end) = (format!("dl1:floor:bench:<{task}>/"), format!("dl1:floor:bench:<{task}>0"));
        let (key, epoch) = (format!("{start}{:016x}-0", self.lease), "dl1-epoch/floor/00");
        let range = || GetOptions::new().with_range(end.as_str());
        let when = [
            Compare::mod_revision(epoch, CompareOp::Equal, 0),
            Compare::create_revision(key.as_str(), CompareOp::Equal, 0),
            Compare::create_revision(format!("{start}~"), CompareOp::Equal, 0).with_range(format!("{start}\u{7f}")),
        ];
        let newest = range().with_keys_only().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2);
        let note = "0123456789abcdef h=host p=1 s=a note of the usual length t=1";
        let put = TxnOp::put(key.as_str(), note, Some(PutOptions::new().with_lease(self.lease)));
        let oldest = range().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let otherwise = [
            TxnOp::get(key.as_str(), None),
            TxnOp::get(epoch, None),
            TxnOp::get(start.as_str(), Some(oldest)),
            TxnOp::get(start.as_str(), Some(range().with_keys_only().with_limit(1))),
        ];
        let enter = Txn::new().when(when).and_then([put, TxnOp::get(start.as_str(), Some(newest))]).or_else(otherwise);
        let mut client = self.client.kv_client();
        let taken = client.txn(enter).await?;
        let revision = taken.header().map_or(0, |header| header.revision());
        let same = [
            Compare::create_revision(key.as_str(), CompareOp::Equal, revision),
            Compare::lease(key.as_str(), CompareOp::Equal, self.lease),
        ];
        let freed = client.txn(Txn::new().when(same).and_then([TxnOp::delete(key, None)])).await?;
        if taken.succeeded() && freed.succeeded() { Ok(()) } else { Err("the floor's lock was not free".into()) }
    }
}
