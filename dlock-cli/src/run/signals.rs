//! The signals that this process passes on to the command.

use crate::exit::{Exit, Failure};

/// The signals that end a program, and those that programs give a meaning of their own.
#[cfg(unix)]
mod unix {
    use std::task::Poll;

    use futures::future::poll_fn;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    const DEADLY: [SignalKind; 4] =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
    const OTHERS: [SignalKind; 2] = [SignalKind::user_defined1(), SignalKind::user_defined2()];

    /// The signals with which a shell or a terminal stops, resumes and resizes its jobs.
    fn steering() -> [SignalKind; 5] {
        use rustix::process::Signal as Number;
        let kind = |signal: Number| SignalKind::from_raw(signal.as_raw());
        [kind(Number::TSTP), kind(Number::CONT), SignalKind::window_change(), kind(Number::TTIN), kind(Number::TTOU)]
    }

    /// The signals that this process ignores, one bit for each. Zero if the kernel does not report them.
    fn ignored() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    }

    #[derive(Debug)]
    pub(crate) struct Signals(Vec<(SignalKind, Signal)>);

    impl Signals {
        pub(super) fn listen() -> std::io::Result<Self> {
            let listen = |kind| Ok((kind, signal(kind)?));
            // `nohup` ignores HUP, and a script INT for what it starts in the background. The command must ignore them too.
            let ignored = ignored();
            let heard = |kind: &SignalKind| ignored >> (kind.as_raw_value() - 1) & 1 == 0;
            DEADLY.into_iter().chain(OTHERS).filter(heard).map(listen).collect::<std::io::Result<_>>().map(Self)
        }

        /// Listens to those that stop a process and let it go on, too.
        pub(super) fn listen_to_steering(&mut self) -> std::io::Result<()> {
            for kind in steering() {
                self.0.push((kind, signal(kind)?));
            }
            Ok(())
        }

        /// The number of the next signal.
        pub(crate) async fn next(&mut self) -> i32 {
            poll_fn(|context| {
                let come =
                    self.0.iter_mut().find_map(|(kind, signal)| signal.poll_recv(context).is_ready().then_some(*kind));
                come.map_or(Poll::Pending, |kind| Poll::Ready(kind.as_raw_value()))
            })
            .await
        }

        /// The next one that ends a program.
        pub(crate) async fn next_deadly(&mut self) -> i32 {
            loop {
                let number = self.next().await;
                if DEADLY.iter().any(|kind| kind.as_raw_value() == number) {
                    return number;
                }
            }
        }
    }
}

/// Elsewhere there is only Ctrl-C, which the command gets from its console by itself.
#[cfg(not(unix))]
mod other {
    #[derive(Debug)]
    pub(crate) struct Signals;

    impl Signals {
        pub(super) fn listen() -> std::io::Result<Self> {
            Ok(Self)
        }

        pub(crate) async fn next(&mut self) -> i32 {
            self.next_deadly().await
        }

        pub(crate) async fn next_deadly(&mut self) -> i32 {
            const INTERRUPT: i32 = 2;
            match tokio::signal::ctrl_c().await {
                Ok(()) => INTERRUPT,
                Err(_) => std::future::pending().await,
            }
        }
    }
}

#[cfg(not(unix))]
pub(crate) use other::Signals;
#[cfg(unix)]
pub(crate) use unix::Signals;

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::listen().map_err(failure)
    }

    /// From now on also the signals that would stop this process, or let it go on.
    #[cfg(unix)]
    pub(crate) fn and_steering(&mut self) -> Result<(), Failure> {
        self.listen_to_steering().map_err(failure)
    }
}

fn failure(error: std::io::Error) -> Failure {
    Failure::new(Exit::INTERNAL, format!("signals: {error}"))
}
