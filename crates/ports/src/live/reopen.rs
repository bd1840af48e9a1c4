//! Ports that recover when their interface is deleted and created again under its old name.
//!
//! ```text
//!        ENODEV                          there is one of the name, and it opens
//! open ──────────> gone, tried now and then ──────────────────────────────────> open: new halves
//! ```
//!
//! For drivers whose halves depend on each other and on one interface, as AF_XDP's do: they need the whole port to
//! be opened again. The half that notices first opens the port and leaves the other new halves for their owners.
//! The counts of the old halves are kept; frames that they had accepted and not sent count as failed.
//!
//! A port may also start without its interface ([`open_later`]): it is gone from the start, and opens when the
//! interface appears.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_base::ChunkBuilder;

use super::{LiveError, NotTaken, Port, PortFacts, PortRx, PortTx, RxCounters, TxCounters};

/// How often to try to open the port again.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Opens the port. Called again each time the interface may have come back.
pub type Open = Box<dyn Fn() -> Result<Port, LiveError> + Send>;

/// Opens a port that recovers when its interface comes back.
///
/// # Errors
///
/// Those of `open` at the first call; later failures are retried.
pub fn open_again(open: Open) -> Result<Port, LiveError> {
    let port = open()?;
    Ok(keep_open(port, open).0)
}

/// A port whose interface does not exist yet. It is opened as soon as an interface of the name appears. `facts` is
/// what is known of it until then, `halves` the most receiving halves that it can have.
pub fn open_later(facts: PortFacts, halves: usize, open: Open) -> (Port, OpenedLater) {
    let rx = (0..halves.max(1)).map(|_| -> Box<dyn PortRx> { Box::new(Absent) }).collect();
    keep_open(Port { rx, tx: Box::new(Absent), facts }, open)
}

/// The state of a port that was opened without its interface.
#[derive(Clone)]
pub struct OpenedLater(Arc<Shared>);

impl OpenedLater {
    /// The facts of the port as of the last time it was opened.
    pub fn facts(&self) -> PortFacts {
        self.0.open.lock().facts.clone()
    }
}

fn keep_open(Port { rx, tx, facts }: Port, open: Open) -> (Port, OpenedLater) {
    let halves = rx.len();
    let shared = Arc::new(Shared {
        open: Mutex::new(Opener {
            open,
            generation: 0,
            rx: (0..halves).map(|_| None).collect(),
            tx: None,
            tried: None,
            facts: facts.clone(),
        }),
    });
    let again = |(place, half): (usize, Box<dyn PortRx>)| -> Box<dyn PortRx> {
        Box::new(RxAgain {
            shared: Arc::clone(&shared),
            place,
            half,
            generation: 0,
            before: RxCounters::default(),
        })
    };
    let rx = rx.into_iter().enumerate().map(again).collect();
    let tx = Box::new(TxAgain {
        shared: Arc::clone(&shared),
        half: tx,
        generation: 0,
        before: TxCounters::default(),
    });
    (Port { rx, tx, facts }, OpenedLater(shared))
}

/// A half of a port without an interface.
struct Absent;

impl PortRx for Absent {
    fn receive(&mut self, _: u16, _: u64, _: usize, _: &mut ChunkBuilder) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    /// None: no thread waits for a half that has failed.
    fn fd(&self) -> RawFd {
        -1
    }

    fn counters(&mut self) -> RxCounters {
        RxCounters::default()
    }
}

impl PortTx for Absent {
    fn push(&mut self, _: &[u8]) -> Result<(), NotTaken> {
        Err(NotTaken::Down)
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn counters(&mut self) -> TxCounters {
        TxCounters::default()
    }
}

struct Shared {
    open: Mutex<Opener>,
}

struct Opener {
    open: Open,
    /// Counts the interfaces, so that a half knows whether there is a newer one.
    generation: u64,
    /// New halves that their owners have not fetched yet.
    rx: Vec<Option<Box<dyn PortRx>>>,
    tx: Option<Box<dyn PortTx>>,
    tried: Option<Instant>,
    facts: PortFacts,
}

impl Shared {
    /// The opener with the halves of a generation after `old`. Opens the port if no other half has done so.
    fn after(&self, old: u64) -> Option<MutexGuard<'_, Opener>> {
        let mut opener = self.open.lock();
        if opener.generation == old {
            if opener.tried.is_some_and(|tried| tried.elapsed() < TRY_EVERY) {
                return None;
            }
            opener.tried = Some(Instant::now());
            let port = (opener.open)().ok()?;
            // More queues than halves mean another kind of interface, which needs a restart. With fewer queues,
            // some halves stay without one.
            let halves = opener.rx.len();
            if port.rx.len() > halves {
                return None;
            }
            opener.rx = port.rx.into_iter().map(Some).chain((0..).map(|_| None)).take(halves).collect();
            opener.facts = port.facts;
            opener.tx = Some(port.tx);
            opener.generation += 1;
        }
        Some(opener)
    }
}

/// Whether the interface is gone, not just down.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

struct RxAgain {
    shared: Arc<Shared>,
    place: usize,
    half: Box<dyn PortRx>,
    generation: u64,
    before: RxCounters,
}

impl RxAgain {
    /// Takes the half of the newer interface. Returns whether there is one.
    fn renew(&mut self) -> bool {
        let Some(mut opener) = self.shared.after(self.generation) else { return false };
        let Some(half) = opener.rx.get_mut(self.place).and_then(Option::take) else { return false };
        let generation = opener.generation;
        drop(opener);
        self.before = self.counters();
        (self.generation, self.half) = (generation, half);
        true
    }
}

impl PortRx for RxAgain {
    fn receive(
        &mut self,
        port: u16,
        now_ns: u64,
        limit: usize,
        into: &mut ChunkBuilder,
    ) -> io::Result<usize> {
        match self.half.receive(port, now_ns, limit, into) {
            Err(error) if is_gone(&error) && self.renew() => self.half.receive(port, now_ns, limit, into),
            other => other,
        }
    }

    fn receive_passing(&mut self, port: u16, now_ns: u64, limit: usize, into: &mut ChunkBuilder) -> usize {
        self.half.receive_passing(port, now_ns, limit, into)
    }

    fn fd(&self) -> RawFd {
        self.half.fd()
    }

    fn counters(&mut self) -> RxCounters {
        let (now, before) = (self.half.counters(), self.before);
        RxCounters {
            frames: before.frames + now.frames,
            bytes: before.bytes + now.bytes,
            missed: before.missed + now.missed,
            refused: before.refused + now.refused,
            foreign: before.foreign + now.foreign,
        }
    }
}

struct TxAgain {
    shared: Arc<Shared>,
    half: Box<dyn PortTx>,
    generation: u64,
    before: TxCounters,
}

impl TxAgain {
    fn renew(&mut self) -> bool {
        let Some(mut opener) = self.shared.after(self.generation) else { return false };
        let Some(half) = opener.tx.take() else { return false };
        let generation = opener.generation;
        drop(opener);
        self.before = self.counters();
        (self.generation, self.half) = (generation, half);
        true
    }
}

impl PortTx for TxAgain {
    fn push(&mut self, frame: &[u8]) -> Result<(), NotTaken> {
        self.half.push(frame)
    }

    fn push_merged(&mut self, frame: &[u8], segment_bytes: u16) -> Result<(), NotTaken> {
        self.half.push_merged(frame, segment_bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.half.flush() {
            Err(error) if is_gone(&error) && self.renew() => self.half.flush(),
            other => other,
        }
    }

    fn pending(&self) -> usize {
        self.half.pending()
    }

    fn counters(&mut self) -> TxCounters {
        let (now, before) = (self.half.counters(), self.before);
        TxCounters {
            frames: before.frames + now.frames,
            bytes: before.bytes + now.bytes,
            failed: before.failed + now.failed,
        }
    }
}
