//! Turns routes of an MRT table into UPDATEs.

use std::net::IpAddr;

use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::Attributes;
use thalweg_wire::bgp::attribute;
use thalweg_wire::mrt::RibEntry;

/// The fields of the UPDATE that announces a route.
#[derive(Default)]
pub(crate) struct UpdateFields {
    pub(crate) attributes: Vec<u8>,
    /// The prefix after the attributes; empty if MP_REACH_NLRI has it.
    pub(crate) reach: Vec<u8>,
    prefix: Vec<u8>,
}

impl UpdateFields {
    /// Makes the entry's attributes those of an UPDATE: MP_REACH_NLRI, which tables mostly reduce to the next hop,
    /// gets its family and the prefix back. `path_id` precedes the prefix if the session uses path identifiers.
    /// Returns whether there is a LOCAL_PREF; `None` if the lengths do not fit.
    pub(crate) fn fill(&mut self, entry: &RibEntry<'_>, path_id: Option<u32>) -> Option<bool> {
        let Self { attributes, reach, prefix } = self;
        attributes.clear();
        reach.clear();
        prefix.clear();
        prefix.extend(path_id.into_iter().flat_map(u32::to_be_bytes));
        push_prefix(prefix, entry.prefix);
        let (mut internal, mut mp_reach, mut length) = (false, false, 0);
        for each in Attributes::new(entry.attributes) {
            length += each.whole.len();
            internal |= each.code == attribute::LOCAL_PREF;
            if each.code != attribute::MP_REACH_NLRI {
                attributes.extend_from_slice(each.whole);
                continue;
            }
            mp_reach = true;
            let next_hop = next_hop_field(each.value)?;
            let afi = if matches!(entry.prefix, IpPrefix::V4(_)) { 1 } else { 2 };
            let size = u8::try_from(5 + next_hop.len() + prefix.len()).ok()?;
            attributes.extend_from_slice(&[attribute::FLAG_OPTIONAL, attribute::MP_REACH_NLRI, size]);
            attributes.extend_from_slice(&[0, afi, 1, next_hop.len() as u8]);
            attributes.extend_from_slice(next_hop);
            attributes.push(0);
            attributes.extend_from_slice(prefix);
        }
        if !mp_reach {
            reach.extend_from_slice(prefix);
        }
        let announces = mp_reach || matches!(entry.prefix, IpPrefix::V4(_));
        (length == entry.attributes.len() && announces).then_some(internal)
    }

    /// Assembles the body of an UPDATE; `None` if it would be too long.
    pub(crate) fn body<'b>(&self, body: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        let length = u16::try_from(self.attributes.len()).ok()?;
        body.clear();
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&self.attributes);
        body.extend_from_slice(&self.reach);
        Some(body)
    }
}

/// The next hop of an MP_REACH_NLRI, whole or shortened as in RFC 6396 4.3.4.
fn next_hop_field(value: &[u8]) -> Option<&[u8]> {
    match value {
        [length, rest @ ..] if rest.len() == usize::from(*length) => Some(rest),
        [_, _, _, length, rest @ ..] => rest.get(..usize::from(*length)),
        _ => None,
    }
}

fn push_prefix(out: &mut Vec<u8>, prefix: IpPrefix) {
    out.push(prefix.length());
    let bytes = usize::from(prefix.length().div_ceil(8));
    match prefix.address() {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()[..bytes]),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()[..bytes]),
    }
}
