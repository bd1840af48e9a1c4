//! The far end of a port's veth without a host: the test sends and sees any frame.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{LiveClock, LiveSource, NotTaken, PortTx, SourceOptions};
use thalweg_wire::MacAddr;

use crate::site::Site;

/// Longer than any frame takes.
const TIMEOUT: Duration = Duration::from_secs(20);
/// No frame arrives this long after the last one.
const SILENCE: Duration = Duration::from_millis(400);

/// An interface at the end of a veth.
pub(crate) struct Wire {
    source: LiveSource,
    tx: Box<dyn PortTx>,
}

impl Wire {
    /// The interface of a namespace. Sees frames to `mac` and to groups; the system sees none.
    pub(crate) fn open(site: &Site, namespace: &str, interface: &str, mac: MacAddr) -> Self {
        Self::with(site, namespace, PacketOptions { mac: Some(mac), ..PacketOptions::new(interface) })
    }

    /// Same as `open`, beside the interface's system, which sees everything too.
    pub(crate) fn beside(site: &Site, namespace: &str, interface: &str, mac: MacAddr) -> Self {
        let options = PacketOptions { mac: Some(mac), exclusive: false, ..PacketOptions::new(interface) };
        Self::with(site, namespace, options)
    }

    fn with(site: &Site, namespace: &str, options: PacketOptions) -> Self {
        let port = site.within(namespace, || packet::open(&options).expect("the interface is there"));
        let halves = port.rx.into_iter().map(|half| (0, half)).collect();
        let options = SourceOptions { frame_bytes_max: 9022, ..SourceOptions::default() };
        let source = LiveSource::new(halves, options, LiveClock::start()).expect("descriptors are left");
        Self { source, tx: port.tx }
    }

    /// Sends frames in order, without those that no interface accepts (too long, too short). Returns how many
    /// were sent.
    pub(crate) fn send<'f>(&mut self, frames: impl IntoIterator<Item = &'f [u8]>) -> usize {
        let before = self.tx.counters();
        for frame in frames {
            let began = Instant::now();
            while self.tx.push(frame) == Err(NotTaken::Full) {
                assert!(began.elapsed() < TIMEOUT, "the interface takes no more");
                let _ = self.tx.flush();
            }
        }
        let began = Instant::now();
        while self.tx.flush().is_ok() && self.tx.pending() > 0 {
            assert!(began.elapsed() < TIMEOUT, "frames are stuck");
        }
        (self.tx.counters().frames - before.frames) as usize
    }

    /// Passes every arriving frame to `see` until stopped.
    pub(crate) fn watch(&mut self, stop: &AtomicBool, mut see: impl FnMut(&[u8])) {
        while !stop.load(Ordering::Relaxed) {
            if let Some(chunk) = self.source.next_chunk(SILENCE).expect("the interface is there") {
                (0..chunk.packets().len()).for_each(|i| see(chunk.frame(i)));
            }
        }
    }

    /// Receives until `enough` frames fulfill `wanted`; returns these and any that follow shortly.
    pub(crate) fn receive(&mut self, enough: usize, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let began = Instant::now();
        let mut frames: Vec<Vec<u8>> = Vec::new();
        loop {
            let wait = if frames.len() < enough { TIMEOUT.saturating_sub(began.elapsed()) } else { SILENCE };
            let chunk = self.source.next_chunk(wait).expect("the interface is there");
            match chunk {
                Some(chunk) => {
                    let all = (0..chunk.packets().len()).map(|i| chunk.frame(i));
                    frames.extend(all.filter(|frame| wanted(frame)).map(<[u8]>::to_vec));
                }
                None => return frames,
            }
        }
    }
}

/// Whether a frame is unicast IP: not ARP, Neighbor Discovery or broadcast.
pub(crate) fn is_traffic(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        _ if frame.first().is_some_and(|byte| byte & 1 == 1) => false,
        Some([0x08, 0x00]) => true,
        Some([0x86, 0xdd]) => {
            !(frame.get(20) == Some(&58) && frame.get(54).is_some_and(|kind| (133..=137).contains(kind)))
        }
        _ => false,
    }
}
