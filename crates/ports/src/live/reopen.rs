//! Ports that come back: an interface that was deleted and made again, under its old name.
//!
//! ```text
//!        ENODEV                          there is one of the name, and it opens
//! open ──────────> gone, asked now and then ──────────────────────────────────> open: new halves
//! ```
//!
//! For drivers whose halves belong together and to one interface, as AF_XDP's do: what has to be made anew is the whole
//! port. Whichever half notices first opens it and leaves the other half for its owner. What the old halves have counted
//! stays counted; frames that they had taken and not sent are failed.
//!
//! A port may also begin without its interface ([`open_later`]): it is gone from the start, and comes as one that comes back.

use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_base::ChunkBuilder;

use super::{LiveError, NotTaken, Port, PortFacts, PortRx, PortTx, RxCounters, TxCounters};

/// How often it is tried to open the port again.
const TRY_EVERY: Duration = Duration::from_millis(50);

/// Opens the port; as often as its interface comes back.
pub type Open = Box<dyn Fn() -> Result<Port, LiveError> + Send>;

/// Opens a port that comes back with its interface.
///
/// # Errors
///
/// Those of `open`, the first time. Later it is tried again.
pub fn open_again(open: Open) -> Result<Port, LiveError> {
    let port = open()?;
    Ok(keep_open(port, open).0)
}

/// A port whose interface is not there yet. `facts` is what is known of it, `halves` the receiving halves that it has at
/// most; it is opened as soon as there is an interface of the name.
pub fn open_later(facts: PortFacts, halves: usize, open: Open) -> (Port, OpenedLater) {
    let rx = (0..halves.max(1)).map(|_| -> Box<dyn PortRx> { Box::new(Absent) }).collect();
    keep_open(Port { rx, tx: Box::new(Absent), facts }, open)
}

/// What became of a port that was opened without its interface.
#[derive(Clone)]
pub struct OpenedLater(Arc<Shared>);

impl OpenedLater {
    /// What was found, as of the last time that it was opened.
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

    /// None: nobody waits for a half that has failed.
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
    /// Counts the interfaces, so that a half knows whether there is another one since.
    generation: u64,
    /// Halves that their owners have not fetched yet.
    rx: Vec<Option<Box<dyn PortRx>>>,
    tx: Option<Box<dyn PortTx>>,
    tried: Option<Instant>,
    facts: PortFacts,
}

impl Shared {
    /// The place where the halves of a generation after `old` are, opened if nobody has.
    fn after(&self, old: u64) -> Option<MutexGuard<'_, Opener>> {
        let mut opener = self.open.lock();
        if opener.generation == old {
            if opener.tried.is_some_and(|tried| tried.elapsed() < TRY_EVERY) {
                return None;
            }
            opener.tried = Some(Instant::now());
            let port = (opener.open)().ok()?;
            // With more queues than there are halves for it is another kind of interface, which needs a new start. With
            // fewer, halves are left over.
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

/// Whether the interface is gone, not only down.
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
    /// Takes the half of the interface that came after; whether there is one.
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
