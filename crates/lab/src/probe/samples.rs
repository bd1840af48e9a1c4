//! The laboratory's own collector of sFlow: receives what a probe samples over loopback, and counts it.

use super::collector::{Listening, datagrams, udp_socket};
use std::io;
use std::net::SocketAddr;
use thalweg_wire::sflow::{Sample, read};

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// Samples of packets.
    pub samples: u64,
    /// Datagrams that are missing by their sequence numbers.
    pub missing: u64,
    /// Datagrams that could not be read to their end.
    pub faults: u64,
}

impl Sampled {
    /// Counts a datagram; `last` is the sequence number of the one before.
    fn take(&mut self, datagram: &[u8], last: &mut u32) {
        let is_packet = |sample: &Sample<'_>| matches!(sample, Sample::Flow(_));
        match read(datagram, |_, sample| self.samples += u64::from(is_packet(sample))) {
            Ok((header, fault)) => {
                let step = header.sequence.wrapping_sub(*last);
                self.missing += u64::from(step.saturating_sub(1));
                self.faults += u64::from(fault.is_some());
                *last = header.sequence;
            }
            Err(_) => self.faults += 1,
        }
    }
}

/// A collector of sFlow that listens on loopback.
#[derive(Debug)]
pub struct SampleCollector(Listening<Sampled>);

impl SampleCollector {
    /// Listens on a free port of 127.0.0.1.
    pub fn start() -> io::Result<Self> {
        let socket = udp_socket()?;
        let listening = Listening::start(socket.local_addr()?, move |over| {
            let (mut sampled, mut last) = (Sampled::default(), 0);
            datagrams(&socket, over, |datagram| sampled.take(datagram, &mut last))?;
            Ok(sampled)
        });
        listening.map(Self)
    }

    /// The address to export to.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns what was received. Call it after the probe has ended.
    pub fn finish(self) -> io::Result<Sampled> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::sflow::{FlowSample, Source, Writer};

    #[test]
    fn samples_are_counted_and_what_is_missing_too() {
        let mut writer = Writer::new([192, 0, 2, 1].into(), 1);
        let mut datagram = |samples: usize| {
            for _ in 0..samples {
                assert!(writer.push(&Source::default(), &FlowSample::default()));
            }
            writer.take(0).unwrap()
        };
        let sent = [datagram(3), datagram(1), datagram(2)];
        let (mut sampled, mut last) = (Sampled::default(), 0);
        for bytes in [&sent[0][..], &sent[2], b"no datagram"] {
            sampled.take(bytes, &mut last);
        }
        assert_eq!(sampled, Sampled { samples: 5, missing: 1, faults: 1 });
    }
}
