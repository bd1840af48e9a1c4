//! Finds and removes an interface's XDP program.

use super::error::{KernelError, Refusal};
use super::message::{AttributesOf, Message, MessageWriter, u32_at};
use super::socket::Netlink;

/// From linux/if_link.h; libc lacks some.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const NESTED: u16 = 1 << 15;

/// A program attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpAttachment {
    /// The program's ID in the system; 0 if there are several.
    pub program: u32,
    /// Where it runs: 1 in the driver, 2 behind it (generic), 3 in hardware, 4 several.
    pub place: u8,
}

impl XdpAttachment {
    /// The program of the interface, if any.
    pub fn read(interface: u32) -> Result<Option<Self>, KernelError> {
        let mut found = None;
        Netlink::open()?.list("its interfaces", libc::RTM_GETLINK, &[0; 16], |message| {
            if u32_at(message.body, 4) == Some(interface) {
                found = attachment(&message);
            }
        })?;
        Ok(found)
    }

    /// Removes the program if netlink attached it; a program that a BPF link holds stays until that is gone.
    pub fn remove(&self, interface: u32) -> Result<Result<(), Refusal>, KernelError> {
        let mut netlink = Netlink::open()?;
        let mut writer = MessageWriter::default();
        let sequence = netlink.sequences(1);
        // struct ifinfomsg: family, padding, type 2, index 4, flags 4, change 4.
        let mut header = [0; 16];
        header[4..8].copy_from_slice(&interface.to_ne_bytes());
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        writer.begin(libc::RTM_SETLINK, flags as u16, sequence, &header);
        let mut inner = Vec::new();
        let place: u32 = match self.place {
            1 => 1 << 2,
            2 => 1 << 1,
            3 => 1 << 3,
            _ => 0,
        };
        for (kind, value) in [(IFLA_XDP_FD, u32::MAX), (IFLA_XDP_FLAGS, place)] {
            inner.extend_from_slice(&8u16.to_ne_bytes());
            inner.extend_from_slice(&kind.to_ne_bytes());
            inner.extend_from_slice(&value.to_ne_bytes());
        }
        writer.attribute(IFLA_XDP | NESTED, &inner);
        writer.end();
        let mut answer = Ok(());
        netlink.execute(&writer, sequence, |_, refusal| answer = Err(refusal))?;
        Ok(answer)
    }
}

fn attachment(message: &Message<'_>) -> Option<XdpAttachment> {
    let (_, xdp) = AttributesOf(message.body.get(16..)?).find(|(kind, _)| *kind == IFLA_XDP)?;
    let mut found = XdpAttachment { program: 0, place: 0 };
    for (kind, value) in AttributesOf(xdp) {
        match kind {
            IFLA_XDP_ATTACHED => found.place = value.first().copied().unwrap_or(0),
            IFLA_XDP_PROG_ID => found.program = u32_at(value, 0).unwrap_or(0),
            _ => {}
        }
    }
    (found.place != 0).then_some(found)
}
