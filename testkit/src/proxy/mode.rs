//! How a proxy treats traffic.

use std::time::Duration;

/// How the proxy treats traffic, on new and on existing connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards everything.
    Pass,
    /// Forwards everything later. It is a delay, not a limit: many packets can be under way.
    Delay {
        /// For requests.
        to_server: Duration,
        /// For replies.
        to_client: Duration,
    },
    /// Accepts and swallows, with no word to either side, not even about the other side's end.
    ///
    /// A direction that swallowed something stays dead for that connection, also in later modes: half a stream would
    /// be worse than none.
    Blackhole {
        /// Swallow requests.
        to_server: bool,
        /// Swallow replies.
        to_client: bool,
    },
    /// Resets every present connection, and new ones as soon as they are made.
    Refuse,
    /// Forwards requests; the first reply resets the connection instead of coming through. The server has done what
    /// was asked, and the client cannot know.
    DropReplies,
    /// Forwards so many replies, over all connections, and swallows all later ones, as a server does that freezes.
    FallSilent {
        /// Counted from [`Proxy::set`](super::Proxy::set) on.
        after: usize,
    },
    /// Forwards everything, and spoils some bytes of the replies on the way, as a faulty device would.
    Mangle,
    /// Sends these bytes in the place of each reply.
    Replace(&'static [u8]),
    /// Forwards everything, and writes a word of the replies as another one of the same length, such as a version.
    Rewrite {
        /// The word of the server.
        from: &'static str,
        /// The word that the client reads.
        to: &'static str,
    },
}

impl Mode {
    /// A [`Mode::Blackhole`] in both directions.
    pub const BLACKHOLE: Self = Self::Blackhole { to_server: true, to_client: true };
}
