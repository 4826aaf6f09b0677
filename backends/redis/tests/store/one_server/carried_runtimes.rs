//! Two runtimes of one process wait for one lock, and one of them ends while a release asks for the next caller.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlock::{Guard, Held, Key, Lock, Registry, Wait};
use dlock_testkit::servers::Instance;
use dlock_testkit::{Mode, Proxy, block_until};
use futures::FutureExt;
use redis::Commands;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use super::database::Database;
use crate::names::{self, FENCE};

/// Longer than any wait here, so a caller that gets the lock has not waited for the end of a lease.
const TTL: Duration = Duration::from_secs(120);
const WAIT: Wait = Wait::UpTo(Duration::from_secs(40));

/// One registry behind a proxy, used by two runtimes.
struct Bench {
    server: Database<Instance>,
    proxy: Proxy,
    registry: Registry,
    staying: Runtime,
    ending: Option<Runtime>,
}

impl Bench {
    /// Pushes reach it, and the only connections are those of the runtime that will end.
    fn new() -> Self {
        let server = Database::own(&[]);
        let (proxy, through) = Proxy::in_front_of(&server.url).unwrap();
        let (registry, other) = (Registry::new(), Registry::new());
        let (staying, ending) = (runtime(), runtime());
        ending.block_on(async {
            for (registry, url) in [(&registry, &through), (&other, &server.url)] {
                registry.connect("redis", url).await.unwrap();
                registry.set_default("redis").unwrap();
            }
            let held = other.lock("k").acquire().await.unwrap();
            let waiting = tokio::spawn(registry.lock("k").ttl(TTL).wait(WAIT).acquire());
            block_until("it stands in the line", || in_line(&server) == 1).unwrap();
            held.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        });
        Self { server, proxy, registry, staying, ending: Some(ending) }
    }

    fn lock(&self) -> Lock {
        self.registry.lock("k").ttl(TTL).wait(WAIT)
    }

    fn ending(&self) -> &Runtime {
        self.ending.as_ref().unwrap()
    }

    /// Ends that runtime, with its tasks and connections.
    fn end(&mut self) {
        drop(self.ending.take());
    }

    /// Lets a task wait; it has its place in the process when this returns.
    fn waits(&self, runtime: &Runtime) -> JoinHandle<dlock::Result<Guard>> {
        let _inside = runtime.enter();
        let mut waiting = self.lock().acquire().boxed();
        assert!((&mut waiting).now_or_never().is_none());
        runtime.spawn(waiting)
    }

    fn holder(&self) -> String {
        let value: String = self.server.raw().get(names::of_default(Key::text("k"))).unwrap();
        value[..32].to_owned()
    }

    /// The remaining caller gets the lock. After that nothing is left in the server.
    fn finish(&self, before: u64, waiting: JoinHandle<dlock::Result<Guard>>) {
        let guard = self.staying.block_on(waiting).unwrap().unwrap();
        assert!(token(&guard) > before, "{before} {}", token(&guard));
        self.staying.block_on(guard.release()).unwrap();
        self.is_empty();
    }

    fn is_empty(&self) {
        block_until("nothing is left", || self.server.keys() == [FENCE]).unwrap();
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn token(held: &Held) -> u64 {
    held.fence().unwrap().get()
}

fn in_line(server: &Database<Instance>) -> u64 {
    server.raw().zcard(format!("{}:q", names::of_default(Key::text("k")))).unwrap()
}

/// It stood in the store's line, since the hold before was not of its runtime.
#[test]
fn a_waiter_in_the_local_queue_ends_with_its_runtime() {
    let mut bench = Bench::new();
    let held = bench.staying.block_on(bench.lock().acquire()).unwrap();
    let before = token(&held);
    let _next = bench.waits(bench.ending());
    block_until("it stands in the line", || in_line(&bench.server) == 1).unwrap();
    let third = bench.waits(&bench.staying);
    bench.end();
    bench.staying.block_on(held.release()).unwrap();
    bench.finish(before, third);
}

/// It waited for the release of a neighbour of its own; the guard outlives them both.
#[test]
fn the_next_caller_ends_with_the_runtime_of_the_holder() {
    let mut bench = Bench::new();
    let held = bench.ending().block_on(bench.lock().acquire()).unwrap();
    let before = token(&held);
    let _next = bench.waits(bench.ending());
    let third = bench.waits(&bench.staying);
    assert_eq!(in_line(&bench.server), 0, "they wait behind a neighbour");
    bench.end();
    block_until("who is left stands in the line itself", || in_line(&bench.server) == 1).unwrap();
    drop(held);
    bench.finish(before, third);
}

/// The server has granted the lock to a caller that will never hear of it.
#[test]
fn a_runtime_ends_before_the_answer_to_its_release_has_come() {
    let mut bench = Bench::new();
    let held = bench.ending().block_on(bench.lock().acquire()).unwrap();
    let (before, holder) = (token(&held), bench.holder());
    let _next = bench.waits(bench.ending());
    let third = bench.waits(&bench.staying);
    bench.proxy.set(Mode::Blackhole { to_server: false, to_client: true });
    bench.ending().spawn(held.release());
    block_until("the next one has the lock", || bench.holder() != holder).unwrap();
    bench.proxy.set(Mode::Pass);
    bench.end();
    bench.finish(before, third);
}

/// The request that it has sent comes to the server when everybody has long gone on without it: while the lock is held,
/// and when it is free. Our account may not end the connection in the server, or nothing would come.
#[test]
fn a_request_of_a_runtime_arrives_after_the_runtimes_end() {
    for is_held in [true, false] {
        let mut bench = Bench::new();
        let deny = ["SETUSER", "default", "-client|kill"];
        let () = redis::cmd("ACL").arg(&deny).query(&mut bench.server.raw()).unwrap();
        let held = bench.ending().block_on(bench.lock().acquire()).unwrap();
        let before = token(&held);
        let _next = bench.waits(bench.ending());
        let third = bench.waits(&bench.staying);
        bench.proxy.keep();
        bench.ending().spawn(held.release());
        let sent_over = || bench.proxy.kept().iter().position(|kept| *kept > 0);
        block_until("the request has left", || sent_over().is_some()).unwrap();
        let way = sent_over().unwrap();
        bench.end();
        let guard = bench.staying.block_on(third).unwrap().unwrap();
        assert!(token(&guard) > before);
        let before = token(&guard);
        // Requests that our own thread has sent since come later still.
        let late = |at, kept| if at == way { kept } else { 0 };
        let deliver = || {
            let kept = bench.proxy.kept();
            bench.proxy.deliver(&kept.iter().enumerate().map(|(at, kept)| late(at, *kept)).collect::<Vec<_>>());
        };
        if is_held {
            deliver();
            block_until("it stands in the line", || in_line(&bench.server) == 1).unwrap();
            bench.staying.block_on(guard.release()).unwrap();
        } else {
            bench.staying.block_on(guard.release()).unwrap();
            deliver();
            block_until("it was granted the lock", || !bench.server.keys().is_empty()).unwrap();
        }
        bench.proxy.set(Mode::Pass);
        bench.proxy.deliver(&bench.proxy.kept());
        let guard = bench.staying.block_on(bench.lock().acquire()).unwrap();
        assert!(token(&guard) > before);
        bench.staying.block_on(guard.release()).unwrap();
        bench.is_empty();
    }
}

/// The view that the bodies of many tasks have of one lock.
#[derive(Default)]
struct Seen {
    is_inside: AtomicBool,
    token: AtomicU64,
    /// Counted in two steps, and in one.
    count: AtomicU64,
    done: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// Is in the body until it is dropped, also with its runtime.
struct Inside(Arc<Seen>);

impl Seen {
    fn enter(self: &Arc<Self>, token: u64) -> Inside {
        let wrong = |what: String| self.wrong.lock().unwrap().push(what);
        if self.is_inside.swap(true, Ordering::SeqCst) {
            wrong(format!("two are inside, the later with {token}"));
        }
        let last = self.token.swap(token, Ordering::SeqCst);
        if last >= token {
            wrong(format!("{token} after {last}"));
        }
        Inside(self.clone())
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.is_inside.store(false, Ordering::SeqCst);
    }
}

/// In each round a runtime ends while its tasks are anywhere: in the body, in the queue, in a release.
#[test]
fn runtimes_end_while_their_tasks_and_others_pass_the_lock_on() {
    let mut bench = Bench::new();
    let seen = Arc::new(Seen::default());
    let stop = Arc::new(AtomicBool::new(false));
    let work = |runtime: &Runtime| {
        let (seen, stop, registry) = (seen.clone(), stop.clone(), bench.registry.clone());
        runtime.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let body = async |held: Held| {
                    let inside = seen.enter(token(&held));
                    let count = seen.count.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    inside.0.count.store(count + 1, Ordering::SeqCst);
                    seen.done.fetch_add(1, Ordering::SeqCst);
                };
                if let Err(error) = registry.lock("k").ttl(TTL).wait(WAIT).run(body).await {
                    seen.wrong.lock().unwrap().push(error.to_string());
                }
            }
        })
    };
    let staying: Vec<_> = (0..3).map(|_| work(&bench.staying)).collect();
    for _ in 0..8 {
        let ending = bench.ending.take().unwrap_or_else(runtime);
        for _ in 0..3 {
            work(&ending);
        }
        let begin = seen.done();
        block_until("both work", || seen.done() > begin + 50).unwrap();
        drop(ending);
        let alone = seen.done();
        block_until("who is left goes on", || seen.done() > alone + 20).unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    for worker in staying {
        bench.staying.block_on(worker).unwrap();
    }
    let wrong = seen.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(seen.count.load(Ordering::SeqCst), seen.done());
    bench.is_empty();
}
