//! Holds fragments that arrive before the first of their datagram (RFC 4787, REQ-14a).
//!
//! Without the first, NAT cannot tell whose they are and drops them as `fragment-without-first`. They wait here and
//! are injected again at their port; if the first has arrived by then, NAT knows them. They wait longer each time,
//! so that one whose first is near waits little; after the last of [`WAITS_NS`] they are dropped. Of an injected
//! fragment only its identity is kept, to recognize it when it comes back. Both lists are bounded and searched
//! linearly: such fragments are rare, and of a flood at most [`KEPT_MAX`] cause work.

use std::collections::VecDeque;

use crate::punt::Punt;

/// How long a fragment waits, at first and each time it comes back.
const WAITS_NS: [u64; 4] = [2_000_000, 10_000_000, 50_000_000, 250_000_000];

/// Limit of waiting fragments, and of injected ones that may come back.
const KEPT_MAX: usize = 256;

/// Identifies a fragment: the headers, without what changes on the way.
type Identity = [u8; 48];

struct Early {
    due_ns: u64,
    identity: Identity,
    tries: usize,
    punt: Punt,
}

/// See the module.
#[derive(Default)]
pub(super) struct EarlyFragments {
    waiting: VecDeque<Early>,
    put_in: VecDeque<(Identity, usize)>,
}

impl EarlyFragments {
    /// Keeps a fragment for a while. Gives it back if it has waited long enough or there is no room.
    pub(super) fn keep(&mut self, punt: Punt, now_ns: u64) -> Result<(), Punt> {
        let Some(identity) = identity(punt.ip_packet()) else { return Err(punt) };
        let known = self.put_in.iter().position(|(other, _)| *other == identity);
        let tries = known.and_then(|place| self.put_in.remove(place)).map_or(0, |(_, tries)| tries);
        match WAITS_NS.get(tries) {
            Some(wait_ns) if self.waiting.len() < KEPT_MAX => {
                let due_ns = now_ns + wait_ns;
                let later = self.waiting.iter().position(|other| other.due_ns > due_ns);
                let place = later.unwrap_or(self.waiting.len());
                self.waiting.insert(place, Early { due_ns, identity, tries, punt });
                Ok(())
            }
            _ => Err(punt),
        }
    }

    /// The next fragment to inject again.
    pub(super) fn next_due(&mut self, now_ns: u64) -> Option<Punt> {
        self.waiting.front().filter(|early| early.due_ns <= now_ns)?;
        let early = self.waiting.pop_front()?;
        if self.put_in.len() == KEPT_MAX {
            self.put_in.pop_front();
        }
        self.put_in.push_back((early.identity, early.tries + 1));
        Some(early.punt)
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.waiting.front().map(|early| early.due_ns)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

fn identity(packet: &[u8]) -> Option<Identity> {
    let is_ipv6 = packet.first()? >> 4 == 6;
    // Nearly always, the fragment header follows that of IPv6. Hop limit; TTL, and the checksum with it.
    let (bytes, changing) = if is_ipv6 { (48, [7; 3]) } else { (20, [8, 10, 11]) };
    let mut identity = [0; 48];
    identity[..bytes].copy_from_slice(packet.get(..bytes)?);
    changing.into_iter().for_each(|at: usize| identity[at] = 0);
    Some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::{DropReason, NO_CLASS, NO_PORT, PacketFlags};

    fn fragment(id: u16) -> Punt {
        let mut frame = vec![0x45, 0, 0, 28, 0, 0, 0, 3, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        frame.extend([0; 8]);
        frame[4..6].copy_from_slice(&id.to_be_bytes());
        Punt {
            reason: DropReason::FragmentWithoutFirst,
            port_in: 0,
            port_out: NO_PORT,
            counted_at: 0,
            next_hop: 0,
            flow_hash: 0,
            class: NO_CLASS,
            flags: PacketFlags::default(),
            l3_offset: 0,
            frame,
        }
    }

    #[test]
    fn one_that_comes_back_waits_longer_and_is_given_up_in_the_end() {
        let mut early = EarlyFragments::default();
        let mut now_ns = 0;
        for wait_ns in WAITS_NS {
            let mut punt = fragment(7);
            // Its TTL and checksum may be others.
            punt.frame[8] -= 1;
            punt.frame[10] ^= 1;
            assert!(early.keep(punt, now_ns).is_ok());
            assert_eq!(early.next_deadline(), Some(now_ns + wait_ns));
            assert!(early.next_due(now_ns + wait_ns - 1).is_none());
            now_ns += wait_ns;
            assert!(early.next_due(now_ns).is_some());
            assert_eq!(early.waiting(), 0);
        }
        assert!(early.keep(fragment(7), now_ns).is_err(), "given up");
        assert!(early.keep(fragment(7), now_ns).is_ok(), "and forgotten");
    }

    #[test]
    fn a_flood_has_bounds() {
        let mut early = EarlyFragments::default();
        let kept = (0..2000).filter(|id| early.keep(fragment(*id), 0).is_ok()).count();
        assert_eq!((kept, early.waiting()), (KEPT_MAX, KEPT_MAX));
        for _ in 0..3 {
            while early.next_due(u64::MAX).is_some() {}
            (3000..4000).for_each(|id| drop(early.keep(fragment(id), 0)));
        }
        assert!(early.waiting() <= KEPT_MAX && early.put_in.len() <= KEPT_MAX);
    }

    #[test]
    fn they_are_due_in_the_order_of_their_times() {
        let mut early = EarlyFragments::default();
        assert!(early.keep(fragment(1), 0).is_ok());
        assert!(early.next_due(WAITS_NS[0]).is_some());
        assert!(early.keep(fragment(1), WAITS_NS[0]).is_ok());
        assert!(early.keep(fragment(2), WAITS_NS[0]).is_ok());
        let due: Vec<_> = std::iter::from_fn(|| early.next_due(u64::MAX)).map(|punt| punt.frame[5]).collect();
        assert_eq!(due, [2, 1]);
    }
}
