//! One key that everybody wants: hold it for 1 ms or for no time at all, release, ask again at once.
//!
//! A cycle counts as a hand-over only if another task held before. For 1 ms the holder is written to a file that all
//! processes share; an empty section notes it in its own process only, which can count too few. The hold is a thread's
//! sleep, since an async timer's 1 ms lasts about 2.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock::{Registry, distributed_lock};
use dlock_testkit::child::Child;
use dlock_testkit::servers::shared;

use crate::Failed;
use crate::peers::{self, PYTHON_REDIS_LOCK};
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "bench:hot", ttl = "10s", wait = "60s", backend = "bench")]
async fn empty(last: &AtomicU64, id: u64) -> Result<bool, dlock::Error> {
    Ok(last.swap(id, Ordering::Relaxed) != id)
}

#[distributed_lock(key = "bench:hot", ttl = "10s", wait = "60s", backend = "bench", cohort = true)]
async fn passed(last: &AtomicU64, id: u64) -> Result<bool, dlock::Error> {
    Ok(last.swap(id, Ordering::Relaxed) != id)
}

#[distributed_lock(key = "bench:hot", ttl = "10s", wait = "60s", backend = "bench")]
async fn locked(last: &File, id: u64) -> Result<bool, dlock::Error> {
    let mut before = [0; 8];
    let _ = last.read_at(&mut before, 0);
    let _ = last.write_at(&id.to_le_bytes(), 0);
    std::thread::sleep(Duration::from_millis(1));
    Ok(u64::from_le_bytes(before) != id)
}

pub(crate) const ROUNDS: usize = 3;
pub(crate) const ROUND: Duration = Duration::from_secs(2);

/// The counts and waits of one process.
#[derive(Default)]
struct Seen {
    hand_overs: u64,
    /// From the beginning to the end of the last cycle: who waited when the time was over has his turn all the same.
    micros: u64,
    waits: Vec<u64>,
    per_task: Vec<u64>,
    per_process: Vec<u64>,
}

/// Who wants the key, and what for.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) lock: Lock,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) section: Section,
}

/// Whose lock it is. The peer's section is long, always.
#[derive(Clone, Copy)]
pub(crate) enum Lock {
    Dlock,
    PythonRedisLock,
}

#[derive(Clone, Copy)]
pub(crate) enum Section {
    /// A millisecond.
    Long,
    Empty,
    /// Empty, and passed on inside of each process.
    Passed,
}

/// The results of one round, over all processes.
pub(crate) struct Measured {
    pub(crate) hand_overs: f64,
    seconds: f64,
    wait_p50: f64,
    wait_p99: f64,
    /// The cycles of the task that had the fewest, as a share of the mean; and of the one that had the most.
    least_of_tasks: f64,
    most_of_tasks: f64,
    least_of_processes: f64,
}

/// 1 ms each, without any passing inside of a process.
pub(crate) fn row(processes: usize, tasks: usize) -> Result<Row, Failed> {
    let name = if processes == 1 { format!("contended-{tasks}") } else { format!("contended-{processes}x{tasks}") };
    let version = peers::version(PYTHON_REDIS_LOCK, &name)?;
    let work = |lock| Work { lock, processes, tasks, section: Section::Long };
    let (dlock, peer) = (work(Lock::Dlock), work(Lock::PythonRedisLock));
    let (mut own, mut peers, mut limits) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        limits.push(limit()?);
        if round % 2 == 0 {
            own.push(measure(dlock, ROUND)?);
            peers.push(measure(peer, ROUND)?);
        } else {
            peers.push(measure(peer, ROUND)?);
            own.push(measure(dlock, ROUND)?);
        }
        limits.push(limit()?);
    }
    let (commands, limit) = (commands_per_hand_over(dlock)?, median(limits));
    let contenders = [("dlock", &own, commands), (PYTHON_REDIS_LOCK, &peers, commands_per_hand_over(peer)?)];
    let contenders = contenders.map(|(name, rounds, commands)| {
        let mut contender = contender(name, rounds);
        contender.figures.push(("client commands per hand-over", commands));
        contender.figures.push(("hold and one round trip alone, /s", limit));
        // Taken round by round, so that a slow second of the machine hits both sides.
        let ratios = rounds.iter().zip(&peers).map(|(round, peer)| round.hand_overs / peer.hand_overs).collect();
        contender.figures.push(("throughput × python-redis-lock", median(ratios)));
        contender
    });
    let mut row = Row {
        about: format!(
            "One key on Redis, {processes} process(es) × {tasks} tasks, 1 ms hold; no passing inside a process. \
             Beside it {PYTHON_REDIS_LOCK} {version}, with threads."
        ),
        name,
        contenders: contenders.into(),
        aims: Vec::new(),
    };
    let ratio = row.figure("dlock", "throughput × python-redis-lock");
    row.aim("more hand-overs than python-redis-lock, ×", ratio, ratio > 1.0);
    let hand_overs = row.figure("dlock", "hand-overs/s");
    // The bound of this machine in this run: a hand-over takes at least one round trip.
    let share = hand_overs / row.figure("dlock", "hold and one round trip alone, /s");
    row.aim("at least 0.75 of what hold and round trip allow", share, share >= 0.75);
    row.aim("at least 820 hand-overs per second", hand_overs, hand_overs >= 820.0);
    row.aim("at most 1.2 client commands per hand-over", commands, commands <= 1.2);
    // The ideal cycle is the hold alone, and a neighbour's turn comes after all others'.
    let (p99, ideal) = (row.figure("dlock", "wait p99 ms"), (processes * tasks) as f64 * 1.09);
    row.aim("p99 wait at most 1.2 × N × 1.09 ms", p99 / ideal, p99 <= 1.2 * ideal);
    let (least, most) = (row.figure("dlock", "least share of a task"), row.figure("dlock", "most share of a task"));
    row.aim("every task within 5 % of its share: least", least, least >= 0.95);
    row.aim("every task within 5 % of its share: most", most, most <= 1.05);
    Ok(row)
}

/// An empty section, with and without passing on inside of each process.
pub(crate) fn cohort_row(processes: usize, tasks: usize) -> Result<Row, Failed> {
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let work = |section| Work { lock: Lock::Dlock, processes, tasks, section };
        off.push(measure(work(Section::Empty), ROUND)?);
        on.push(measure(work(Section::Passed), ROUND)?);
    }
    let mut row = Row {
        about: format!("One key on Redis, {processes} process(es) × {tasks} tasks, empty section."),
        name: format!("cohort-{processes}x{tasks}"),
        contenders: vec![contender("cohort off", &off), contender("cohort on", &on)],
        aims: Vec::new(),
    };
    let ratio = row.figure("cohort on", "hand-overs/s") / row.figure("cohort off", "hand-overs/s");
    let aim = if processes == 1 { 20.0 } else { 8.0 };
    row.aim(&format!("at least {aim} × without cohort"), ratio, ratio >= aim);
    if processes > 1 {
        let least = row.figure("cohort on", "least share of a process");
        row.aim("no process below half of its share", least, least >= 0.5);
    }
    Ok(row)
}

pub(crate) fn contender(name: &str, rounds: &[Measured]) -> Contender {
    let middle = |pick: fn(&Measured) -> f64| median(rounds.iter().map(pick).collect());
    Contender {
        name: name.into(),
        figures: vec![
            ("hand-overs/s", middle(|round| round.hand_overs)),
            ("wait p50 ms", middle(|round| round.wait_p50)),
            ("wait p99 ms", middle(|round| round.wait_p99)),
            ("least share of a task", middle(|round| round.least_of_tasks)),
            ("most share of a task", middle(|round| round.most_of_tasks)),
            ("least share of a process", middle(|round| round.least_of_processes)),
        ],
    }
}

fn measure(work: Work, time: Duration) -> Result<Measured, Failed> {
    measure_at(&shared().redis()?, work, time)
}

/// The same on another server.
pub(crate) fn measure_at(url: &str, work: Work, time: Duration) -> Result<Measured, Failed> {
    let folder = tempfile::tempdir()?;
    let note = folder.path().join("holder");
    std::fs::write(&note, [0; 8])?;
    let begin = folder.path().join("begin");
    let section = match work.section {
        Section::Long => "long",
        Section::Empty => "empty",
        Section::Passed => "passed",
    };
    let mut children = Vec::new();
    for process in 0..work.processes {
        let variables = [
            ("BENCH_URL", url.to_owned()),
            ("BENCH_NOTE", note.display().to_string()),
            ("BENCH_BEGIN", begin.display().to_string()),
            ("BENCH_MILLIS", time.as_millis().to_string()),
            ("BENCH_TASKS", work.tasks.to_string()),
            ("BENCH_SECTION", section.to_owned()),
            ("BENCH_PROCESS", process.to_string()),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        children.push(match work.lock {
            Lock::Dlock => Child::spawn("contender", &variables)?,
            Lock::PythonRedisLock => peers::python_redis_lock(&variables)?,
        });
    }
    for child in &mut children {
        child.wait_line("up", Duration::from_secs(60))?;
    }
    // All begin at the same instant. The file appears whole, or who looks for it might read half of a number.
    let start = SystemTime::now() + Duration::from_millis(300);
    let draft = folder.path().join("draft");
    std::fs::write(&draft, start.duration_since(UNIX_EPOCH)?.as_millis().to_string())?;
    std::fs::rename(&draft, &begin)?;
    let mut seen = Seen::default();
    for child in &mut children {
        let line = child.wait_line("seen ", time + Duration::from_secs(60))?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        let (head, rest) = numbers.split_at_checked(3).ok_or("a contender said nothing")?;
        let (per_task, waits) = rest.split_at_checked(head[2] as usize).ok_or("a contender said too little")?;
        seen.hand_overs += head[0];
        seen.micros = seen.micros.max(head[1]);
        seen.per_process.push(per_task.iter().sum());
        seen.per_task.extend(per_task);
        seen.waits.extend(waits);
    }
    seen.waits.sort_unstable();
    let millis = |share| percentile(&seen.waits, share) as f64 / 1000.0;
    let share = |of: &[u64], pick: Option<&u64>| {
        pick.copied().unwrap_or(0) as f64 * of.len() as f64 / of.iter().sum::<u64>() as f64
    };
    let seconds = seen.micros as f64 / 1e6;
    Ok(Measured {
        hand_overs: seen.hand_overs as f64 / seconds,
        seconds,
        wait_p50: millis(0.5),
        wait_p99: millis(0.99),
        least_of_tasks: share(&seen.per_task, seen.per_task.iter().min()),
        most_of_tasks: share(&seen.per_task, seen.per_task.iter().max()),
        least_of_processes: share(&seen.per_process, seen.per_process.iter().min()),
    })
}

/// How many hand-overs per second there would be if each took the hold and one round trip, and nothing else.
fn limit() -> Result<f64, Failed> {
    let mut client = redis::Client::open(shared().redis()?)?.get_connection()?;
    let (mut round_trips, mut holds) = (Vec::new(), Vec::new());
    for _ in 0..200 {
        let begun = Instant::now();
        let _: String = redis::cmd("PING").query(&mut client)?;
        round_trips.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        holds.push(begun.elapsed().as_secs_f64());
    }
    Ok(1.0 / (median(round_trips) + median(holds)))
}

/// Counted in a run of its own: MONITOR tells client commands from those inside scripts, and slows the server down.
fn commands_per_hand_over(work: Work) -> Result<f64, Failed> {
    use std::io::{BufRead, BufReader, Write};
    let url = shared().redis()?;
    let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let mut monitor = std::net::TcpStream::connect(&address)?;
    monitor.write_all(b"MONITOR\r\n")?;
    monitor.set_read_timeout(Some(Duration::from_millis(500)))?;
    // Fences bear the name of no key.
    let names = match work.lock {
        Lock::Dlock => ["bench:hot", "\"INCRBY\""],
        Lock::PythonRedisLock => ["\"lock:bench:hot\"", "\"lock-signal:bench:hot\""],
    };
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let counter = std::thread::spawn(move || {
        let (mut reader, mut line, mut commands) = (BufReader::new(monitor), Vec::new(), 0_u64);
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if reader.read_until(b'\n', &mut line).is_ok() {
                let text = String::from_utf8_lossy(&line);
                if !text.contains(" lua] ") && names.iter().any(|name| text.contains(name)) {
                    commands += 1;
                }
                line.clear();
            }
        }
        commands
    });
    let measured = measure(work, Duration::from_secs(1));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let commands = counter.join().map_err(|_| "the counter panicked")?;
    let Measured { hand_overs, seconds, .. } = measured?;
    Ok(commands as f64 / (hand_overs * seconds))
}

/// One of the processes.
pub(crate) fn child(role: &str) -> ExitCode {
    match contend() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{role}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn contend() -> Result<(), Failed> {
    let text = |name: &str| std::env::var(name).map_err(|_| format!("{name} is missing"));
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().map_err(|_| format!("{name}: {text}")));
    let (tasks, process) = (number("BENCH_TASKS")?, number("BENCH_PROCESS")?);
    let time = Duration::from_millis(number("BENCH_MILLIS")?);
    let last = Arc::new(OpenOptions::new().read(true).write(true).open(Path::new(&text("BENCH_NOTE")?))?);
    let (url, section, begin) = (text("BENCH_URL")?, text("BENCH_SECTION")?, text("BENCH_BEGIN")?);
    let here = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        Registry::global().connect("bench", &url).await?;
        let begin = beginning(Path::new(&begin)).await?;
        tokio::time::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let begun = Instant::now();
        let end = begun + time;
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let (last, here, section) = (last.clone(), here.clone(), section.clone());
                let hold = Duration::from_millis(u64::from(section == "long"));
                tokio::spawn(async move {
                    let (mut hand_overs, mut waits) = (0_u64, Vec::new());
                    while Instant::now() < end {
                        let begun = Instant::now();
                        let id = 1 + process * 1000 + task;
                        let changed = match section.as_str() {
                            "long" => locked(&last, id).await?,
                            "empty" => empty(&here, id).await?,
                            _ => passed(&here, id).await?,
                        };
                        hand_overs += u64::from(changed);
                        waits.push(begun.elapsed().saturating_sub(hold).as_micros());
                    }
                    Ok::<_, dlock::Error>((hand_overs, waits))
                })
            })
            .collect();
        let (mut hand_overs, mut waits, mut per_task) = (0, Vec::new(), Vec::new());
        for task in running {
            let (own, mut own_waits) = task.await??;
            hand_overs += own;
            per_task.push(own_waits.len().to_string());
            waits.append(&mut own_waits);
        }
        let micros = begun.elapsed().as_micros();
        let waits: Vec<_> = waits.iter().map(ToString::to_string).collect();
        println!("seen {hand_overs} {micros} {} {} {}", per_task.len(), per_task.join(" "), waits.join(" "));
        Ok(())
    })
}

/// Waits to be told when all begin, once every process is there.
async fn beginning(told: &Path) -> Result<SystemTime, Failed> {
    println!("up");
    while !told.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(UNIX_EPOCH + Duration::from_millis(std::fs::read_to_string(told)?.parse()?))
}
