//! Decides which MAC address the router uses on a port.

use thalweg_config::{Driver, PortConfig};
use thalweg_wire::MacAddr;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortMac {
    /// The interface's own: the router takes its place.
    Interface,
    /// Derived from the interface's, but different: the interface is the other end of the cable, and two neighbors
    /// with one address cannot reach each other.
    Beside,
    /// What the configuration says.
    Configured(MacAddr),
}

impl PortMac {
    pub(crate) fn of(config: &PortConfig) -> Self {
        match &config.interface {
            Some(interface) if interface.own_mac => match interface.driver {
                Driver::Tap => Self::Beside,
                _ => Self::Interface,
            },
            _ => Self::Configured(config.mac),
        }
    }

    /// The router's address, given the interface's.
    pub(crate) fn with(self, interface: MacAddr) -> MacAddr {
        /// The bit of locally administered addresses (IEEE 802, 8.2).
        const LOCAL: u8 = 0x02;
        match self {
            Self::Interface => interface,
            Self::Beside => {
                let mut mac = interface;
                mac.0[0] |= LOCAL;
                mac.0[5] ^= 1;
                mac
            }
            Self::Configured(mac) => mac,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_and_its_router_are_two_neighbors() {
        for interface in [[0x52, 0x54, 0, 1, 2, 3], [0, 1, 2, 3, 4, 0xff], [0xfe, 0, 0, 0, 0, 0]] {
            let interface = MacAddr(interface);
            let mac = PortMac::Beside.with(interface);
            assert_ne!(mac, interface);
            assert_eq!(mac.0[0] & 3, 2, "one neighbor's, made up here: {mac}");
        }
        assert_eq!(PortMac::Interface.with(MacAddr([1; 6])), MacAddr([1; 6]));
        assert_eq!(PortMac::Configured(MacAddr([2; 6])).with(MacAddr([1; 6])), MacAddr([2; 6]));
    }
}
