//! The watches of one store: an inotify instance, a task that reads it, and the waiters of each side file.
//!
//! Nothing is opened before the first waiter. Events are hints: a waiter that hears one asks again.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dlock_contract::BootInstant;
use dlock_store::{Clock, Run, aside, background};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{oneshot, watch};

use crate::side_files::{Number, SideFiles};

/// The pause after a failure: a limit that is reached stays reached for a while.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// This many events without a waiter end a watch. A process that only releases must not be woken for ever.
const UNHEARD_LIMIT: u32 = 100;

/// The watches of one store.
#[derive(Debug)]
pub(crate) struct Watches {
    side_files: Arc<SideFiles>,
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    instance: Option<Instance>,
    watched: HashMap<Number, Watched>,
    failed: Option<Failed>,
}

/// An inotify instance. Its task ends with it.
#[derive(Debug)]
struct Instance {
    inotify: Arc<OwnedFd>,
    _task: Run<()>,
}

/// One watched side file.
#[derive(Debug)]
struct Watched {
    id: i32,
    news: Arc<watch::Sender<()>>,
    /// The events since one had a waiter.
    unheard: u32,
}

#[derive(Debug)]
struct Failed {
    number: Number,
    why: String,
    again: BootInstant,
}

impl Watches {
    pub(crate) fn new(side_files: Arc<SideFiles>, clock: Clock) -> Self {
        Self { side_files, clock, state: Arc::default() }
    }

    /// Hears every event from now on. `None` if the file is not watched.
    pub(crate) fn listen(&self, number: Number) -> Option<watch::Receiver<()>> {
        lock(&self.state).watched.get(&number).map(|watched| watched.news.subscribe())
    }

    /// Watches a side file, and says whether it is watched now.
    pub(crate) async fn watch(&self, number: Number) -> bool {
        let now = self.clock.now();
        {
            let state = lock(&self.state);
            if state.failed.as_ref().is_some_and(|failed| now < failed.again) {
                return false;
            }
        }
        self.watch_now(number).await
    }

    /// Why waiters are not woken. Tries once more where that failed before.
    pub(crate) async fn failure(&self) -> Option<String> {
        let (failed, opened) = {
            let state = lock(&self.state);
            (state.failed.as_ref().map(|failed| failed.number), state.instance.is_some())
        };
        match failed {
            Some(number) => drop(self.watch_now(number).await),
            None if !opened => return create().err(),
            None => {}
        }
        lock(&self.state).failed.as_ref().map(|failed| failed.why.clone())
    }

    /// Ends all watches. The next waiter opens them again.
    pub(crate) fn close(&self) {
        let state = std::mem::take(&mut *lock(&self.state));
        drop(state);
    }

    /// On a thread of its own, because the disk may hang.
    async fn watch_now(&self, number: Number) -> bool {
        let (tell, told) = oneshot::channel();
        let (side_files, state) = (self.side_files.clone(), self.state.clone());
        let begun = aside("dlock-sqlite-look", move || {
            // The caller may be gone meanwhile.
            let _ = tell.send(register(&side_files, &state, number));
        });
        let done = match begun {
            Ok(()) => told.await.unwrap_or_else(|_| Err("its thread has died".to_owned())),
            Err(error) => Err(error.to_string()),
        };
        let again = self.clock.now().after(RETRY_PAUSE);
        let mut state = lock(&self.state);
        state.failed = done.err().map(|why| Failed { number, why, again });
        state.failed.is_none()
    }
}

fn register(side_files: &SideFiles, state: &Arc<Mutex<State>>, number: Number) -> Result<(), String> {
    let path = side_files.prepare(number).map_err(|error| error.to_string())?;
    let inotify = instance(state)?;
    let events = WatchFlags::OPEN | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::DONT_FOLLOW;
    let id = inotify::add_watch(&inotify, &path, events).map_err(|error| match error {
        Errno::NOSPC => "the user has too many inotify watches; raise fs.inotify.max_user_watches".to_owned(),
        error => format!("{}: {error}", path.display()),
    })?;
    let mut state = lock(state);
    if !state.instance.as_ref().is_some_and(|instance| Arc::ptr_eq(&instance.inotify, &inotify)) {
        return Err("the store was closed meanwhile".to_owned());
    }
    let known = state.watched.get(&number).is_some_and(|watched| watched.id == id);
    let news = Arc::new(watch::Sender::new(()));
    let replaced = if known { None } else { state.watched.insert(number, Watched { id, news, unheard: 0 }) };
    drop(state);
    // Outside of the lock, because it wakes the waiters of a file that is gone.
    drop(replaced);
    Ok(())
}

fn instance(state: &Arc<Mutex<State>>) -> Result<Arc<OwnedFd>, String> {
    let mut locked = lock(state);
    if let Some(instance) = &locked.instance {
        return Ok(instance.inotify.clone());
    }
    let inotify = Arc::new(create()?);
    let background = background().map_err(|error| error.to_string())?;
    let task = background.run(read(inotify.clone(), Arc::downgrade(state)));
    locked.instance = Some(Instance { inotify: inotify.clone(), _task: task });
    Ok(inotify)
}

fn create() -> Result<OwnedFd, String> {
    inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|error| match error {
        Errno::MFILE => "the user has too many inotify instances, or the process too many open files; raise \
             fs.inotify.max_user_instances or the limit of open files"
            .to_owned(),
        error => format!("the system has no inotify: {error}"),
    })
}

/// Reads events until the store is closed.
async fn read(inotify: Arc<OwnedFd>, state: Weak<Mutex<State>>) {
    if let Ok(readable) = readable(inotify) {
        while let Ok(mut ready) = readable.readable().await {
            let (events, empty) = drain(readable.get_ref());
            if !empty {
                break;
            }
            ready.clear_ready();
            let Some(state) = state.upgrade() else { return };
            tell(&state, &events);
        }
    }
    // The instance is broken. The waiters hear of it, and the next one opens another instance.
    if let Some(state) = state.upgrade() {
        let broken = std::mem::take(&mut *lock(&state));
        drop(broken);
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for the sake of borrowed descriptors; this one is owned, which is sound"
)]
fn readable(inotify: Arc<OwnedFd>) -> std::io::Result<AsyncFd<Arc<OwnedFd>>> {
    AsyncFd::with_interest(inotify, Interest::READABLE)
}

/// All events that are there, and whether the instance then said that there are no more.
fn drain(inotify: &OwnedFd) -> (Vec<(i32, ReadFlags)>, bool) {
    let (mut events, mut buffer) = (Vec::new(), [MaybeUninit::uninit(); 4096]);
    let mut reader = Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(event) => events.push((event.wd(), event.events())),
            Err(Errno::INTR) => {}
            Err(error) => return (events, error == Errno::AGAIN),
        }
    }
}

fn tell(state: &Mutex<State>, events: &[(i32, ReadFlags)]) {
    let mut news = Vec::new();
    {
        let State { instance, watched, .. } = &mut *lock(state);
        let overflow = events.iter().any(|(_, what)| what.contains(ReadFlags::QUEUE_OVERFLOW));
        watched.retain(|_, watched| {
            let mut own = events.iter().filter(|(id, _)| *id == watched.id).map(|(_, what)| *what).peekable();
            if !overflow && own.peek().is_none() {
                return true;
            }
            news.push(watched.news.clone());
            let heard = watched.news.receiver_count() > 0;
            watched.unheard = if heard { 0 } else { watched.unheard.saturating_add(1) };
            // A file that was removed or moved away gets no events of new releases.
            let lost = own.any(|what| !what.contains(ReadFlags::OPEN));
            if (lost || watched.unheard >= UNHEARD_LIMIT)
                && let Some(instance) = instance
            {
                // The kernel has ended the watch of a removed file already.
                let _ = inotify::remove_watch(&instance.inotify, watched.id);
                return false;
            }
            true
        });
    }
    // Outside of the lock, because wakers may do anything.
    for news in news {
        news.send_replace(());
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use dlock_store::Address;

    use super::*;
    use crate::file::{DatabaseFile, FORM};

    const KEY: &str = "dl1:test:a";

    async fn until(what: &str, done: impl Fn() -> bool) {
        let waits = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waits)
            .await
            .unwrap_or_else(|_| panic!("not within 30 s: {what}"));
    }

    fn watches(folder: &tempfile::TempDir) -> Watches {
        let path = folder.path().join("locks.db");
        std::fs::write(&path, "").unwrap();
        let address = Address::parse(&format!("sqlite://{}", path.display()), &FORM).unwrap();
        let side_files = Arc::new(SideFiles::new(Arc::new(DatabaseFile::of(&address).unwrap())));
        Watches::new(side_files, Clock::system())
    }

    #[tokio::test]
    async fn dropped_waiters_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let watches = watches(&folder);
        let number = crate::side_files::number_of(KEY);
        assert!(watches.listen(number).is_none() && lock(&watches.state).instance.is_none(), "opened without a waiter");
        assert!(watches.watch(number).await);
        let waiters: Vec<_> = (0..50).map(|_| watches.listen(number).unwrap()).collect();
        assert_eq!(lock(&watches.state).watched[&number].news.receiver_count(), 50);
        drop(waiters);
        assert_eq!(lock(&watches.state).watched[&number].news.receiver_count(), 0);
        // Releases that nobody hears end the watch.
        until("the end of the watch", || {
            watches.side_files.open(KEY);
            lock(&watches.state).watched.is_empty()
        })
        .await;
        // The next waiter watches again, and its store closes the instance.
        assert!(watches.watch(number).await);
        let mut waiter = watches.listen(number).unwrap();
        let inotify = Arc::downgrade(&lock(&watches.state).instance.as_ref().unwrap().inotify);
        drop(watches);
        waiter.changed().await.unwrap_err();
        until("the end of the instance", || inotify.strong_count() == 0).await;
    }

    #[tokio::test]
    async fn a_failure_is_not_tried_again_by_each_waiter() {
        let folder = tempfile::tempdir().unwrap();
        let watches = watches(&folder);
        let side = folder.path().join("locks.db-dlock-wake");
        std::fs::write(&side, "").unwrap();
        assert!(!watches.watch(1).await);
        std::fs::remove_file(&side).unwrap();
        assert!(!watches.watch(1).await && !side.exists(), "tried again at once");
        // `ready` shows the present state.
        assert_eq!(watches.failure().await, None);
        assert!(watches.watch(1).await && side.is_dir());
    }

    /// Opens two files in turns, since equal events are merged. The reader is at work until it has to wait for the state.
    fn overflow(watches: &Watches, paths: &[PathBuf; 2]) {
        let state = lock(&watches.state);
        let inotify = &state.instance.as_ref().unwrap().inotify;
        let mut before = 0;
        for _ in 0..1_000 {
            (0..200).for_each(|_| paths.iter().for_each(|path| drop(std::fs::File::open(path).unwrap())));
            let queued = rustix::io::ioctl_fionread(&**inotify).unwrap();
            if queued > 0 && queued == before {
                return;
            }
            before = queued;
        }
        panic!("the queue has no end");
    }

    /// The kernel's own limit: what comes after it is dropped, and the waiter of a dropped event is woken all the same.
    #[tokio::test]
    async fn a_queue_that_overflows_wakes_every_waiter() {
        let folder = tempfile::tempdir().unwrap();
        let watches = watches(&folder);
        let [one, other, quiet] = [1, 2, 3];
        for number in [one, other, quiet] {
            assert!(watches.watch(number).await);
        }
        let paths = [one, other].map(|number| watches.side_files.prepare(number).unwrap());
        let mut waiter = watches.listen(quiet).unwrap();
        overflow(&watches, &paths);
        tokio::time::timeout(Duration::from_secs(30), waiter.changed())
            .await
            .expect("the waiter was forgotten")
            .unwrap();
    }
}
