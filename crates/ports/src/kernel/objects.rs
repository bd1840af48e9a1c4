//! Next-hop objects: many routes refer to one, and changing it changes them all at once.

use std::net::IpAddr;

use super::error::{KernelError, Refusal};
use super::installer::KernelRoutes;
use super::message::{AttributesOf, u32_at};
use super::route::RouteTarget;

const NHA_ID: u16 = 1;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;

/// Bytes of `struct nhmsg`: family, scope, protocol, reserved, flags.
const OBJECT_HEADER: usize = 8;

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;

impl KernelRoutes {
    /// Creates the next-hop object with this number, or changes it and so every route that refers to it.
    /// `target` is a gateway with its interface, an interface or a blackhole. `v6` is the family of the
    /// routes if the target has none.
    ///
    /// # Errors
    ///
    /// [`KernelError::Refused`] with the kernel's reason; it also refuses targets that objects cannot
    /// express.
    pub fn set_object(&mut self, id: u32, target: RouteTarget, v6: bool) -> Result<(), KernelError> {
        let family = match target {
            RouteTarget::Gateway { address: IpAddr::V4(_), .. } => libc::AF_INET,
            RouteTarget::Gateway { address: IpAddr::V6(_), .. } => libc::AF_INET6,
            _ if v6 => libc::AF_INET6,
            _ => libc::AF_INET,
        };
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
        let sequence = self.netlink.sequences(1);
        let writer = &mut self.writer;
        writer.clear();
        let header = [family as u8, 0, self.place.protocol, 0, 0, 0, 0, 0];
        writer.begin(RTM_NEWNEXTHOP, flags as u16, sequence, &header);
        writer.attribute_u32(NHA_ID, id);
        match target {
            RouteTarget::Gateway { address, interface } => {
                match address {
                    IpAddr::V4(address) => writer.attribute(NHA_GATEWAY, &address.octets()),
                    IpAddr::V6(address) => writer.attribute(NHA_GATEWAY, &address.octets()),
                }
                if let Some(interface) = interface {
                    writer.attribute_u32(NHA_OIF, interface);
                }
            }
            RouteTarget::Interface(interface) => writer.attribute_u32(NHA_OIF, interface),
            RouteTarget::Blackhole => writer.attribute(NHA_BLACKHOLE, &[]),
            RouteTarget::Object(_) | RouteTarget::Unreachable => {}
        }
        writer.end();
        self.execute_one("a next-hop object", sequence)
    }

    /// Removes the object and every route that refers to it. A missing object is no error.
    pub fn remove_object(&mut self, id: u32) -> Result<(), KernelError> {
        let sequence = self.netlink.sequences(1);
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        self.writer.clear();
        self.writer.begin(RTM_DELNEXTHOP, flags as u16, sequence, &[0; OBJECT_HEADER]);
        self.writer.attribute_u32(NHA_ID, id);
        self.writer.end();
        match self.execute_one("a next-hop object", sequence) {
            Err(KernelError::Refused { refusal, .. }) if refusal.errno == libc::ENOENT => Ok(()),
            other => other,
        }
    }

    /// Removes all objects with our protocol number and their routes; returns the number of objects.
    pub fn remove_objects(&mut self) -> Result<usize, KernelError> {
        let protocol = self.place.protocol;
        let mut found = Vec::new();
        self.netlink.list("its next-hop objects", RTM_GETNEXTHOP, &[0; OBJECT_HEADER], |message| {
            let ours = message.kind == RTM_NEWNEXTHOP && message.body.get(2) == Some(&protocol);
            let Some(attributes) = message.body.get(OBJECT_HEADER..).filter(|_| ours) else { return };
            let id = AttributesOf(attributes).find(|(kind, _)| *kind == NHA_ID);
            found.extend(id.and_then(|(_, value)| u32_at(value, 0)));
        })?;
        for id in &found {
            self.remove_object(*id)?;
        }
        Ok(found.len())
    }

    fn execute_one(&mut self, what: &'static str, sequence: u32) -> Result<(), KernelError> {
        let mut refused: Option<Refusal> = None;
        self.netlink.execute(&self.writer, sequence, |_, refusal| refused = Some(refusal))?;
        match refused {
            None => Ok(()),
            Some(refusal) if refusal.errno == libc::EPERM => Err(KernelError::NotPermitted),
            Some(refusal) => Err(KernelError::Refused { what, refusal }),
        }
    }
}
