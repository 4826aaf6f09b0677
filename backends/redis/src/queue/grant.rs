//! Pushed messages: a grant and how long it is valid, or a call to ask.

use std::sync::Arc;
use std::time::Duration;

use dlock_contract::{BootInstant, Claim, Hold, Mode, Owner, Result, Validity};

use crate::layout::marker::MARKER;
use crate::layout::token::{LEAST_TOKEN, TOKEN_END};
use crate::layout::value::owner_of;

/// A grant that the server has pushed.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) owner: Owner,
    token: u64,
    /// When the server granted it, in µs of its clock.
    at_us: u64,
    granted: Duration,
    slot: u32,
}

/// The parts that release a stray grant, for which nobody waits: the lock's name, its value, and the marker of a share.
pub(crate) struct Stray {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) marker: Option<Vec<u8>>,
}

/// A pushed message.
pub(crate) enum Message {
    /// A lock was granted.
    Granted(Grant, Stray),
    /// The waiter with this owner must ask.
    Ask(Owner),
}

impl Message {
    /// Reads `<token> <µs> <ms> <name> <value>`, the same after `<marker> <slot> ` for a share, or `ask <owner> `.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if let Some(owner) = text.strip_prefix(b"ask ") {
            return owner_of(owner).map(Self::Ask);
        }
        let is_share = text.starts_with(MARKER.as_bytes());
        let mut parts = text.splitn(if is_share { 7 } else { 5 }, |byte| *byte == b' ');
        let marker = if is_share { Some(parts.next()?.to_vec()) } else { None };
        let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u64>().ok();
        let slot = if is_share { u32::try_from(number()?).ok()? } else { 0 };
        let (token, at_us, grant_ms) = (number()?, number()?, number()?);
        let (name, value) = (parts.next()?.to_vec(), parts.next()?.to_vec());
        let grant = Grant { owner: owner_of(&value)?, token, at_us, granted: Duration::from_millis(grant_ms), slot };
        Some(Self::Granted(grant, Stray { name, value, marker }))
    }
}

impl Grant {
    /// The validity of the grant; `None` if the waiter must ask.
    pub(crate) fn validity(&self, anchor: Anchor, now: BootInstant) -> Option<Validity> {
        // A grant that is earlier than the latest answer: the answer knew of it, or the server's clock was set back.
        let since_anchor = Duration::from_micros(self.at_us.checked_sub(anchor.server_us)?);
        let from = anchor.sent.after(since_anchor);
        // A grant in the future or long ago: the push was late, or the server's clock has jumped.
        if from > now || now.since(from) > self.granted / 10 || !(LEAST_TOKEN..TOKEN_END).contains(&self.token) {
            return None;
        }
        Some(Validity::new(from, self.granted))
    }

    pub(crate) fn hold(&self, claim: &Arc<Claim>, validity: Validity) -> Result<Hold> {
        Hold::new(claim.clone(), self.token, validity).map(|hold| with_slot(hold, self.slot))
    }
}

/// One moment on both clocks. The request left before the server read its clock, so a validity that is counted from
/// here begins too early rather than too late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    pub(crate) sent: BootInstant,
    pub(crate) server_us: u64,
}

pub(crate) fn with_slot(hold: Hold, slot: u32) -> Hold {
    if matches!(hold.claim.mode, Mode::Permits(_)) { hold.with_slot(slot) } else { hold }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dlock_store::Clock;

    const TOKEN: u64 = LEAST_TOKEN + 7;

    fn grant(at_us: u64) -> Grant {
        Grant { owner: Owner::fresh().unwrap(), token: TOKEN, at_us, granted: Duration::from_secs(1), slot: 0 }
    }

    #[test]
    fn a_push_is_read() {
        let owner = Owner::fresh().unwrap();
        let text = format!("{TOKEN} 17 1000 dl1:{{a:b}} {} h=x p=1 s=y t=2", owner.to_hex());
        for (text, slot, marker) in
            [(text.clone(), 0, None), (format!("dlock:permits:9 4 {text}"), 4, Some("dlock:permits:9"))]
        {
            let Some(Message::Granted(grant, stray)) = Message::parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!((grant.owner, grant.token, grant.at_us, grant.slot), (owner, TOKEN, 17, slot));
            assert_eq!((&stray.name[..], &stray.value[33..]), (&b"dl1:{a:b}"[..], &b"h=x p=1 s=y t=2"[..]));
            assert_eq!(stray.marker.as_deref(), marker.map(str::as_bytes));
        }
        let ask = format!("ask {} ", owner.to_hex());
        assert!(matches!(Message::parse(ask.as_bytes()), Some(Message::Ask(asked)) if asked == owner));
        for bad in
            ["", "1 2 3 n v", "x 2 3 n v", "-1 2 3 n v", &text[..20], "ask x", "dlock:rw", "dlock:rw 1 2 3 4 n v"]
        {
            assert!(Message::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_push_counts_from_the_anchor_and_never_from_its_arrival() {
        let clock = Clock::manual();
        let sent = clock.now();
        let anchor = Anchor { sent, server_us: 5_000_000 };
        let now = sent.after(Duration::from_millis(320));
        let validity = grant(5_300_000).validity(anchor, now).unwrap();
        assert_eq!(validity.from, sent.after(Duration::from_millis(300)));
        assert_eq!(validity.granted, Duration::from_secs(1));
    }

    #[test]
    fn a_push_that_is_late_early_or_out_of_order_gives_no_validity() {
        let clock = Clock::manual();
        let anchor = Anchor { sent: clock.now(), server_us: 5_000_000 };
        let now = clock.now().after(Duration::from_millis(320));
        assert!(grant(5_200_000).validity(anchor, now).is_none());
        assert!(grant(5_330_000).validity(anchor, now).is_none());
        assert!(grant(4_999_999).validity(anchor, now).is_none());
        assert!(Grant { token: 3, ..grant(5_300_000) }.validity(anchor, now).is_none());
    }
}
