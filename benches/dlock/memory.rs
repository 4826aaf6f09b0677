//! The memory backend against a plain keyed async mutex: what all of the promises cost without any network.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dlock::{Registry, distributed_lock};

use crate::Failed;
use crate::table::{Contender, Row, median};

#[distributed_lock(key = "bench:<id>", ttl = "30s", backend = "memory")]
async fn locked(id: usize) -> Result<(), dlock::Error> {
    Ok(())
}

/// The handwritten peer: a map of mutexes that removes an entry when nobody uses it.
#[derive(Default)]
struct Keyed(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Keyed {
    async fn locked(&self, id: usize) {
        let key = format!("bench:{id}");
        let mutex = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone();
        drop(mutex.lock().await);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&mutex) == 2 {
            all.remove(&key);
        }
    }
}

const CONTENDERS: [&str; 2] = ["keyed async mutex", "dlock, memory"];

pub(crate) fn row() -> Result<Row, Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(Registry::global().connect("memory", "memory://"))?;
    let keyed = Arc::new(Keyed::default());
    let mut figures = Vec::new();
    for tasks in [1, 64] {
        let mut rounds = vec![Vec::new(); CONTENDERS.len()];
        for round in 0..=5 {
            let order: [usize; 2] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for contender in order {
                let rate = runtime.block_on(measure(contender, tasks, &keyed))?;
                if round > 0 {
                    rounds[contender].push(rate);
                }
            }
        }
        figures.push(rounds.into_iter().map(median).collect::<Vec<_>>());
    }
    let contenders = CONTENDERS.iter().enumerate().map(|(contender, name)| Contender {
        name: (*name).to_owned(),
        figures: vec![
            ("cycles/s, 1 task", figures[0][contender]),
            ("cycles/s, 64 tasks", figures[1][contender]),
            ("time of a cycle × mutex, 1 task", figures[0][0] / figures[0][contender]),
            ("time of a cycle × mutex, 64 tasks", figures[1][0] / figures[1][contender]),
        ],
    });
    Ok(Row {
        name: "memory".into(),
        about: "Acquire and release in one process, a key for each task; dlock adds lease, fence, watchdog, note and events.".into(),
        contenders: contenders.collect(),
        aims: Vec::new(),
    })
}

async fn measure(contender: usize, tasks: usize, keyed: &Arc<Keyed>) -> Result<f64, Failed> {
    let start = Instant::now();
    let end = start + Duration::from_millis(500);
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let keyed = keyed.clone();
            tokio::spawn(async move {
                let mut cycles = 0_u64;
                while Instant::now() < end {
                    match contender {
                        0 => keyed.locked(task).await,
                        _ => locked(task).await?,
                    }
                    cycles += 1;
                    // Nothing here ever waits; without this a task would keep its worker to itself.
                    if u64::is_multiple_of(cycles, 64) {
                        tokio::task::yield_now().await;
                    }
                }
                Ok::<_, dlock::Error>(cycles)
            })
        })
        .collect();
    let mut cycles = 0;
    for task in running {
        cycles += task.await??;
    }
    Ok(cycles as f64 / start.elapsed().as_secs_f64())
}
