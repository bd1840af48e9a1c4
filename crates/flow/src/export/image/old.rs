//! Images that earlier versions left: fields one after the other, little-endian, behind flags that say which optional ones there
//! are. The earliest have no [`KNOWN`]: ports counted from 0 in two bytes, and 0 where nothing is known.

use super::Body;
use crate::record::{Counters, Drops, EndReason, FlowKey, FlowRecord, Translation, interface_of_port};
use thalweg_base::DropReason;
use thalweg_wire::ip_protocol::TCP;

const MPLS: u16 = 1 << 1;
const REVERSE: u16 = 1 << 2;
const NEXT_HOP: u16 = 1 << 3;
const BGP_NEXT_HOP: u16 = 1 << 4;
const TRANSLATION: u16 = 1 << 5;
const DROPS: u16 = 1 << 6;
/// Interfaces have four bytes, and a byte says which values of counters are known.
const KNOWN: u16 = 1 << 7;

/// What of counters is known.
const KNOWN_FLAGS: u8 = 1;
const KNOWN_TTL_MIN: u8 = 1 << 1;
const KNOWN_TTL_MAX: u8 = 1 << 2;

impl Body<'_> {
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Counters; `old_of` is the protocol in an image that does not say what of them is known.
    fn counters(&mut self, old_of: Option<u8>) -> Option<Counters> {
        let (packets, bytes, first_ns, last_ns) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let known = match old_of {
            None => self.take::<1>()?[0],
            Some(TCP) => KNOWN_FLAGS | KNOWN_TTL_MIN | KNOWN_TTL_MAX,
            Some(_) => KNOWN_TTL_MIN | KNOWN_TTL_MAX,
        };
        let [tcp_flags, ttl_min, ttl_max] = self.take()?;
        let of = |bit: u8, value: u8| (known & bit != 0).then_some(value);
        Some(Counters {
            packets,
            bytes,
            first_ns,
            last_ns,
            tcp_flags: of(KNOWN_FLAGS, tcp_flags),
            ttl_min: of(KNOWN_TTL_MIN, ttl_min),
            ttl_max: of(KNOWN_TTL_MAX, ttl_max),
        })
    }

    /// Interfaces in and out, and the VLAN.
    fn interfaces(&mut self, flags: u16) -> Option<(u32, u32, u16)> {
        if flags & KNOWN != 0 {
            let vlan = self.u16()?;
            return Some((self.u32()?, self.u32()?, vlan));
        }
        let (ingress, vlan, egress) = (self.u16()?, self.u16()?, self.u16()?);
        Some((interface_of_port(ingress), interface_of_port(egress), vlan))
    }

    fn drops(&mut self) -> Option<Drops> {
        let (bytes, others) = (self.u64()?, self.u32()?);
        let [reasons] = self.take()?;
        let mut drops = Drops::default();
        let mut told = Vec::with_capacity(4);
        for _ in 0..reasons {
            let [code] = self.take()?;
            let reason = DropReason::from_code(code)?;
            told.push(reason);
            drops.add(reason, self.u32()?, 0);
        }
        if others > 0 {
            // A reason that is not told apart: any that has no place of its own.
            let other = DropReason::ALL.iter().find(|reason| !told.contains(reason))?;
            drops.add(*other, others, 0);
        }
        drops.bytes = bytes;
        Some(drops)
    }

    /// The rest of an image behind its flags.
    pub(super) fn old_record(&mut self, flags: u16) -> Option<FlowRecord> {
        let (src, dst) = (self.address()?, self.address()?);
        let (src_port, dst_port) = (self.u16()?, self.u16()?);
        let (ingress, egress, vlan) = self.interfaces(flags)?;
        let [protocol, traffic_class, end_reason, application] = self.take()?;
        let (src_as, dst_as, sampling_interval) = (self.u32()?, self.u32()?, self.u32()?);
        let has = |flag: u16| flags & flag != 0;
        let old_of = (!has(KNOWN)).then_some(protocol);
        let counters = self.counters(old_of)?;
        let mpls_label = if has(MPLS) { Some(self.u32()?) } else { None };
        let key =
            FlowKey { src, dst, src_port, dst_port, protocol, traffic_class, ingress, vlan, mpls_label };
        let reverse = if has(REVERSE) { Some(self.counters(old_of)?) } else { None };
        let next_hop = if has(NEXT_HOP) { Some(self.address()?) } else { None };
        let bgp_next_hop = if has(BGP_NEXT_HOP) { Some(self.address()?) } else { None };
        let translation = match has(TRANSLATION) {
            true => Some(Translation {
                src: self.address()?,
                dst: self.address()?,
                src_port: self.u16()?,
                dst_port: self.u16()?,
            }),
            false => None,
        };
        let drops = if has(DROPS) { self.drops()? } else { Drops::default() };
        let end_reason = match end_reason {
            0 => None,
            code => Some(EndReason::from_code(code)?),
        };
        Some(FlowRecord {
            reverse,
            application,
            egress,
            next_hop,
            src_as,
            dst_as,
            bgp_next_hop,
            translation,
            drops,
            sampling_interval,
            ..FlowRecord::new(key, counters, end_reason)
        })
    }
}
