//! Virtual routers (VRRP version 3, RFC 9568): several routers share addresses, and one of them, the Active one, has
//! them.
//!
//! ```text
//!                      priority 255: advertise, announce
//!   INITIALIZE ------------------------------------------> ACTIVE
//!     ^   |                                                 ^  |
//!     |   | the port has an address   nothing heard for     |  | a better one advertises
//!     |   v                           the down interval     |  v
//!     +-- BACKUP --------------------------------------------  BACKUP
//! ```
//!
//! The Active router advertises every interval. A backup that hears nothing for three intervals and its skew, which is
//! shorter the higher its priority, becomes Active itself. Of two Active routers that hear each other the one with the
//! lower priority, or the lower address, steps back. An advertisement of priority 0 says that the Active router stops:
//! backups wait for their skew only.
//!
//! A router that was stopped for longer than an interval, with its process or its machine, has not listened meanwhile. As
//! a backup it does not take that time for silence. As the Active one it steps back after three intervals, because
//! another has taken over by then, and listens for one interval and its skew before it takes over again.
//!
//! The caller has the addresses and the MAC address of a router exactly while it is Active, and announces them. It gives
//! the machine packets and time, and polls outputs after each call.
//!
//! Missing: version 2, preemption after a delay, tracking of other interfaces.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use thalweg_wire::ipv4::Ipv4Repr;
use thalweg_wire::ipv6::Ipv6Repr;
use thalweg_wire::vrrp::{GROUP_V4, GROUP_V6, HOP_LIMIT, PROTOCOL, VrrpRepr, VrrpView, virtual_mac};
use thalweg_wire::{MacAddr, Malformed};

use crate::ip_packet::IpPacket;

/// Who owns the addresses.
const OWNER: u8 = 255;
const CENTISECOND_NS: u64 = 10_000_000;
/// The class of advertisements: network control (RFC 9568 5.1.1 leaves it open; routing protocols use it).
const CLASS: u8 = 0xc0;
/// Between two advertisements that only contradict another router.
const CONTRADICT_NS: u64 = 100_000_000;

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VrrpConfig {
    pub port: u16,
    /// Its number (VRID), from 1.
    pub id: u8,
    /// Its addresses, at least one, of one family.
    pub addresses: Vec<IpAddr>,
    /// From 1; 255 if the addresses are the port's own.
    pub priority: u8,
    /// The interval of our advertisements, in hundredths of a second.
    pub interval_cs: u16,
    /// Whether a router of higher priority takes over from one of lower priority.
    pub preempt: bool,
    /// Whether the router itself may be spoken to at the addresses.
    pub accept: bool,
    /// Whether the checksum of IPv4 advertisements covers a pseudo header.
    pub pseudo_header: bool,
}

impl VrrpConfig {
    /// The family of its addresses: IPv6, else IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.addresses.iter().any(IpAddr::is_ipv6)
    }

    /// Its MAC address.
    pub fn mac(&self) -> MacAddr {
        virtual_mac(self.id, self.is_ipv6())
    }

    fn group(&self) -> IpAddr {
        if self.is_ipv6() { GROUP_V6.into() } else { GROUP_V4.into() }
    }
}

thalweg_base::words! {
    /// The state of a virtual router.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum VrrpState {
        /// Its port is down or has no address.
        Initialize => "initialize",
        /// Another router is Active, or will be.
        Backup => "backup",
        Active => "active",
    }
}

thalweg_base::words! {
    /// Why an advertisement was not used.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum VrrpIgnored {
        /// Its TTL is not 255, so it comes from beyond the link.
        HopLimit => "hop-limit",
        Malformed => "malformed",
        Checksum => "checksum",
        /// We own the addresses.
        Owner => "owner",
        /// It lists other addresses. It counts all the same.
        Addresses => "addresses",
    }
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VrrpOutput {
    /// Send an IP packet on the virtual router's port, from its MAC address to the group's.
    Send { place: usize, packet: Vec<u8> },
    /// The virtual router has a new state.
    Changed { place: usize, state: VrrpState },
}

/// A virtual router for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualRouterView {
    pub config: VrrpConfig,
    pub state: VrrpState,
    /// The address of the Active router, if it is another and was heard.
    pub active: Option<IpAddr>,
    /// What that router advertises.
    pub active_priority: Option<u8>,
    pub sent: u64,
    pub received: u64,
    /// Advertisements that were not used, by the names of [`VrrpIgnored`].
    pub ignored: BTreeMap<&'static str, u64>,
    /// How often it became Active.
    pub became_active: u64,
}

impl VirtualRouterView {
    fn ignore(&mut self, why: VrrpIgnored) {
        *self.ignored.entry(why.name()).or_default() += 1;
    }
}

#[derive(Clone, Debug)]
struct VirtualRouter {
    view: VirtualRouterView,
    /// The port's address, from which we advertise.
    source: Option<IpAddr>,
    /// The interval of the Active router.
    active_interval_cs: u16,
    /// In ACTIVE, the next advertisement; in BACKUP, when the Active router counts as down.
    timer_ns: u64,
    sent_ns: u64,
}

impl VirtualRouter {
    fn config(&self) -> &VrrpConfig {
        &self.view.config
    }

    /// Skew_Time: shorter for higher priorities.
    fn skew_ns(&self) -> u64 {
        let share = 256 - u64::from(self.config().priority);
        share * self.interval_ns() / 256
    }

    fn interval_ns(&self) -> u64 {
        u64::from(self.active_interval_cs) * CENTISECOND_NS
    }

    fn down_ns(&self) -> u64 {
        3 * self.interval_ns() + self.skew_ns()
    }

    /// When the caller must call, at the latest: backups say each interval that they listen.
    fn deadline_ns(&self, called_ns: u64) -> u64 {
        match self.view.state {
            VrrpState::Backup => self.timer_ns.min(called_ns.saturating_add(self.interval_ns())),
            VrrpState::Initialize | VrrpState::Active => self.timer_ns,
        }
    }

    fn advertisement(&mut self, priority: u8, now_ns: u64) -> Option<Vec<u8>> {
        let source = self.source?;
        let (group, config) = (self.config().group(), self.config());
        let count = u8::try_from(config.addresses.len()).ok()?;
        let repr = VrrpRepr { id: config.id, priority, count, interval: config.interval_cs };
        let message = repr.encode(&config.addresses, (source, group), config.pseudo_header);
        let header = match (source, group) {
            (IpAddr::V4(source), IpAddr::V4(group)) => {
                let header = Ipv4Repr::new(source, group, PROTOCOL, message.len());
                Ipv4Repr { ttl: HOP_LIMIT, traffic_class: CLASS, ..header }.encode().to_vec()
            }
            (IpAddr::V6(source), IpAddr::V6(group)) => {
                let header = Ipv6Repr::new(source, group, PROTOCOL, message.len());
                Ipv6Repr { hop_limit: HOP_LIMIT, traffic_class: CLASS, ..header }.encode().to_vec()
            }
            _ => return None,
        };
        self.view.sent += 1;
        self.sent_ns = now_ns;
        Some([header, message].concat())
    }
}

/// All virtual routers of a router.
#[derive(Clone, Debug, Default)]
pub struct VirtualRouters {
    routers: Vec<VirtualRouter>,
    /// No router preempts another one for now.
    holds: bool,
    /// When the caller last said what time it is.
    called_ns: Option<u64>,
    outputs: VecDeque<VrrpOutput>,
}

impl VirtualRouters {
    /// Virtual routers whose ports are down. `place` in outputs is the place here.
    pub fn new(configs: impl IntoIterator<Item = VrrpConfig>) -> Self {
        let router = |config: VrrpConfig| VirtualRouter {
            active_interval_cs: config.interval_cs,
            view: VirtualRouterView {
                config,
                state: VrrpState::Initialize,
                active: None,
                active_priority: None,
                sent: 0,
                received: 0,
                ignored: BTreeMap::new(),
                became_active: 0,
            },
            source: None,
            timer_ns: u64::MAX,
            sent_ns: 0,
        };
        Self { routers: configs.into_iter().map(router).collect(), ..Self::default() }
    }

    /// The configurations, in order.
    pub fn configs(&self) -> impl Iterator<Item = &VrrpConfig> {
        self.routers.iter().map(VirtualRouter::config)
    }

    /// All virtual routers, in order.
    pub fn view(&self) -> impl Iterator<Item = &VirtualRouterView> {
        self.routers.iter().map(|router| &router.view)
    }

    /// The next output.
    pub fn poll_output(&mut self) -> Option<VrrpOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_timer`](Self::handle_timer) next.
    pub fn next_deadline(&self) -> Option<u64> {
        let called_ns = self.called_ns.unwrap_or_default();
        let deadlines = self.routers.iter().map(|router| router.deadline_ns(called_ns));
        deadlines.min().filter(|at_ns| *at_ns != u64::MAX)
    }

    /// Sets the address from which a virtual router advertises; `None` while its port is down (RFC 9568 6.4.1).
    pub fn set_source(&mut self, place: usize, source: Option<IpAddr>, now_ns: u64) {
        self.note_time(now_ns);
        let Some(router) = self.routers.get_mut(place) else { return };
        let begins = router.source.is_none() && source.is_some();
        router.source = source;
        if source.is_none() {
            router.timer_ns = u64::MAX;
            self.set_state(place, VrrpState::Initialize);
        } else if begins && router.config().priority == OWNER {
            self.become_active(place, now_ns);
        } else if begins {
            router.active_interval_cs = router.config().interval_cs;
            router.timer_ns = now_ns.saturating_add(router.down_ns());
            self.set_state(place, VrrpState::Backup);
        }
    }

    /// Leaves addresses to a router of lower priority that is Active, as without preemption, until told otherwise. It
    /// takes over from one that is silent, and owners (priority 255) do not wait.
    pub fn hold(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// Whether one of them is Active.
    pub fn is_any_active(&self) -> bool {
        self.routers.iter().any(|router| router.view.state == VrrpState::Active)
    }

    /// Tells others that this router stops (RFC 9568 6.4.3).
    pub fn stop(&mut self, now_ns: u64) {
        for place in 0..self.routers.len() {
            if self.routers[place].view.state == VrrpState::Active {
                self.advertise(place, 0, now_ns);
            }
            self.set_source(place, None, now_ns);
        }
    }

    /// Advertises, or takes over, where that is due.
    pub fn handle_timer(&mut self, now_ns: u64) {
        self.note_time(now_ns);
        for place in 0..self.routers.len() {
            let router = &self.routers[place];
            if router.timer_ns > now_ns {
                continue;
            }
            match router.view.state {
                VrrpState::Initialize => self.routers[place].timer_ns = u64::MAX,
                VrrpState::Backup => self.become_active(place, now_ns),
                VrrpState::Active => self.advertise_own(place, now_ns),
            }
        }
    }

    /// Takes an IP packet that arrived on a port. Returns whether it is an advertisement of one of the virtual routers
    /// there, valid or not.
    pub fn handle_packet(&mut self, port: u16, packet: &[u8], now_ns: u64) -> bool {
        let Some(read) = IpPacket::parse(packet).filter(|read| read.protocol == PROTOCOL) else {
            return false;
        };
        let id = match read.transport() {
            [_, id, ..] => *id,
            _ => return false,
        };
        let is_of =
            |config: &VrrpConfig| (config.port, config.id, config.is_ipv6()) == (port, id, read.is_ipv6());
        let Some(place) = self.routers.iter().position(|router| is_of(router.config())) else { return false };
        self.note_time(now_ns);
        match self.receive(place, &read, now_ns) {
            Ok(()) => {}
            Err(why) => self.routers[place].view.ignore(why),
        }
        true
    }

    /// Makes up for the time since the last call, if that was longer than an interval.
    fn note_time(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.called_ns.replace(now_ns).unwrap_or(now_ns));
        for place in 0..self.routers.len() {
            let router = &mut self.routers[place];
            let interval_ns = router.interval_ns();
            match router.view.state {
                VrrpState::Backup => {
                    let unheard_ns = gap_ns.saturating_sub(interval_ns);
                    router.timer_ns = router.timer_ns.saturating_add(unheard_ns);
                }
                VrrpState::Active if gap_ns > 3 * interval_ns && router.config().priority != OWNER => {
                    router.timer_ns = now_ns.saturating_add(interval_ns + router.skew_ns());
                    self.set_state(place, VrrpState::Backup);
                }
                VrrpState::Initialize | VrrpState::Active => {}
            }
        }
    }

    /// RFC 9568 7.1, 6.4.2, 6.4.3.
    fn receive(&mut self, place: usize, packet: &IpPacket<'_>, now_ns: u64) -> Result<(), VrrpIgnored> {
        let router = &mut self.routers[place];
        if packet.hop_limit != HOP_LIMIT {
            return Err(VrrpIgnored::HopLimit);
        }
        let malformed = |_: Malformed| VrrpIgnored::Malformed;
        let heard = VrrpView::new(packet.transport(), packet.is_ipv6()).map_err(malformed)?;
        if !packet.complete || packet.fragment || heard.interval_cs() == 0 {
            return Err(VrrpIgnored::Malformed);
        }
        if !packet.header_checksum_holds() || !heard.checksum_holds(packet.source, packet.destination) {
            return Err(VrrpIgnored::Checksum);
        }
        if router.config().priority == OWNER {
            return Err(VrrpIgnored::Owner);
        }
        router.view.received += 1;
        let mut listed: Vec<IpAddr> = heard.addresses().collect();
        let mut own = router.config().addresses.clone();
        listed.sort_unstable();
        own.sort_unstable();
        if listed != own {
            router.view.ignore(VrrpIgnored::Addresses);
        }
        let (priority, own) = (heard.priority(), router.config().priority);
        let is_higher = router.source.is_some_and(|source| packet.source > source);
        match router.view.state {
            VrrpState::Initialize => {}
            VrrpState::Backup if priority == 0 => router.timer_ns = now_ns.saturating_add(router.skew_ns()),
            VrrpState::Backup if self.holds || !router.config().preempt || priority >= own => {
                self.follow(place, (packet.source, priority), heard.interval_cs(), now_ns);
            }
            // The timer goes on: then this router takes over.
            VrrpState::Backup => {}
            VrrpState::Active if priority == 0 => self.advertise_own(place, now_ns),
            VrrpState::Active if priority > own || priority == own && is_higher => {
                self.follow(place, (packet.source, priority), heard.interval_cs(), now_ns);
                self.set_state(place, VrrpState::Backup);
            }
            // At once, so that the other steps back and switches learn again; but a flood is not answered by one.
            VrrpState::Active if now_ns.saturating_sub(router.sent_ns) >= CONTRADICT_NS => {
                self.advertise_own(place, now_ns);
            }
            VrrpState::Active => {}
        }
        Ok(())
    }

    fn follow(&mut self, place: usize, (active, priority): (IpAddr, u8), interval_cs: u16, now_ns: u64) {
        let router = &mut self.routers[place];
        (router.view.active, router.view.active_priority) = (Some(active), Some(priority));
        router.active_interval_cs = interval_cs;
        router.timer_ns = now_ns.saturating_add(router.down_ns());
    }

    fn become_active(&mut self, place: usize, now_ns: u64) {
        let view = &mut self.routers[place].view;
        (view.active, view.active_priority) = (None, None);
        view.became_active += 1;
        self.advertise_own(place, now_ns);
        self.set_state(place, VrrpState::Active);
    }

    fn advertise_own(&mut self, place: usize, now_ns: u64) {
        let config = self.routers[place].config();
        let (priority, interval_cs) = (config.priority, u64::from(config.interval_cs.max(1)));
        self.advertise(place, priority, now_ns);
        self.routers[place].timer_ns = now_ns.saturating_add(interval_cs * CENTISECOND_NS);
    }

    fn advertise(&mut self, place: usize, priority: u8, now_ns: u64) {
        if let Some(packet) = self.routers[place].advertisement(priority, now_ns) {
            self.outputs.push_back(VrrpOutput::Send { place, packet });
        }
    }

    fn set_state(&mut self, place: usize, state: VrrpState) {
        let before = std::mem::replace(&mut self.routers[place].view.state, state);
        if before != state {
            self.outputs.push_back(VrrpOutput::Changed { place, state });
        }
    }
}

#[cfg(test)]
mod tests;
