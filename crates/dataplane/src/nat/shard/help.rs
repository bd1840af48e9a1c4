//! A shard's part of what helpers keep: control connections whose numbers were shifted, sessions that a registration
//! keeps, calls. See [`super::super::help`].

use super::super::calls::{Call, CallKey, Calls};
use super::super::config::NatProtocol;
use super::super::endpoint::{End, Inside, endpoint_key, inside_key};
use super::super::session::{SessionState, TcpFlags};
use super::NatShard;
use crate::helpers::stream::Way;
use std::collections::BTreeMap;
use thalweg_wire::tcp::SYN;

/// Control connections of a shard. One in whose stream nothing was replaced makes room for another.
const CONTROLS_MAX: usize = 256;
/// Sessions of a shard that registrations keep.
const KEPT_MAX: usize = 1024;

/// What became of the messages in a packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Helped {
    pub(crate) rewritten: u64,
    /// Not whole, or not understood.
    pub(crate) unread: u64,
    /// Endpoints that are not the sender's, or that got no port.
    pub(crate) refused: u64,
    /// Announced, but the firewall is not told.
    pub(crate) unexpected: u64,
}

/// Public and remote endpoint of a control connection.
pub(crate) type ControlKey = ((u32, u16), (u32, u16));

/// What helpers keep in a shard. Empty maps take no memory; their order makes what is forgotten the same everywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Help {
    pub(crate) controls: BTreeMap<ControlKey, Control>,
    /// By inside endpoint the last second until which its session lives without a packet.
    pub(crate) kept: BTreeMap<u64, u32>,
    pub(crate) calls: Calls,
}

/// A control connection of FTP: what was replaced in either direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Control {
    /// From inside, and from outside.
    ways: [Way; 2],
    expires_s: u32,
}

impl Control {
    /// A SYN begins its sender's direction; without ACK, another connection.
    pub(crate) fn begin(&mut self, end: End, sequence: u32, is_answer: bool) {
        if !is_answer {
            self.ways = Default::default();
        }
        *self.way(end) = Way::begun(sequence);
    }

    /// The direction of packets that are translated at this end.
    pub(crate) fn way(&mut self, end: End) -> &mut Way {
        let [out, into] = &mut self.ways;
        if end == End::Source { out } else { into }
    }

    /// That direction and the other.
    pub(crate) fn ways(&self, end: End) -> [&Way; 2] {
        let [out, into] = &self.ways;
        if end == End::Source { [out, into] } else { [into, out] }
    }

    fn is_plain(&self) -> bool {
        self.ways.iter().all(Way::is_plain)
    }
}

impl NatShard {
    pub(crate) fn help(&self) -> &Help {
        &self.help
    }

    pub(crate) fn count_helped(&mut self, helped: Helped) {
        self.counters.helped += helped.rewritten;
        self.counters.help_unread += helped.unread;
        self.counters.help_refused += helped.refused;
        self.counters.help_unexpected += helped.unexpected;
    }

    /// Inside and public endpoint of the session of a public endpoint, and the VRF of the inside one.
    pub(crate) fn ends_of(&self, protocol: NatProtocol, own: (u32, u16)) -> Option<([(u32, u16); 2], u8)> {
        let key = endpoint_key(End::Destination, protocol.number(), own.0, own.1);
        let session = &self.sessions[self.find(End::Destination, key, self.layout.hash(key))?];
        Some((session.ends(), session.vrf()))
    }

    /// The same endpoints of the session of an inside endpoint.
    pub(crate) fn ends_from(&self, protocol: NatProtocol, own: (Inside, u16)) -> Option<[(u32, u16); 2]> {
        let key = inside_key(protocol.number(), own.0, own.1);
        Some(self.sessions[self.find(End::Source, key, self.layout.hash(key))?].ends())
    }

    /// Whether it has a session of this inside endpoint.
    pub(crate) fn has_inside(&self, key: u64) -> bool {
        self.find(End::Source, key, self.layout.hash(key)).is_some()
    }

    /// The public endpoint of an inside endpoint that was announced to `remote`, with a session from now on: at `wanted`
    /// if that is free and its port is this shard's. `None` if it gets none.
    pub(crate) fn announce(
        &mut self,
        protocol: NatProtocol,
        inside: (Inside, u16),
        remote: u32,
        wanted: Option<(u32, u16)>,
        (now_s, arrival_ns): (u32, u64),
    ) -> Option<(u32, u16)> {
        self.advance_to(now_s);
        let key = inside_key(protocol.number(), inside.0, inside.1);
        let hash = self.layout.hash(key);
        let at = match self.find(End::Source, key, hash) {
            Some(at) => at,
            None => {
                let flags = TcpFlags(SYN);
                self.note_time(arrival_ns, SessionState::initial(protocol, flags));
                let at = self.create(protocol, inside, hash, flags, wanted).ok()?;
                if protocol == NatProtocol::Tcp {
                    // As long as after a SYN from inside, which has the same lifetime.
                    self.sessions[at].state = SessionState::SynReceived;
                }
                self.log_created(at);
                self.note(at);
                at
            }
        };
        // Of a server, the port is not known that it will connect from.
        if self.filtering.asks_for_sender() {
            let remote = self.layout.hash(u64::from(remote));
            self.sessions[at].admit(remote);
        }
        let session = &mut self.sessions[at];
        let longest_s = self.now_s.saturating_add(self.timeouts_s[usize::from(session.state.number())]);
        session.expires_s = session.expires_s.max(longest_s);
        Some((session.addresses[1], session.ports[1]))
    }

    /// Keeps the session of an inside endpoint alive until this second, whatever its timeout.
    pub(crate) fn keep(&mut self, protocol: NatProtocol, inside: (Inside, u16), until_s: u32) {
        self.keep_key(inside_key(protocol.number(), inside.0, inside.1), until_s);
    }

    pub(crate) fn keep_key(&mut self, key: u64, until_s: u32) {
        let (kept, now_s) = (&mut self.help.kept, self.now_s);
        if kept.len() >= KEPT_MAX && !kept.contains_key(&key) {
            kept.retain(|_, until_s| *until_s >= now_s);
        }
        if kept.len() < KEPT_MAX || kept.contains_key(&key) {
            kept.insert(key, until_s);
        } else {
            self.counters.help_refused += 1;
        }
    }

    /// Has a session that has run out live on, if something keeps it.
    pub(super) fn is_kept(&mut self, at: usize) -> bool {
        if self.help.kept.is_empty() {
            return false;
        }
        let until_s = self.help.kept.remove(&self.sessions[at].key(End::Source));
        let until_s = until_s.filter(|until_s| *until_s >= self.now_s);
        if let Some(until_s) = until_s {
            self.sessions[at].expires_s = until_s;
        }
        until_s.is_some()
    }

    /// Takes what is known of a control connection, to be put back; what is not known begins to be. `None` if there is no
    /// room.
    pub(crate) fn take_control(&mut self, key: ControlKey, now_s: u32) -> Option<Control> {
        let expires_s =
            now_s.saturating_add(self.timeouts_s[usize::from(SessionState::Established.number())]);
        let controls = &mut self.help.controls;
        let mut control = controls.remove(&key);
        if control.is_none() && controls.len() >= CONTROLS_MAX {
            let mut others = controls.iter();
            let over = others.find(|(_, other)| other.expires_s < now_s || other.is_plain());
            let over = over.map(|(key, _)| *key);
            controls.remove(&over?);
        }
        let control = control.get_or_insert_default();
        control.expires_s = expires_s;
        Some(std::mem::take(control))
    }

    pub(crate) fn put_control(&mut self, key: ControlKey, control: Control) {
        if self.help.controls.len() < CONTROLS_MAX {
            self.help.controls.insert(key, control);
        }
    }

    /// The public number of an inside host's call, which is made if the message may begin one.
    pub(crate) fn call_out(
        &mut self,
        call: (u32, Inside, u16),
        public: u32,
        may_begin: bool,
        now_s: u32,
    ) -> Option<u16> {
        if !may_begin {
            return self.help.calls.known_number(call);
        }
        let expires_s = now_s.saturating_add(self.bare_s);
        self.help.calls.public_number(call, public, now_s, expires_s)
    }

    /// The number that an inside host has given to a call.
    pub(crate) fn call_in(&self, key: CallKey) -> Option<u16> {
        self.help.calls.inside_number(key)
    }

    /// Takes over a call of another shard, likewise.
    pub(crate) fn adopt_call(&mut self, key: CallKey, call: Call, vrf: u8) {
        if self.layout.vrf == vrf && self.layout.is_public(key.1) {
            self.help.calls.adopt(key, call);
        }
    }
}
