//! Best routes into the data plane's tables.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_base::{IpPrefix, Prefix};

use super::{Forwarding, ForwardingView, Inbox, Task, rescan, view_of};
use crate::BuildError;
use crate::config::{RouteTarget, RouterConfig};
use crate::fib::{Outlet, OutletConfig, Underlay, UnderlayTarget, Way};
use crate::live::LiveTables;
use crate::speaker::Speaker;

/// How long the thread waits before it looks whether it is still wanted; it is woken for anything else.
const WAIT: Duration = Duration::from_secs(10);

/// The link of next hops where a configuration has no ports.
const NO_LINK: u32 = 0;

/// What would become of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FibView {
    /// Where it would go.
    pub destination: String,
    /// The prefix that decides it.
    pub prefix: Option<String>,
    /// `forward`, `discard` or `no route`.
    pub action: String,
    /// The next hop's number in the table.
    pub hop: u16,
    /// The neighbour it would be given to.
    pub neighbor: Option<IpAddr>,
    /// The port it would leave by, where the configuration has ports.
    pub port: Option<String>,
}

/// The data plane's tables and the outlet that keeps them.
pub struct FibForwarding {
    inbox: Arc<Inbox>,
    state: Mutex<State>,
    /// Names of ports, by link.
    ports: Vec<String>,
}

struct State {
    outlet: Outlet,
    tables: LiveTables,
}

impl FibForwarding {
    /// Tables with the routes of the configuration.
    pub fn new(inbox: Arc<Inbox>, config: &RouterConfig) -> Result<Self, BuildError> {
        let tables = LiveTables::new(config)?;
        let outlet_config = OutletConfig { first_hop: tables.first_hop(), ..OutletConfig::default() };
        let outlet = Outlet::new(outlet_config, underlay_of(config));
        let ports = config.ports.iter().map(|port| port.name.clone()).collect();
        Ok(Self { inbox, state: Mutex::new(State { outlet, tables }), ports })
    }

    /// Works the inbox off until it is closed: the body of a thread.
    pub fn run(&self, speaker: &Speaker) {
        loop {
            match self.inbox.next(WAIT) {
                Task::Changes(changes) => {
                    let State { outlet, tables } = &mut *self.lock();
                    outlet.handle_changes(&changes, tables);
                }
                Task::Rescan(shard) => {
                    let State { outlet, tables } = &mut *self.lock();
                    rescan(speaker, shard, outlet, tables);
                }
                Task::Idle => {}
                Task::Closed => return,
            }
        }
    }

    /// Does something with the tables, between batches of routes.
    pub fn with_tables<T>(&self, act: impl FnOnce(&mut LiveTables) -> T) -> T {
        act(&mut self.lock().tables)
    }

    /// Resolves next hops of BGP routes with others' routes of now.
    pub fn set_underlay(&self, underlay: Underlay) {
        let State { outlet, tables } = &mut *self.lock();
        outlet.set_underlay(underlay, tables);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forwarding for FibForwarding {
    fn status(&self) -> ForwardingView {
        let state = self.lock();
        let view = view_of("fib", &state.outlet, self.inbox.counters());
        ForwardingView { table_bytes: Some(state.tables.fib().memory_bytes() as u64), ..view }
    }

    fn lookup(&self, destination: IpAddr) -> Result<FibView, String> {
        let state = self.lock();
        let (hop, prefix) = state.tables.fib().lookup(destination);
        let way = state.outlet.way(hop);
        let (action, neighbor, link) = match way {
            Some(Way::Neighbor { address, link }) => ("forward", Some(address), Some(link)),
            Some(Way::Discard) => ("discard", None, None),
            None => match state.tables.next_of(hop.into(), 0, destination) {
                Some((port, address)) => ("forward", Some(address), Some(port.into())),
                None if prefix.is_some() => (state.tables.ending_of(hop), None, None),
                None => ("no route", None, None),
            },
        };
        Ok(FibView {
            destination: destination.to_string(),
            prefix: prefix.map(|prefix| prefix.to_string()),
            action: action.to_owned(),
            hop,
            neighbor,
            port: link.and_then(|link| self.ports.get(link as usize)).cloned(),
        })
    }
}

/// What next hops resolve with: the ports' networks and configured routes, or, where there are no ports, nothing:
/// every next hop is a neighbour then.
pub fn underlay_of(config: &RouterConfig) -> Underlay {
    if config.ports.is_empty() {
        return Underlay::everything_on(NO_LINK);
    }
    let v4 = config.routing.v4.iter().filter_map(|(net, target)| {
        let prefix = Prefix::new(u32::from(net.network()), net.prefix_len()).ok()?;
        Some((IpPrefix::from(prefix), *target))
    });
    let v6 = config.routing.v6.iter().filter_map(|(net, target)| {
        let prefix = Prefix::new(u128::from(net.network()), net.prefix_len()).ok()?;
        Some((IpPrefix::from(prefix), *target))
    });
    let target = |index: u32| match config.routing.targets.get(index as usize)? {
        RouteTarget::Local(_) => Some(UnderlayTarget::Local),
        // Of several ways the first: a BGP next hop has one.
        RouteTarget::Forward(ways) => ways.first().map(|way| match way.gateway {
            Some(address) => UnderlayTarget::Gateway { address, link: Some(way.port.into()) },
            None => UnderlayTarget::Connected { link: way.port.into() },
        }),
        RouteTarget::Blackhole => Some(UnderlayTarget::Discard),
        RouteTarget::Unreachable => Some(UnderlayTarget::Unreachable),
    };
    Underlay::new(v4.chain(v6).filter_map(|(prefix, index)| Some((prefix, target(index)?))))
}
