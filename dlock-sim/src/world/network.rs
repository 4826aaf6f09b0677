//! The network between the processes and the store.

use tokio::sync::oneshot;

use dlock_contract::{Error, Result};

use super::World;
use crate::history::{Step, What};
use crate::plan::Network;
use crate::store::{HoldOf, nanos};

/// The fate of one request.
pub(super) enum Fate {
    Arrives,
    Twice,
    Late,
    Lost,
    AnswerLost,
    Refused,
}

impl World {
    pub(super) fn latency(&mut self) -> u64 {
        let most = nanos(self.network.latency).max(1_000);
        // Most are quick, and a few take very long.
        match self.random.u32(..40) {
            0 if self.network.faults() > 0 => self.random.u64(0..most * 30),
            _ => self.random.u64(most / 10..most),
        }
    }

    /// Whether requests of a process are lost now, and whether answers to it are.
    pub(super) fn is_cut(&self, process: u32) -> (bool, bool) {
        let cuts =
            self.cuts.iter().filter(|(of, time, ..)| *of == process && time.contains(&self.now) && !self.is_calm());
        cuts.fold((false, false), |(requests, answers), cut| (requests || cut.2, answers || cut.3))
    }

    pub(super) fn fate(&mut self) -> Fate {
        let Network { lost, answer_lost, late, twice, refused, .. } = self.network;
        let mut number = self.random.u32(..1000);
        for (share, fate) in [
            (lost, Fate::Lost),
            (answer_lost, Fate::AnswerLost),
            (late, Fate::Late),
            (twice, Fate::Twice),
            (refused, Fate::Refused),
        ] {
            if number < share {
                return fate;
            }
            number -= share;
        }
        Fate::Arrives
    }

    /// A request leaves a process. `apply` does it in the store; it gets the number of the request.
    pub(crate) fn send<T: Send + 'static>(
        &mut self,
        (process, call): (u32, u32),
        name: &'static str,
        mut apply: impl FnMut(&mut Self, u64) -> T + Send + Clone + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (sender, receiver) = oneshot::channel();
        self.sent += 1;
        let (number, fate, way, back) = (self.sent, self.fate(), self.latency(), self.latency());
        let breaks = self.random.bool();
        let answer_lost = matches!(fate, Fate::AnswerLost);
        let way = match fate {
            Fate::Late => way + self.random.u64(0..10_000_000_000),
            Fate::Twice => way + self.random.u64(0..1_000_000_000),
            _ => way,
        };
        let fate = if self.is_cut(process).0 { Fate::Lost } else { fate };
        let note = move |world: &mut Self, step| {
            if world.notes {
                world.add(process, call, What::Request { number, name: name.into(), step });
            }
        };
        note(self, Step::Sent);
        match fate {
            Fate::Refused => {
                let refused = Err(Error::outage("the connection was refused").never_sent());
                self.later(way, process, move |_| drop(sender.send(refused)));
                return receiver;
            }
            Fate::Lost => {
                note(self, Step::Lost);
                self.breaks(way, process, sender, breaks);
                return receiver;
            }
            _ => {}
        }
        if matches!(fate, Fate::Twice) {
            // A client that had no answer has sent it again, and the answer is that to the second one.
            let (mut apply, before) = (apply.clone(), self.random.u64(0..way));
            self.later(before, 0, move |world| {
                if world.store.down_until <= world.now {
                    note(world, Step::ArrivesFirst);
                    drop(apply(world, number));
                }
            });
        }
        self.later(way, 0, move |world| {
            if world.store.down_until > world.now {
                note(world, Step::Lost);
                return world.breaks(back, process, sender, breaks);
            }
            note(world, Step::Arrives);
            let answer = apply(world, number);
            if answer_lost || world.is_cut(process).1 {
                note(world, Step::AnswerLost);
                return world.breaks(back, process, sender, breaks);
            }
            world.later(back, process, move |world| {
                note(world, Step::Answered);
                drop(sender.send(Ok(answer)));
            });
        });
        receiver
    }

    /// No answer comes, or an error of the connection.
    fn breaks<T: Send + 'static>(&mut self, after: u64, process: u32, sender: oneshot::Sender<Result<T>>, tells: bool) {
        if tells {
            self.later(after, process, move |_| drop(sender.send(Err(Error::outage("the connection broke")))));
        }
    }

    /// Notes a grant.
    pub(crate) fn grants(&mut self, hold: HoldOf, token: u64) {
        self.add(hold.process, hold.call, What::Grants { key: hold.key, token });
    }

    /// Serves the queue of a key, now and when the lease of its holder ends.
    pub(crate) fn serve(&mut self, key: u32) {
        let (pushes, again) = self.store.serve(key, self.now);
        for (hold, news, pushed) in pushes {
            let (fate, way, process) = (self.fate(), self.latency(), hold.process);
            if let Some(pushed) = pushed {
                self.grants(hold, pushed.grant.token);
            }
            if matches!(fate, Fate::Lost | Fate::AnswerLost) || self.is_cut(process).1 {
                self.later(3_600_000_000_000, 0, move |_| drop(news));
            } else {
                self.later(way, process, move |_| {
                    let _ = pushed.map(|pushed| news.send(pushed));
                });
            }
        }
        // One look ahead for each key is enough, since that one looks ahead again.
        if let Some(again) = again
            && self.looks.insert(key)
        {
            self.later(again.saturating_sub(self.now).max(1), 0, move |world| {
                world.looks.remove(&key);
                world.serve(key);
            });
        }
    }

    /// Tells waiters of a release. Some do not hear of it.
    pub(crate) fn tell(&mut self, listeners: Vec<oneshot::Sender<()>>) {
        for listener in listeners {
            let (fate, way) = (self.fate(), self.latency());
            if let Fate::Lost | Fate::AnswerLost = fate {
                // Kept, so that its other end hears nothing.
                self.later(3_600_000_000_000, 0, move |_| drop(listener));
                continue;
            }
            // Any process may listen.
            self.later(way, u32::MAX, move |_| {
                let _ = listener.send(());
            });
        }
    }
}
