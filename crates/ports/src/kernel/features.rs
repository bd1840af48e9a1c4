//! Capabilities of interfaces' drivers for XDP programs, through generic netlink (linux/netdev.h, Linux 6.3).

use super::error::KernelError;
use super::message::{AttributesOf, u16_at, u32_at};
use super::socket::Netlink;

/// `struct genlmsghdr`: command, version, two bytes reserved.
const GENERIC_HEADER: usize = 4;
const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const NETDEV: &[u8] = b"netdev\0";
const NETDEV_DEV_GET: u8 = 1;
const NETDEV_DEV_INTERFACE: u16 = 1;
const NETDEV_DEV_XDP_FEATURES: u16 = 3;
/// The driver accepts frames that programs on other interfaces redirect to it.
const TAKES_REDIRECTED: u64 = 1 << 2;

/// Queries the kernel. It works in the network namespace in which it was made.
#[derive(Debug)]
pub struct DriverFeatures {
    netlink: Netlink,
    /// The number of the generic netlink family; `None` before Linux 6.3.
    family: Option<u16>,
}

impl DriverFeatures {
    /// Opens a socket for queries.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if there is no socket or the kernel does not answer.
    pub fn open() -> Result<Self, KernelError> {
        let mut netlink = Netlink::of(libc::NETLINK_GENERIC)?;
        let mut family = None;
        dump(&mut netlink, CONTROL_FAMILY, CONTROL_GET_FAMILY, |attributes| {
            let of =
                |kind| AttributesOf(attributes).find(|(other, _)| *other == kind).map(|(_, value)| value);
            if of(CONTROL_FAMILY_NAME) == Some(NETDEV) {
                family = of(CONTROL_FAMILY_ID).and_then(|value| u16_at(value, 0));
            }
        })?;
        Ok(Self { netlink, family })
    }

    /// The interfaces that currently accept redirected frames from programs in drivers. This may change with
    /// a veth's other end, and with a program on the interface itself.
    pub fn takes_redirected(&mut self) -> Result<Vec<u32>, KernelError> {
        let mut interfaces = Vec::new();
        let Some(family) = self.family else { return Ok(interfaces) };
        dump(&mut self.netlink, family, NETDEV_DEV_GET, |attributes| {
            let (mut interface, mut features) = (None, 0);
            for (kind, value) in AttributesOf(attributes) {
                match kind {
                    NETDEV_DEV_INTERFACE => interface = u32_at(value, 0),
                    NETDEV_DEV_XDP_FEATURES => {
                        features = value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
                    }
                    _ => {}
                }
            }
            interfaces.extend(interface.filter(|_| features & TAKES_REDIRECTED != 0));
        })?;
        Ok(interfaces)
    }
}

/// Calls `visit` with the attributes of each message of a dump.
fn dump(
    netlink: &mut Netlink,
    family: u16,
    command: u8,
    mut visit: impl FnMut(&[u8]),
) -> Result<(), KernelError> {
    // An interrupted dump needs no retry here: it is repeated soon.
    let shown = netlink.list("what interfaces can do", family, &[command, 1, 0, 0], |message| {
        visit(message.body.get(GENERIC_HEADER..).unwrap_or_default());
    });
    shown.map(|_| ())
}
