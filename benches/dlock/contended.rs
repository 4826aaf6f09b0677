//! One key that everybody wants: hold it for 1 ms, release, ask again at once.
//!
//! The holder is written to a file that all processes share; a cycle counts as a hand-over only if another task held
//! before. The hold is a thread's sleep, since an async timer's 1 ms lasts about 2.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dlock::{Registry, distributed_lock};
use dlock_testkit::child::Child;
use dlock_testkit::servers::shared;

use crate::Failed;
use crate::table::{Contender, Row, median, percentile};

#[distributed_lock(key = "bench:hot", ttl = "10s", wait = "60s", backend = "bench")]
async fn locked(last: &File, id: u64) -> Result<bool, dlock::Error> {
    let mut before = [0; 8];
    let _ = last.read_at(&mut before, 0);
    let _ = last.write_at(&id.to_le_bytes(), 0);
    std::thread::sleep(Duration::from_millis(1));
    Ok(u64::from_le_bytes(before) != id)
}

const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);

/// What one process has seen.
#[derive(Default)]
struct Seen {
    hand_overs: u64,
    waits: Vec<u64>,
    per_task: Vec<u64>,
}

pub(crate) fn row(processes: usize, tasks: usize) -> Result<Row, Failed> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(measure(processes, tasks, ROUND)?);
    }
    let commands = commands_per_hand_over(processes, tasks)?;
    let middle = |pick: fn(&[f64; 5]) -> f64| median(rounds.iter().map(pick).collect());
    let name = if processes == 1 { format!("contended-{tasks}") } else { format!("contended-{processes}x{tasks}") };
    let mut row = Row {
        about: format!(
            "One key on Redis, {processes} process(es) × {tasks} tasks, 1 ms hold; no passing inside a process."
        ),
        name,
        contenders: vec![Contender {
            name: "dlock".into(),
            figures: vec![
                ("hand-overs/s", middle(|m| m[0])),
                ("wait p50 ms", middle(|m| m[1])),
                ("wait p99 ms", middle(|m| m[2])),
                ("least cycles of a task", middle(|m| m[3])),
                ("most cycles of a task", middle(|m| m[4])),
                ("client commands per hand-over", commands),
            ],
        }],
        aims: Vec::new(),
    };
    if processes > 1 {
        let hand_overs = row.figure("dlock", "hand-overs/s");
        row.aim("at least 650 hand-overs per second", hand_overs, hand_overs >= 650.0);
        row.aim("at most 4 client commands per hand-over", commands, commands <= 4.0);
    }
    Ok(row)
}

/// Hand-overs per second, wait p50 and p99 in ms, least and most cycles of a task.
fn measure(processes: usize, tasks: usize, time: Duration) -> Result<[f64; 5], Failed> {
    let url = shared().redis()?;
    let folder = tempfile::tempdir()?;
    let note = folder.path().join("holder");
    std::fs::write(&note, [0; 8])?;
    // All begin at the same instant, when every process is surely there.
    let start = SystemTime::now() + Duration::from_millis(700);
    let begin = start.duration_since(UNIX_EPOCH)?.as_millis().to_string();
    let mut children = Vec::new();
    for process in 0..processes {
        let variables = [
            ("BENCH_URL", url.clone()),
            ("BENCH_NOTE", note.display().to_string()),
            ("BENCH_BEGIN", begin.clone()),
            ("BENCH_MILLIS", time.as_millis().to_string()),
            ("BENCH_TASKS", tasks.to_string()),
            ("BENCH_PROCESS", process.to_string()),
        ];
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        children.push(Child::spawn("contender", &variables)?);
    }
    let mut seen = Seen::default();
    for child in &mut children {
        let line = child.wait_line("seen ", time + Duration::from_secs(60))?;
        let numbers: Vec<u64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
        let (head, rest) = numbers.split_at_checked(2).ok_or("a contender said nothing")?;
        let (per_task, waits) = rest.split_at_checked(head[1] as usize).ok_or("a contender said too little")?;
        seen.hand_overs += head[0];
        seen.per_task.extend(per_task);
        seen.waits.extend(waits);
    }
    seen.waits.sort_unstable();
    let millis = |share| percentile(&seen.waits, share) as f64 / 1000.0;
    let cycles = |pick: Option<&u64>| pick.copied().unwrap_or(0) as f64;
    Ok([
        seen.hand_overs as f64 / time.as_secs_f64(),
        millis(0.5),
        millis(0.99),
        cycles(seen.per_task.iter().min()),
        cycles(seen.per_task.iter().max()),
    ])
}

/// Counted in a run of its own: MONITOR tells client commands from those inside scripts, and slows the server down.
fn commands_per_hand_over(processes: usize, tasks: usize) -> Result<f64, Failed> {
    use std::io::{BufRead, BufReader, Write};
    let url = shared().redis()?;
    let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    let mut monitor = std::net::TcpStream::connect(&address)?;
    monitor.write_all(b"MONITOR\r\n")?;
    monitor.set_read_timeout(Some(Duration::from_millis(500)))?;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let counter = std::thread::spawn(move || {
        let (mut reader, mut line, mut commands) = (BufReader::new(monitor), Vec::new(), 0_u64);
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            if reader.read_until(b'\n', &mut line).is_ok() {
                let text = String::from_utf8_lossy(&line);
                if !text.contains(" lua] ") && text.contains("bench:hot") | text.contains("\"INCR\"") {
                    commands += 1;
                }
                line.clear();
            }
        }
        commands
    });
    let time = Duration::from_secs(1);
    let measured = measure(processes, tasks, time);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let commands = counter.join().map_err(|_| "the counter panicked")?;
    Ok(commands as f64 / (measured?[0] * time.as_secs_f64()))
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
    let begin = UNIX_EPOCH + Duration::from_millis(number("BENCH_BEGIN")?);
    let time = Duration::from_millis(number("BENCH_MILLIS")?);
    let last = Arc::new(OpenOptions::new().read(true).write(true).open(Path::new(&text("BENCH_NOTE")?))?);
    let url = text("BENCH_URL")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        Registry::global().connect("bench", &url).await?;
        tokio::time::sleep(begin.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let end = Instant::now() + time;
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let last = last.clone();
                tokio::spawn(async move {
                    let (mut hand_overs, mut waits) = (0_u64, Vec::new());
                    while Instant::now() < end {
                        let begun = Instant::now();
                        hand_overs += u64::from(locked(&last, 1 + process * 1000 + task).await?);
                        waits.push(begun.elapsed().saturating_sub(Duration::from_millis(1)).as_micros());
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
        let waits: Vec<_> = waits.iter().map(ToString::to_string).collect();
        println!("seen {hand_overs} {} {} {}", per_task.len(), per_task.join(" "), waits.join(" "));
        Ok(())
    })
}
