//! Numbers and names of interfaces. A meter knows only ports and numbers them from 1. Records have the
//! system's numbers (`ifIndex` of RFC 2863), which collectors also get by SNMP, and names.
//!
//! The numbers of a system change while it runs (an interface is removed and returns), so a router reads them
//! again from time to time; users hold a [`SharedInterfaces`].

use parking_lot::RwLock;
use std::sync::Arc;

use thalweg_base::Name;
use thalweg_flow::export::Interface;
use thalweg_flow::{FlowRecord, NO_INTERFACE, interface_of_port};

/// The interfaces of all ports, by port number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    by_port: Vec<PortInterface>,
    /// Their names in records.
    names: Vec<Name>,
}

/// The interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInterface {
    /// `NO_INTERFACE` while unknown.
    pub number: u32,
    /// The name of the port.
    pub name: String,
}

impl Interfaces {
    /// Interfaces with these numbers.
    pub fn new(by_port: Vec<PortInterface>) -> Self {
        let names = by_port.iter().map(|of| Name::of(&of.name)).collect();
        Self { by_port, names }
    }

    /// Ports that are not interfaces of a system: they are numbered from 1.
    pub fn counted(names: impl IntoIterator<Item = String>) -> Self {
        let interface = |(port, name): (u16, String)| PortInterface { number: interface_of_port(port), name };
        Self::new((0..).zip(names).map(interface).collect())
    }

    /// Replaces the meter's port numbers in a record by interface numbers, and adds names.
    #[inline]
    pub(crate) fn number(&self, record: &mut FlowRecord) {
        let ways = [
            (&mut record.key.ingress, &mut record.ingress_name),
            (&mut record.egress, &mut record.egress_name),
        ];
        for (number, interface) in ways {
            // Without a list, the port number is the best available.
            if let (Some(port), false) = ((*number).checked_sub(1), self.by_port.is_empty()) {
                let place = port as usize;
                *number = self.by_port.get(place).map_or(NO_INTERFACE, |of| of.number);
                interface.name = self.names.get(place).copied().unwrap_or_default();
            }
        }
    }

    /// The number of a port's interface.
    pub(crate) fn number_of(&self, port: u16) -> u32 {
        match self.by_port.is_empty() {
            true => interface_of_port(port),
            false => self.by_port.get(usize::from(port)).map_or(NO_INTERFACE, |of| of.number),
        }
    }

    /// All ports, and the numbers of their interfaces.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u16, u32)> {
        (0..).zip(self.by_port.iter().map(|of| of.number))
    }

    /// The interfaces for collectors, each number once.
    pub(crate) fn for_export(&self) -> Vec<Interface> {
        let first = |(place, of): &(usize, &PortInterface)| {
            of.number != NO_INTERFACE && self.by_port[..*place].iter().all(|other| other.number != of.number)
        };
        let named = self.by_port.iter().enumerate().filter(first);
        named
            .map(|(_, of)| Interface { number: of.number, name: of.name.clone(), ..Interface::default() })
            .collect()
    }
}

/// Interfaces that may change, shared by all users.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedInterfaces(Arc<RwLock<Arc<Interfaces>>>);

impl SharedInterfaces {
    pub(crate) fn new(interfaces: Interfaces) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(interfaces))))
    }

    /// The current interfaces.
    pub(crate) fn get(&self) -> Arc<Interfaces> {
        Arc::clone(&self.0.read())
    }

    /// Replaces the interfaces; returns whether they changed.
    pub(crate) fn set(&self, interfaces: Interfaces) -> bool {
        let changed = *self.get() != interfaces;
        if changed {
            *self.0.write() = Arc::new(interfaces);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use std::net::IpAddr;
    use thalweg_flow::{Counters, FlowKey};

    fn numbered(interfaces: &Interfaces, ingress: u32, egress: u32) -> [(u32, &'static str); 2] {
        let address = IpAddr::from([192, 0, 2, 1]);
        let key = FlowKey {
            src: address,
            dst: address,
            src_port: 0,
            dst_port: 0,
            protocol: 17,
            traffic_class: 0,
            ingress,
            vlan: 0,
            mpls_label: None,
        };
        let mut record = FlowRecord { egress, ..FlowRecord::new(key, Counters::default(), None) };
        interfaces.number(&mut record);
        [(record.key.ingress, record.ingress_name), (record.egress, record.egress_name)].map(
            |(number, of)| match of.name.text() {
                Cow::Borrowed(text) => (number, text),
                Cow::Owned(text) => panic!("{text} would go for others"),
            },
        )
    }

    #[test]
    fn places_become_numbers_and_unknown_stays_unknown() {
        let port = |number, name: &str| PortInterface { number, name: name.to_owned() };
        let known = [port(70_001, "wan"), port(4, "lan"), port(4, "lan10"), port(NO_INTERFACE, "gone")];
        let interfaces = Interfaces::new(known.to_vec());
        assert_eq!(numbered(&interfaces, 1, 2), [(70_001, "wan"), (4, "lan")]);
        assert_eq!(numbered(&interfaces, 3, NO_INTERFACE), [(4, "lan10"), (NO_INTERFACE, "")]);
        assert_eq!(
            numbered(&interfaces, 4, 5),
            [(NO_INTERFACE, "gone"), (NO_INTERFACE, "")],
            "not there, and no port"
        );
        let told: Vec<u32> = interfaces.for_export().iter().map(|interface| interface.number).collect();
        assert_eq!(told, [70_001, 4]);
        assert_eq!(
            numbered(&Interfaces::default(), 9, 2),
            [(9, ""), (2, "")],
            "without names a place is a number"
        );
        let counted = Interfaces::counted(["a".to_owned(), "b".to_owned()]);
        assert_eq!(numbered(&counted, 2, 0), [(2, "b"), (0, "")]);
    }

    #[test]
    fn a_change_is_seen_by_everybody() {
        let shared = SharedInterfaces::default();
        let other = shared.clone();
        let counted = Interfaces::counted(["a".to_owned()]);
        assert!(shared.set(counted.clone()) && !shared.set(counted));
        assert_eq!(numbered(&other.get(), 1, 0)[0], (1, "a"));
    }
}
