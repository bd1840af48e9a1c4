//! sFlow 5 datagrams, written.
//!
//! Samples are always in the expanded form: an agent must not mix the forms, and interface numbers of 2^24 and more
//! fit only this one. A flow sample carries the raw packet header, the VLAN and the route, if it has them.
//! Missing: gateway data; VLAN priorities are those in the packet header.

use super::counters;
use super::put::{put, put_opaque};
use super::{CounterSample, FlowSample, INTERNAL, Interface, Router};
use std::net::IpAddr;

/// Below Ethernet's MTU with room for tunnels, as other agents send.
pub const DATAGRAM_BYTES_MAX: usize = 1400;

/// The frame check sequence belongs to a frame's length in sFlow, and no capture has it.
const FCS_BYTES: u32 = 4;

/// What a flow sample says of the place that took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Number of the interface (`ifIndex`).
    pub interface: u32,
    /// Of this source's samples.
    pub sequence: u32,
    /// Packets that could have been sampled.
    pub pool: u32,
    /// Samples that were lost.
    pub drops: u32,
}

/// A datagram that is being filled.
#[derive(Debug)]
pub struct Writer {
    agent: IpAddr,
    sub_agent: u32,
    /// Of the next datagram.
    sequence: u32,
    count: u32,
    /// The samples, without the datagram's header.
    samples: Vec<u8>,
}

impl Writer {
    /// An empty datagram of this agent, the first one of its sequence.
    pub fn new(agent: IpAddr, sub_agent: u32) -> Writer {
        Writer { agent, sub_agent, sequence: 1, count: 0, samples: Vec::with_capacity(DATAGRAM_BYTES_MAX) }
    }

    /// Adds a sample. `false`: it does not fit; a full datagram has to be taken first. A sample that does not fit into
    /// an empty datagram never fits: its packet's header is too long.
    #[must_use]
    pub fn push(&mut self, source: &Source, sample: &FlowSample<'_>) -> bool {
        let before = self.samples.len();
        // What is longer than a datagram is not even copied.
        let is_short = sample.header.is_none_or(|header| header.start.len() < DATAGRAM_BYTES_MAX);
        if is_short {
            put_opaque(&mut self.samples, 3, |bytes| put_sample(bytes, source, sample));
        }
        is_short && self.keep(before)
    }

    /// Adds counters. `false`: they do not fit; a full datagram has to be taken first.
    #[must_use]
    pub fn push_counters(&mut self, sample: &CounterSample) -> bool {
        let before = self.samples.len();
        put_opaque(&mut self.samples, 4, |bytes| counters::write(bytes, sample));
        self.keep(before)
    }

    /// Counts the sample behind `before`, or removes it if it does not fit.
    fn keep(&mut self, before: usize) -> bool {
        let fits = self.header_bytes() + self.samples.len() <= DATAGRAM_BYTES_MAX;
        match fits {
            true => self.count += 1,
            false => self.samples.truncate(before),
        }
        fits
    }

    /// The datagram, if it has samples; the next one is empty.
    pub fn take(&mut self, uptime_ms: u32) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.header_bytes() + self.samples.len());
        put(&mut bytes, &[5]);
        put_address(&mut bytes, self.agent);
        put(&mut bytes, &[self.sub_agent, self.sequence, uptime_ms, self.count]);
        bytes.append(&mut self.samples);
        self.sequence = self.sequence.wrapping_add(1);
        self.count = 0;
        Some(bytes)
    }

    fn header_bytes(&self) -> usize {
        if self.agent.is_ipv4() { 28 } else { 40 }
    }
}

fn put_address(bytes: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => put(bytes, &[1, v4.to_bits()]),
        IpAddr::V6(v6) => {
            put(bytes, &[2]);
            bytes.extend(v6.octets());
        }
    }
}

fn put_sample(bytes: &mut Vec<u8>, source: &Source, sample: &FlowSample<'_>) {
    put(bytes, &[source.sequence, 0, source.interface]);
    put(bytes, &[sample.rate, source.pool, source.drops]);
    for place in [sample.input, sample.output] {
        put(
            bytes,
            &match place {
                Interface::Unknown => [0, 0],
                Interface::Number(number) => [0, number],
                Interface::Itself => [0, INTERNAL],
                Interface::Dropped(reason) => [1, reason],
                Interface::Several(count) => [2, count],
            },
        );
    }
    let vlans = [sample.vlan, sample.vlan_out];
    let has_vlans = vlans != [None, None];
    let records = [sample.header.is_some(), has_vlans, sample.router.is_some()];
    put(bytes, &[records.into_iter().map(u32::from).sum()]);
    if let Some(header) = sample.header {
        put_opaque(bytes, 1, |bytes| {
            let stripped = if header.protocol == 1 { FCS_BYTES } else { 0 };
            let length = u32::try_from(header.start.len()).unwrap_or(u32::MAX);
            put(bytes, &[header.protocol, header.bytes.saturating_add(stripped), stripped, length]);
            bytes.extend(header.start);
            bytes.resize(bytes.len() + header.start.len().wrapping_neg() % 4, 0);
        });
    }
    if has_vlans {
        let [from, to] = vlans.map(Option::unwrap_or_default);
        put_opaque(bytes, 1001, |bytes| put(bytes, &[from, 0, to, 0]));
    }
    if let Some(Router { next_hop, src_prefix_length, dst_prefix_length }) = sample.router {
        put_opaque(bytes, 1002, |bytes| {
            put_address(bytes, next_hop);
            put(bytes, &[src_prefix_length, dst_prefix_length]);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sflow::{Header, Sample, read};

    const SOURCE: Source = Source { interface: 3, sequence: 9, pool: 9000, drops: 2 };

    fn sample(start: &[u8]) -> FlowSample<'_> {
        FlowSample {
            rate: 1000,
            input: Interface::Number(70_000_000),
            output: Interface::Several(3),
            header: Some(Header { protocol: 1, bytes: 1514, start }),
            vlan: Some(7),
            vlan_out: Some(8),
            router: Some(Router {
                next_hop: "2001:db8::1".parse().unwrap(),
                src_prefix_length: 32,
                dst_prefix_length: 48,
            }),
            ..FlowSample::default()
        }
    }

    #[test]
    fn the_reader_reads_what_is_written() {
        for agent in ["192.0.2.1", "2001:db8::2"] {
            let frame: Vec<u8> = (0..=255).collect();
            let mut writer = Writer::new(agent.parse().unwrap(), 7);
            assert_eq!(writer.take(0), None);
            for sequence in 1..3 {
                for length in [0, 1, 2, 3, 4, 128] {
                    assert!(writer.push(&SOURCE, &sample(&frame[..length])));
                }
                let bytes = writer.take(1000).unwrap();
                let mut lengths = vec![128, 4, 3, 2, 1, 0];
                let (header, fault) = read(&bytes, |_, read| {
                    assert_eq!(*read, Sample::Flow(sample(&frame[..lengths.pop().unwrap()])));
                })
                .unwrap();
                assert_eq!((header.agent.to_string().as_str(), header.sub_agent, fault), (agent, 7, None));
                assert_eq!((header.sequence, header.samples, lengths.len()), (sequence, 6, 0));
            }
        }
    }

    #[test]
    fn a_sample_has_the_words_of_the_specification() {
        let mut writer = Writer::new("192.0.2.1".parse().unwrap(), 7);
        let header = Some(Header { protocol: 1, bytes: 60, start: &[0xaa; 5] });
        let dropped =
            FlowSample { rate: 512, output: Interface::Dropped(258), header, ..FlowSample::default() };
        assert!(writer.push(&SOURCE, &dropped));
        let words: Vec<u32> =
            [5, 1, 0xc000_0201, 7, 1, 1000, 1, 3, 76, 9, 0, 3, 512, 9000, 2, 0, 0, 1, 258, 1]
                .into_iter()
                .chain([1, 24, 1, 64, 4, 5, 0xaaaa_aaaa, 0xaa00_0000])
                .collect();
        let expected: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
        assert_eq!(writer.take(1000).unwrap(), expected);
    }

    #[test]
    fn no_datagram_is_longer_than_its_bound() {
        let mut chance = thalweg_base::XorShift64Star::new(5);
        let frame = [0; 2 * DATAGRAM_BYTES_MAX];
        let mut writer = Writer::new("2001:db8::2".parse().unwrap(), 0);
        let (mut pushed, mut read_back) = (0, 0);
        for _ in 0..5_000 {
            let sample = sample(&frame[..chance.below(frame.len() as u32) as usize]);
            if writer.push(&SOURCE, &sample) {
                pushed += 1;
                continue;
            }
            if let Some(bytes) = writer.take(0) {
                assert!(bytes.len() <= DATAGRAM_BYTES_MAX);
                assert_eq!(read(&bytes, |_, _| read_back += 1).unwrap().1, None);
            }
        }
        if let Some(bytes) = writer.take(0) {
            read(&bytes, |_, _| read_back += 1).unwrap();
        }
        assert!(pushed > 1000, "{pushed}");
        assert_eq!(pushed, read_back);
    }
}
