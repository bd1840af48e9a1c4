//! The table of path attributes. A row has everything about one: its number, name, flags and lengths, what
//! happens to a message in which it is malformed (RFC 7606), how its value is decoded, encoded and printed,
//! and which neighbors receive it.
//!
//! A new attribute needs its number in [`code`], its row, and a decoder unless its length alone decides
//! whether it is well-formed. Unless its row says [`Export::Rewrite`], no other code needs to change.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::attribute::{FLAG_OPTIONAL, FLAG_TRANSITIVE};
use super::update::{Aggregator, Fault, MpNlri, MpReach, PeerFacts, PeerSide, Update};
use super::view::{AsPath, Attribute};
use super::{AS_TRANS, AfiSafi, Codec, Family, NextHop, Nlri, Origin, as_path};

/// Type codes; `bgp::attribute` re-exports them.
pub mod code {
    #![allow(unreachable_pub, reason = "constants with the names of the attributes")]
    pub const ORIGIN: u8 = 1;
    pub const AS_PATH: u8 = 2;
    pub const NEXT_HOP: u8 = 3;
    pub const MED: u8 = 4;
    pub const LOCAL_PREF: u8 = 5;
    pub const ATOMIC_AGGREGATE: u8 = 6;
    pub const AGGREGATOR: u8 = 7;
    pub const COMMUNITIES: u8 = 8;
    pub const ORIGINATOR_ID: u8 = 9;
    pub const CLUSTER_LIST: u8 = 10;
    pub const MP_REACH_NLRI: u8 = 14;
    pub const MP_UNREACH_NLRI: u8 = 15;
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    pub const AS4_PATH: u8 = 17;
    pub const AS4_AGGREGATOR: u8 = 18;
    pub const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub const LARGE_COMMUNITIES: u8 = 32;
    pub const ONLY_TO_CUSTOMER: u8 = 35;
}

/// What happens to a message with a malformed attribute, from mild to severe (RFC 7606 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The attribute is discarded; the routes are used.
    Discard,
    /// All routes that the message announces are withdrawn.
    TreatAsWithdraw,
    SessionReset,
}

/// The valid lengths of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LengthRule {
    Any,
    Exactly(u16),
    /// A multiple of this length, not 0.
    Multiple(u16),
    /// This length or more.
    AtLeast(u16),
    /// 6 with two-octet AS numbers, 8 with four-octet ones.
    Aggregator,
}

impl LengthRule {
    /// Whether a value may have this length.
    #[inline]
    pub const fn allows(self, length: usize, four_octet_as: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Exactly(exact) => length == exact as usize,
            Self::Multiple(step) => length != 0 && length.is_multiple_of(step as usize),
            Self::AtLeast(min) => length >= min as usize,
            Self::Aggregator => length == if four_octet_as { 8 } else { 6 },
        }
    }
}

/// Whether and how an attribute is sent to a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Export {
    /// Unchanged.
    Keep,
    /// Not sent.
    Drop,
    /// The sender makes the value: it changes on the way, depends on options, or is not part of the stored
    /// attributes.
    Rewrite,
}

/// Decodes a value of valid length.
type Decode = for<'a, 'c> fn(&mut Draft<'a, 'c>, &'a [u8]) -> Result<(), Fault>;

/// Appends the two-octet form of a value with four-octet AS numbers.
type Encode = fn(&[u8], &mut Vec<u8>);

/// Prints a value, preceded by a space.
type Print = fn(&Update<'_>, &[u8], &mut fmt::Formatter<'_>) -> fmt::Result;

/// The definition of one attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttributeRow {
    pub code: u8,
    /// As in the RFCs.
    pub name: &'static str,
    /// The required values of the flags OPTIONAL and TRANSITIVE.
    pub flags: u8,
    pub length: LengthRule,
    /// The severity of a malformed value. Wrong flags always mean [`Severity::TreatAsWithdraw`], and
    /// [`Severity::SessionReset`] for attributes that carry prefixes (RFC 7606 3 c, 5.3).
    pub malformed: Severity,
    /// The attribute has no meaning from outside the AS (or confederation) and is then discarded (RFC 7606
    /// 7.5, 7.9, 7.10).
    pub internal_only: bool,
    /// This router understands the attribute. Others only have a name here: their flags and length are not
    /// checked, and their flags alone decide whether they are passed on (RFC 4271 5).
    pub recognized: bool,
    /// Indexed by [`PeerSide`].
    export: [Export; 3],
    /// `None` if a valid length suffices.
    decode: Option<Decode>,
    /// The encoder for neighbors with two-octet AS numbers, if their value differs.
    encode_two_octet: Option<Encode>,
    print: Print,
}

impl AttributeRow {
    /// How the attribute is sent to neighbors on this side.
    #[inline]
    pub const fn export_to(&self, side: PeerSide) -> Export {
        self.export[side as usize]
    }

    /// The encoder for neighbors with two-octet AS numbers, if their value differs.
    #[inline]
    pub const fn encode_two_octet(&self) -> Option<Encode> {
        self.encode_two_octet
    }

    #[inline]
    pub(super) const fn decode(&self) -> Option<Decode> {
        self.decode
    }

    pub(super) const fn print(&self) -> Print {
        self.print
    }

    const fn sent(self, export: [Export; 3]) -> Self {
        Self { export, ..self }
    }

    const fn internal_only(self) -> Self {
        Self { internal_only: true, ..self }
    }

    const fn decoded(self, decode: Decode) -> Self {
        Self { decode: Some(decode), ..self }
    }

    const fn encoded(self, encode: Encode) -> Self {
        Self { encode_two_octet: Some(encode), ..self }
    }

    const fn printed(self, print: Print) -> Self {
        Self { print, ..self }
    }
}

const WELL_KNOWN: u8 = FLAG_TRANSITIVE;
const TRANSITIVE: u8 = FLAG_OPTIONAL | FLAG_TRANSITIVE;
const NON_TRANSITIVE: u8 = FLAG_OPTIONAL;

/// External neighbors, those in other member ASes of the confederation, internal ones.
const TO_ALL: [Export; 3] = [Export::Keep; 3];
const REWRITTEN: [Export; 3] = [Export::Rewrite; 3];
const TO_CONFEDERATION: [Export; 3] = [Export::Drop, Export::Rewrite, Export::Rewrite];
const TO_INTERNAL: [Export; 3] = [Export::Drop, Export::Drop, Export::Rewrite];
/// They belong to one message, or are made from another attribute when needed.
const TO_NOBODY: [Export; 3] = [Export::Drop; 3];

const fn row(
    code: u8,
    name: &'static str,
    flags: u8,
    length: LengthRule,
    malformed: Severity,
) -> AttributeRow {
    AttributeRow {
        code,
        name,
        flags,
        length,
        malformed,
        internal_only: false,
        recognized: true,
        export: TO_ALL,
        decode: None,
        encode_two_octet: None,
        print: print_bytes,
    }
}

const fn named(code: u8, name: &'static str, flags: u8) -> AttributeRow {
    AttributeRow { recognized: false, ..row(code, name, flags, LengthRule::Any, Severity::Discard) }
}

use LengthRule::{Any, AtLeast, Exactly, Multiple};
use Severity::{Discard, SessionReset, TreatAsWithdraw};

/// All rows, in order of type code.
#[rustfmt::skip]
pub static ATTRIBUTES: &[AttributeRow] = &[
    row(code::ORIGIN, "ORIGIN", WELL_KNOWN, Exactly(1), TreatAsWithdraw)
        .sent(REWRITTEN).decoded(origin).printed(print_origin),
    row(code::AS_PATH, "AS_PATH", WELL_KNOWN, Any, TreatAsWithdraw)
        .sent(REWRITTEN).decoded(path).printed(print_path),
    row(code::NEXT_HOP, "NEXT_HOP", WELL_KNOWN, Exactly(4), TreatAsWithdraw)
        .sent(REWRITTEN).decoded(next_hop).printed(print_address),
    row(code::MED, "MULTI_EXIT_DISC", NON_TRANSITIVE, Exactly(4), TreatAsWithdraw)
        .sent(REWRITTEN).decoded(med).printed(print_number),
    row(code::LOCAL_PREF, "LOCAL_PREF", WELL_KNOWN, Exactly(4), TreatAsWithdraw)
        .sent(TO_CONFEDERATION).internal_only().decoded(local_pref).printed(print_number),
    row(code::ATOMIC_AGGREGATE, "ATOMIC_AGGREGATE", WELL_KNOWN, Exactly(0), Discard)
        .printed(print_nothing),
    row(code::AGGREGATOR, "AGGREGATOR", TRANSITIVE, LengthRule::Aggregator, Discard)
        .decoded(aggregator).encoded(two_octet_aggregator).printed(print_aggregator),
    row(code::COMMUNITIES, "COMMUNITIES", TRANSITIVE, Multiple(4), TreatAsWithdraw)
        .sent(REWRITTEN).printed(print_communities),
    row(code::ORIGINATOR_ID, "ORIGINATOR_ID", NON_TRANSITIVE, Exactly(4), TreatAsWithdraw)
        .sent(TO_INTERNAL).internal_only().printed(print_address),
    row(code::CLUSTER_LIST, "CLUSTER_LIST", NON_TRANSITIVE, Multiple(4), TreatAsWithdraw)
        .sent(TO_INTERNAL).internal_only().printed(print_address),
    row(code::MP_REACH_NLRI, "MP_REACH_NLRI", NON_TRANSITIVE, AtLeast(5), SessionReset)
        .sent(TO_NOBODY).decoded(mp_reach),
    row(code::MP_UNREACH_NLRI, "MP_UNREACH_NLRI", NON_TRANSITIVE, AtLeast(3), SessionReset)
        .sent(TO_NOBODY).decoded(mp_unreach),
    row(code::EXTENDED_COMMUNITIES, "EXTENDED_COMMUNITIES", TRANSITIVE, Multiple(8), TreatAsWithdraw)
        .sent(REWRITTEN),
    row(code::AS4_PATH, "AS4_PATH", TRANSITIVE, AtLeast(6), Discard)
        .sent(TO_NOBODY).decoded(as4_path),
    row(code::AS4_AGGREGATOR, "AS4_AGGREGATOR", TRANSITIVE, Exactly(8), Discard)
        .sent(TO_NOBODY).decoded(as4_aggregator),
    named(22, "PMSI_TUNNEL", TRANSITIVE),
    named(23, "TUNNEL_ENCAPSULATION", TRANSITIVE),
    named(24, "TRAFFIC_ENGINEERING", NON_TRANSITIVE),
    row(code::IPV6_EXTENDED_COMMUNITIES, "IPV6_EXTENDED_COMMUNITIES", TRANSITIVE, Multiple(20), TreatAsWithdraw)
        .sent(REWRITTEN),
    named(26, "AIGP", NON_TRANSITIVE),
    named(27, "PE_DISTINGUISHER_LABELS", TRANSITIVE),
    named(29, "BGP_LS", NON_TRANSITIVE),
    row(code::LARGE_COMMUNITIES, "LARGE_COMMUNITY", TRANSITIVE, Multiple(12), TreatAsWithdraw)
        .sent(REWRITTEN).printed(print_large_communities),
    named(33, "BGPSEC_PATH", NON_TRANSITIVE),
    named(34, "COMMUNITY_CONTAINER", TRANSITIVE),
    row(code::ONLY_TO_CUSTOMER, "ONLY_TO_CUSTOMER", TRANSITIVE, Exactly(4), TreatAsWithdraw)
        .printed(print_number),
    named(36, "D_PATH", TRANSITIVE),
    named(37, "SFP", TRANSITIVE),
    named(38, "BFD_DISCRIMINATOR", TRANSITIVE),
    named(39, "BGP_ROUTER_CAPABILITIES", TRANSITIVE),
    named(40, "PREFIX_SID", TRANSITIVE),
    named(128, "ATTR_SET", TRANSITIVE),
];

/// Maps a type code to its place in [`ATTRIBUTES`], or [`NO_ROW`]. Only recognized attributes have a place,
/// so decoding needs one look-up.
static RECOGNIZED: [u8; 256] = {
    let mut places = [NO_ROW; 256];
    let mut at = 0;
    while at < ATTRIBUTES.len() {
        if ATTRIBUTES[at].recognized {
            places[ATTRIBUTES[at].code as usize] = at as u8;
        }
        at += 1;
    }
    places
};

const NO_ROW: u8 = u8::MAX;

/// The row of an attribute that this router understands.
#[inline]
pub fn recognized_attribute(code: u8) -> Option<&'static AttributeRow> {
    ATTRIBUTES.get(usize::from(RECOGNIZED[usize::from(code)]))
}

/// The name of an attribute, or `attribute N`.
pub fn attribute_name(code: u8) -> std::borrow::Cow<'static, str> {
    match ATTRIBUTES.iter().find(|row| row.code == code) {
        Some(row) => row.name.into(),
        None => format!("attribute {code}").into(),
    }
}

/// A partly decoded UPDATE, and the codec for it.
pub(super) struct Draft<'a, 'c> {
    pub(super) update: Update<'a>,
    pub(super) codec: &'c Codec,
    pub(super) peer: &'c PeerFacts,
    pub(super) as4_aggregator: Option<Aggregator>,
}

fn origin<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    draft.update.origin = match value.first() {
        Some(0) => Origin::Igp,
        Some(1) => Origin::Egp,
        Some(2) => Origin::Incomplete,
        other => return Err(Fault::Origin(other.copied().unwrap_or(0))),
    };
    Ok(())
}

fn path<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    let check = if draft.codec.four_octet_as { as_path::check::<4> } else { as_path::check::<2> };
    let facts = check(value).map_err(Fault::AsPath)?;
    let allowed = draft.peer.in_confederation && draft.peer.side != PeerSide::External;
    if facts.confederation && !allowed {
        return Err(Fault::AsPath(as_path::AsPathError::Confederation));
    }
    if draft.peer.side == PeerSide::Confederation && !facts.confederation_first {
        return Err(Fault::AsPath(as_path::AsPathError::NoConfederationFirst));
    }
    draft.update.as_path = value;
    Ok(())
}

fn next_hop<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    let address = Some(Ipv4Addr::from(number(value))).filter(|address| is_host(*address));
    draft.update.next_hop = Some(address.ok_or(Fault::NextHop)?);
    Ok(())
}

fn med<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    draft.update.med = Some(number(value));
    Ok(())
}

fn local_pref<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    draft.update.local_pref = Some(number(value));
    Ok(())
}

fn aggregator<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    let (asn, address) = match *value {
        [high, low, a, b, c, d] => (u32::from(u16::from_be_bytes([high, low])), [a, b, c, d]),
        [e, f, g, h, a, b, c, d] => (u32::from_be_bytes([e, f, g, h]), [a, b, c, d]),
        _ => return Err(Fault::Length(value.len() as u16)),
    };
    draft.update.aggregator = Some(not_as_zero(asn, address)?);
    Ok(())
}

fn as4_path<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    from_two_octet_speaker(draft)?;
    as_path::check::<4>(value).map_err(Fault::AsPath)?;
    draft.update.as4_path = Some(value);
    Ok(())
}

fn as4_aggregator<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    from_two_octet_speaker(draft)?;
    let (asn, address) = value.split_at_checked(4).ok_or(Fault::Length(value.len() as u16))?;
    draft.as4_aggregator = Some(not_as_zero(number(asn), number(address).to_be_bytes())?);
    Ok(())
}

fn from_two_octet_speaker(draft: &Draft<'_, '_>) -> Result<(), Fault> {
    if draft.codec.four_octet_as { Err(Fault::FromFourOctetSpeaker) } else { Ok(()) }
}

fn not_as_zero(asn: u32, address: [u8; 4]) -> Result<Aggregator, Fault> {
    if asn == 0 { Err(Fault::AsZero) } else { Ok(Aggregator { asn, address: address.into() }) }
}

fn mp_reach<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    let (&[high, low, safi, length], rest) = value.split_first_chunk::<4>().ok_or(Fault::MpNlri)?;
    let (next_hop, rest) = rest.split_at_checked(usize::from(length)).ok_or(Fault::MpNlri)?;
    // RFC 4760: a reserved byte, once a count of SNPAs.
    let (_, prefixes) = rest.split_first().ok_or(Fault::MpNlri)?;
    let family = AfiSafi { afi: u16::from_be_bytes([high, low]), safi };
    let Some(family) = family.kept() else {
        draft.update.foreign_reach = Some(family);
        return Ok(());
    };
    // RFC 7606 7.11: after a next hop of the wrong length, all positions are wrong.
    let v6_allowed = family == Family::Ipv6 || draft.codec.extended_next_hop;
    let next_hop = match NextHop::from_bytes(next_hop) {
        Some(next_hop @ NextHop::V4(_)) if family == Family::Ipv4 => next_hop,
        Some(next_hop @ NextHop::V6 { .. }) if v6_allowed => next_hop,
        _ => return Err(Fault::MpNlri),
    };
    let routes = prefixes_of(draft, family, prefixes)?;
    draft.update.mp_reach = Some(MpReach { next_hop, routes });
    let is_usable = match next_hop {
        NextHop::V4(address) => is_host(address),
        NextHop::V6 { global, .. } => is_host_v6(global),
    };
    is_usable.then_some(()).ok_or(Fault::NextHop)
}

fn mp_unreach<'a>(draft: &mut Draft<'a, '_>, value: &'a [u8]) -> Result<(), Fault> {
    let (&[high, low, safi], prefixes) = value.split_first_chunk::<3>().ok_or(Fault::MpNlri)?;
    let family = AfiSafi { afi: u16::from_be_bytes([high, low]), safi };
    match family.kept() {
        None => draft.update.foreign_unreach = Some(family),
        Some(family) => draft.update.mp_unreach = Some(prefixes_of(draft, family, prefixes)?),
    }
    Ok(())
}

#[inline]
fn prefixes_of<'a>(draft: &Draft<'_, '_>, family: Family, bytes: &'a [u8]) -> Result<MpNlri<'a>, Fault> {
    let path_ids = draft.codec.add_path_receive[family.index()];
    let routes = match family {
        Family::Ipv4 => Nlri::parse(bytes, path_ids).map(MpNlri::Ipv4),
        Family::Ipv6 => Nlri::parse(bytes, path_ids).map(MpNlri::Ipv6),
    };
    routes.map_err(|_| Fault::MpNlri)
}

/// The first four bytes as a number; the length was checked.
#[inline]
fn number(value: &[u8]) -> u32 {
    value.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four))
}

/// Whether it can be a host's address (RFC 4271 6.3).
#[inline]
fn is_host(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

#[inline]
fn is_host_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

fn two_octet_aggregator(value: &[u8], out: &mut Vec<u8>) {
    if let Some((asn, address)) = value.split_first_chunk::<4>() {
        let narrow = u16::try_from(u32::from_be_bytes(*asn)).unwrap_or(AS_TRANS);
        out.extend_from_slice(&narrow.to_be_bytes());
        out.extend_from_slice(address);
    }
}

fn print_nothing(_: &Update<'_>, _: &[u8], _: &mut fmt::Formatter<'_>) -> fmt::Result {
    Ok(())
}

fn print_origin(update: &Update<'_>, _: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {}", update.origin)
}

fn print_path(update: &Update<'_>, _: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut scratch = Vec::new();
    write!(f, " {}", AsPath::new(update.as_path(&mut scratch)))
}

fn print_aggregator(update: &Update<'_>, _: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    update.aggregator().map_or(Ok(()), |who| write!(f, " {} {}", who.asn, who.address))
}

fn print_number(_: &Update<'_>, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {}", number(value))
}

/// One address or several.
fn print_address(_: &Update<'_>, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.as_chunks::<4>().0.iter().try_for_each(|four| write!(f, " {}", Ipv4Addr::from(*four)))
}

fn print_communities(_: &Update<'_>, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.as_chunks::<4>().0.iter().try_for_each(|&[a, b, c, d]| {
        write!(f, " {}:{}", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    })
}

fn print_large_communities(_: &Update<'_>, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    value.as_chunks::<12>().0.iter().try_for_each(|twelve| {
        write!(f, " {}:{}:{}", number(twelve), number(&twelve[4..]), number(&twelve[8..]))
    })
}

/// The most bytes of an unknown value in a log line.
const BYTES_SHOWN: usize = 32;

pub(super) fn print_bytes(_: &Update<'_>, value: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(" 0x")?;
    value.iter().take(BYTES_SHOWN).try_for_each(|byte| write!(f, "{byte:02x}"))?;
    f.write_str(if value.len() > BYTES_SHOWN { ".." } else { "" })
}

/// Prints an attribute of an UPDATE by its name.
pub(super) fn print(update: &Update<'_>, each: Attribute<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&attribute_name(each.code))?;
    recognized_attribute(each.code).map_or(print_bytes as Print, AttributeRow::print)(update, each.value, f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_found_by_code() {
        assert!(ATTRIBUTES.is_sorted_by(|a, b| a.code < b.code));
        for code in 0..=u8::MAX {
            let row = ATTRIBUTES.iter().find(|row| row.code == code && row.recognized);
            assert_eq!(recognized_attribute(code).map(|row| row.name), row.map(|row| row.name), "{code}");
        }
    }

    #[test]
    fn what_has_no_meaning_outside_is_not_sent_there() {
        for row in ATTRIBUTES.iter().filter(|row| row.internal_only) {
            assert_eq!(row.export_to(PeerSide::External), Export::Drop, "{}", row.name);
        }
    }
}
