//! VRFs: some ports have a table of routes of their own.
//!
//! A packet is looked up in the table of the port where it arrived. All tables share the numbers of next hops, so a
//! route of any table may lead out of any port. The highest numbers stand for tables ([`table_number`]): a route with
//! one *leaks*, and its packets are looked up in that table too; a routing rule with one chooses the table.
//!
//! Packets that come together mostly came by one port, so a batch is cut into runs of one table, each looked up as a
//! batch. A router with one table has no [`VrfTables`], and pays one branch per batch.

use crate::lpm::{Address, Fib4, Fib6, Lpm, NEXT_HOP_MAX, NO_ROUTE, NextHopId};
use std::sync::Arc;
use thalweg_base::Packet;

/// The most tables, the main one included.
pub const VRFS_MAX: usize = 64;

/// Tables that a packet is looked up in at most. A leaked packet does not leak further, so no circle of leaks holds
/// it.
const LOOK_UPS: usize = 2;

/// The number that stands for a table; 0 is the main one.
pub const fn table_number(vrf: u16) -> NextHopId {
    NEXT_HOP_MAX - vrf
}

/// The table that a number stands for, if it stands for one.
#[inline(always)]
pub fn table_of(number: NextHopId) -> Option<u16> {
    NEXT_HOP_MAX.checked_sub(number).filter(|vrf| usize::from(*vrf) < VRFS_MAX)
}

/// The tables of a router that has several.
pub struct VrfTables {
    /// Indexed by port; other ports have the main table.
    of_ports: Box<[u16]>,
    v4: Box<[Arc<Fib4>]>,
    v6: Box<[Arc<Fib6>]>,
}

impl VrfTables {
    /// The tables, the main one first, and which of them each port has.
    pub fn new(of_ports: Vec<u16>, tables: impl IntoIterator<Item = (Arc<Fib4>, Arc<Fib6>)>) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) = tables.into_iter().unzip();
        Self { of_ports: of_ports.into(), v4: v4.into(), v6: v6.into() }
    }

    /// The tables of ports by number; others have the main one.
    pub fn of_ports(&self) -> &[u16] {
        &self.of_ports
    }

    /// The table of a port.
    #[inline(always)]
    pub fn of_port(&self, port: u16) -> u16 {
        self.of_ports.get(usize::from(port)).copied().unwrap_or(0)
    }

    /// Where the look-up of a packet begins: at what an earlier stage has chosen, else at the table of its port.
    #[inline(always)]
    pub(crate) fn begin(&self, packet: &Packet) -> NextHopId {
        if packet.next_hop == 0 { table_number(self.of_port(packet.port_in)) } else { packet.next_hop }
    }

    /// Replaces the numbers of tables by what these say about the addresses.
    pub(crate) fn look_up4(&self, addresses: &[u32], hops: &mut [NextHopId]) {
        look_up(&self.v4, addresses, hops);
    }

    /// The same for IPv6.
    pub(crate) fn look_up6(&self, addresses: &[u128], hops: &mut [NextHopId]) {
        look_up(&self.v6, addresses, hops);
    }
}

fn look_up<A: Address, T: Lpm<A>>(tables: &[Arc<T>], addresses: &[A], hops: &mut [NextHopId]) {
    for _ in 0..LOOK_UPS {
        let mut at = 0;
        while at < hops.len() {
            let number = hops[at];
            let end = at + hops[at..].iter().take_while(|hop| **hop == number).count();
            if let Some(table) = table_of(number).and_then(|vrf| tables.get(usize::from(vrf))) {
                table.lookup_batch(&addresses[at..end], &mut hops[at..end]);
            }
            at = end;
        }
    }
    hops.iter_mut().filter(|hop| table_of(**hop).is_some()).for_each(|hop| *hop = NO_ROUTE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lpm::{Fib4Writer, Fib6Writer};
    use ipnet::Ipv4Net;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    /// Routes of a table: network, length, and number or, from 5 on, another table.
    type Drawn = Vec<(u8, u8, u16)>;

    fn number(drawn: u16) -> NextHopId {
        if drawn < 5 { drawn + 1 } else { table_number(drawn - 5) }
    }

    fn table() -> impl Strategy<Value = Drawn> {
        vec((0u8..4, proptest::sample::select(vec![0u8, 8, 16, 32]), 0u16..9), 0..12)
    }

    fn net(of: u8, length: u8) -> Ipv4Net {
        Ipv4Net::new(Ipv4Addr::new(10, of, of, of), length).unwrap().trunc()
    }

    /// The answer by looking at all routes, in at most two tables.
    fn expected(tables: &[Drawn], from: NextHopId, address: u32) -> NextHopId {
        let mut at = from;
        for _ in 0..2 {
            let Some(vrf) = table_of(at) else { break };
            let Some(routes) = tables.get(usize::from(vrf)) else { break };
            let covering =
                routes.iter().filter(|(of, length, _)| net(*of, *length).contains(&Ipv4Addr::from(address)));
            // Of equal prefixes the last counts.
            let best = covering.max_by_key(|(_, length, _)| *length);
            at = best.map_or(NO_ROUTE, |(.., drawn)| number(*drawn));
        }
        if table_of(at).is_some() { NO_ROUTE } else { at }
    }

    #[test]
    fn numbers_of_tables_are_apart_from_those_of_next_hops() {
        let tables: Vec<_> = (0..=u16::MAX).filter_map(table_of).collect();
        assert_eq!(tables.len(), VRFS_MAX);
        assert!((0..VRFS_MAX as u16).all(|vrf| table_of(table_number(vrf)) == Some(vrf)));
        assert_eq!(table_of(crate::route::NextHops::GROUPS_MAX as u16), None);
    }

    proptest! {
        /// A batch in which tables and chosen numbers alternate, against one look-up after the other.
        #[test]
        fn each_packet_is_looked_up_in_its_table(
            tables in vec(table(), 3),
            packets in vec((0u16..8, 0u8..4, 0u8..5), 0..60),
        ) {
            let fibs = tables.iter().map(|routes| {
                let routes = routes.iter().map(|(of, length, drawn)| (net(*of, *length), number(*drawn)));
                let v4 = Fib4Writer::from_routes(routes).unwrap();
                let v6 = Fib6Writer::from_routes(std::iter::empty::<(ipnet::Ipv6Net, NextHopId)>()).unwrap();
                (Arc::clone(v4.table()), Arc::clone(v6.table()))
            });
            let vrfs = VrfTables::new(vec![2, 0, 1], fibs);
            prop_assert_eq!([0, 1, 2, 3].map(|port| vrfs.of_port(port)), [2, 0, 1, 0]);
            let from = |of: u16| if of < 5 { table_number(of) } else { of - 4 };
            let addresses: Vec<u32> =
                packets.iter().map(|(_, of, last)| u32::from(Ipv4Addr::new(10, *of, *of, *last))).collect();
            let mut hops: Vec<_> = packets.iter().map(|(of, ..)| from(*of)).collect();
            let answers: Vec<_> =
                hops.iter().zip(&addresses).map(|(from, address)| expected(&tables, *from, *address)).collect();
            vrfs.look_up4(&addresses, &mut hops);
            prop_assert_eq!(hops, answers);
        }
    }
}
