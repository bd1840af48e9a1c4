//! Checks an UPDATE in one pass and decides about all of it.

use super::problem::{AttributeProblem, Discards, Fault};
use super::{CodeSet, PeerFacts, PeerSide, Update, Verdict};
use crate::bgp::attribute as a;
use crate::bgp::attributes::{AttributeRow, Draft, Severity, recognized_attribute};
use crate::bgp::notification::{Notification, error, update_error};
use crate::bgp::open::AS_TRANS;
use crate::bgp::view::{Attribute, Attributes};
use crate::bgp::{Codec, Family, Nlri, Origin};

/// Attributes that have their own fields in the view.
const SPOKEN_FOR: CodeSet =
    CodeSet::EMPTY.with(a::MP_REACH_NLRI).with(a::MP_UNREACH_NLRI).with(a::AS4_PATH).with(a::AS4_AGGREGATOR);

/// Attributes that no configuration may discard.
const INDISPENSABLE: CodeSet = CodeSet::EMPTY
    .with(a::ORIGIN)
    .with(a::AS_PATH)
    .with(a::NEXT_HOP)
    .with(a::MP_REACH_NLRI)
    .with(a::MP_UNREACH_NLRI);

struct Reader<'a, 'c> {
    draft: Draft<'a, 'c>,
    seen: CodeSet,
    /// The undecoded attribute that the verdict is about.
    culprit: &'a [u8],
}

/// Decodes the three fields of an UPDATE.
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
    let draft = Draft { update, codec, peer, as4_aggregator: None };
    let mut reader = Reader { draft, seen: CodeSet::EMPTY, culprit: &[] };
    let mut attributes = Attributes::new(field);
    for attribute in attributes.by_ref() {
        reader.attribute(attribute)?;
    }
    let rest = attributes.rest();
    if !rest.is_empty() {
        // RFC 7606 4: the start of the prefixes is known nevertheless.
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
        let Some(rule) = recognized_attribute(code) else { return self.unrecognized(attribute) };
        if (flags ^ rule.flags) & (a::FLAG_OPTIONAL | a::FLAG_TRANSITIVE) != 0 {
            return self.wrong_flags(rule, attribute);
        }
        if rule.internal_only && self.draft.peer.side == PeerSide::External {
            self.discard(code, Fault::FromOutside);
            return Ok(());
        }
        if self.draft.peer.discard.contains(code) && !INDISPENSABLE.contains(code) {
            self.discard(code, Fault::Unwanted);
            return Ok(());
        }
        if !rule.length.allows(value.len(), self.draft.codec.four_octet_as) {
            return self.malformed(rule, Fault::Length(value.len() as u16), whole);
        }
        match rule.decode().map_or(Ok(()), |decode| decode(&mut self.draft, value)) {
            Ok(()) => Ok(()),
            Err(fault) => self.malformed(rule, fault, whole),
        }
    }

    /// RFC 7606 3 g.
    #[cold]
    fn repeated(&mut self, code: u8) -> Result<(), Notification> {
        if matches!(code, a::MP_REACH_NLRI | a::MP_UNREACH_NLRI) {
            return Err(Notification::new(error::UPDATE, update_error::MALFORMED_ATTRIBUTE_LIST));
        }
        self.draft.update.discards.push(AttributeProblem { code, fault: Fault::Duplicate });
        Ok(())
    }

    #[cold]
    fn unrecognized(&mut self, attribute: Attribute<'a>) -> Result<(), Notification> {
        if attribute.flags & a::FLAG_OPTIONAL == 0 {
            // RFC 7606 does not revise this: RFC 4271 6.3.
            let subcode = update_error::UNRECOGNIZED_WELL_KNOWN;
            return Err(Notification::with_data(error::UPDATE, subcode, attribute.whole));
        }
        if self.draft.peer.discard.contains(attribute.code) {
            self.discard(attribute.code, Fault::Unwanted);
        }
        Ok(())
    }

    /// RFC 7606 3 c, and 5.3 for attributes that carry prefixes.
    #[cold]
    fn wrong_flags(&mut self, rule: &AttributeRow, attribute: Attribute<'a>) -> Result<(), Notification> {
        let problem = AttributeProblem { code: attribute.code, fault: Fault::Flags(attribute.flags) };
        if rule.malformed == Severity::SessionReset {
            return Err(problem.notification(attribute.whole));
        }
        self.withdraw(problem, attribute.whole);
        Ok(())
    }

    #[cold]
    fn malformed(&mut self, rule: &AttributeRow, fault: Fault, whole: &'a [u8]) -> Result<(), Notification> {
        let problem = AttributeProblem { code: rule.code, fault };
        // The address is no host's, but it is in the right place: the routes behind it can be read and are
        // withdrawn.
        let severity = if fault == Fault::NextHop { Severity::TreatAsWithdraw } else { rule.malformed };
        match severity {
            Severity::Discard => self.discard(rule.code, fault),
            Severity::TreatAsWithdraw => self.withdraw(problem, whole),
            Severity::SessionReset => return Err(problem.notification(whole)),
        }
        Ok(())
    }

    #[cold]
    fn discard(&mut self, code: u8, fault: Fault) {
        self.draft.update.left_out.insert(code);
        self.draft.update.discards.push(AttributeProblem { code, fault });
    }

    /// Keeps the first problem for the report.
    #[cold]
    fn withdraw(&mut self, problem: AttributeProblem, whole: &'a [u8]) {
        if self.draft.update.verdict == Verdict::Good {
            self.draft.update.verdict = Verdict::TreatAsWithdraw(problem);
            self.culprit = whole;
        }
    }

    /// The checks that need all attributes.
    #[inline]
    fn finish(mut self) -> Result<Update<'a>, Notification> {
        let announces = self.draft.update.announces();
        if announces {
            for (code, needed) in
                [(a::ORIGIN, true), (a::AS_PATH, true), (a::NEXT_HOP, !self.draft.update.reach_v4.is_empty())]
            {
                if needed && !self.seen.contains(code) {
                    self.withdraw(AttributeProblem { code, fault: Fault::Missing }, &[]);
                }
            }
        }
        if let Verdict::TreatAsWithdraw(problem) = self.draft.update.verdict
            && !announces
            && self.draft.update.foreign_reach.is_none()
        {
            // RFC 7606 5.2: without routes to withdraw, it is unclear what went wrong.
            return Err(problem.notification(self.culprit));
        }
        let Draft { mut update, as4_aggregator, .. } = self.draft;
        // RFC 6793 4.2.3: if AGGREGATOR is not AS_TRANS, the four-octet attributes are out of date.
        match (update.aggregator, as4_aggregator) {
            (Some(short), Some(_)) if short.asn == u32::from(AS_TRANS) => update.aggregator = as4_aggregator,
            (Some(_), Some(_)) => update.as4_path = None,
            _ => {}
        }
        Ok(update)
    }
}
