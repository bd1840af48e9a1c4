//! The interface of all BGP daemons in these tests: a configuration in our terms, and queries that are answered
//! through the daemon's own command line.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::net::{End, Net};

/// An address family. Each has its own session: IPv4 routes over IPv4, IPv6 routes over IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

impl Family {
    /// An end's address in this family.
    pub(crate) fn address(self, end: End) -> IpAddr {
        match self {
            Family::V4 => end.v4().into(),
            Family::V6 => end.v6().into(),
        }
    }

    /// Whether a prefix belongs to this family.
    pub(crate) fn has(self, prefix: &str) -> bool {
        prefix.contains(':') == (self == Family::V6)
    }
}

/// The configuration of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) end: End,
    pub(crate) as_number: u32,
    /// The AS of the neighbor, which runs at the other end.
    pub(crate) neighbor_as: u32,
    pub(crate) families: Vec<Family>,
    /// Prefixes that it originates, as text.
    pub(crate) networks: Vec<String>,
    /// TCP MD5 (RFC 2385).
    pub(crate) password: Option<String>,
    /// Sends and receives several paths of a prefix (RFC 7911).
    pub(crate) add_path: bool,
    /// Keeps routes of a restarting neighbor, and asks the neighbor to do the same (RFC 4724).
    pub(crate) graceful_restart: bool,
    /// Waits for connections instead of connecting.
    pub(crate) passive: bool,
    pub(crate) hold_time_s: u16,
    /// More IPv4 neighbors at the other end: address and AS. All of them connect to this daemon.
    pub(crate) others: Vec<(Ipv4Addr, u32)>,
    /// Does not change next hops on a shared network (RFC 4271 5.1.3). Off by default, because all the other
    /// neighbors live on one machine, whose daemon would take their addresses for its own and refuse the routes.
    pub(crate) third_party_next_hops: bool,
    /// A cache of the RPKI.
    pub(crate) cache: Option<SocketAddr>,
    /// Rejects what it calls invalid.
    pub(crate) reject_invalid: bool,
}

impl Spec {
    /// A daemon at an end, with both families and no further options.
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
            cache: None,
            reject_invalid: false,
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

/// A route as shown by a daemon.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Route {
    pub(crate) path: Vec<u32>,
    pub(crate) next_hop: Option<IpAddr>,
}

/// Routes by prefix, as learned from neighbors, with all paths in order.
pub(crate) type Routes = BTreeMap<String, Vec<Route>>;

/// A running daemon.
pub(crate) trait Router {
    fn name(&self) -> &'static str;

    /// Fails if its process has ended.
    fn check(&mut self) -> Result<(), String>;

    /// Whether the family's session with the neighbor at the other end is up. `Err` has its actual state.
    fn established(&mut self, family: Family) -> Result<(), String>;

    /// Its learned routes.
    fn routes(&mut self, family: Family) -> Result<Routes, String>;

    /// The validity of each learned IPv4 route, as far as the daemon says it.
    fn validities(&mut self) -> Result<BTreeMap<String, String>, String> {
        Err(format!("{} is not asked for validity", self.name()))
    }

    /// Originates more networks.
    fn announce(&mut self, networks: &[String]);

    /// Stops originating these networks.
    fn withdraw(&mut self, networks: &[String]);

    /// Asks the neighbor for all routes again (route refresh).
    fn refresh(&mut self, family: Family);

    /// Whether it handles a route refresh request from its neighbor.
    fn can_be_asked(&self) -> bool {
        true
    }

    /// Kills it, as a power failure would.
    fn kill(&mut self);

    /// Stops it, as an administrator would.
    fn stop(&mut self);

    /// Starts it again after `kill` or `stop`, with the networks that it originates by then.
    fn start(&mut self);

    /// Sends a signal to its process, to stop or to continue it.
    fn signal(&mut self, signal: &str);
}

/// Starts a daemon in a network; `None`, with a loud message, if its program is not installed.
pub(crate) type Make = for<'a> fn(&'a Net, Spec) -> Option<Box<dyn Router + 'a>>;

/// Prefixes to originate: `count` of each family. `source` is part of them and tells sources apart.
pub(crate) fn networks(source: u8, count: usize) -> Vec<String> {
    let v4 = (0..count).map(|i| format!("{}.{}.{}.0/24", 20 + source, i / 256, i % 256));
    let v6 = (0..count).map(|i| format!("2001:db8:{source:x}:{:x}::/64", i + 1));
    v4.chain(v6).collect()
}

/// The numbers in text such as an AS path with sets in braces.
pub(crate) fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}
