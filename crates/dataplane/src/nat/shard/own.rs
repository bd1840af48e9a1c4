//! The router's own ports and flows on a shard's public ports: see [`super::super::own`].

use super::super::config::NatProtocol;
use super::super::endpoint::End;
use super::super::own::{Claimed, FLOW_LIFE_S, OwnFlow, OwnPort};
use super::super::session::{Life, Session, SessionState};
use super::NatShard;

impl NatShard {
    /// Reserves exactly these sorted ports of the shard as a whole for the router. Sessions on them end.
    pub(crate) fn reserve(&mut self, wanted: &[OwnPort]) {
        for port in self.own.release_unwanted(wanted) {
            self.give_back(&port);
        }
        for port in wanted {
            self.reserve_one(*port);
        }
    }

    fn reserve_one(&mut self, port: OwnPort) {
        if self.own.is_reserved(&port) {
            return;
        }
        if let Some(at) = self.session_on(&port) {
            if self.sessions[at].state == SessionState::Forward {
                // The configuration assigns this port to a port forward.
                return;
            }
            self.end_now(at);
            self.counters.router_displaced += 1;
        }
        self.take_for_router(&port);
        self.own.hold(port, true);
    }

    /// Claims a flow that the router has just sent on.
    pub(crate) fn claim(&mut self, flow: OwnFlow) {
        self.claim_until(flow, self.now_s.saturating_add(FLOW_LIFE_S));
    }

    fn claim_until(&mut self, flow: OwnFlow, until_s: u32) {
        if self.own.is_reserved(&flow.at) {
            return;
        }
        match self.own.keep(flow, until_s) {
            Claimed::Already => {}
            Claimed::NoRoom => self.counters.router_flows_refused += 1,
            Claimed::Now => match self.session_on(&flow.at) {
                Some(at) if self.sessions[at].state != SessionState::Forward => {
                    self.sessions[at].life = Life::Shared;
                }
                Some(_) => {}
                None => {
                    self.take_for_router(&flow.at);
                    self.own.hold(flow.at, false);
                }
            },
        }
    }

    /// Takes over another shard's own ports and flows that belong here.
    pub(crate) fn adopt_own(&mut self, ports: &[OwnPort], flows: &[(OwnFlow, u32)]) {
        ports
            .iter()
            .filter(|port| self.owns(port))
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|port| self.reserve_one(port));
        for (flow, until_s) in flows {
            if self.owns(&flow.at) {
                self.claim_until(*flow, *until_s);
            }
        }
    }

    /// Whether a public port belongs to this shard.
    pub(crate) fn owns(&self, port: &OwnPort) -> bool {
        self.layout.port_shard(port.port) == self.shard && self.layout.is_routers(port.address.into())
    }

    /// The router's own ports and flows here.
    pub(crate) fn all_own(&self) -> (Vec<OwnPort>, Vec<(OwnFlow, u32)>) {
        self.own.all()
    }

    /// Gives the router a port alone after the session on it ended, if the router has flows there.
    pub(super) fn leave_port_to_router(&mut self, session: &Session) {
        if session.life != Life::Shared {
            return;
        }
        let [_, address] = session.addresses;
        let port = OwnPort { protocol: session.protocol(), address: address.into(), port: session.ports[1] };
        if self.own.has_flows_on(&port) {
            self.take_for_router(&port);
            self.own.hold(port, false);
        }
    }

    /// Releases flows that the router has not renewed.
    pub(super) fn forget_own_flows(&mut self) {
        for (port, is_free) in self.own.sweep(self.now_s) {
            if is_free {
                self.give_back(&port);
            } else if let Some(at) = self.session_on(&port)
                && self.sessions[at].life == Life::Shared
            {
                self.sessions[at].life = Life::Several;
            }
        }
    }

    /// The session on a public port.
    fn session_on(&self, port: &OwnPort) -> Option<usize> {
        let key = port.key();
        self.find(End::Destination, key, self.layout.hash(key))
    }

    /// Removes a port from those for sessions; one outside their range is not among them.
    fn take_for_router(&mut self, port: &OwnPort) {
        if let Some((bitmap, place)) = self.place_of(port) {
            self.ports.take(bitmap, place);
        }
    }

    fn give_back(&mut self, port: &OwnPort) {
        if let (Some((bitmap, place)), true) = (self.place_of(port), self.port_range.contains(&port.port)) {
            self.ports.release(bitmap, place);
        }
    }

    fn place_of(&self, port: &OwnPort) -> Option<(usize, usize)> {
        let index = self.layout.public_index(port.address.into())? as usize;
        let bitmap = self.layout.bitmap(port.protocol, index, port.port & 1);
        Some((bitmap, self.layout.bitmap_place(port.port)))
    }

    /// Claims a protocol without ports for the router, with a peer.
    pub(crate) fn claim_bare(&mut self, protocol: u8, public: u32, peer: u32) {
        debug_assert!(NatProtocol::from_ip(protocol).is_none(), "it has ports");
        let until_s = self.now_s.saturating_add(FLOW_LIFE_S);
        match self.bare.claim((protocol, peer, public), self.now_s, until_s) {
            Some(displaced) => self.counters.router_displaced += u64::from(displaced),
            None => self.counters.router_flows_refused += 1,
        }
    }
}
