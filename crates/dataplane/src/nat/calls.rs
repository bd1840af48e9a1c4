//! Calls of PPTP: sessions of GRE in which the number of a call stands for a port (RFC 2637 section 4.1). So several
//! inside hosts can have calls with one peer on one public address.
//!
//! A packet of GRE carries the number that its receiver chose. So a packet from outside names the call of an inside host,
//! and a packet from inside says no more than its host and its peer; the public address of a host's calls with one peer
//! is that of their control connection.

use super::endpoint::Inside;
use std::collections::BTreeMap;

/// The most calls of a shard.
const MAX: usize = 256;

/// Peer, public address and public number.
pub(crate) type CallKey = (u32, u32, u16);

/// A call of an inside host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) inside: Inside,
    /// The number that the inside host has chosen.
    pub(crate) number: u16,
    /// Last second of its life.
    pub(crate) expires_s: u32,
    /// Packets from inside and from outside; they wrap.
    pub(crate) packets: [u32; 2],
}

/// The calls of one shard. Empty maps take no memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    by_public: BTreeMap<CallKey, Call>,
    /// Public address and number by peer, inside host and its number.
    by_inside: BTreeMap<(u32, Inside, u16), (u32, u16)>,
}

impl Calls {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_public.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.by_public.len() as u64
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (CallKey, Call)> + '_ {
        self.by_public.iter().map(|(key, call)| (*key, *call))
    }

    /// The public number of an inside host's call, made if there is none: its own if nobody else has it. `None` if there
    /// is no room.
    pub(crate) fn public_number(
        &mut self,
        (peer, inside, number): (u32, Inside, u16),
        public: u32,
        now_s: u32,
        expires_s: u32,
    ) -> Option<u16> {
        if let Some(call) = self.renew((peer, inside, number), public, now_s, expires_s) {
            return Some(call);
        }
        self.sweep(now_s);
        if self.by_public.len() >= MAX {
            return None;
        }
        let mut numbers = (0..=u16::MAX).map(|more| number.wrapping_add(more));
        let free = numbers.find(|number| !self.by_public.contains_key(&(peer, public, *number)))?;
        self.put((peer, public, free), Call { inside, number, expires_s, packets: [0; 2] });
        Some(free)
    }

    fn renew(&mut self, key: (u32, Inside, u16), public: u32, now_s: u32, expires_s: u32) -> Option<u16> {
        let (address, number) = *self.by_inside.get(&key)?;
        let call = self.by_public.get_mut(&(key.0, address, number))?;
        (address == public && call.expires_s >= now_s).then_some(())?;
        call.expires_s = expires_s;
        Some(number)
    }

    /// The public number of a call that is known.
    pub(crate) fn known_number(&self, key: (u32, Inside, u16)) -> Option<u16> {
        self.by_inside.get(&key).map(|(_, number)| *number)
    }

    /// The inside host's number of a call.
    pub(crate) fn inside_number(&self, key: CallKey) -> Option<u16> {
        self.by_public.get(&key).map(|call| call.number)
    }

    /// A packet from inside: the public address of its host's calls with the peer.
    pub(crate) fn leave(&mut self, peer: u32, inside: Inside, now_s: u32, expires_s: u32) -> Option<u32> {
        let own = (peer, inside, 0)..=(peer, inside, u16::MAX);
        let calls: Vec<CallKey> =
            self.by_inside.range(own).map(|(_, (public, number))| (peer, *public, *number)).collect();
        let mut found = None;
        for key in calls {
            let Some(call) = self.by_public.get_mut(&key).filter(|call| call.expires_s >= now_s) else {
                continue;
            };
            // Which of its calls it is of only the peer knows.
            call.expires_s = expires_s;
            call.packets[0] = call.packets[0].wrapping_add(u32::from(found.is_none()));
            found = found.or(Some(key.1));
        }
        found
    }

    /// A packet from outside: the inside host and its number of the call.
    pub(crate) fn enter(&mut self, key: CallKey, now_s: u32, expires_s: u32) -> Option<(Inside, u16)> {
        let call = self.by_public.get_mut(&key).filter(|call| call.expires_s >= now_s)?;
        call.expires_s = expires_s;
        call.packets[1] = call.packets[1].wrapping_add(1);
        Some((call.inside, call.number))
    }

    /// Takes over a call unchanged, if its number is free and there is room.
    pub(crate) fn adopt(&mut self, key: CallKey, call: Call) -> bool {
        let fits = self.by_public.len() < MAX && !self.by_public.contains_key(&key);
        if fits {
            self.put(key, call);
        }
        fits
    }

    pub(crate) fn remove(&mut self, key: CallKey) -> Option<Call> {
        let call = self.by_public.remove(&key)?;
        self.by_inside.remove(&(key.0, call.inside, call.number));
        Some(call)
    }

    /// Removes what has expired.
    pub(crate) fn sweep(&mut self, now_s: u32) {
        let over: Vec<CallKey> =
            self.all().filter(|(_, call)| call.expires_s < now_s).map(|(key, _)| key).collect();
        for key in over {
            self.remove(key);
        }
    }

    fn put(&mut self, key: CallKey, call: Call) {
        self.by_inside.insert((key.0, call.inside, call.number), (key.1, key.2));
        self.by_public.insert(key, call);
    }
}
