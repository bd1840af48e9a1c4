//! What all BGP daemons have in common, as far as the tests ask: a configuration in our words, and questions
//! whose answers come from the daemon's own command line.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use crate::net::{End, Net};

/// An address family, and the session it has for itself: IPv4 routes over IPv4, IPv6 ones over IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Family {
    /// An end's address of the family.
    pub(crate) fn address(self, end: End) -> IpAddr {
        match self {
            Family::V4 => end.v4().into(),
            Family::V6 => end.v6().into(),
        }
    }

    /// Whether a prefix belongs to it.
    pub(crate) fn has(self, prefix: &str) -> bool {
        prefix.contains(':') == (self == Family::V6)
    }
}

/// How a daemon is configured.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Where it runs.
    pub(crate) end: End,
    pub(crate) as_number: u32,
    /// The neighbor's; the neighbor runs at the other end.
    pub(crate) neighbor_as: u32,
    pub(crate) families: Vec<Family>,
    /// What it originates, as text.
    pub(crate) networks: Vec<String>,
    /// TCP MD5 (RFC 2385).
    pub(crate) password: Option<String>,
    /// Sends and takes several paths of a prefix (RFC 7911).
    pub(crate) add_path: bool,
    /// Keeps routes of a neighbor that restarts, and asks to be treated so (RFC 4724).
    pub(crate) graceful_restart: bool,
    /// Waits to be connected to.
    pub(crate) passive: bool,
    pub(crate) hold_time_s: u16,
    /// More IPv4 neighbors at the other end: address and AS. All of them wait.
    pub(crate) others: Vec<(Ipv4Addr, u32)>,
    /// Sends next hops of the network they share as they are (RFC 4271 5.1.3). All others live on one machine here, where a
    /// daemon takes another's address for its own and refuses the route; so it is off unless asked for.
    pub(crate) third_party_next_hops: bool,
}

impl Spec {
    /// A daemon at an end, with both families and nothing else.
    pub(crate) fn new(end: End) -> Spec {
        let number = |end| if end == End::Left { 65001 } else { 65002 };
        Spec {
            end,
            as_number: number(end),
            neighbor_as: number(end.other()),
            families: FAMILIES.to_vec(),
            networks: Vec::new(),
            password: None,
            add_path: false,
            graceful_restart: false,
            passive: false,
            hold_time_s: 90,
            others: Vec::new(),
            third_party_next_hops: false,
        }
    }

    pub(crate) fn originating(mut self, networks: &[String]) -> Spec {
        self.networks = networks.to_vec();
        self
    }

    pub(crate) fn router_id(&self) -> Ipv4Addr {
        self.end.v4()
    }

    pub(crate) fn local(&self, family: Family) -> IpAddr {
        family.address(self.end)
    }

    pub(crate) fn neighbor(&self, family: Family) -> IpAddr {
        family.address(self.end.other())
    }

    pub(crate) fn networks_of(&self, family: Family) -> impl Iterator<Item = &String> {
        self.networks.iter().filter(move |n| family.has(n))
    }
}

/// A route as a daemon shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) path: Vec<u32>,
    pub(crate) next_hop: Option<IpAddr>,
}

/// Routes by prefix: those learned from neighbors, all paths of each in order.
pub(crate) type Routes = BTreeMap<String, Vec<Route>>;

/// A daemon that runs.
pub(crate) trait Router {
    /// Which.
    fn name(&self) -> &'static str;

    /// Whether its process still runs.
    fn check(&mut self) -> Result<(), String>;

    /// Whether the family's session with the neighbor at the other end is up. `Err` says what it is instead.
    fn established(&mut self, family: Family) -> Result<(), String>;

    /// Routes it has learned.
    fn routes(&mut self, family: Family) -> Result<Routes, String>;

    /// Originates more.
    fn announce(&mut self, networks: &[String]);

    /// Originates less.
    fn withdraw(&mut self, networks: &[String]);

    /// Asks the neighbor for everything again.
    fn refresh(&mut self, family: Family);

    /// Whether it stands being asked for everything again.
    fn can_be_asked(&self) -> bool {
        true
    }

    /// Ends it as a power failure would.
    fn kill(&mut self);

    /// Ends it as an administrator would.
    fn stop(&mut self);

    /// Starts it again after either, with what it originates by now.
    fn start(&mut self);

    /// Stops and continues its process.
    fn signal(&mut self, signal: &str);
}

/// Makes a daemon in a network, running; `None`, said loudly, if its program is not here.
pub(crate) type Make = for<'a> fn(&'a Net, Spec) -> Option<Box<dyn Router + 'a>>;

/// Prefixes to originate: `count` of each family, with a number in them that tells sources apart.
pub(crate) fn networks(source: u8, count: usize) -> Vec<String> {
    let v4 = (0..count).map(|i| format!("{}.{}.{}.0/24", 20 + source, i / 256, i % 256));
    let v6 = (0..count).map(|i| format!("2001:db8:{source:x}:{:x}::/64", i + 1));
    v4.chain(v6).collect()
}

/// Numbers in a text, such as an AS path with sets in braces.
pub(crate) fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}
