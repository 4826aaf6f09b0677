//! Tasks that meet in the combiner, in thousands of orders ([shuttle](https://docs.rs/shuttle)).
//!
//! The files are the store's own. Their mutexes and atomics are shuttle's, which tries other orders at each of them and finds a
//! task that waits for ever. Each model also finds the faults that are planted there.
#![allow(dead_code, unused_imports, reason = "the models use a part of the combiner")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends where it fails")]

mod combine;
mod models;
mod socket;

/// The names and values of a lock. A value is the owner alone.
mod layout {
    pub(crate) mod name {
        pub(crate) use dlock_redis::internal::layout::LockName;
    }

    pub(crate) mod token {
        pub(crate) use dlock_redis::internal::scripts::FENCE;
    }

    pub(crate) mod value {
        use ::redis::{RedisWrite, ToRedisArgs};
        use dlock_contract::Claim;

        pub(crate) struct LockValue<'a>(pub(crate) &'a Claim);

        impl ToRedisArgs for LockValue<'_> {
            fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
                out.write_arg(self.0.owner.to_hex().as_bytes());
            }
        }
    }
}

mod reply {
    pub(crate) use dlock_redis::internal::fault;

    pub(crate) mod read {
        use ::redis::Value;

        pub(crate) fn each(answer: Option<Value>) -> Box<dyn Iterator<Item = Value> + Send> {
            let Some(Value::Array(answers)) = answer else { panic!("the script answers with a list") };
            Box::new(answers.into_iter())
        }
    }
}

/// The server of the models runs no Lua. It knows a script by its digest.
mod scripts {
    pub(crate) mod call {
        use ::redis::Cmd;

        use super::exclusive::Lua;

        pub(crate) use dlock_redis::internal::connection::on;

        pub(crate) fn call(lua: &Lua, _: bool, build: &impl Fn(&mut Cmd)) -> Cmd {
            let mut command = Cmd::new();
            command.arg("EVALSHA").arg(lua.digest);
            build(&mut command);
            command
        }
    }

    pub(crate) mod exclusive {
        pub(crate) struct Lua {
            pub(crate) digest: &'static str,
        }

        pub(crate) struct Scripts {
            pub(crate) release: Lua,
            pub(crate) release_all: Lua,
        }

        pub(crate) static SCRIPTS: Scripts =
            Scripts { release: Lua { digest: "release" }, release_all: Lua { digest: "release_all" } };
    }
}

mod sync {
    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::time::Duration;

    use dlock_contract::{Error, Result};
    use shuttle::thread::{self, JoinHandle};

    pub(crate) use shuttle::future::yield_now;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicUsize};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    thread_local! {
        /// Shuttle runs all threads of a model on one.
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
        /// The tasks: each is a thread of the model.
        static TASKS: RefCell<Vec<JoinHandle<()>>> = const { RefCell::new(Vec::new()) };
        /// Whether dlock's own thread runs.
        static HAS_BACKGROUND: Cell<bool> = const { Cell::new(true) };
    }

    /// The runtime of the callers, and dlock's own thread.
    pub(crate) struct CallerRuntime;

    impl CallerRuntime {
        pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
            let task = thread::spawn(move || shuttle::future::block_on(task));
            TASKS.with_borrow_mut(|tasks| tasks.push(task));
        }
    }

    pub(crate) fn background() -> Result<CallerRuntime> {
        if HAS_BACKGROUND.get() { Ok(CallerRuntime) } else { Err(Error::outage("the thread does not run")) }
    }

    /// Forgets the tasks of a model that was stopped in the middle.
    pub(crate) fn begin(has_background: bool) {
        TASKS.take();
        HAS_BACKGROUND.set(has_background);
    }

    pub(crate) fn join_tasks() {
        while let Some(task) = TASKS.with_borrow_mut(Vec::pop) {
            task.join().unwrap();
        }
    }

    /// Time is steps of the others.
    pub(crate) async fn sleep(_: Duration) {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    pub(crate) fn plant(fault: &'static str) {
        PLANTED.set(fault);
    }

    pub(crate) fn planted(fault: &str) -> bool {
        PLANTED.get() == fault
    }
}
