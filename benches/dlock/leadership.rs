//! How long an election has no leader: after a `kill -9` of the leader's process, and after an orderly resignation. The
//! floor of the second is the hand-over of a plain lock between the same two processes.

use std::process::ExitCode;
use std::time::Duration;

use dlock::{Clock, Registry, Wait};
use dlock_testkit::child::Child;
use dlock_testkit::servers::shared;

use crate::Failed;
use crate::table::{Contender, Row, median};

const TTL: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of leaders that are killed, each after some time.
const KILLS: usize = 5;

/// How many times the leader resigns, and a plain lock is handed over.
const HAND_OVERS: usize = 15;

/// How long Consul keeps a lock after its holder's session has ended. Its own default is 15 s.
const LOCK_DELAY: Duration = Duration::from_secs(1);

/// Long enough for the other process to join the queue.
const IN_LINE: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Sqlite,
    Redis,
    Postgres,
    Etcd,
    ZooKeeper,
    Consul,
}

impl Store {
    const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
            Self::ZooKeeper => "zookeeper",
            Self::Consul => "consul",
        }
    }

    /// The promised time without a leader after a crash.
    fn promised(self) -> Duration {
        let second = Duration::from_secs(1);
        match self {
            // It looks for leases that have ended only now and then.
            Self::Etcd => 2 * TTL,
            // Its servers wait for twice the ttl.
            Self::Consul => 2 * TTL + LOCK_DELAY + second,
            _ => TTL + second,
        }
    }
}

pub(crate) fn row(store: Store) -> Result<Row, Failed> {
    let folder = tempfile::tempdir()?;
    let url = match store {
        Store::Sqlite => format!("sqlite://{}", folder.path().join("locks.db").display()),
        Store::Redis => shared().redis()?,
        Store::Postgres => shared().postgres()?,
        Store::Etcd => shared().etcd()?.replace("http://", "etcd://"),
        Store::ZooKeeper => shared().zookeeper()?,
        Store::Consul => format!("{}?lock_delay={}s", shared().consul()?, LOCK_DELAY.as_secs()),
    };
    let killed = kills(&url)?;
    let worst = killed.iter().copied().fold(0.0, f64::max);
    // In turns, so that a slow second of the machine hits both.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut resigned, mut handed_over) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        resigned.extend(runtime.block_on(hand_overs(&url, "resign"))?);
        handed_over.extend(runtime.block_on(hand_overs(&url, "plain"))?);
    }
    let (resigned, handed_over) = (median(resigned), median(handed_over));
    let figures = vec![
        ("after kill -9, median s", median(killed)),
        ("after kill -9, worst s", worst),
        ("after a resignation, median ms", resigned * 1e3),
        ("hand-over of a plain lock, median ms", handed_over * 1e3),
        ("resignation × hand-over", resigned / handed_over),
    ];
    let mut row = Row {
        name: format!("leadership-{}", store.name()),
        about: format!(
            "Time without a leader on {}, ttl {} s, the next candidate waits in another process.",
            store.name(),
            TTL.as_secs()
        ),
        contenders: vec![Contender { name: "dlock".into(), figures }],
        aims: Vec::new(),
    };
    let promised = store.promised().as_secs_f64();
    row.aim(&format!("at most {promised:.0} s after kill -9, worst"), worst, worst <= promised);
    let ratio = resigned / handed_over;
    row.aim("after a resignation at most 2 × the hand-over of a plain lock", ratio, ratio <= 2.0);
    Ok(row)
}

/// Seconds from each kill of a leader to the next leader's begin.
fn kills(url: &str) -> Result<Vec<f64>, Failed> {
    let candidate = || Child::spawn("leader", &[("URL", url), ("PART", "lead")]);
    let mut leader = candidate()?;
    leader.wait_line("leads ", PATIENCE)?;
    let mut times = Vec::new();
    for round in 0..KILLS {
        let mut next = candidate()?;
        next.wait_line("up", PATIENCE)?;
        // Not always at the same time after a renewal.
        std::thread::sleep(IN_LINE + TTL.mul_f64(round as f64 / KILLS as f64 / 3.0));
        let killed = now();
        leader.kill9()?;
        times.push(begin_of(&mut next)? - killed);
        leader = next;
    }
    Ok(times)
}

/// Seconds from each end of a hold of ours to the begin of the other process's.
async fn hand_overs(url: &str, part: &str) -> Result<Vec<f64>, Failed> {
    let registry = Registry::new();
    registry.connect("bench", url).await?;
    let mut other = None;
    let mut times = Vec::new();
    for _ in 0..HAND_OVERS / 3 {
        let ended = if part == "resign" {
            let leadership = registry.elect("bench:leader:resign").ttl(TTL).campaign().await?;
            in_line(&mut other, url, part).await?;
            let before = now();
            leadership.resign().await?;
            before
        } else {
            let guard = registry.lock("bench:plain").ttl(TTL).wait(Wait::Forever).acquire().await?;
            in_line(&mut other, url, part).await?;
            let before = now();
            guard.release().await?;
            before
        };
        let other = other.as_mut().ok_or("no other process")?;
        // It may have led before we did, and said so.
        let mut begun = begin_of(other)?;
        while begun < ended {
            begun = begin_of(other)?;
        }
        times.push(begun - ended);
    }
    drop(other);
    registry.shutdown(Duration::from_secs(1)).await;
    Ok(times)
}

/// Waits until the other process is in the queue.
async fn in_line(other: &mut Option<Child>, url: &str, part: &str) -> Result<(), Failed> {
    if other.is_none() {
        let mut child = Child::spawn("leader", &[("URL", url), ("PART", part)])?;
        child.wait_line("up", PATIENCE)?;
        *other = Some(child);
    }
    tokio::time::sleep(2 * IN_LINE).await;
    Ok(())
}

fn begin_of(child: &mut Child) -> Result<f64, Failed> {
    Ok(child.wait_line("leads ", PATIENCE)?.parse()?)
}

/// Seconds on the clock that all processes share.
fn now() -> f64 {
    Clock::system().now().as_nanos() as f64 / 1e9
}

/// The other process.
pub(crate) fn child() -> ExitCode {
    let run = || -> Result<(), Failed> {
        let (url, part) = (std::env::var("URL")?, std::env::var("PART")?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(async {
            dlock::connect("bench", &url).await?;
            println!("up");
            match part.as_str() {
                "lead" => dlock::elect("bench:leader").ttl(TTL).lead(async |_| forever().await).await?,
                "resign" => loop {
                    let leadership = dlock::elect("bench:leader:resign").ttl(TTL).campaign().await?;
                    println!("leads {}", now());
                    tokio::time::sleep(IN_LINE).await;
                    leadership.resign().await?;
                },
                _ => loop {
                    let guard = dlock::lock("bench:plain").ttl(TTL).wait(Wait::Forever).acquire().await?;
                    println!("leads {}", now());
                    tokio::time::sleep(IN_LINE).await;
                    guard.release().await?;
                },
            }
            Ok(())
        })
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn forever() {
    println!("leads {}", now());
    std::future::pending::<()>().await;
}
