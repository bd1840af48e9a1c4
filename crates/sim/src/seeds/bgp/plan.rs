//! A network and its faults as data: seeds draw it, and scenario files store it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::seeds::is_default;

pub(super) const ROUTERS_MAX: usize = 64;
pub(super) const PREFIXES_MAX: u16 = 250;

/// A network, its events, and the seed of everything else that is random.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Determines what the plan leaves open: the order in which workers take turns.
    pub seed: u64,
    pub features: Features,
    /// Most of them are an AS of their own.
    pub routers: Vec<RouterPlan>,
    pub links: Vec<LinkPlan>,
    /// Faults and changes. At the end of each round everything is repaired and the network must converge.
    #[serde(default)]
    pub rounds: Vec<Vec<Event>>,
}

/// The capabilities and settings of all routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Features {
    /// IPv6 routes beside those of IPv4.
    #[serde(skip_serializing_if = "is_default")]
    pub ipv6: bool,
    /// The paths of a prefix that a neighbor is sent; below 2, only the best one and no ADD-PATH capability.
    #[serde(skip_serializing_if = "is_default")]
    pub paths: u8,
    /// No messages of more than 4096 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub short_messages: bool,
    /// Route refresh is disabled, in both variants.
    #[serde(skip_serializing_if = "is_default")]
    pub no_refresh: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub graceful_restart: bool,
    /// Roles (RFC 9234), where links have relationships.
    #[serde(skip_serializing_if = "is_default")]
    pub roles: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub mrai_ms: u32,
    pub hold_s: u16,
    /// Routers keep almost nothing for neighbors that read slowly.
    #[serde(skip_serializing_if = "is_default")]
    pub short_logs: bool,
    /// Several workers take turns in random order.
    #[serde(skip_serializing_if = "is_default")]
    pub interleaved: bool,
    /// AS numbers need four bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub large_as: bool,
    /// Flap damping, with times of a few seconds.
    #[serde(skip_serializing_if = "is_default")]
    pub damping: bool,
    /// An AS of several routers is a confederation (RFC 5065), each router a member AS.
    #[serde(skip_serializing_if = "is_default")]
    pub confederation: bool,
}

/// A router of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterPlan {
    /// The number of its own prefixes in each family.
    #[serde(skip_serializing_if = "is_default")]
    pub prefixes: u16,
    /// It announces the prefix that others announce too.
    #[serde(skip_serializing_if = "is_default")]
    pub anycast: bool,
    /// It is another site of this router's AS, without a session to it.
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

/// The role of a link's first router, seen from the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relationship {
    Provider,
    Peer,
}

/// A link of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    pub a: usize,
    pub b: usize,
    /// The role of `a`, seen from `b`. Without it, every route is accepted and announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is: Option<Relationship>,
    pub latency_us: u64,
    /// Bytes per millisecond.
    pub rate: usize,
    /// Bytes in flight.
    pub capacity: usize,
    /// The policies of `a` toward `b`, and of `b` toward `a`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ends: [End; 2],
}

/// A router's policy at one of its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct End {
    /// How often its AS is prepended to announced paths, beyond the usual once.
    #[serde(skip_serializing_if = "is_default")]
    pub prepend: u8,
    /// The MED of announced routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Whether announced routes get a community.
    #[serde(skip_serializing_if = "is_default")]
    pub mark: bool,
    /// Whether the ORIGIN of announced routes is INCOMPLETE; otherwise it stays.
    #[serde(skip_serializing_if = "is_default")]
    pub incomplete: bool,
    /// The kind of prefixes that it does not announce: their number modulo four.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject: Option<u8>,
    /// The IGP cost of next hops behind the link.
    #[serde(skip_serializing_if = "is_default")]
    pub metric: u32,
}

/// A fault or a change, and its delay after the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub after_ms: u32,
    pub what: Fault,
}

/// A fault or a change of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    Down(usize),
    /// A link carries nothing, and neither router notices.
    Silent(usize),
    /// A link works again.
    Up(usize),
    Speed {
        link: usize,
        /// Bytes per millisecond.
        rate: usize,
        /// Bytes in flight.
        capacity: usize,
    },
    /// A router stops abruptly.
    Stop(usize),
    Start(usize),
    /// A router stops abruptly and starts again; it knows which neighbors help it (RFC 4724).
    Restart(usize),
    /// A router resets a session.
    Reset {
        link: usize,
        /// The first or second end.
        end: usize,
    },
    /// A router ends a session until it is told to start it.
    Shutdown {
        link: usize,
        /// The first or second end.
        end: usize,
    },
    /// Bytes that no router sent appear between those of one end.
    Garbage {
        link: usize,
        /// The end that seems to send them.
        end: usize,
        bytes: u8,
    },
    /// A router requests all routes again.
    Refresh {
        link: usize,
        /// The first or second end.
        end: usize,
    },
    /// A reload changes a router's own prefixes.
    Announce {
        router: usize,
        now: RouterPlan,
    },
    /// A reload changes a router's policy toward a neighbor.
    Policy {
        link: usize,
        /// The first or second end.
        end: usize,
        now: End,
    },
    /// A neighbor's address becomes unreachable for a router; sessions stay established.
    NoWay {
        link: usize,
        /// The end that loses its route.
        end: usize,
    },
    /// All neighbors of a router are reachable again.
    Ways(usize),
}

impl Fault {
    /// The name for coverage.
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

    /// The link, the router and the end of the link that the fault names.
    fn places(&mut self) -> (Option<&mut usize>, Option<&mut usize>, usize) {
        match self {
            Self::Down(link) | Self::Silent(link) | Self::Up(link) | Self::Speed { link, .. } => {
                (Some(link), None, 0)
            }
            Self::Reset { link, end }
            | Self::Shutdown { link, end }
            | Self::Garbage { link, end, .. }
            | Self::Refresh { link, end }
            | Self::Policy { link, end, .. }
            | Self::NoWay { link, end } => (Some(link), None, *end),
            Self::Stop(router)
            | Self::Start(router)
            | Self::Restart(router)
            | Self::Ways(router)
            | Self::Announce { router, .. } => (None, Some(router), 0),
        }
    }

    /// The link and the router that the fault names.
    pub(super) fn names(mut self) -> (Option<usize>, Option<usize>) {
        let (link, router, _) = self.places();
        (link.copied(), router.copied())
    }

    /// Renumbers the router or link; `None` if it has no new number.
    fn renumber(
        &mut self,
        to_router: impl Fn(usize) -> Option<usize>,
        to_link: impl Fn(usize) -> Option<usize>,
    ) -> Option<()> {
        let (link, router, _) = self.places();
        if let Some(link) = link {
            *link = to_link(*link)?;
        }
        if let Some(router) = router {
            *router = to_router(*router)?;
        }
        Some(())
    }

    fn end(mut self) -> usize {
        self.places().2
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

/// Why a plan is invalid.
#[derive(Debug, thiserror::Error)]
pub enum PlanFault {
    #[error("{0} routers; 1 to {ROUTERS_MAX} are possible")]
    Routers(usize),
    #[error("router {0} has more than {PREFIXES_MAX} prefixes")]
    Prefixes(usize),
    #[error("link {link} is between routers {a} and {b}")]
    Ends { link: usize, a: usize, b: usize },
    #[error("link {link} is the second between routers {a} and {b}")]
    SecondLink { link: usize, a: usize, b: usize },
    #[error("there is no such link, end or router: {0}")]
    NotThere(Fault),
    #[error("router {router} is a site of router {first}, which is none or a site itself")]
    Site { router: usize, first: usize },
    #[error("routers {0} and {1} of one AS are linked")]
    Linked(usize, usize),
    #[error(
        "router {0} is a route server: it has no prefixes, policies or sites, and no other one beside it"
    )]
    RouteServer(usize),
    #[error("routers {0:?} buy transit from each other in a circle")]
    Providers(Vec<usize>),
    #[error("routers are inside several ASes, or inside of a router that is not the first")]
    Inside,
    #[error("router {0} is in an AS with internal sessions and a site or a route server")]
    InsideAndSite(usize),
    #[error("router {reflector} cannot reflect routes for router {router}")]
    Reflector { reflector: usize, router: usize },
    #[error("link {0} is inside an AS: it has no relationship and no policy")]
    InternalLink(usize),
    #[error("the sessions of the confederation make a circle")]
    Confederation,
}

impl Plan {
    /// Returns an error if the plan is invalid.
    pub(in crate::seeds) fn check(&self) -> Result<(), PlanFault> {
        let routers = self.routers.len();
        if !(1..=ROUTERS_MAX).contains(&routers) {
            return Err(PlanFault::Routers(routers));
        }
        if let Some(at) = self.routers.iter().position(|router| router.prefixes > PREFIXES_MAX) {
            return Err(PlanFault::Prefixes(at));
        }
        let mut pairs = std::collections::BTreeSet::new();
        for (at, link) in self.links.iter().enumerate() {
            let (a, b) = (link.a, link.b);
            if link.a >= routers || link.b >= routers || link.a == link.b {
                return Err(PlanFault::Ends { link: at, a, b });
            }
            if !pairs.insert((link.a.min(link.b), link.a.max(link.b))) {
                return Err(PlanFault::SecondLink { link: at, a, b });
            }
        }
        for event in self.rounds.iter().flatten() {
            let (link, router) = event.what.names();
            let is_there = link.is_none_or(|link| link < self.links.len())
                && router.is_none_or(|router| router < routers)
                && event.what.end() < 2;
            if !is_there {
                return Err(PlanFault::NotThere(event.what));
            }
        }
        for (at, router) in self.routers.iter().enumerate() {
            let first = router.site_of.unwrap_or(at);
            if self.routers.get(first).is_none_or(|first| first.site_of.is_some()) && first != at {
                return Err(PlanFault::Site { router: at, first });
            }
            let is_other_site =
                |other: usize| self.as_of(other) == self.as_of(at) && self.within(other) != self.within(at);
            if let Some((.., other)) = self.links_of(at).find(|(.., other)| is_other_site(*other)) {
                return Err(PlanFault::Linked(at, other));
            }
        }
        self.check_route_servers()?;
        self.check_inside()?;
        self.no_circle_of_providers()
    }

    /// A route server remains one, has neither routes nor a policy of its own, and is not linked to another.
    fn check_route_servers(&self) -> Result<(), PlanFault> {
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
                return Err(PlanFault::RouteServer(at));
            }
        }
        Ok(())
    }

    /// With such a circle, best routes may never converge.
    fn no_circle_of_providers(&self) -> Result<(), PlanFault> {
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
                same if same == left.len() => return Err(PlanFault::Providers(rest)),
                _ => left = rest,
            }
        }
    }

    /// The links of a router: the link's number, the router's end of it, and the router at the other end.
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

    /// A copy without a link and its events.
    pub(super) fn without_link(&self, gone: usize) -> Self {
        let mut plan = self.clone();
        plan.links.remove(gone);
        plan.move_events(Some, |link| (link != gone).then(|| if link > gone { link - 1 } else { link }));
        plan
    }

    /// Renumbers the routers and links of events; removes events whose router or link has no new number.
    pub(super) fn move_events(
        &mut self,
        router: impl Fn(usize) -> Option<usize>,
        link: impl Fn(usize) -> Option<usize>,
    ) {
        for events in &mut self.rounds {
            events.retain_mut(|event| event.what.renumber(&router, &link).is_some());
        }
    }

    /// The number of faults and changes in all rounds.
    pub fn events(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }
}
