//! Three sweeps over flat arrays that are kept from one announcement to the next.

use super::{Announcement, Class};
use crate::topology::{AsGraph, Relation};

/// Nobody.
const NONE: u32 = u32::MAX;

/// Whose announcement a route goes back to.
const OF_ORIGIN: u8 = 0;
const OF_HIJACKER: u8 = 1;
const OF_LEAKER: u8 = 2;

#[derive(Clone, Copy)]
struct Route {
    /// The neighbor it came from.
    via: u32,
    /// ASes on the path after this one.
    length: u16,
    class: Class,
    of: u8,
}

const UNREACHED: Route = Route { via: NONE, length: u16::MAX, class: Class::Unreached, of: OF_ORIGIN };

/// The routes of all ASes to one prefix.
#[derive(Clone, Copy)]
pub struct Routes<'a> {
    routes: &'a [Route],
    leak_path: &'a [u32],
    leaker: Option<usize>,
}

impl Routes<'_> {
    /// How a node came by its route.
    pub fn class(&self, node: usize) -> Class {
        self.routes[node].class
    }

    /// The next AS on a node's path.
    pub fn via(&self, node: usize) -> Option<usize> {
        Some(self.routes[node].via).filter(|via| *via != NONE).map(|via| via as usize)
    }

    /// How many ASes are on a node's path after itself.
    pub fn length(&self, node: usize) -> Option<usize> {
        (self.routes[node].class != Class::Unreached).then(|| usize::from(self.routes[node].length))
    }

    /// Whether a node's route ends at the hijacker.
    pub fn is_hijacked(&self, node: usize) -> bool {
        self.routes[node].class != Class::Unreached && self.routes[node].of == OF_HIJACKER
    }

    /// Whether a node's route goes by the leak.
    pub fn is_leaked(&self, node: usize) -> bool {
        self.routes[node].class != Class::Unreached && self.routes[node].of == OF_LEAKER
    }

    /// The nodes on a node's path after itself; empty at the origin and where there is no route.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = node;
        while let Some(next) = self.via(at) {
            path.push(next);
            at = next;
            if Some(at) == self.leaker && self.is_leaked(node) {
                path.extend(self.leak_path.iter().map(|node| *node as usize));
                return path;
            }
        }
        path
    }

    /// How many have a route, the origin included.
    pub fn reached(&self) -> usize {
        self.routes.iter().filter(|route| route.class != Class::Unreached).count()
    }
}

/// Finds routes, one announcement after the other.
pub struct Engine<'a> {
    graph: &'a AsGraph,
    routes: Vec<Route>,
    /// Nodes by the length of their path, in the sweep that goes on.
    levels: Vec<Vec<u32>>,
    /// Path of the leaker, after itself.
    leak_path: Vec<u32>,
}

impl<'a> Engine<'a> {
    /// An engine for a graph.
    pub fn new(graph: &'a AsGraph) -> Self {
        Self { graph, routes: vec![UNREACHED; graph.len()], levels: Vec::new(), leak_path: Vec::new() }
    }

    /// The routes of all ASes to a prefix that is announced so.
    pub fn routes(&mut self, announcement: &Announcement) -> Routes<'_> {
        self.leak_path.clear();
        let mut leaked = None;
        if let Some(leaker) = announcement.leaker {
            // What it leaks is what it has without leaking.
            self.run(&Announcement { leaker: None, ..announcement.clone() }, None);
            let before = self.routes[leaker];
            if matches!(before.class, Class::Peer | Class::Provider) {
                let mut at = before.via;
                while at != NONE {
                    self.leak_path.push(at);
                    at = self.routes[at as usize].via;
                }
                leaked = Some((leaker, before));
            }
        }
        self.run(announcement, leaked);
        let leaker = leaked.map(|(leaker, _)| leaker);
        Routes { routes: &self.routes, leak_path: &self.leak_path, leaker }
    }

    fn run(&mut self, announcement: &Announcement, leaked: Option<(usize, Route)>) {
        self.routes.fill(UNREACHED);
        let own = |of| Route { via: NONE, length: 0, class: Class::Own, of };
        self.routes[announcement.origin] = own(OF_ORIGIN);
        self.at_level(0, announcement.origin as u32);
        if let Some(hijacker) = announcement.hijacker.filter(|node| *node != announcement.origin) {
            self.routes[hijacker] = own(OF_HIJACKER);
            self.at_level(0, hijacker as u32);
        }
        if let Some((leaker, route)) = leaked {
            // It keeps its route, and passes it on as if it were a customer's.
            self.routes[leaker] = Route { class: Class::Own, of: OF_LEAKER, ..route };
            self.at_level(usize::from(route.length), leaker as u32);
        }
        self.up(announcement);
        self.across(announcement);
        self.down(announcement);
        if let Some((leaker, route)) = leaked {
            self.routes[leaker] = route;
        }
    }

    fn at_level(&mut self, length: usize, node: u32) {
        if self.levels.len() <= length {
            self.levels.resize_with(length + 1, Vec::new);
        }
        self.levels[length].push(node);
    }

    /// Whether a node takes a route.
    fn accepts(&self, announcement: &Announcement, node: u32, of: u8) -> bool {
        let is = |all: &[bool]| all.get(node as usize).copied().unwrap_or(false);
        match of {
            OF_HIJACKER => !is(&announcement.validates_origin),
            // Those on the leaker's own path see themselves in it.
            OF_LEAKER => !is(&announcement.validates_path) && !self.leak_path.contains(&node),
            _ => true,
        }
    }

    /// From customers to providers, the shortest first.
    fn up(&mut self, announcement: &Announcement) {
        let mut length = 0;
        while length < self.levels.len() {
            let level = std::mem::take(&mut self.levels[length]);
            for &node in &level {
                // A shorter way was found since.
                if usize::from(self.routes[node as usize].length) == length {
                    self.offer(announcement, node, Relation::Provider, Class::Customer);
                }
            }
            self.levels[length] = level;
            self.levels[length].clear();
            length += 1;
        }
    }

    /// From those with a route of their own or of a customer to their peers.
    fn across(&mut self, announcement: &Announcement) {
        let graph = self.graph;
        for node in 0..graph.len() as u32 {
            let from = self.routes[node as usize];
            if from.class > Class::Customer {
                continue;
            }
            for &peer in graph.those(node as usize, Relation::Peer) {
                self.consider(
                    announcement,
                    peer,
                    Route { via: node, length: from.length + 1, class: Class::Peer, ..from },
                );
            }
        }
    }

    /// From everybody to customers, the shortest first.
    fn down(&mut self, announcement: &Announcement) {
        for node in 0..self.graph.len() {
            let route = self.routes[node];
            if route.class != Class::Unreached && !self.graph.those(node, Relation::Customer).is_empty() {
                self.at_level(usize::from(route.length), node as u32);
            }
        }
        let mut length = 0;
        while length < self.levels.len() {
            let level = std::mem::take(&mut self.levels[length]);
            for &node in &level {
                if usize::from(self.routes[node as usize].length) == length {
                    self.offer(announcement, node, Relation::Customer, Class::Provider);
                }
            }
            self.levels[length] = level;
            self.levels[length].clear();
            length += 1;
        }
    }

    /// Offers a node's route to its neighbors of a kind; those that take it come into their level.
    fn offer(&mut self, announcement: &Announcement, node: u32, to: Relation, class: Class) {
        let graph = self.graph;
        let from = self.routes[node as usize];
        let offered = Route { via: node, length: from.length + 1, class, of: from.of };
        for &other in graph.those(node as usize, to) {
            let was = self.routes[other as usize];
            if self.consider(announcement, other, offered)
                && (was.class != class || was.length != offered.length)
            {
                self.at_level(usize::from(offered.length), other);
            }
        }
    }

    /// Takes a route if it is better; whether it was taken.
    fn consider(&mut self, announcement: &Announcement, node: u32, offered: Route) -> bool {
        let held = &self.routes[node as usize];
        let key = |route: &Route| (route.class, route.length, route.via);
        if key(&offered) >= key(held)
            || (offered.of != OF_ORIGIN && !self.accepts(announcement, node, offered.of))
        {
            return false;
        }
        self.routes[node as usize] = offered;
        true
    }
}
