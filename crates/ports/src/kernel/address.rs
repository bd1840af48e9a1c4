//! Adds and removes addresses of interfaces, so that a port's mirror has those of the port.

use std::net::IpAddr;

use super::error::KernelError;
use super::message::MessageWriter;
use super::socket::Netlink;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// Use the address at once: duplicate address detection is the router's task, not the kernel's.
const IFA_F_NODAD: u32 = 2;

/// Adds an address with its prefix length to an interface. An existing one is no error.
pub fn add_address(interface: u32, address: IpAddr, length: u8) -> Result<(), KernelError> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    change(libc::RTM_NEWADDR, flags, interface, address, length, libc::EEXIST)
}

/// Removes an address from an interface. A missing one is no error.
pub fn remove_address(interface: u32, address: IpAddr, length: u8) -> Result<(), KernelError> {
    change(libc::RTM_DELADDR, 0, interface, address, length, libc::EADDRNOTAVAIL)
}

fn change(
    kind: u16,
    flags: i32,
    interface: u32,
    address: IpAddr,
    length: u8,
    is_done_already: i32,
) -> Result<(), KernelError> {
    let mut netlink = Netlink::open()?;
    let sequence = netlink.sequences(1);
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut header = [0u8; 8];
    header[0] = family as u8;
    header[1] = length;
    header[4..].copy_from_slice(&interface.to_ne_bytes());
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags;
    let mut writer = MessageWriter::default();
    writer.begin(kind, flags as u16, sequence, &header);
    match address {
        IpAddr::V4(address) => {
            writer.attribute(IFA_LOCAL, &address.octets());
            writer.attribute(IFA_ADDRESS, &address.octets());
        }
        IpAddr::V6(address) => {
            writer.attribute(IFA_ADDRESS, &address.octets());
            writer.attribute_u32(IFA_FLAGS, IFA_F_NODAD);
        }
    }
    writer.end();
    let mut refused = None;
    netlink.execute(&writer, sequence, |_, refusal| refused = Some(refusal))?;
    match refused {
        Some(refusal) if refusal.errno != is_done_already => {
            Err(KernelError::Refused { what: "an address", refusal })
        }
        _ => Ok(()),
    }
}
