//! Which MAC address the router has on a port.

use thalweg_config::{Driver, PortConfig};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortMac {
    /// The interface's: the router takes its place.
    Interface,
    /// Another than the interface's, made from it: the interface is the other end of the cable, and two neighbors with
    /// one address do not hear each other.
    Beside,
    /// The configuration's.
    Configured([u8; 6]),
}

impl PortMac {
    /// A port's.
    pub(crate) fn of(config: &PortConfig) -> Self {
        match &config.interface {
            Some(interface) if interface.own_mac => match interface.driver {
                Driver::Tap => Self::Beside,
                _ => Self::Interface,
            },
            _ => Self::Configured(config.mac),
        }
    }

    /// The address, where the interface has this one.
    pub(crate) fn with(self, interface: [u8; 6]) -> [u8; 6] {
        /// Of an address that is nobody's product (IEEE 802, 8.2).
        const LOCAL: u8 = 0x02;
        match self {
            Self::Interface => interface,
            Self::Beside => {
                let mut mac = interface;
                mac[0] |= LOCAL;
                mac[5] ^= 1;
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
            let mac = PortMac::Beside.with(interface);
            assert_ne!(mac, interface);
            assert_eq!(mac[0] & 3, 2, "one neighbor's, made up here: {mac:x?}");
        }
        assert_eq!(PortMac::Interface.with([1; 6]), [1; 6]);
        assert_eq!(PortMac::Configured([2; 6]).with([1; 6]), [2; 6]);
    }
}
