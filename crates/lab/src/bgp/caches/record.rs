//! Records the addresses that a program accesses, with `valgrind --tool=lackey`, and marks that say to which turn
//! they belong.
//!
//! A mark is a store to one of 256 bytes of the program, whose address it prints first. So marks are part of the
//! stream of accesses, in the right places.

use super::{Access, At, Caches, Curve, Turn};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// The mark between turns.
pub const PAUSE: u8 = 0;
/// The mark at the end of the run.
pub const END: u8 = 1;
const FIRST_TURN: u8 = 2;

static MARKS: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];

/// The address of the marks, as [`Recorder`] needs it.
pub fn marks_address() -> String {
    format!("{:p}", MARKS.as_ptr())
}

/// The mark of a neighbor's turn; neighbors beyond the 127th share a mark.
pub fn turn_mark(neighbor: usize, at: At) -> u8 {
    let turn = u8::try_from(neighbor).unwrap_or(u8::MAX).min(126) * 2 + u8::from(at == At::Table);
    FIRST_TURN + turn.min(u8::MAX - FIRST_TURN)
}

/// Stores a mark.
pub(crate) fn mark(mark: u8) {
    MARKS[usize::from(mark)].store(1, Ordering::Relaxed);
}

/// Why there are no addresses.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// valgrind cannot be started.
    #[error("valgrind, which lists the addresses that a program touches, cannot be started: {0}")]
    NoValgrind(#[source] io::Error),
    /// The recorded program failed.
    #[error("under valgrind: {0}")]
    Program(String),
}

/// Passes lackey's output to the cache model.
pub struct Recorder {
    marks: u64,
    caches: Caches,
    turn: Option<Turn>,
    turns: usize,
    has_ended: bool,
}

impl Recorder {
    /// A recorder for a program whose marks are at this address.
    pub fn new(marks: u64, neighbors: usize) -> Self {
        Self { marks, caches: Caches::new(neighbors), turn: None, turns: 0, has_ended: false }
    }

    /// Processes a line; ignores lines without a load or store.
    pub fn take(&mut self, line: &[u8]) {
        let Some((access, also_loads)) = parse(line) else { return };
        if access.stores
            && let Some(mark) =
                access.address.checked_sub(self.marks).and_then(|mark| u8::try_from(mark).ok())
        {
            return self.marked(mark);
        }
        let Some(turn) = self.turn else { return };
        if also_loads {
            self.caches.access(turn, Access { stores: false, ..access });
        }
        self.caches.access(turn, access);
    }

    fn marked(&mut self, mark: u8) {
        self.turn = mark.checked_sub(FIRST_TURN).map(|mark| {
            let at = if mark % 2 == 1 { At::Table } else { At::Reading };
            // Each turn begins by reading.
            self.turns += usize::from(at == At::Reading);
            Turn { neighbor: usize::from(mark / 2), number: self.turns, at }
        });
        self.has_ended |= mark == END;
    }

    /// The resulting curves; `None` if the program did not finish.
    pub fn curves(&self, updates: u64) -> Option<Vec<Curve>> {
        self.has_ended.then(|| self.caches.curves(updates))
    }
}

/// ` L 1ffefffe30,8`: a load, a store (`S`) or both (`M`).
fn parse(line: &[u8]) -> Option<(Access, bool)> {
    let [b' ', kind, b' ', rest @ ..] = line else { return None };
    let (stores, loads_too) = match kind {
        b'L' => (false, false),
        b'S' => (true, false),
        b'M' => (true, true),
        _ => return None,
    };
    let (address, bytes) = std::str::from_utf8(rest).ok()?.trim_end().split_once(',')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((Access { address, bytes: bytes.parse().ok()?, stores }, loads_too))
}

/// Runs a program that prints the address of its marks and, at its end, the number of UPDATEs.
pub(crate) fn record(
    program: &Path,
    arguments: &[String],
    neighbors: usize,
) -> Result<Vec<Curve>, RecordError> {
    let failed = |what: &str| RecordError::Program(what.to_owned());
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(RecordError::NoValgrind)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, err) = out.zip(err).ok_or_else(|| failed("it has no output"))?;
    let recorded = listen(BufReader::new(out), BufReader::with_capacity(1 << 20, err), neighbors);
    // It may still be writing output that is not needed.
    let _ = child.kill();
    let status = child.wait().map_err(|error| RecordError::Program(error.to_string()))?;
    recorded.map_err(|error| RecordError::Program(format!("{error} ({status})")))
}

fn listen(mut out: impl BufRead, mut err: impl BufRead, neighbors: usize) -> io::Result<Vec<Curve>> {
    // Marks cannot be recognized before the program has printed their address.
    let (mut recorder, mut line, mut said) = (None, Vec::new(), Vec::new());
    loop {
        line.clear();
        if err.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match (line.as_slice(), &mut recorder) {
            ([b'=', b'=', ..] | [b'I', b' ', ..], _) => {}
            ([b'm', b'a', b'r', b'k', b's', b' ', rest @ ..], None) => {
                let text = std::str::from_utf8(rest).map_err(io::Error::other)?;
                let address = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16);
                recorder = Some(Recorder::new(address.map_err(io::Error::other)?, neighbors));
            }
            ([b' ', ..], Some(recorder)) => recorder.take(&line),
            ([b' ', ..], None) => {}
            (other, _) => said = other.to_vec(),
        }
    }
    let mut text = String::new();
    out.read_to_string(&mut text)?;
    let updates = text.trim().parse::<u64>().ok().filter(|updates| *updates > 0);
    let curves = updates.zip(recorder.as_ref()).and_then(|(updates, recorder)| recorder.curves(updates));
    curves
        .ok_or_else(|| io::Error::other(format!("it did not end: {}", String::from_utf8_lossy(&said).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_say_whose_accesses_follow() {
        let mark = |mark: u8| format!(" S {:x},1\n", 0x5000 + u64::from(mark));
        let (first, second) = (turn_mark(0, At::Reading), turn_mark(1, At::Table));
        let said = [
            "==7== Lackey\n L 100,8\nmarks 0x5000\n L 200,8\n".to_owned(),
            mark(first) + "I  9000,3\n L 1000,8\n S 1040,8\n" + &mark(PAUSE) + " L 3000,8\n",
            mark(second) + " M 1040,4\n L 5001,1\n" + &mark(END),
        ];
        let curves = listen("2\n".as_bytes(), said.concat().as_bytes(), 2).unwrap();
        // 1000, 1040, 1040 twice and 5001; a load from the marks' address is not a mark.
        assert_eq!(curves[0].accesses_per_update, 2.5);
        assert_eq!((curves[0].touched_bytes, curves[0].unavoidable_per_update), (192, 1.5));
        // The second core must fetch what the first one wrote.
        assert_eq!(curves[1].unavoidable_per_update, 2.0);
        assert_eq!(curves[0].points[0].table_misses_per_update, 0.5);
        let cut = said.concat().replace(&mark(END), "");
        let error = listen("2\n".as_bytes(), (cut + "error: no route\n").as_bytes(), 2).unwrap_err();
        assert!(error.to_string().contains("did not end: error: no route"), "{error}");
        assert!(listen("".as_bytes(), said.concat().as_bytes(), 2).is_err());
    }

    #[test]
    fn each_neighbor_has_marks_of_its_own() {
        let mut marks: Vec<u8> =
            (0..100).flat_map(|n| [At::Reading, At::Table].map(|at| turn_mark(n, at))).collect();
        marks.extend([PAUSE, END]);
        marks.sort_unstable();
        marks.dedup();
        assert_eq!(marks.len(), 202);
        assert_eq!(turn_mark(5000, At::Table), 255);
    }
}
