//! A literal name that eight tasks of redsync and eight of ours want: what each side gets, beside what it gets alone.
//!
//! redsync runs with its defaults (32 tries, 50 to 250 ms apart), so its side alone is sixteen of its tasks. Each task does
//! without the lock for 10 ms between its holds.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use dlock::{Key, Registry, Wait};
use dlock_testkit::child::Child;
use dlock_testkit::servers::shared;

use crate::Failed;
use crate::peers::{self, REDSYNC};
use crate::table::{Contender, Row, percentile};

const ROUNDS: u32 = 3;
/// Long enough for some holds of each task that waits as long as redsync does at most.
const ROUND: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(10);

/// The holds and waits of one side, of all rounds together: the rare long waits matter here.
#[derive(Default)]
struct Seen {
    holds: u64,
    failures: u64,
    waits: Vec<u64>,
}

pub(crate) fn row(hold: Duration) -> Result<Row, Failed> {
    let name = format!("strangers-{}ms", hold.as_millis());
    peers::version(REDSYNC, &name)?;
    let (mut theirs_alone, mut ours_alone) = (Seen::default(), Seen::default());
    let (mut theirs, mut ours) = (Seen::default(), Seen::default());
    for round in 0..ROUNDS {
        // A name of its own for each part: the server remembers strangers for a minute.
        let name = |part| format!("bench:{part}-{round}-{}", hold.as_millis());
        theirs_alone.add(strangers(&name("theirs"), 16, hold)?)?;
        ours_alone.add(neighbours(&name("ours"), hold)?)?;
        let (own, other) = (neighbours(&name("both"), hold)?, strangers(&name("both"), 8, hold)?);
        ours.add(own)?;
        theirs.add(other)?;
    }
    let mut row = Row {
        about: format!(
            "One literal name on Redis that 8 tasks of dlock and 8 of redsync want, holds of {} ms, pauses of {} ms; \
             beside it 16 tasks of redsync alone, and 8 of dlock alone; the waits of all rounds together.",
            hold.as_millis(),
            PAUSE.as_millis()
        ),
        name,
        contenders: vec![
            theirs_alone.contender("redsync × 16"),
            theirs.contender("redsync × 8, beside dlock"),
            ours_alone.contender("dlock × 8"),
            ours.contender("dlock × 8, beside redsync"),
        ],
        aims: Vec::new(),
    };
    let ratio = |figure, of, to| row.figure(of, figure) / row.figure(to, figure);
    let p99 = ratio("wait p99 ms", "redsync × 8, beside dlock", "redsync × 16");
    let kept = ratio("holds/s", "dlock × 8, beside redsync", "dlock × 8");
    let (failures, alone) = (theirs.failed(), theirs_alone.failed());
    row.aim("p99 wait of redsync at most that of sixteen alone, ×", p99, p99 <= 1.0);
    row.aim("no more failures of redsync than of sixteen alone, of 1000 tries", failures - alone, failures <= alone);
    row.aim("dlock keeps half of its throughput", kept, kept >= 0.5);
    Ok(row)
}

impl Seen {
    /// Waits until their time is over.
    fn add(&mut self, mut child: Child) -> Result<(), Failed> {
        let line = child.wait_line("seen ", ROUND + Duration::from_secs(60))?;
        let mut numbers = line.split(' ').map(str::parse);
        self.holds += numbers.next().ok_or("a contender said nothing")??;
        self.failures += numbers.next().ok_or("a contender said too little")??;
        for wait in numbers {
            self.waits.push(wait?);
        }
        self.waits.sort_unstable();
        Ok(())
    }

    fn failed(&self) -> f64 {
        self.failures as f64 * 1000.0 / (self.holds + self.failures) as f64
    }

    fn contender(&self, name: &str) -> Contender {
        let millis = |share| percentile(&self.waits, share) as f64 / 1000.0;
        Contender {
            name: name.into(),
            figures: vec![
                ("holds/s", self.holds as f64 / (ROUNDS * ROUND).as_secs_f64()),
                ("wait p50 ms", millis(0.5)),
                ("wait p99 ms", millis(0.99)),
                ("failures of 1000 tries", self.failed()),
            ],
        }
    }
}

fn strangers(name: &str, tasks: u32, hold: Duration) -> Result<Child, Failed> {
    let flags = [
        ("-urls", shared().redis()?),
        ("-name", name.to_owned()),
        ("-tasks", tasks.to_string()),
        ("-for", format!("{}ms", ROUND.as_millis())),
        ("-hold", format!("{}ms", hold.as_millis())),
        ("-pause", format!("{}ms", PAUSE.as_millis())),
    ];
    let mut child = peers::redsync(flags.iter().flat_map(|(flag, value)| [*flag, value.as_str()]))?;
    child.wait_line("up", Duration::from_secs(60))?;
    Ok(child)
}

fn neighbours(name: &str, hold: Duration) -> Result<Child, Failed> {
    let (url, hold) = (shared().redis()?, hold.as_millis().to_string());
    let variables = [("BENCH_URL", url.as_str()), ("BENCH_NAME", name), ("BENCH_HOLD", &hold)];
    let mut child = Child::spawn("neighbours", &variables)?;
    child.wait_line("up", Duration::from_secs(60))?;
    Ok(child)
}

/// Our side, in a process of its own.
pub(crate) fn child() -> ExitCode {
    match contend() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("neighbours: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main(worker_threads = 2)]
async fn contend() -> Result<(), Failed> {
    let (name, hold) = (std::env::var("BENCH_NAME")?, Duration::from_millis(std::env::var("BENCH_HOLD")?.parse()?));
    let registry = Registry::global();
    registry.connect("bench", &format!("{}?keys=literal", std::env::var("BENCH_URL")?)).await?;
    registry.set_default("bench")?;
    println!("up");
    let end = Instant::now() + ROUND;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let key = Key::text("bench:").value(&name.trim_start_matches("bench:"));
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while Instant::now() < end {
                    let begun = Instant::now();
                    let lock = Registry::global().lock(key.clone()).ttl(Duration::from_secs(8));
                    let guard = lock.wait(Wait::UpTo(Duration::from_secs(60))).acquire().await?;
                    waits.push(begun.elapsed().as_micros().to_string());
                    tokio::time::sleep(hold).await;
                    guard.release().await?;
                    tokio::time::sleep(PAUSE).await;
                }
                Ok::<_, dlock::Error>(waits)
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.append(&mut task.await??);
    }
    println!("seen {} 0 {}", waits.len(), waits.join(" "));
    Ok(())
}
