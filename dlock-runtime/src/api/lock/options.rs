//! The options of the builder: those of the attribute, as methods.

use std::time::Duration;

use dlock_contract::{Backoff, Mode, OncePer};

use super::Lock;
use crate::options::{Cohort, OnLost, Renew, Retry, Wait};

impl<K> Lock<K> {
    /// The name of an installed store. Default: the registry's default, or the only store that is installed.
    pub fn backend(mut self, name: impl Into<String>) -> Self {
        self.backend = Some(name.into());
        self
    }

    /// How long the store keeps the lock without a renewal. Default: the registry's (30 s). Each store has its own range,
    /// such as 10 ms to 10 years in Redis; a ttl outside of it is [`ErrorKind::TtlOutOfRange`](crate::ErrorKind::TtlOutOfRange).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// How long to wait while another owner holds the lock: not at all, for at most 100 years, or without end. Default: the
    /// registry's (10 s).
    pub fn wait(mut self, wait: Wait) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Whether and how often to renew the lock: at an interval of at least 1 ms and at most two thirds of the ttl. Default:
    /// at a third of the ttl.
    pub fn renew(mut self, renew: Renew) -> Self {
        self.options.renew = Some(renew);
        self
    }

    /// The most attempts, 1 or more. After them the wait is over, even if time is left. Default: as many as the wait allows.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.options.attempts = Some(attempts);
        self
    }

    /// The pause between two attempts on a store that can only be polled. Its first bound is at least 1 ms, and its last is not
    /// smaller. Default: the store's own.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.backoff = Some(backoff);
        self
    }

    /// How many callers of this process may wait for the key, 1 or more. One more caller gets
    /// [`ErrorKind::QueueFull`](crate::ErrorKind::QueueFull) at once. Default: the registry's (10 000).
    pub fn max_waiters(mut self, max_waiters: usize) -> Self {
        self.options.max_waiters = Some(max_waiters);
        self
    }

    /// How often a store that fails is asked again: any number of times, 0 for never, after pauses of at least 1 ms, or after
    /// the registry's pauses. Default: the registry's (3 times, after 100 ms to 5 s).
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// Lock mode: one holder, many readers, or up to N holders at a time, with N of 1 or more. Default: one holder. Refused
    /// if the store does not support it.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Whether waiters get the lock in the order in which they came. Default: `false`. Refused if the store does not support
    /// it.
    pub fn fair(mut self, fair: bool) -> Self {
        self.options.fair = fair;
        self
    }

    /// Lets waiters of one process pass the lock on among themselves: 1 pass or more, for a time above zero. Default: `None`. Refused
    /// if the store does not support it, and with a mode that is not exclusive, [`fair`](Self::fair),
    /// [`min_hold`](Self::min_hold), [`once_per`](Self::once_per) or [`Renew::Off`].
    pub fn cohort(mut self, cohort: Option<Cohort>) -> Self {
        self.options.cohort = cohort;
        self
    }

    /// Whether a nested call joins the hold of the enclosing call instead of getting
    /// [`ErrorKind::WouldDeadlock`](crate::ErrorKind::WouldDeadlock); nested calls that run at the same time, as in
    /// `try_join_all`, do not exclude each other. The outer call releases. Default: `false`. A nested call with
    /// [`once_per`](Self::once_per) or [`min_hold`](Self::min_hold) cannot join. The hold stays that of the enclosing call: its own
    /// `ttl`, `renew`, `max_hold`, `mode` and `fair` have no effect, which
    /// [`Event::OptionsIgnored`](crate::Event::OptionsIgnored) says.
    ///
    /// A call begins at its first poll, and is nested in the body that polls it then. If another task goes on with a call that
    /// has joined, that call is lost: [`LossCause::LeftBody`](crate::LossCause::LeftBody). [`inherit`](crate::inherit) makes a
    /// spawned task a part of the body.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.options.reentrant = reentrant;
        self
    }

    /// The least time for which the key stays taken after the grant, by the store's clock, also after an early release: at
    /// most the ttl. Default: none. Refused if the store does not support it.
    pub fn min_hold(mut self, min_hold: Duration) -> Self {
        self.options.min_hold = Some(min_hold);
        self
    }

    /// At most one start in each period, in all processes together; otherwise
    /// [`ErrorKind::AlreadyRun`](crate::ErrorKind::AlreadyRun). The period is at least 1 ms, and its offset is shorter than the
    /// period. Default: none. Refused if the store cannot tell its time, for a mode that is not exclusive, and for a list of
    /// keys.
    pub fn once_per(mut self, once_per: OncePer) -> Self {
        self.options.once_per = Some(once_per);
        self
    }

    /// Keeps the last success as `#[scheduled_lock]` does, if the store supports it.
    #[doc(hidden)]
    pub fn record(mut self, record: bool) -> Self {
        self.options.record = record;
        self
    }

    /// The limit of the body of [`run`](Self::run), above zero: then the body is dropped, the lock is released, and the
    /// caller gets [`ErrorKind::BodyTimeout`](crate::ErrorKind::BodyTimeout). Default: none. Without renewal the ttl must be
    /// longer than this limit. A call that gives a guard refuses it, and so does one that is not async.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Drops the body of [`run`](Self::run) when the lock is lost, or lets it go on. Default: it is
    /// dropped. It never begins without the lock.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.options.on_lost = on_lost;
        self
    }

    /// The longest hold, at least the ttl. After it, renewal stops and the hold is lost. Default: the registry's (1 h), or
    /// the ttl if that is longer.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// The log and errors show a hash in the place of the key and its values: `sha256:` and 16 hexadecimal digits, the same in
    /// all processes. The key stays readable in the store, in listings and by [`Held::key`](crate::Held::key). Default: the
    /// key is shown.
    ///
    /// ```
    /// # use dlock_runtime::{Key, Wait};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), dlock_runtime::Error> {
    /// # let registry = dlock_runtime::Registry::new();
    /// # registry.install("memory", dlock_memory::Memory::new())?;
    /// let patient = || registry.lock(Key::text("patient:").value("Ann Lee")).sensitive().wait(Wait::None);
    /// let guard = patient().acquire().await?;
    /// let busy = patient().acquire().await.unwrap_err();
    /// assert!(busy.key().unwrap().starts_with("sha256:") && !busy.to_string().contains("Ann"));
    /// # guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn sensitive(mut self) -> Self {
        self.options.sensitive = true;
        self
    }

    /// The name in events and in the note: any text. Default: the place in the source where the lock was made.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

#[cfg(test)]
mod tests {
    /// Readers of rustdoc see one method at a time, so each must say by itself what happens without it.
    #[test]
    fn the_doc_of_each_option_of_the_builder_has_its_default() {
        let (mut options, mut doc, mut hidden) = (0, String::new(), false);
        for line in include_str!("options.rs").lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("///") {
                doc += text;
            } else if line == "#[doc(hidden)]" {
                hidden = true;
            } else if let Some(method) = line.strip_prefix("pub fn ") {
                assert!(hidden || doc.contains("Default: "), "no \"Default: \" in the doc of `{method}`");
                options += 1;
            } else {
                (doc, hidden) = (String::new(), false);
            }
        }
        assert!(options >= 17, "only {options} options found");
    }
}
