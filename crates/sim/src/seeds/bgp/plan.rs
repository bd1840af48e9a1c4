//! A network and its faults as data: what a seed draws, what a scenario file holds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::seeds::is_default;

/// Routers of a plan, at most.
pub(super) const ROUTERS_MAX: usize = 64;
/// Prefixes of a router, at most.
pub(super) const PREFIXES_MAX: u16 = 250;

/// A network, what happens to it, and the seed of what else is left to chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Decides what the plan does not say: the order in which workers take turns.
    pub seed: u64,
    /// What all routers can do and how they are set.
    pub features: Features,
    /// The routers, most of them each its own AS.
    pub routers: Vec<RouterPlan>,
    /// Who is linked to whom.
    pub links: Vec<LinkPlan>,
    /// Faults and changes. After each round everything is mended and must come to rest.
    #[serde(default)]
    pub rounds: Vec<Vec<Event>>,
}

/// What routers can do and how they are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Features {
    /// IPv6 routes beside those of IPv4.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: bool,
    /// Paths of a prefix that neighbors are sent; below 2: the best one, without the capability.
    #[serde(skip_serializing_if = "is_default")]
    pub paths: u8,
    /// No messages of more than 4096 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub short_messages: bool,
    /// No capability route refresh of either kind.
    #[serde(skip_serializing_if = "is_default")]
    pub no_refresh: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub graceful_restart: bool,
    /// Roles (RFC 9234), where links have relationships.
    #[serde(skip_serializing_if = "is_default")]
    pub roles: bool,
    /// Least time between two announcements, in milliseconds.
    #[serde(skip_serializing_if = "is_default")]
    pub mrai_ms: u32,
    /// Hold time, in seconds.
    pub hold_s: u16,
    /// Almost nothing is kept for neighbors that read slowly.
    #[serde(skip_serializing_if = "is_default")]
    pub short_logs: bool,
    /// Several workers take turns as chance decides.
    #[serde(skip_serializing_if = "is_default")]
    pub interleaved: bool,
    /// AS numbers of four bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub large_as: bool,
    /// Flap damping, with times of seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub damping: bool,
    /// An AS of several routers is a confederation (RFC 5065), each router a member AS.
    #[serde(skip_serializing_if = "is_default")]
    pub confederation: bool,
}

/// A router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterPlan {
    /// Prefixes of its own, of each family.
    #[serde(skip_serializing_if = "is_default")]
    pub prefixes: u16,
    /// It announces the prefix that others announce too.
    #[serde(skip_serializing_if = "is_default")]
    pub anycast: bool,
    /// It is another site of this router's AS, with no session to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site_of: Option<usize>,
    /// It is a route server (RFC 7947): it passes on its neighbors' routes and has none of its own.
    #[serde(skip_serializing_if = "is_default")]
    pub route_server: bool,
    /// It is in the AS of this router, with sessions to those of its routers that it is linked to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<usize>,
    /// This router of its AS reflects routes for it (RFC 4456).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_of: Option<usize>,
}

/// What the first router of a link is to the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relationship {
    /// It sells transit to the second.
    Provider,
    /// Both exchange their own and their customers' routes.
    Peer,
}

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// One router.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// What `a` is to `b`; without it everything is accepted and announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Relationship>,
    /// In microseconds.
    pub latency_us: u64,
    /// Bytes a millisecond.
    pub rate: usize,
    /// Bytes on the way.
    pub capacity: usize,
    /// What `a` does with routes for `b` and the other way round.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ends: [End; 2],
}

/// What a router does with routes at one of its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct End {
    /// Its AS is so often before the paths it announces, beyond the usual once.
    #[serde(skip_serializing_if = "is_default")]
    pub prepend: u8,
    /// MED of what it announces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// It marks what it announces with a community.
    #[serde(skip_serializing_if = "is_default")]
    pub mark: bool,
    /// It does not announce prefixes of this kind: their number modulo four.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject: Option<u8>,
    /// Cost of the way to next hops behind the link.
    #[serde(skip_serializing_if = "is_default")]
    pub metric: u32,
}

/// A fault or a change, and how long after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Milliseconds.
    pub after_ms: u32,
    /// What happens.
    pub what: Fault,
}

/// What happens to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A link goes down; connections end for both routers.
    Down(usize),
    /// A link carries nothing, and neither router learns of it.
    Silent(usize),
    /// A link carries again.
    Up(usize),
    /// A link's rate and capacity change.
    Speed {
        link: usize,
        /// Bytes a millisecond.
        rate: usize,
        /// Bytes on the way.
        capacity: usize,
    },
    /// A router stops dead.
    Stop(usize),
    /// A router starts with an empty memory.
    Start(usize),
    /// A router stops dead and starts again, knowing who helps it (RFC 4724).
    Restart(usize),
    /// A router ends a session and begins anew.
    Reset {
        /// Which link's session.
        link: usize,
        /// Its first or second end.
        end: usize,
    },
    /// A router ends a session until it is told to start it.
    Shutdown {
        /// Which link's session.
        link: usize,
        /// Its first or second end.
        end: usize,
    },
    /// Bytes that no router sent come between those that one end sends.
    Garbage {
        /// Which link's session.
        link: usize,
        /// The end that seems to send them.
        end: usize,
        bytes: u8,
    },
    /// A router asks for all routes again.
    Refresh {
        /// Which link's session.
        link: usize,
        /// Its first or second end.
        end: usize,
    },
    /// A router is reloaded with other prefixes of its own.
    Announce {
        router: usize,
        /// What it has from now on.
        now: RouterPlan,
    },
    /// A router is reloaded with another policy toward a neighbor.
    Policy {
        link: usize,
        /// Its first or second end.
        end: usize,
        /// What it does from now on.
        now: End,
    },
    /// A router loses the way to a neighbor's address; sessions stay up.
    NoWay {
        link: usize,
        /// The end that loses it.
        end: usize,
    },
    /// A router has a way to all its neighbors again.
    Ways(usize),
}

impl Fault {
    /// Its name, for coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Down(_) => "link down",
            Self::Silent(_) => "link silent",
            Self::Up(_) => "link up",
            Self::Speed { .. } => "link speed",
            Self::Stop(_) => "router stopped",
            Self::Start(_) => "router started",
            Self::Restart(_) => "router restarted",
            Self::Reset { .. } => "session reset",
            Self::Shutdown { .. } => "session shut down",
            Self::Garbage { .. } => "garbage",
            Self::Refresh { .. } => "route refresh",
            Self::Announce { .. } => "prefixes changed",
            Self::Policy { .. } => "policy changed",
            Self::NoWay { .. } => "next hop lost",
            Self::Ways(_) => "next hops back",
        }
    }

    /// The link and the router it names.
    pub(super) fn names(&self) -> (Option<usize>, Option<usize>) {
        match *self {
            Self::Down(link) | Self::Silent(link) | Self::Up(link) | Self::Speed { link, .. } => {
                (Some(link), None)
            }
            Self::Reset { link, .. }
            | Self::Shutdown { link, .. }
            | Self::Garbage { link, .. }
            | Self::Refresh { link, .. }
            | Self::Policy { link, .. }
            | Self::NoWay { link, .. } => (Some(link), None),
            Self::Stop(router) | Self::Start(router) | Self::Restart(router) | Self::Ways(router) => {
                (None, Some(router))
            }
            Self::Announce { router, .. } => (None, Some(router)),
        }
    }

    /// Gives the router or link it names another number; `None` if there is none.
    fn renumber(
        &mut self,
        to_router: impl Fn(usize) -> Option<usize>,
        to_link: impl Fn(usize) -> Option<usize>,
    ) -> Option<()> {
        match self {
            Self::Down(link)
            | Self::Silent(link)
            | Self::Up(link)
            | Self::Speed { link, .. }
            | Self::Reset { link, .. }
            | Self::Shutdown { link, .. }
            | Self::Garbage { link, .. }
            | Self::Refresh { link, .. }
            | Self::Policy { link, .. }
            | Self::NoWay { link, .. } => *link = to_link(*link)?,
            Self::Stop(router)
            | Self::Start(router)
            | Self::Restart(router)
            | Self::Ways(router)
            | Self::Announce { router, .. } => *router = to_router(*router)?,
        }
        Some(())
    }

    fn end(&self) -> usize {
        match *self {
            Self::Reset { end, .. }
            | Self::Shutdown { end, .. }
            | Self::Garbage { end, .. }
            | Self::Refresh { end, .. }
            | Self::Policy { end, .. }
            | Self::NoWay { end, .. } => end,
            _ => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match *self {
            Self::Speed { link, rate, capacity } => {
                write!(f, "{name}: link {link}, {rate} bytes/ms, {capacity} bytes on the way")
            }
            Self::Announce { router, now } => {
                let anycast = if now.anycast { ", anycast" } else { "" };
                write!(f, "{name}: router {router}, {} prefixes{anycast}", now.prefixes)
            }
            Self::Policy { link, end, now } => write!(f, "{name}: link {link}, end {end}, {now:?}"),
            _ => match self.names() {
                (Some(link), _) => write!(f, "{name}: link {link}, end {}", self.end()),
                (_, router) => write!(f, "{name}: router {}", router.unwrap_or_default()),
            },
        }
    }
}

impl Plan {
    /// What is wrong with it.
    pub(in crate::seeds) fn check(&self) -> Result<(), String> {
        let routers = self.routers.len();
        if !(1..=ROUTERS_MAX).contains(&routers) {
            return Err(format!("{routers} routers; 1 to {ROUTERS_MAX} are possible"));
        }
        if let Some(at) = self.routers.iter().position(|router| router.prefixes > PREFIXES_MAX) {
            return Err(format!("router {at} has more than {PREFIXES_MAX} prefixes"));
        }
        let mut pairs = std::collections::BTreeSet::new();
        for (at, link) in self.links.iter().enumerate() {
            if link.a >= routers || link.b >= routers || link.a == link.b {
                return Err(format!("link {at} is between routers {} and {}", link.a, link.b));
            }
            if !pairs.insert((link.a.min(link.b), link.a.max(link.b))) {
                return Err(format!("link {at} is the second between routers {} and {}", link.a, link.b));
            }
        }
        for event in self.rounds.iter().flatten() {
            let (link, router) = event.what.names();
            let is_there = link.is_none_or(|link| link < self.links.len())
                && router.is_none_or(|router| router < routers)
                && event.what.end() < 2;
            if !is_there {
                return Err(format!("there is no such link, end or router: {}", event.what));
            }
        }
        for (at, router) in self.routers.iter().enumerate() {
            let first = router.site_of.unwrap_or(at);
            if self.routers.get(first).is_none_or(|first| first.site_of.is_some()) && first != at {
                return Err(format!(
                    "router {at} is a site of router {first}, which is none or a site itself"
                ));
            }
            let is_other_site =
                |other: usize| self.as_of(other) == self.as_of(at) && self.within(other) != self.within(at);
            if let Some((.., other)) = self.links_of(at).find(|(.., other)| is_other_site(*other)) {
                return Err(format!("routers {at} and {other} of one AS are linked"));
            }
        }
        self.check_route_servers()?;
        self.check_inside()?;
        self.no_circle_of_providers()
    }

    /// A route server stays one, has no routes and no policy of its own, and none beside it.
    fn check_route_servers(&self) -> Result<(), String> {
        let servers = (0..self.routers.len()).filter(|at| self.routers[*at].route_server);
        for at in servers {
            let own = RouterPlan { route_server: true, ..RouterPlan::default() };
            let changes = |event: &Event| match event.what {
                Fault::Announce { router, now } => router == at && now != own,
                Fault::Policy { link, end, now } => self.router_at(link, end) == at && now != End::default(),
                _ => false,
            };
            let is_plain = self.links_of(at).all(|(link, end, other)| {
                self.links[link].ends[end] == End::default() && !self.routers[other].route_server
            });
            if self.routers[at] != own || !is_plain || self.rounds.iter().flatten().any(changes) {
                return Err(format!(
                    "router {at} is a route server: it has no prefixes, policies or sites, and no other one beside it"
                ));
            }
        }
        Ok(())
    }

    /// With one, the routes that are best may never come to rest.
    fn no_circle_of_providers(&self) -> Result<(), String> {
        let mut left: Vec<usize> = (0..self.routers.len()).collect();
        loop {
            let has_provider = |node: &usize| {
                self.links.iter().any(|link| {
                    let (provider, customer) = (self.within(link.a), self.within(link.b));
                    link.is == Some(Relationship::Provider) && customer == *node && left.contains(&provider)
                })
            };
            let rest: Vec<usize> = left.iter().copied().filter(has_provider).collect();
            match rest.len() {
                0 => return Ok(()),
                same if same == left.len() => {
                    return Err(format!("routers {rest:?} buy transit from each other in a circle"));
                }
                _ => left = rest,
            }
        }
    }

    /// Links of a router: the link's number, which end of it the router is, and the router at the other end.
    pub fn links_of(&self, router: usize) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        self.links.iter().enumerate().filter_map(move |(number, link)| match router {
            _ if link.a == router => Some((number, 0, link.b)),
            _ if link.b == router => Some((number, 1, link.a)),
            _ => None,
        })
    }

    /// The first router of a router's AS.
    pub fn as_of(&self, router: usize) -> usize {
        self.routers[router].site_of.unwrap_or(self.within(router))
    }

    /// The same for routers that share what they learn: a site of an AS stands for itself.
    pub(super) fn within(&self, router: usize) -> usize {
        self.routers[router].inside.unwrap_or(router)
    }

    /// Whether a router's AS has others, with sessions between them.
    pub(super) fn is_inside(&self, router: usize) -> bool {
        let first = self.within(router);
        self.routers.iter().any(|other| other.inside == Some(first))
    }

    /// Whether both ends of a link are in one AS.
    pub(super) fn is_internal(&self, link: usize) -> bool {
        self.within(self.links[link].a) == self.within(self.links[link].b)
    }

    /// Whether a router is a member AS of a confederation.
    pub(super) fn is_member(&self, router: usize) -> bool {
        self.features.confederation && self.is_inside(router)
    }

    /// The router at an end of a link.
    pub fn router_at(&self, link: usize, end: usize) -> usize {
        if end == 0 { self.links[link].a } else { self.links[link].b }
    }

    /// The same without a link and what happens to it.
    pub(super) fn without_link(&self, gone: usize) -> Self {
        let mut plan = self.clone();
        plan.links.remove(gone);
        plan.move_events(Some, |link| (link != gone).then(|| if link > gone { link - 1 } else { link }));
        plan
    }

    /// Gives routers and links that events name other numbers; events whose router or link gets none go.
    pub(super) fn move_events(
        &mut self,
        router: impl Fn(usize) -> Option<usize>,
        link: impl Fn(usize) -> Option<usize>,
    ) {
        for events in &mut self.rounds {
            events.retain_mut(|event| event.what.renumber(&router, &link).is_some());
        }
    }

    /// Faults and changes of all rounds.
    pub fn events(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }
}
