//! The one pass over an UPDATE that decides about all of it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::problem::{AttributeProblem, Discards, Fault};
use super::{Aggregator, CodeSet, MpNlri, MpReach, PeerFacts, PeerSide, Update, Verdict};
use crate::bgp::attribute as a;
use crate::bgp::notification::{Notification, error, update_error};
use crate::bgp::open::AS_TRANS;
use crate::bgp::rules::{AttributeRule, Severity, recognized_rule};
use crate::bgp::view::{Attribute, Attributes};
use crate::bgp::{AfiSafi, Codec, Family, NextHop, Nlri, Origin, as_path};

/// Attributes that speak through fields of the view.
const SPOKEN_FOR: CodeSet =
    CodeSet::EMPTY.with(a::MP_REACH_NLRI).with(a::MP_UNREACH_NLRI).with(a::AS4_PATH).with(a::AS4_AGGREGATOR);

/// Attributes that no configuration may leave out.
const INDISPENSABLE: CodeSet = CodeSet::EMPTY
    .with(a::ORIGIN)
    .with(a::AS_PATH)
    .with(a::NEXT_HOP)
    .with(a::MP_REACH_NLRI)
    .with(a::MP_UNREACH_NLRI);

struct Reader<'a, 'c> {
    update: Update<'a>,
    codec: &'c Codec,
    peer: &'c PeerFacts,
    seen: CodeSet,
    aggregator_is_trans: bool,
    as4_aggregator: Option<Aggregator>,
    /// The attribute that the verdict is about, as it stands.
    culprit: &'a [u8],
}

/// Reads the three fields of an UPDATE.
pub(super) fn read<'a>(
    withdrawn: &'a [u8],
    field: &'a [u8],
    reach: &'a [u8],
    codec: &Codec,
    peer: &PeerFacts,
) -> Result<Update<'a>, Notification> {
    let path_ids = codec.add_path_receive[Family::Ipv4.index()];
    let (Ok(withdrawn), Ok(reach_v4)) = (Nlri::parse(withdrawn, path_ids), Nlri::parse(reach, path_ids))
    else {
        return Err(Notification::new(error::UPDATE, update_error::INVALID_NETWORK_FIELD));
    };
    let update = Update {
        withdrawn,
        reach_v4,
        mp_unreach: None,
        mp_reach: None,
        verdict: Verdict::Good,
        origin: Origin::Igp,
        next_hop: None,
        med: None,
        local_pref: None,
        discards: Discards::default(),
        foreign_reach: None,
        foreign_unreach: None,
        field,
        left_out: SPOKEN_FOR,
        four_octet_as: codec.four_octet_as,
        as_path: &[],
        as4_path: None,
        aggregator: None,
    };
    let mut reader = Reader {
        update,
        codec,
        peer,
        seen: CodeSet::EMPTY,
        aggregator_is_trans: false,
        as4_aggregator: None,
        culprit: &[],
    };
    let mut attributes = Attributes::new(field);
    for attribute in attributes.by_ref() {
        reader.attribute(attribute)?;
    }
    let rest = attributes.rest();
    if !rest.is_empty() {
        // RFC 7606 4: where the prefixes begin is known all the same.
        let code = rest.get(1).copied().unwrap_or(0);
        reader.withdraw(AttributeProblem { code, fault: Fault::Overrun }, rest);
    }
    reader.finish()
}

impl<'a> Reader<'a, '_> {
    #[inline]
    fn attribute(&mut self, attribute: Attribute<'a>) -> Result<(), Notification> {
        let Attribute { flags, code, value, whole } = attribute;
        if !self.seen.insert(code) {
            return self.repeated(code);
        }
        let Some(rule) = recognized_rule(code) else { return self.unrecognized(attribute) };
        if (flags ^ rule.flags) & (a::FLAG_OPTIONAL | a::FLAG_TRANSITIVE) != 0 {
            return self.wrong_flags(rule, attribute);
        }
        if rule.internal_only && self.peer.side == PeerSide::External {
            self.discard(code, Fault::FromOutside);
            return Ok(());
        }
        if self.peer.discard.contains(code) && !INDISPENSABLE.contains(code) {
            self.discard(code, Fault::Unwanted);
            return Ok(());
        }
        if !rule.length.allows(value.len(), self.codec.four_octet_as) {
            return self.malformed(rule, Fault::Length(value.len() as u16), whole);
        }
        self.value(rule, attribute)
    }

    /// Reads a value whose length is right.
    #[inline]
    fn value(&mut self, rule: &AttributeRule, attribute: Attribute<'a>) -> Result<(), Notification> {
        let Attribute { code, value, whole, .. } = attribute;
        let fault = match code {
            a::ORIGIN => match value.first() {
                Some(0) => return Ok(()),
                Some(1) => {
                    self.update.origin = Origin::Egp;
                    return Ok(());
                }
                Some(2) => {
                    self.update.origin = Origin::Incomplete;
                    return Ok(());
                }
                other => Fault::Origin(other.copied().unwrap_or(0)),
            },
            a::AS_PATH => match self.path(value) {
                None => return Ok(()),
                Some(fault) => fault,
            },
            a::NEXT_HOP => {
                let address = Ipv4Addr::from(number(value));
                if may_be_next_hop(address) {
                    self.update.next_hop = Some(address);
                    return Ok(());
                }
                Fault::NextHop
            }
            a::MED => {
                self.update.med = Some(number(value));
                return Ok(());
            }
            a::LOCAL_PREF => {
                self.update.local_pref = Some(number(value));
                return Ok(());
            }
            a::AGGREGATOR => match self.aggregator(value) {
                None => return Ok(()),
                Some(fault) => fault,
            },
            a::AS4_PATH => match self.as4_path(value) {
                None => return Ok(()),
                Some(fault) => fault,
            },
            a::AS4_AGGREGATOR => match self.as4_aggregator(value) {
                None => return Ok(()),
                Some(fault) => fault,
            },
            a::MP_REACH_NLRI => return self.mp_reach(value, whole),
            a::MP_UNREACH_NLRI => return self.mp_unreach(value, whole),
            _ => return Ok(()),
        };
        self.malformed(rule, fault, whole)
    }

    #[inline]
    fn path(&mut self, value: &'a [u8]) -> Option<Fault> {
        let checked =
            if self.codec.four_octet_as { as_path::check::<4>(value) } else { as_path::check::<2>(value) };
        let facts = match checked {
            Ok(facts) => facts,
            Err(error) => return Some(Fault::AsPath(error)),
        };
        let allowed = self.peer.in_confederation && self.peer.side != PeerSide::External;
        if facts.confederation && !allowed {
            return Some(Fault::AsPath(as_path::AsPathError::Confederation));
        }
        if self.peer.side == PeerSide::Confederation && !facts.confederation_first {
            return Some(Fault::AsPath(as_path::AsPathError::NoConfederationFirst));
        }
        self.update.as_path = value;
        None
    }

    fn aggregator(&mut self, value: &[u8]) -> Option<Fault> {
        let (asn, address) = match *value {
            [high, low, a, b, c, d] => (u32::from(u16::from_be_bytes([high, low])), [a, b, c, d]),
            [e, f, g, h, a, b, c, d] => (u32::from_be_bytes([e, f, g, h]), [a, b, c, d]),
            _ => return Some(Fault::Length(value.len() as u16)),
        };
        if asn == 0 {
            return Some(Fault::AsZero);
        }
        self.aggregator_is_trans = asn == u32::from(AS_TRANS);
        self.update.aggregator = Some(Aggregator { asn, address: address.into() });
        None
    }

    fn as4_path(&mut self, value: &'a [u8]) -> Option<Fault> {
        if self.codec.four_octet_as {
            return Some(Fault::FromFourOctetSpeaker);
        }
        match as_path::check::<4>(value) {
            Ok(_) => {
                self.update.as4_path = Some(value);
                None
            }
            Err(error) => Some(Fault::AsPath(error)),
        }
    }

    fn as4_aggregator(&mut self, value: &[u8]) -> Option<Fault> {
        if self.codec.four_octet_as {
            return Some(Fault::FromFourOctetSpeaker);
        }
        let (asn, address) = value.split_first_chunk::<4>().map(|(asn, rest)| (*asn, number(rest)))?;
        if asn == [0; 4] {
            return Some(Fault::AsZero);
        }
        self.as4_aggregator = Some(Aggregator { asn: u32::from_be_bytes(asn), address: address.into() });
        None
    }

    fn mp_reach(&mut self, value: &'a [u8], whole: &'a [u8]) -> Result<(), Notification> {
        let reset = || AttributeProblem { code: a::MP_REACH_NLRI, fault: Fault::NextHop }.notification(whole);
        let Some((&[high, low, safi, length], rest)) = value.split_first_chunk::<4>() else {
            return Err(reset());
        };
        let Some((next_hop, rest)) = rest.split_at_checked(usize::from(length)) else { return Err(reset()) };
        // A byte that once counted attachments of the network and is ignored.
        let Some((_, prefixes)) = rest.split_first() else { return Err(reset()) };
        let family = AfiSafi { afi: u16::from_be_bytes([high, low]), safi };
        let Some(family) = family.kept() else {
            self.update.foreign_reach = Some(family);
            return Ok(());
        };
        // RFC 7606 7.11: behind a next hop of the wrong length nothing is where it should be.
        let v6_allowed = family == Family::Ipv6 || self.codec.extended_next_hop;
        let next_hop = match NextHop::from_bytes(next_hop) {
            Some(next_hop @ NextHop::V4(_)) if family == Family::Ipv4 => next_hop,
            Some(next_hop @ NextHop::V6 { .. }) if v6_allowed => next_hop,
            _ => return Err(reset()),
        };
        let Some(routes) = self.prefixes(family, prefixes) else { return Err(reset()) };
        self.update.mp_reach = Some(MpReach { next_hop, routes });
        let possible = match next_hop {
            NextHop::V4(address) => may_be_next_hop(address),
            NextHop::V6 { global, .. } => may_be_next_hop_v6(global),
        };
        if !possible {
            self.withdraw(AttributeProblem { code: a::MP_REACH_NLRI, fault: Fault::NextHop }, whole);
        }
        Ok(())
    }

    fn mp_unreach(&mut self, value: &'a [u8], whole: &'a [u8]) -> Result<(), Notification> {
        let reset = || Notification::with_data(error::UPDATE, update_error::OPTIONAL_ATTRIBUTE, whole);
        let Some((&[high, low, safi], prefixes)) = value.split_first_chunk::<3>() else {
            return Err(reset());
        };
        let family = AfiSafi { afi: u16::from_be_bytes([high, low]), safi };
        let Some(family) = family.kept() else {
            self.update.foreign_unreach = Some(family);
            return Ok(());
        };
        let Some(routes) = self.prefixes(family, prefixes) else { return Err(reset()) };
        self.update.mp_unreach = Some(routes);
        Ok(())
    }

    #[inline]
    fn prefixes(&self, family: Family, bytes: &'a [u8]) -> Option<MpNlri<'a>> {
        let path_ids = self.codec.add_path_receive[family.index()];
        match family {
            Family::Ipv4 => Nlri::parse(bytes, path_ids).ok().map(MpNlri::Ipv4),
            Family::Ipv6 => Nlri::parse(bytes, path_ids).ok().map(MpNlri::Ipv6),
        }
    }

    /// RFC 7606 3 g.
    #[cold]
    fn repeated(&mut self, code: u8) -> Result<(), Notification> {
        if matches!(code, a::MP_REACH_NLRI | a::MP_UNREACH_NLRI) {
            return Err(Notification::new(error::UPDATE, update_error::MALFORMED_ATTRIBUTE_LIST));
        }
        self.update.discards.push(AttributeProblem { code, fault: Fault::Duplicate });
        Ok(())
    }

    #[cold]
    fn unrecognized(&mut self, attribute: Attribute<'a>) -> Result<(), Notification> {
        if attribute.flags & a::FLAG_OPTIONAL == 0 {
            // Not revised by RFC 7606: RFC 4271 6.3.
            let subcode = update_error::UNRECOGNIZED_WELL_KNOWN;
            return Err(Notification::with_data(error::UPDATE, subcode, attribute.whole));
        }
        if self.peer.discard.contains(attribute.code) {
            self.discard(attribute.code, Fault::Unwanted);
        }
        Ok(())
    }

    /// RFC 7606 3 c, and 5.3 for attributes that carry prefixes.
    #[cold]
    fn wrong_flags(&mut self, rule: &AttributeRule, attribute: Attribute<'a>) -> Result<(), Notification> {
        let problem = AttributeProblem { code: attribute.code, fault: Fault::Flags(attribute.flags) };
        if rule.malformed == Severity::SessionReset {
            return Err(problem.notification(attribute.whole));
        }
        self.withdraw(problem, attribute.whole);
        Ok(())
    }

    #[cold]
    fn malformed(&mut self, rule: &AttributeRule, fault: Fault, whole: &'a [u8]) -> Result<(), Notification> {
        let problem = AttributeProblem { code: rule.code, fault };
        match rule.malformed {
            Severity::Discard => self.discard(rule.code, fault),
            Severity::TreatAsWithdraw => self.withdraw(problem, whole),
            Severity::SessionReset => return Err(problem.notification(whole)),
        }
        Ok(())
    }

    #[cold]
    fn discard(&mut self, code: u8, fault: Fault) {
        self.update.left_out.insert(code);
        self.update.discards.push(AttributeProblem { code, fault });
    }

    /// The first problem is the one that is told.
    #[cold]
    fn withdraw(&mut self, problem: AttributeProblem, whole: &'a [u8]) {
        if self.update.verdict == Verdict::Good {
            self.update.verdict = Verdict::TreatAsWithdraw(problem);
            self.culprit = whole;
        }
    }

    /// What can be said only once all attributes were seen.
    #[inline]
    fn finish(mut self) -> Result<Update<'a>, Notification> {
        let announces = self.update.announces();
        if announces {
            for (code, needed) in
                [(a::ORIGIN, true), (a::AS_PATH, true), (a::NEXT_HOP, !self.update.reach_v4.is_empty())]
            {
                if needed && !self.seen.contains(code) {
                    self.withdraw(AttributeProblem { code, fault: Fault::Missing }, &[]);
                }
            }
        }
        if let Verdict::TreatAsWithdraw(problem) = self.update.verdict
            && !announces
            && self.update.foreign_reach.is_none()
        {
            // RFC 7606 5.2: with nothing to withdraw, it is not known what went wrong.
            return Err(problem.notification(self.culprit));
        }
        if self.as4_aggregator.is_some() {
            self.choose_aggregator();
        }
        Ok(self.update)
    }

    /// RFC 6793 4.2.3: an AGGREGATOR that is not AS_TRANS says that what has four bytes is out of date.
    #[cold]
    fn choose_aggregator(&mut self) {
        if self.update.aggregator.is_none() {
            return;
        }
        if self.aggregator_is_trans {
            self.update.aggregator = self.as4_aggregator;
        } else {
            self.update.as4_path = None;
        }
    }
}

/// The first four bytes as a number; the length was checked.
#[inline]
fn number(value: &[u8]) -> u32 {
    value.first_chunk::<4>().map_or(0, |four| u32::from_be_bytes(*four))
}

/// Whether it can be the address of a host (RFC 4271 6.3).
#[inline]
fn may_be_next_hop(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast()
}

#[inline]
fn may_be_next_hop_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}
