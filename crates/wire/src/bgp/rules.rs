//! The table of path attributes: a row says what an attribute is called, which flags and lengths it may have
//! and what becomes of a message in which it is wrong (RFC 7606).

use super::attribute as a;

/// What becomes of a message with a malformed attribute, from mild to severe (RFC 7606 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The attribute is left out, the routes count.
    Discard,
    /// All routes the message announces are withdrawn.
    TreatAsWithdraw,
    /// The session ends.
    SessionReset,
}

/// Lengths a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LengthRule {
    /// Any at all.
    Any,
    /// This one.
    Exactly(u16),
    /// A multiple of this one, not 0.
    Multiple(u16),
    /// This one or more.
    AtLeast(u16),
    /// 6 with AS numbers of two bytes, 8 with four.
    Aggregator,
}

impl LengthRule {
    /// Whether a value may have the length.
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

/// One row: one attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeRule {
    /// Type code.
    pub code: u8,
    /// Its name in the RFCs.
    pub name: &'static str,
    /// The values its flags OPTIONAL and TRANSITIVE have.
    pub flags: u8,
    /// Lengths its value may have.
    pub length: LengthRule,
    /// What a malformed one does, flags excepted: wrong flags always make it [`Severity::TreatAsWithdraw`], and
    /// [`Severity::SessionReset`] for those that carry prefixes (RFC 7606 3 c, 5.3).
    pub malformed: Severity,
    /// It has no meaning from outside the AS (or confederation) and is discarded then (RFC 7606 7.5, 7.9, 7.10).
    pub internal_only: bool,
    /// This router understands it. What it does not understand is only named here: its flags and length are
    /// not looked at, and it is kept as it is.
    pub recognized: bool,
}

const WELL_KNOWN: u8 = a::FLAG_TRANSITIVE;
const TRANSITIVE: u8 = a::FLAG_OPTIONAL | a::FLAG_TRANSITIVE;
const NON_TRANSITIVE: u8 = a::FLAG_OPTIONAL;

const fn row(
    code: u8,
    name: &'static str,
    flags: u8,
    length: LengthRule,
    malformed: Severity,
) -> AttributeRule {
    AttributeRule { code, name, flags, length, malformed, internal_only: false, recognized: true }
}

const fn internal(row: AttributeRule) -> AttributeRule {
    AttributeRule { internal_only: true, ..row }
}

const fn named(code: u8, name: &'static str, flags: u8) -> AttributeRule {
    let severity = Severity::Discard;
    AttributeRule { recognized: false, ..row(code, name, flags, LengthRule::Any, severity) }
}

use LengthRule::{Aggregator, Any, AtLeast, Exactly, Multiple};
use Severity::{Discard, SessionReset, TreatAsWithdraw};

/// All rows, in order of code. Contents beyond flags and length (ORIGIN's value, the segments of AS_PATH ..)
/// are checked where they are read.
#[rustfmt::skip]
pub static ATTRIBUTE_RULES: &[AttributeRule] = &[
    row(a::ORIGIN, "ORIGIN", WELL_KNOWN, Exactly(1), TreatAsWithdraw),
    row(a::AS_PATH, "AS_PATH", WELL_KNOWN, Any, TreatAsWithdraw),
    row(a::NEXT_HOP, "NEXT_HOP", WELL_KNOWN, Exactly(4), TreatAsWithdraw),
    row(a::MED, "MULTI_EXIT_DISC", NON_TRANSITIVE, Exactly(4), TreatAsWithdraw),
    internal(row(a::LOCAL_PREF, "LOCAL_PREF", WELL_KNOWN, Exactly(4), TreatAsWithdraw)),
    row(a::ATOMIC_AGGREGATE, "ATOMIC_AGGREGATE", WELL_KNOWN, Exactly(0), Discard),
    row(a::AGGREGATOR, "AGGREGATOR", TRANSITIVE, Aggregator, Discard),
    row(a::COMMUNITIES, "COMMUNITIES", TRANSITIVE, Multiple(4), TreatAsWithdraw),
    internal(row(a::ORIGINATOR_ID, "ORIGINATOR_ID", NON_TRANSITIVE, Exactly(4), TreatAsWithdraw)),
    internal(row(a::CLUSTER_LIST, "CLUSTER_LIST", NON_TRANSITIVE, Multiple(4), TreatAsWithdraw)),
    row(a::MP_REACH_NLRI, "MP_REACH_NLRI", NON_TRANSITIVE, AtLeast(5), SessionReset),
    row(a::MP_UNREACH_NLRI, "MP_UNREACH_NLRI", NON_TRANSITIVE, AtLeast(3), SessionReset),
    row(a::EXTENDED_COMMUNITIES, "EXTENDED_COMMUNITIES", TRANSITIVE, Multiple(8), TreatAsWithdraw),
    row(a::AS4_PATH, "AS4_PATH", TRANSITIVE, AtLeast(6), Discard),
    row(a::AS4_AGGREGATOR, "AS4_AGGREGATOR", TRANSITIVE, Exactly(8), Discard),
    named(22, "PMSI_TUNNEL", TRANSITIVE),
    named(23, "TUNNEL_ENCAPSULATION", TRANSITIVE),
    named(24, "TRAFFIC_ENGINEERING", NON_TRANSITIVE),
    row(a::IPV6_EXTENDED_COMMUNITIES, "IPV6_EXTENDED_COMMUNITIES", TRANSITIVE, Multiple(20), TreatAsWithdraw),
    named(26, "AIGP", NON_TRANSITIVE),
    named(27, "PE_DISTINGUISHER_LABELS", TRANSITIVE),
    named(29, "BGP_LS", NON_TRANSITIVE),
    row(a::LARGE_COMMUNITIES, "LARGE_COMMUNITY", TRANSITIVE, Multiple(12), TreatAsWithdraw),
    named(33, "BGPSEC_PATH", NON_TRANSITIVE),
    named(34, "COMMUNITY_CONTAINER", TRANSITIVE),
    row(a::ONLY_TO_CUSTOMER, "ONLY_TO_CUSTOMER", TRANSITIVE, Exactly(4), TreatAsWithdraw),
    named(36, "D_PATH", TRANSITIVE),
    named(37, "SFP", TRANSITIVE),
    named(38, "BFD_DISCRIMINATOR", TRANSITIVE),
    named(39, "BGP_ROUTER_CAPABILITIES", TRANSITIVE),
    named(40, "PREFIX_SID", TRANSITIVE),
    named(128, "ATTR_SET", TRANSITIVE),
];

/// By code: the place in [`ATTRIBUTE_RULES`], or [`NO_ROW`]. Only what is recognized has a place here, so that
/// reading a message asks once.
static RECOGNIZED: [u8; 256] = {
    let mut places = [NO_ROW; 256];
    let mut at = 0;
    while at < ATTRIBUTE_RULES.len() {
        if ATTRIBUTE_RULES[at].recognized {
            places[ATTRIBUTE_RULES[at].code as usize] = at as u8;
        }
        at += 1;
    }
    places
};

const NO_ROW: u8 = u8::MAX;

/// The row of an attribute that this router understands.
#[inline]
pub fn recognized_rule(code: u8) -> Option<&'static AttributeRule> {
    ATTRIBUTE_RULES.get(usize::from(RECOGNIZED[usize::from(code)]))
}

/// The row of an attribute.
pub fn attribute_rule(code: u8) -> Option<&'static AttributeRule> {
    ATTRIBUTE_RULES.iter().find(|row| row.code == code)
}

/// The name of an attribute, or `attribute N`.
pub fn attribute_name(code: u8) -> std::borrow::Cow<'static, str> {
    match attribute_rule(code) {
        Some(row) => row.name.into(),
        None => format!("attribute {code}").into(),
    }
}
