//! Protocols for which NAT knows no ports (GRE, ESP, SCTP and all others): translated by address alone.
//!
//! Nothing in such a packet distinguishes two inside hosts that talk to one peer. So on each public address one
//! inside host has a protocol and a peer to itself; another host gets another public address, or is refused by name
//! if none is left. Protocol and peer are in packets of both directions, and determine the shard.
//!
//! The checksum of SCTP does not cover addresses (RFC 9260 6.8), and GRE and ESP have none that does. AH (RFC 4302)
//! authenticates addresses, so its receiver will reject translated packets. A protocol whose checksum covers
//! addresses (UDP-Lite, DCCP) keeps its old checksum, and its receiver rejects it too.

use super::endpoint::Inside;
use std::collections::HashMap;

/// The most sessions of a shard.
const MAX: usize = 256;
/// One inside host may have one part in `HOST_PART` of them.
const HOST_PART: usize = 4;
/// Seconds between two searches for ended sessions.
const SWEEP_EVERY_S: u32 = 10;

/// The key of a session from outside: protocol, peer, public address.
pub(crate) type PublicKey = (u8, u32, u32);

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BareSession {
    /// The inside host; `None` for the router itself.
    pub(crate) inside: Option<Inside>,
    /// Last second of its life.
    pub(crate) expires_s: u32,
    /// Packets from inside and from outside; they wrap.
    pub(crate) packets: [u32; 2],
}

/// The sessions of one shard.
#[derive(Clone, Debug)]
pub(crate) struct BareSessions {
    by_public: HashMap<PublicKey, BareSession>,
    /// Public address by protocol, peer and inside host.
    by_inside: HashMap<(u8, u32, Inside), u32>,
    max: usize,
    next_sweep_s: u32,
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareRefusal {
    /// On every public address another host has this protocol and peer.
    PeerTaken,
    HostLimit,
    TableFull,
}

impl BareSessions {
    /// For a shard with room for this many sessions with ports.
    pub(crate) fn new(sessions_max: u32) -> Self {
        let max = (sessions_max as usize / 16).clamp(16, MAX);
        let (by_public, by_inside) = (HashMap::with_capacity(2 * max), HashMap::with_capacity(2 * max));
        Self { by_public, by_inside, max, next_sweep_s: 0 }
    }

    /// The number of sessions, not counting the router's own.
    pub(crate) fn count(&self) -> u64 {
        self.by_inside.len() as u64
    }

    /// The public address of an inside host's session alive at `now_s`.
    pub(crate) fn public_of(&self, protocol: u8, peer: u32, inside: Inside, now_s: u32) -> Option<u32> {
        let public = *self.by_inside.get(&(protocol, peer, inside))?;
        let session = self.by_public.get(&(protocol, peer, public))?;
        (session.expires_s >= now_s).then_some(public)
    }

    /// The session of a public address alive at `now_s`.
    pub(crate) fn session(&mut self, key: PublicKey, now_s: u32) -> Option<&mut BareSession> {
        self.by_public.get_mut(&key).filter(|session| session.expires_s >= now_s)
    }

    /// Creates a session for an inside host, on the first free one of these public addresses.
    pub(crate) fn create(
        &mut self,
        (protocol, peer, inside): (u8, u32, Inside),
        mut publics: impl Iterator<Item = u32>,
        now_s: u32,
        expires_s: u32,
    ) -> Result<u32, BareRefusal> {
        if let Some(public) = self.by_inside.get(&(protocol, peer, inside)).copied() {
            // It has expired, and was not swept yet.
            self.remove((protocol, peer, public));
        }
        self.make_room(now_s).then_some(()).ok_or(BareRefusal::TableFull)?;
        let of_host = self.by_inside.keys().filter(|(_, _, host)| *host == inside).count();
        if of_host >= (self.max / HOST_PART).max(1) {
            return Err(BareRefusal::HostLimit);
        }
        let is_free = |public: &u32| {
            self.by_public.get(&(protocol, peer, *public)).is_none_or(|session| session.expires_s < now_s)
        };
        let public = publics.find(is_free).ok_or(BareRefusal::PeerTaken)?;
        self.remove((protocol, peer, public));
        self.put((protocol, peer, public), BareSession { inside: Some(inside), expires_s, packets: [0; 2] });
        Ok(public)
    }

    /// Claims a protocol and peer for the router. Returns whether an inside host has lost it; `None` if there is no
    /// room.
    pub(crate) fn claim(&mut self, key: PublicKey, now_s: u32, expires_s: u32) -> Option<bool> {
        let displaced = self.remove(key);
        if !self.make_room(now_s) {
            return None;
        }
        self.put(key, BareSession { inside: None, expires_s, packets: [0; 2] });
        Some(displaced.is_some_and(|session| session.inside.is_some() && session.expires_s >= now_s))
    }

    /// Takes over a session unchanged, if its key is free.
    pub(crate) fn adopt(&mut self, key: PublicKey, session: BareSession) -> bool {
        let fits = self.by_public.len() < self.max && !self.by_public.contains_key(&key);
        if fits {
            self.put(key, session);
        }
        fits
    }

    /// All sessions, including expired ones.
    pub(crate) fn all(&self) -> impl Iterator<Item = (PublicKey, BareSession)> + '_ {
        self.by_public.iter().map(|(key, session)| (*key, *session))
    }

    pub(crate) fn remove(&mut self, key: PublicKey) -> Option<BareSession> {
        let session = self.by_public.remove(&key)?;
        if let Some(inside) = session.inside {
            self.by_inside.remove(&(key.0, key.1, inside));
        }
        Some(session)
    }

    /// Removes expired sessions, at intervals.
    pub(crate) fn sweep_if_due(&mut self, now_s: u32) {
        if now_s >= self.next_sweep_s && !self.by_public.is_empty() {
            self.sweep(now_s);
        }
    }

    /// Makes room for another session; returns whether it could.
    fn make_room(&mut self, now_s: u32) -> bool {
        if self.by_public.len() >= self.max {
            self.sweep(now_s);
        }
        self.by_public.len() < self.max
    }

    fn sweep(&mut self, now_s: u32) {
        self.next_sweep_s = now_s.saturating_add(SWEEP_EVERY_S);
        let Self { by_public, by_inside, .. } = self;
        by_public.retain(|key, session| {
            let lives = session.expires_s >= now_s;
            if let (false, Some(inside)) = (lives, session.inside) {
                by_inside.remove(&(key.0, key.1, inside));
            }
            lives
        });
    }

    fn put(&mut self, key: PublicKey, session: BareSession) {
        if let Some(inside) = session.inside {
            self.by_inside.insert((key.0, key.1, inside), key.2);
        }
        self.by_public.insert(key, session);
    }
}
