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

    #[derive(Debug)]
    pub(crate) struct Signals(Vec<(SignalKind, Signal)>);

    impl Signals {
        pub(super) fn listen() -> std::io::Result<Self> {
            let listen = |kind| Ok((kind, signal(kind)?));
            DEADLY.into_iter().chain(OTHERS).map(listen).collect::<std::io::Result<_>>().map(Self)
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
        Self::listen().map_err(|error| Failure::new(Exit::INTERNAL, format!("signals: {error}")))
    }
}
