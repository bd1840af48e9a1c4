//! Options data: what collectors need to know besides flows.
//!
//! | what | IPFIX | NetFlow 9 |
//! |---|---|---|
//! | samplers | `selectorId` -> `selectorAlgorithm`, interval and space (RFC 5477, 6.5.2), probability | `samplerId`, mode, interval |
//! | interfaces | `ingressInterface` -> name, description | the same of fixed length |
//! | applications | `exportingProcessId` -> `applicationId`, `applicationName` (RFC 6759) | the same |
//! | exporting | messages, flow records, bytes (RFC 7011, 4.1) | the same |
//! | metering reliability | ignored packets and bytes (RFC 7011, 4.2) | |
//! | exporting reliability | records, packets, bytes not sent (RFC 7011, 4.3) | |
//! | totals | the conservation law, a record for each of its terms | |
//!
//! The totals' records: scope `meteringProcessId` 1 and `selectorName` ("seen", "exported", "cached" or the
//! name of a drop reason), then `packetTotalCount` and `octetTotalCount`. The registry has no element for a
//! drop reason. A selector selects packets, and so does each term of the law.

use super::options::{ExportOptions, SamplingMethod, Version};
use super::shape::{TemplateField, field};
use super::{ExportTotals, Statistics};
use thalweg_wire::application::APPLICATIONS;
use thalweg_wire::netflow::element::*;

/// Elements that only options data uses.
const OCTET_TOTAL_COUNT: u16 = 85;
const PACKET_TOTAL_COUNT: u16 = 86;
const SELECTOR_NAME: u16 = 335;

/// The length that marks a field of variable length.
const VARIABLE: u16 = u16::MAX;
/// Bytes of names of fixed length: in NetFlow 9, which has no others, and in IPFIX for collectors that expect
/// options data of fixed length (nfdump 1.7, pmacct 1.7.7). `TEXT_BYTES_MAX` limits text of variable length.
const NAME_BYTES: usize = 32;
const DESCRIPTION_BYTES: usize = 64;
const TEXT_BYTES_MAX: usize = 200;

/// There is only one exporting process.
const EXPORTING_PROCESS: u32 = 1;

/// Scopes of NetFlow 9 (RFC 3954, 6.1).
const SCOPE_SYSTEM: u16 = 1;
const SCOPE_INTERFACE: u16 = 2;

/// A kind of options data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Samplers,
    Interfaces,
    Applications,
    Exporting,
    MeteringReliability,
    ExportingReliability,
    Totals,
}

/// The data that options data is made from.
pub(super) struct Told<'a> {
    pub(super) options: &'a ExportOptions,
    pub(super) samplers: &'a [u32],
    pub(super) statistics: &'a Statistics,
    pub(super) totals: &'a ExportTotals,
}

impl Context {
    /// Sent on the statistics timer.
    pub(super) const STATISTICS: [Self; 4] =
        [Self::Exporting, Self::MeteringReliability, Self::ExportingReliability, Self::Totals];

    pub(super) fn template_id(self) -> u16 {
        256 + self as u16
    }

    pub(super) fn bit(self) -> u16 {
        1 << self as u16
    }

    /// The scope fields and the other fields in IPFIX, with names of variable or fixed length.
    fn ipfix_fields(self, variable: bool) -> (Vec<TemplateField>, Vec<TemplateField>) {
        let text =
            |element: u16, bytes: usize| field(element, if variable { VARIABLE } else { bytes as u16 });
        match self {
            Self::Samplers => (
                vec![field(SELECTOR_ID, 1)],
                vec![
                    field(SELECTOR_ALGORITHM, 2),
                    field(SAMPLING_PACKET_INTERVAL, 4),
                    field(SAMPLING_PACKET_SPACE, 4),
                    field(SAMPLING_PROBABILITY, 8),
                ],
            ),
            Self::Interfaces => (
                vec![field(INGRESS_INTERFACE, 4)],
                vec![text(INTERFACE_NAME, NAME_BYTES), text(INTERFACE_DESCRIPTION, DESCRIPTION_BYTES)],
            ),
            Self::Applications => (
                vec![field(EXPORTING_PROCESS_ID, 4)],
                vec![field(APPLICATION_ID, 4), text(APPLICATION_NAME, NAME_BYTES)],
            ),
            Self::Exporting => (vec![field(OBSERVATION_DOMAIN_ID, 4)], counts(EXPORTED)),
            Self::MeteringReliability => (vec![field(METERING_PROCESS_ID, 4)], counts(IGNORED)),
            Self::ExportingReliability => (vec![field(EXPORTING_PROCESS_ID, 4)], counts(NOT_SENT)),
            Self::Totals => {
                (vec![field(METERING_PROCESS_ID, 4), text(SELECTOR_NAME, NAME_BYTES)], counts(SEEN))
            }
        }
    }

    /// The scope and the other fields in NetFlow 9; empty if NetFlow 9 does not have them.
    fn netflow9_fields(self) -> ((u16, u16), Vec<TemplateField>) {
        let name = |element| field(element, NAME_BYTES as u16);
        match self {
            Self::Samplers => (
                (SCOPE_SYSTEM, 4),
                vec![field(SAMPLER_ID, 1), field(SAMPLER_MODE, 1), field(SAMPLER_RANDOM_INTERVAL, 4)],
            ),
            Self::Interfaces => (
                (SCOPE_INTERFACE, 4),
                vec![name(INTERFACE_NAME), field(INTERFACE_DESCRIPTION, DESCRIPTION_BYTES as u16)],
            ),
            Self::Applications => ((SCOPE_SYSTEM, 4), vec![field(APPLICATION_ID, 4), name(APPLICATION_NAME)]),
            Self::Exporting => ((SCOPE_SYSTEM, 4), counts(EXPORTED)),
            Self::MeteringReliability | Self::ExportingReliability | Self::Totals => {
                ((SCOPE_SYSTEM, 4), Vec::new())
            }
        }
    }

    /// An options template record (RFC 7011, 3.4.2.2).
    pub(super) fn ipfix_template(self, variable: bool) -> Vec<u8> {
        let (scope, others) = self.ipfix_fields(variable);
        let count = (scope.len() + others.len()) as u16;
        words16(
            [self.template_id(), count, scope.len() as u16]
                .into_iter()
                .chain(pairs(&scope))
                .chain(pairs(&others)),
        )
    }

    /// An options template record (RFC 3954, 6.1).
    pub(super) fn netflow9_template(self) -> Vec<u8> {
        let ((scope, bytes), others) = self.netflow9_fields();
        let head = [self.template_id(), 4, 4 * others.len() as u16, scope, bytes];
        words16(head.into_iter().chain(pairs(&others)))
    }

    /// The current data records.
    pub(super) fn records(self, told: &Told<'_>) -> Vec<Vec<u8>> {
        let ipfix = told.options.version == Version::Ipfix;
        let variable = ipfix && told.options.variable_names;
        match self {
            Self::Samplers => samplers(told, ipfix),
            Self::Interfaces => interfaces(told, variable),
            Self::Applications if told.options.application_names => applications(told, ipfix, variable),
            Self::Applications => Vec::new(),
            Self::Exporting => vec![exporting(told)],
            Self::MeteringReliability | Self::ExportingReliability | Self::Totals if !ipfix => Vec::new(),
            Self::MeteringReliability => {
                let dropped = told.statistics.dropped.iter().fold([0, 0], |[packets, bytes], (_, amount)| {
                    [packets + amount.packets, bytes + amount.bytes]
                });
                vec![numbers(1, &dropped)]
            }
            Self::ExportingReliability => {
                let not_sent = &told.statistics.not_sent;
                vec![numbers(1, &[not_sent.records, not_sent.packets, not_sent.bytes])]
            }
            Self::Totals => totals(told.statistics, variable),
        }
    }
}

const EXPORTED: &[u16] =
    &[EXPORTED_MESSAGE_TOTAL_COUNT, EXPORTED_FLOW_RECORD_TOTAL_COUNT, EXPORTED_OCTET_TOTAL_COUNT];
const IGNORED: &[u16] = &[IGNORED_PACKET_TOTAL_COUNT, IGNORED_OCTET_TOTAL_COUNT];
const NOT_SENT: &[u16] =
    &[NOT_SENT_FLOW_TOTAL_COUNT, NOT_SENT_PACKET_TOTAL_COUNT, NOT_SENT_OCTET_TOTAL_COUNT];
const SEEN: &[u16] = &[PACKET_TOTAL_COUNT, OCTET_TOTAL_COUNT];

/// Totals of eight bytes.
fn counts(elements: &[u16]) -> Vec<TemplateField> {
    elements.iter().map(|&element| field(element, 8)).collect()
}

fn pairs(fields: &[TemplateField]) -> impl Iterator<Item = u16> + '_ {
    fields.iter().flat_map(|field| [field.element, field.bytes])
}

fn words16(words: impl Iterator<Item = u16>) -> Vec<u8> {
    words.flat_map(u16::to_be_bytes).collect()
}

/// A four-byte number, then eight-byte numbers.
fn numbers(scope: u32, values: &[u64]) -> Vec<u8> {
    let mut record = scope.to_be_bytes().to_vec();
    record.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    record
}

fn samplers(told: &Told<'_>, ipfix: bool) -> Vec<Vec<u8>> {
    // RFC 5477: 1 is systematic count-based, 3 uniform probabilistic; NetFlow 9: 1 is deterministic, 2 random.
    let (algorithm, mode) = match told.options.sampling {
        SamplingMethod::Systematic => (1u16, 1u8),
        SamplingMethod::Random => (3, 2),
    };
    let record = |(place, &interval): (usize, &u32)| {
        let (id, interval) = (place as u8 + 1, interval.max(1));
        let mut record = Vec::with_capacity(24);
        if ipfix {
            record.push(id);
            record.extend_from_slice(&algorithm.to_be_bytes());
            // One packet is taken, the rest of the interval skipped. Collectors that do not know
            // probabilities read these.
            record.extend_from_slice(&1u32.to_be_bytes());
            record.extend_from_slice(&(interval - 1).to_be_bytes());
            record.extend_from_slice(&(1.0 / f64::from(interval)).to_be_bytes());
        } else {
            record.extend_from_slice(&told.options.observation_domain.to_be_bytes());
            record.extend_from_slice(&[id, mode]);
            record.extend_from_slice(&interval.to_be_bytes());
        }
        record
    };
    told.samplers.iter().enumerate().map(record).collect()
}

fn interfaces(told: &Told<'_>, variable: bool) -> Vec<Vec<u8>> {
    let record = |named: &super::Interface| {
        let mut record = named.number.to_be_bytes().to_vec();
        put_text(&mut record, &named.name, NAME_BYTES, variable);
        put_text(&mut record, &named.description, DESCRIPTION_BYTES, variable);
        record
    };
    told.options.interfaces.iter().map(record).collect()
}

fn applications(told: &Told<'_>, ipfix: bool, variable: bool) -> Vec<Vec<u8>> {
    let scope = if ipfix { EXPORTING_PROCESS } else { told.options.observation_domain };
    let record = |application: &thalweg_wire::application::Application| {
        let mut record = scope.to_be_bytes().to_vec();
        record.extend_from_slice(&super::shape::application_id(application.code));
        put_text(&mut record, application.name, NAME_BYTES, variable);
        record
    };
    APPLICATIONS.iter().map(record).collect()
}

/// RFC 7011, 4.1. The message that carries this is not counted yet.
fn exporting(told: &Told<'_>) -> Vec<u8> {
    let totals = told.totals;
    numbers(
        told.options.observation_domain,
        &[totals.messages, totals.exported.records, totals.message_bytes],
    )
}

fn totals(statistics: &Statistics, variable: bool) -> Vec<Vec<u8>> {
    let terms = [("seen", statistics.seen), ("exported", statistics.exported), ("cached", statistics.cached)];
    let record = |(name, amount): (&str, super::Amount)| {
        let mut record = 1u32.to_be_bytes().to_vec();
        put_text(&mut record, name, NAME_BYTES, variable);
        record.extend_from_slice(&amount.packets.to_be_bytes());
        record.extend_from_slice(&amount.bytes.to_be_bytes());
        record
    };
    terms.into_iter().chain(statistics.dropped.iter().copied()).map(record).collect()
}

/// Text with its length before it, or cut and zero-padded to a fixed length.
fn put_text(record: &mut Vec<u8>, text: &str, fixed_bytes: usize, variable: bool) {
    let text = &text[..text.floor_char_boundary(if variable { TEXT_BYTES_MAX } else { fixed_bytes })];
    if variable {
        // Lengths below 255 take one byte (RFC 7011, 7).
        record.push(text.len() as u8);
    }
    record.extend_from_slice(text.as_bytes());
    if !variable {
        record.resize(record.len() + fixed_bytes - text.len(), 0);
    }
}
