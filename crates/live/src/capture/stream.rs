//! Passes a capture on to its client: packets become blocks of a pcapng file.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use thalweg_base::{NO_CLASS, PacketFlags};
use thalweg_node::control::{CaptureBegun, CaptureRequest, CaptureSummary};
use thalweg_node::forwarding::ForwardingTables;
use thalweg_ports::live::{LiveClock, WallShift};
use thalweg_wire::pcapng::write::{
    Direction, LINK_ETHERNET, LINK_RAW_IP, PacketBlock, interface, packet, section_header,
};

use super::taps::Begun;
use super::{CAPTURES_MAX, CaptureError, Captured, Fate, Selection};
use crate::counters::Counters;
use crate::offload::OffloadPause;

/// How often to check whether the client has closed and whether the time is up.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long to wait for packets still in the plan when a capture ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The pcapng interface of packets that the router injects.
const ROUTER: &str = "router";

/// What receives a capture: a file or a connection.
pub trait CaptureClient {
    /// Called once, before any other method.
    fn begin(&mut self, begun: &CaptureBegun) -> io::Result<()>;

    /// Receives whole pcapng blocks.
    fn write(&mut self, blocks: &[u8]) -> io::Result<()>;

    /// Called when no packet will follow for a while.
    fn flush(&mut self) -> io::Result<()>;

    /// Returns whether to end the capture.
    fn has_enough(&mut self) -> bool;
}

/// A running capture. Dropping it ends the capture.
pub struct CaptureStream {
    point: String,
    begun: Begun,
    counters: Arc<Counters>,
    tables: Arc<ForwardingTables>,
    /// Name and description, by port.
    ports: Vec<(String, String)>,
    snaplen: u32,
    pause: Option<OffloadPause>,
    count: u64,
    until: Option<Instant>,
    captured: u64,
    block: Vec<u8>,
    /// Packets have the router's times; the file has the wall clock's.
    wall: WallShift,
}

/// What captures need to know of their router.
pub(crate) struct CapturedRouter {
    pub(crate) counters: Arc<Counters>,
    pub(crate) tables: Arc<ForwardingTables>,
    /// Name and description, by port.
    pub(crate) ports: Vec<(String, String)>,
    pub(crate) clock: LiveClock,
}

impl CaptureStream {
    /// Begins a capture; `pause` keeps flows out of the kernel meanwhile. Fails if too many captures run.
    pub(crate) fn begin(
        request: &CaptureRequest,
        selection: Selection,
        router: CapturedRouter,
        pause: Option<OffloadPause>,
    ) -> Result<Self, CaptureError> {
        let CapturedRouter { counters, tables, ports, clock } = router;
        let (point, snaplen) = (selection.point.name().to_owned(), selection.snaplen as u32);
        let begun = counters.taps.begin(selection, ports.len(), clock);
        let begun = begun.ok_or(CaptureError::TooMany(CAPTURES_MAX))?;
        tracing::info!(point, "capture started");
        Ok(Self {
            point,
            begun,
            counters,
            tables,
            ports,
            snaplen,
            pause,
            count: request.count.unwrap_or(u64::MAX),
            until: request.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into())),
            captured: 0,
            block: Vec::new(),
            wall: WallShift::default(),
        })
    }

    /// Passes packets on until the client has enough, the time has passed or the router stops. Fails if the client
    /// fails.
    pub fn run(mut self, client: &mut dyn CaptureClient) -> io::Result<CaptureSummary> {
        let names = self.pause.iter().flat_map(OffloadPause::ports);
        let names = names.filter_map(|port| self.ports.get(usize::from(port)).map(|(name, _)| name.clone()));
        let offload_paused = names.collect();
        client.begin(&CaptureBegun { point: self.point.clone(), offload_paused })?;
        client.write(&self.header())?;
        self.wall.look(LiveClock::start());
        let ended = self.pass_on(client)?;
        if ended != Ended::Count {
            self.pass_on_last(client)?;
        }
        let numbers = &self.begun.numbers;
        let summary = CaptureSummary {
            wanted: numbers.wanted.load(Ordering::Relaxed),
            captured: self.captured,
            queue_full: numbers.queue_full.load(Ordering::Relaxed),
            over_rate: numbers.over_rate.load(Ordering::Relaxed),
            ended: ended.in_words().to_owned(),
        };
        Ok(summary)
    }

    /// The file's beginning: its section and its interfaces.
    fn header(&self) -> Vec<u8> {
        let mut blocks = Vec::new();
        section_header(&mut blocks, concat!("thalweg ", env!("CARGO_PKG_VERSION")));
        for (name, description) in &self.ports {
            interface(&mut blocks, LINK_ETHERNET, self.snaplen, name, description);
        }
        let description = "packets that the router itself puts in";
        interface(&mut blocks, LINK_RAW_IP, self.snaplen, ROUTER, description);
        blocks
    }

    fn pass_on(&mut self, client: &mut dyn CaptureClient) -> io::Result<Ended> {
        let mut looked = Instant::now();
        while self.captured < self.count {
            if looked.elapsed() >= LOOK_EVERY {
                client.flush()?;
                looked = Instant::now();
                self.wall.look(LiveClock::start());
                if client.has_enough() {
                    return Ok(Ended::Client);
                }
                if self.until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(Ended::Time);
                }
            }
            let captured = match self.begun.packets.try_recv() {
                Err(TryRecvError::Empty) => {
                    client.flush()?;
                    match self.begun.packets.recv_timeout(LOOK_EVERY) {
                        Err(RecvTimeoutError::Timeout) => continue,
                        other => other.ok(),
                    }
                }
                other => other.ok(),
            };
            let Some(captured) = captured else { return Ok(Ended::Router) };
            self.write(captured, client)?;
        }
        Ok(Ended::Count)
    }

    fn pass_on_last(&mut self, client: &mut dyn CaptureClient) -> io::Result<()> {
        self.counters.taps.end(self.begun.number);
        while self.captured < self.count
            && let Ok(captured) = self.begun.packets.recv_timeout(LAST_WAIT)
        {
            self.write(captured, client)?;
        }
        Ok(())
    }

    fn write(&mut self, captured: Captured, client: &mut dyn CaptureClient) -> io::Result<()> {
        let comment = self.comment(&captured);
        self.block.clear();
        packet(
            &mut self.block,
            &PacketBlock {
                interface: captured.interface.into(),
                time_ns: captured.time_ns.saturating_add_signed(self.wall.shift_ns()),
                wire_len: captured.wire_len,
                frame: &captured.frame,
                direction: if captured.is_leaving { Direction::Outbound } else { Direction::Inbound },
                lost_before: captured.lost_before,
                comment: &comment,
            },
        );
        self.captured += 1;
        client.write(&self.block)
    }

    /// The packet's comment in the file: what the router knows of it besides its bytes.
    fn comment(&self, captured: &Captured) -> String {
        let mut text = self.point.clone();
        let mut add = |what: &str, name: &str| {
            // Writing to a string does not fail.
            let _ = write!(text, ", {what}{}{name}", if name.is_empty() { "" } else { " " });
        };
        let name = |port: u16| self.ports.get(usize::from(port)).map(|(name, _)| name.as_str());
        if let Some(port) = name(captured.port_in) {
            add("in", port);
        }
        if captured.class != NO_CLASS
            && let Some(class) = self.counters.taps.classes().get(usize::from(captured.class))
        {
            add("class", class);
        }
        if captured.flags.has(PacketFlags::TRANSLATED) {
            add("translated", "");
        }
        if let Some(port) = name(captured.port_out) {
            add("out", port);
        }
        match captured.fate {
            Fate::Leaves { next_hop, flow_hash, destination, .. } => {
                let next = destination.and_then(|to| self.tables.read().next_of(next_hop, flow_hash, to));
                if let Some((_, address)) = next {
                    add("next hop", &address.to_string());
                }
            }
            Fate::ToHost(reason) => add("left to the router itself:", reason.name()),
            Fate::Dropped(reason) => {
                add("dropped:", reason.name());
                let _ = write!(text, " ({})", reason.meaning());
            }
            Fate::Sent => {}
        }
        text
    }
}

impl Drop for CaptureStream {
    fn drop(&mut self) {
        self.counters.taps.end(self.begun.number);
        self.counters.taps.update_watched();
        tracing::info!(point = self.point, packets = self.captured, "capture ended");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Count,
    Time,
    Client,
    Router,
}

impl Ended {
    fn in_words(self) -> &'static str {
        match self {
            Self::Count => "as many packets as were asked for",
            Self::Time => "its time has passed",
            Self::Client => "the client has enough",
            Self::Router => "the router stops",
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use std::path::Path;
    use thalweg_config::RouterConfig;
    use thalweg_wire::pcapng::{Block, SectionReader};

    /// Accepts everything, and has enough at the first question.
    #[derive(Default)]
    pub(crate) struct Client {
        pub(crate) file: Vec<u8>,
    }

    impl CaptureClient for Client {
        fn begin(&mut self, begun: &CaptureBegun) -> io::Result<()> {
            assert!(begun.offload_paused.is_empty() && self.file.is_empty());
            Ok(())
        }

        fn write(&mut self, blocks: &[u8]) -> io::Result<()> {
            self.file.extend(blocks);
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn has_enough(&mut self) -> bool {
            true
        }
    }

    impl crate::capture::Taps {
        pub(crate) fn begin_for_test(&self, selection: Selection, ports: usize) -> Begun {
            self.begin(selection, ports, thalweg_ports::live::LiveClock::start()).expect("there is room")
        }
    }

    const PORT: &str = "[ports.lan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/24\"]";

    fn tables() -> Arc<ForwardingTables> {
        let config = RouterConfig::from_text("test.toml", PORT, Path::new("")).expect("a router");
        Arc::new(ForwardingTables::new(&config, None).expect("tables"))
    }

    pub(crate) fn stream_of(counters: &Arc<Counters>, begun: Begun, count: u64) -> CaptureStream {
        CaptureStream {
            point: "arrived".to_owned(),
            begun,
            counters: counters.clone(),
            tables: tables(),
            ports: ["lan", "wan"].map(|name| (name.to_owned(), String::new())).into(),
            snaplen: 65_535,
            pause: None,
            count,
            until: None,
            captured: 0,
            block: Vec::new(),
            wall: WallShift::default(),
        }
    }

    /// What was read from a file.
    pub(crate) struct CaptureFile {
        pub(crate) interfaces: Vec<String>,
        pub(crate) packets: Vec<(usize, u64, Vec<u8>)>,
    }

    pub(crate) fn read_file(bytes: &[u8]) -> CaptureFile {
        let (mut reader, mut at, mut packets) = (SectionReader::new(), 0, Vec::new());
        while at < bytes.len() {
            at += match reader.next_block(&bytes[at..]).expect("a block") {
                Block::Skip { len } | Block::Interface { len } => len,
                Block::Frame { len, frame } => {
                    let frame_bytes = &bytes[at + frame.at..at + frame.at + frame.captured_len];
                    packets.push((frame.interface, frame.arrival_ns.expect("a time"), frame_bytes.to_vec()));
                    len
                }
                Block::Need(_) => panic!("the file is cut"),
            };
        }
        let name =
            |name: &Option<Box<[u8]>>| String::from_utf8_lossy(name.as_deref().unwrap_or_default()).into();
        CaptureFile { interfaces: reader.interfaces().iter().map(|each| name(&each.name)).collect(), packets }
    }
}
