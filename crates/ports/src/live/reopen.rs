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

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thalweg_base::ChunkBuilder;

use super::{LiveError, NotTaken, Port, PortRx, PortTx, RxCounters, TxCounters};

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
    let Port { rx, tx, facts } = open()?;
    let halves = rx.len();
    let shared = Arc::new(Shared {
        open: Mutex::new(Opener {
            open,
            generation: 0,
            rx: (0..halves).map(|_| None).collect(),
            tx: None,
            tried: None,
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
    Ok(Port { rx, tx, facts })
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
}

impl Shared {
    /// The place where the halves of a generation after `old` are, opened if nobody has.
    fn after(&self, old: u64) -> Option<MutexGuard<'_, Opener>> {
        let mut opener = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if opener.generation == old {
            if opener.tried.is_some_and(|tried| tried.elapsed() < TRY_EVERY) {
                return None;
            }
            opener.tried = Some(Instant::now());
            let port = (opener.open)().ok()?;
            // It has as many queues as before, or it is another kind of interface, which needs a new start.
            if port.rx.len() != opener.rx.len() {
                return None;
            }
            opener.rx = port.rx.into_iter().map(Some).collect();
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
            octets: before.octets + now.octets,
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
            octets: before.octets + now.octets,
            failed: before.failed + now.failed,
        }
    }
}
