//! Counter samples: the generic counters of an interface (`if_counters`).
//!
//! The specification has 0 for a number that is not known, and the highest value for a counter. A counter that is known
//! has this value too, for a moment, before it begins again.

use super::Xdr;
use super::put::{put, put_opaque};

const FULL_DUPLEX: u32 = 1;
const HALF_DUPLEX: u32 = 2;
/// Bits of `ifStatus`.
const ENABLED: u32 = 1;
const UP: u32 = 2;
/// The values of a truth in SNMP.
const TRUE: u32 = 1;
const FALSE: u32 = 2;

/// A counter sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSample {
    /// Number of the interface.
    pub source: u32,
    /// Of this source's counter samples.
    pub sequence: u32,
    /// `None` if the sample has only counters of other kinds.
    pub interface: Option<InterfaceCounters>,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its number.
    pub interface: u32,
    /// Its `ifType` at IANA: [`Self::ETHERNET`] and others.
    pub kind: u32,
    /// 0 if unknown.
    pub bits_per_s: u64,
    pub is_full_duplex: Option<bool>,
    /// Somebody wants it up.
    pub is_enabled: bool,
    /// It can send.
    pub is_up: bool,
    pub received: DirectionCounters,
    pub unknown_protocols: Option<u32>,
    pub sent: DirectionCounters,
    pub is_promiscuous: Option<bool>,
}

impl InterfaceCounters {
    pub const OTHER: u32 = 1;
    pub const ETHERNET: u32 = 6;
    pub const PPP: u32 = 23;
    pub const LOOPBACK: u32 = 24;
    pub const TUNNEL: u32 = 131;

    /// The lower half of a count: that is what the record has room for.
    pub fn low(count: u64) -> u32 {
        u32::try_from(count & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    pub bytes: Option<u64>,
    /// All packets but those of the two kinds below, as far as these are known.
    pub unicast: Option<u32>,
    pub multicast: Option<u32>,
    pub broadcast: Option<u32>,
    pub discarded: Option<u32>,
    pub errors: Option<u32>,
}

/// Reads a counter sample; `None` if it is short.
pub(super) fn read(mut xdr: Xdr<'_>, is_expanded: bool) -> Option<CounterSample> {
    let sequence = xdr.u32()?;
    let source = match is_expanded {
        true => (xdr.u32()?, xdr.u32()?).1,
        // The class of the source is in front of its number.
        false => xdr.u32()? & 0x00ff_ffff,
    };
    let mut interface = None;
    for _ in 0..xdr.u32()? {
        let (kind, body) = (xdr.u32()?, Xdr(xdr.opaque()?));
        if kind == 1 {
            interface = Some(interface_counters(body)?);
        }
    }
    Some(CounterSample { source, sequence, interface })
}

fn interface_counters(mut xdr: Xdr<'_>) -> Option<InterfaceCounters> {
    let (interface, kind, bits_per_s) = (xdr.u32()?, xdr.u32()?, xdr.u64()?);
    let (duplex, status) = (xdr.u32()?, xdr.u32()?);
    let received = direction(&mut xdr)?;
    let unknown_protocols = known(xdr.u32()?);
    let sent = direction(&mut xdr)?;
    Some(InterfaceCounters {
        interface,
        kind,
        bits_per_s,
        is_full_duplex: one_of(duplex, FULL_DUPLEX, HALF_DUPLEX),
        is_enabled: status & ENABLED != 0,
        is_up: status & UP != 0,
        received,
        unknown_protocols,
        sent,
        is_promiscuous: one_of(xdr.u32()?, TRUE, FALSE),
    })
}

fn direction(xdr: &mut Xdr<'_>) -> Option<DirectionCounters> {
    Some(DirectionCounters {
        bytes: Some(xdr.u64()?).filter(|bytes| *bytes != u64::MAX),
        unicast: known(xdr.u32()?),
        multicast: known(xdr.u32()?),
        broadcast: known(xdr.u32()?),
        discarded: known(xdr.u32()?),
        errors: known(xdr.u32()?),
    })
}

fn known(counter: u32) -> Option<u32> {
    Some(counter).filter(|counter| *counter != u32::MAX)
}

fn one_of(word: u32, yes: u32, no: u32) -> Option<bool> {
    (word == yes || word == no).then_some(word == yes)
}

/// Writes the body of an expanded counter sample.
pub(super) fn write(to: &mut Vec<u8>, sample: &CounterSample) {
    put(to, &[sample.sequence, 0, sample.source, sample.interface.is_some().into()]);
    if let Some(counters) = &sample.interface {
        put_opaque(to, 1, |to| put_interface(to, counters));
    }
}

fn put_interface(to: &mut Vec<u8>, counters: &InterfaceCounters) {
    put(to, &[counters.interface, counters.kind]);
    to.extend(counters.bits_per_s.to_be_bytes());
    let status = [(counters.is_enabled, ENABLED), (counters.is_up, UP)];
    let status = status.into_iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
    put(to, &[word_of(counters.is_full_duplex, FULL_DUPLEX, HALF_DUPLEX), status]);
    put_direction(to, &counters.received);
    put(to, &[counter_of(counters.unknown_protocols)]);
    put_direction(to, &counters.sent);
    put(to, &[word_of(counters.is_promiscuous, TRUE, FALSE)]);
}

fn put_direction(to: &mut Vec<u8>, counters: &DirectionCounters) {
    let DirectionCounters { bytes, unicast, multicast, broadcast, discarded, errors } = *counters;
    to.extend(bytes.unwrap_or(u64::MAX).to_be_bytes());
    put(to, &[unicast, multicast, broadcast, discarded, errors].map(counter_of));
}

fn counter_of(counter: Option<u32>) -> u32 {
    counter.unwrap_or(u32::MAX)
}

fn word_of(truth: Option<bool>, yes: u32, no: u32) -> u32 {
    truth.map_or(0, |is| if is { yes } else { no })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sflow::{Sample, SflowFault, Writer, read};
    use proptest::prelude::*;

    /// A datagram with this sample alone.
    fn datagram(sample: &CounterSample) -> Vec<u8> {
        let mut writer = Writer::new("192.0.2.1".parse().unwrap(), 7);
        assert!(writer.push_counters(sample));
        writer.take(1000).unwrap()
    }

    fn samples(datagram: &[u8]) -> (Vec<CounterSample>, Option<SflowFault>) {
        let mut all = Vec::new();
        let (_, fault) = read(datagram, |_, sample| {
            let Sample::Counters(counters) = sample else { panic!("{sample:?}") };
            all.push(*counters);
        })
        .unwrap();
        (all, fault)
    }

    #[test]
    fn words_are_those_of_the_specification() {
        let direction = |first: u32| DirectionCounters {
            bytes: Some(u64::from(first) << 32 | u64::from(first + 1)),
            unicast: Some(first + 2),
            multicast: Some(first + 3),
            broadcast: None,
            discarded: Some(first + 5),
            errors: Some(first + 6),
        };
        let counters = InterfaceCounters {
            interface: 3,
            kind: InterfaceCounters::ETHERNET,
            bits_per_s: 1 << 33,
            is_full_duplex: Some(true),
            is_enabled: true,
            is_up: true,
            received: direction(10),
            unknown_protocols: None,
            sent: direction(20),
            is_promiscuous: Some(false),
        };
        let sample = CounterSample { source: 3, sequence: 9, interface: Some(counters) };
        let words: Vec<u32> = [5, 1, 0xc000_0201, 7, 1, 1000, 1, 4, 112, 9, 0, 3, 1, 1, 88, 3, 6, 2, 0, 1, 3]
            .into_iter()
            .chain([10, 11, 12, 13, u32::MAX, 15, 16, u32::MAX, 20, 21, 22, 23, u32::MAX, 25, 26, 2])
            .collect();
        let expected: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        let bytes = datagram(&sample);
        assert_eq!(bytes, expected);
        assert_eq!(samples(&bytes), (vec![sample], None));
        for length in 28..bytes.len() {
            assert_eq!(samples(&bytes[..length]).1, Some(SflowFault::SampleShort { number: 1 }), "{length}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_zero() {
        let interface = Some(InterfaceCounters { interface: 1, ..InterfaceCounters::default() });
        let bytes = datagram(&CounterSample { source: 1, sequence: 1, interface });
        // From the first direction to the second one's end.
        assert!(bytes[84..144].iter().all(|byte| *byte == 0xff), "{bytes:?}");
        assert_eq!(samples(&bytes).0[0].interface, interface);
        assert_eq!(InterfaceCounters::low((7 << 32) + 5), 5);
    }

    #[test]
    fn the_compact_form_is_read() {
        let expanded = datagram(&CounterSample {
            source: 70,
            sequence: 4,
            interface: Some(InterfaceCounters { interface: 70, is_up: true, ..InterfaceCounters::default() }),
        });
        // Without the word of the class.
        let mut compact = [&expanded[..40], &expanded[44..]].concat();
        (compact[31], compact[35]) = (2, 108);
        assert_eq!(samples(&compact), samples(&expanded));
    }

    fn counter() -> impl Strategy<Value = Option<u32>> {
        prop::option::of(0..u32::MAX)
    }

    fn direction() -> impl Strategy<Value = DirectionCounters> {
        (prop::option::of(0..u64::MAX), [counter(), counter(), counter(), counter(), counter()]).prop_map(
            |(bytes, [unicast, multicast, broadcast, discarded, errors])| DirectionCounters {
                bytes,
                unicast,
                multicast,
                broadcast,
                discarded,
                errors,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            numbers in any::<([u32; 4], u64)>(),
            truths in any::<(Option<bool>, bool, bool, Option<bool>)>(),
            (received, unknown_protocols, sent) in (direction(), counter(), direction()),
        ) {
            let ([source, sequence, interface, kind], bits_per_s) = numbers;
            let (is_full_duplex, is_enabled, is_up, is_promiscuous) = truths;
            let interface = Some(InterfaceCounters {
                interface, kind, bits_per_s, is_full_duplex, is_enabled, is_up, received, unknown_protocols, sent,
                is_promiscuous,
            });
            let sample = CounterSample { source, sequence, interface };
            prop_assert_eq!(samples(&datagram(&sample)), (vec![sample], None));
        }
    }
}
