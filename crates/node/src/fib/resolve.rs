//! What next hops are resolved with besides BGP: connected networks and routes of the configuration or the kernel.

use std::collections::BTreeMap;
use std::net::IpAddr;

use thalweg_base::{IpPrefix, Prefix};

/// What becomes of packets for a route that is not BGP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnderlayTarget {
    /// Neighbours on this link have the addresses.
    Connected {
        /// The number of a port, or of the kernel's interface.
        link: u32,
    },
    /// A neighbour passes them on.
    Gateway {
        /// The neighbour.
        address: IpAddr,
        /// The link it is on; if not given, it is resolved like a next hop.
        link: Option<u32>,
    },
    /// The addresses are this router's own.
    Local,
    /// They are dropped.
    Discard,
}

/// Connected networks and routes that are not BGP's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Underlay {
    routes: BTreeMap<IpPrefix, UnderlayTarget>,
    /// Lengths that occur, longest first, by family.
    lengths: [Vec<u8>; 2],
    fallback: Option<u32>,
}

impl Underlay {
    /// An underlay of these routes; of two for a prefix the later counts.
    pub fn new(routes: impl IntoIterator<Item = (IpPrefix, UnderlayTarget)>) -> Self {
        let routes: BTreeMap<_, _> = routes.into_iter().collect();
        let mut lengths = [Vec::new(), Vec::new()];
        for prefix in routes.keys() {
            lengths[usize::from(matches!(prefix, IpPrefix::V6(_)))].push(prefix.length());
        }
        for each in &mut lengths {
            each.sort_unstable_by(|a, b| b.cmp(a));
            each.dedup();
        }
        Self { routes, lengths, fallback: None }
    }

    /// An underlay in which every next hop is a neighbour on one link: for laboratories without interfaces.
    pub fn everything_on(link: u32) -> Self {
        Self { fallback: Some(link), ..Self::default() }
    }

    /// Where next hops are that nothing else has.
    pub(super) fn fallback(&self) -> Option<u32> {
        self.fallback
    }

    /// The longest prefix that has the address: its length and target.
    pub(super) fn longest(&self, address: IpAddr) -> Option<(u8, UnderlayTarget)> {
        self.find(address, |_| true)
    }

    /// The link of the longest connected network that has the address; `None` if a route to an address of our own,
    /// which is longer, has it.
    pub(super) fn connected(&self, address: IpAddr) -> Option<u32> {
        let near = |target| matches!(target, UnderlayTarget::Connected { .. } | UnderlayTarget::Local);
        match self.find(address, near)?.1 {
            UnderlayTarget::Connected { link } => Some(link),
            _ => None,
        }
    }

    fn find(&self, address: IpAddr, accept: impl Fn(UnderlayTarget) -> bool) -> Option<(u8, UnderlayTarget)> {
        let lengths = &self.lengths[usize::from(address.is_ipv6())];
        lengths.iter().find_map(|length| {
            let prefix = match address {
                IpAddr::V4(address) => Prefix::new(u32::from(address), *length).ok()?.into(),
                IpAddr::V6(address) => Prefix::new(u128::from(address), *length).ok()?.into(),
            };
            self.routes.get(&prefix).copied().filter(|target| accept(*target)).map(|target| (*length, target))
        })
    }
}
