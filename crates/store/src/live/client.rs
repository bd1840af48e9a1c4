//! The client of the live view.

use std::io::{self, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use thalweg_flow::FlowRecord;

use super::frame::{CACHE_BUSY, GREETING, Kind, Note, Notes, bad, receive, records};
use super::{RECORDS_MAX, SOCKET, TIMEOUT, Way};
use crate::dataset::{Dataset, View, Window, view_of_files, view_of_part};
use crate::error::StoreError;

/// Records that a thread takes at a time.
const BATCH_RECORDS: usize = 65_536;
/// How often a query is repeated because one of its files was gone: joined or expired.
const TRIES_MAX: usize = 5;

/// What a writer of the dataset added to a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writing {
    /// A writer exists or existed but does not answer, for this reason. The view has only files.
    Silent(String),
    Answered(LiveFacts),
}

/// Facts about an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveFacts {
    pub pending: u64,
    pub cached: u64,
    /// Whether the writing process has a flow cache.
    pub has_cache: bool,
    /// The cache is left out: so many records arrived meanwhile that duplicates could not be excluded.
    pub cache_left_out: bool,
    /// The cache is left out: it was not accessible, because packets wait for the disk.
    pub cache_busy: bool,
    /// Records between the cache and the writer, which are not in the view.
    pub on_the_way: u64,
}

impl Dataset {
    /// Files, pending records and the flow caches of the writing processes, each record once, as far as those
    /// answer: those of a writer at one moment. Also returns what each existing writer added.
    pub fn live_view(&self, window: Window) -> Result<(View, Vec<Writing>), StoreError> {
        let folders = || {
            let (mut all, mut writers) = (View::default(), Vec::new());
            for part in self.parts()? {
                let (view, writing) = live_view_of(&part, window)?;
                all.join(view);
                writers.extend(writing);
            }
            Ok((all, writers))
        };
        self.with_archived_records(window, folders, |(view, _), archived| archived.add_to(view, window))
    }

    /// Follows the new records of each writer.
    pub fn follow(&self) -> Result<Vec<Follow>, StoreError> {
        let follow =
            |part: PathBuf| follow(&part).map_err(StoreError::io("follow the writer at", &part.join(SOCKET)));
        let follows: Result<Vec<Option<Follow>>, _> = self.parts()?.into_iter().map(follow).collect();
        Ok(follows?.into_iter().flatten().collect())
    }
}

/// What one writer has; the second value is `None` if nobody writes there.
pub(crate) fn live_view_of(part: &Path, window: Window) -> Result<(View, Option<Writing>), StoreError> {
    for _ in 0..TRIES_MAX {
        let writing = match Answer::ask(part, window, RECORDS_MAX) {
            Ok(Some(answer)) => match answer.view(part, window) {
                Ok((view, facts)) => return Ok((view, Some(Writing::Answered(facts)))),
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(error),
            },
            Ok(None) => None,
            Err(error) => Some(Writing::Silent(why(&error))),
        };
        return Ok((view_of_part(part, window)?, writing));
    }
    Err(StoreError::Moving(part.to_path_buf()))
}

fn follow(part: &Path) -> io::Result<Option<Follow>> {
    let Some(mut stream) = connect(part)? else { return Ok(None) };
    writeln!(stream, "{GREETING} follow")?;
    let mut follow = Follow { from: BufReader::new(stream), bytes: Vec::new() };
    // The first frame says that it has begun.
    follow.receive()?;
    Ok(Some(follow))
}

/// Explains the error to the user.
fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => format!("nobody listens on {SOCKET}: the writer was killed"),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            format!("it said nothing for {} s", TIMEOUT.as_secs())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "it ended its answer early; it is ending, or serves as many others as it can".to_owned()
        }
        _ => format!("{SOCKET}: {error}"),
    }
}

/// `None` if there is no socket.
fn connect(folder: &Path) -> io::Result<Option<UnixStream>> {
    let stream = match UnixStream::connect(&Way::to(folder, SOCKET)?.path) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(Some(stream))
}

/// A received answer.
#[derive(Default)]
pub(super) struct Answer {
    cached: Vec<FlowRecord>,
    pending: Vec<FlowRecord>,
    notes: Vec<Note>,
    files: Vec<String>,
    facts: LiveFacts,
}

impl Answer {
    /// Queries the writer, if there is one. Leaves out the cache if there are more records than
    /// `records_max`.
    pub(super) fn ask(folder: &Path, window: Window, records_max: usize) -> io::Result<Option<Self>> {
        let Some(mut stream) = connect(folder)? else { return Ok(None) };
        writeln!(stream, "{GREETING} view {} {}", window.from_ns, window.to_ns)?;
        let mut from = BufReader::with_capacity(256 << 10, stream);
        let (mut answer, mut bytes, mut is_too_large) = (Self::default(), Vec::new(), false);
        loop {
            match receive(&mut from, &mut bytes)? {
                Kind::Cached if is_too_large => {}
                Kind::Cached => records(&bytes, |record| answer.cached.push(record))?,
                Kind::Pending => records(&bytes, |record| answer.pending.push(record))?,
                Kind::Noted => Note::read_all(&bytes, &mut answer.notes)?,
                Kind::Files => {
                    let names = std::str::from_utf8(&bytes).map_err(|_| bad("names that are no text"))?;
                    answer.files.extend(names.lines().map(str::to_owned));
                }
                Kind::End => {
                    let [way @ .., has_cache, whole] =
                        *bytes.first_chunk::<10>().ok_or_else(|| bad("a short end"))?;
                    let cache_busy = has_cache == 1 && whole == CACHE_BUSY;
                    answer.facts = LiveFacts {
                        on_the_way: u64::from_le_bytes(way),
                        has_cache: has_cache == 1,
                        cache_left_out: has_cache == 1 && !cache_busy && (whole == 0 || is_too_large),
                        cache_busy,
                        ..LiveFacts::default()
                    };
                    return Ok(Some(answer));
                }
                Kind::Followed | Kind::Missed => return Err(bad("an answer to another question")),
            }
            if answer.cached.len() > records_max {
                (answer.cached, is_too_large) = (Vec::new(), true);
            }
            // The writer bounds these itself.
            if answer.pending.len() > RECORDS_MAX || answer.notes.len() > RECORDS_MAX {
                return Err(bad("more records than can be taken"));
            }
        }
    }

    pub(super) fn view(mut self, part: &Path, window: Window) -> Result<(View, LiveFacts), StoreError> {
        let files: Vec<PathBuf> = self.files.iter().map(|name| part.join(name)).collect();
        let mut view = view_of_files(&files, window)?;
        if self.facts.cache_left_out || self.facts.cache_busy {
            self.cached = Vec::new();
        }
        let notes = Notes::new(self.notes);
        self.cached.retain(|shown| !notes.has(shown));
        self.facts.pending = self.pending.len() as u64;
        self.facts.cached = self.cached.len() as u64;
        self.pending.chunks(BATCH_RECORDS).for_each(|batch| view.add_batch(batch.into()));
        self.cached.chunks(BATCH_RECORDS).for_each(|batch| view.add_cached(batch.into()));
        Ok((view, self.facts))
    }
}

/// New records as they arrive.
#[derive(Debug)]
pub struct Follow {
    from: BufReader<UnixStream>,
    bytes: Vec<u8>,
}

/// The next event of [`Follow`].
#[derive(Clone, Debug, PartialEq)]
pub enum Followed {
    /// Records in order of arrival; empty if there were none for a second.
    Records(Vec<FlowRecord>),
    /// This many records arrived too fast and are missing.
    Missed(u64),
    /// The writer has ended.
    End,
}

impl Follow {
    /// Waits for the next event. Fails if the writer is silent for some seconds or sends invalid data.
    pub fn wait(&mut self) -> io::Result<Followed> {
        match self.receive() {
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                Ok(Followed::End)
            }
            other => other,
        }
    }

    fn receive(&mut self) -> io::Result<Followed> {
        match receive(&mut self.from, &mut self.bytes)? {
            Kind::Followed => {
                let mut all = Vec::new();
                records(&self.bytes, |record| all.push(record))?;
                Ok(Followed::Records(all))
            }
            Kind::Missed => {
                let count = self.bytes.first_chunk().ok_or_else(|| bad("a short number"))?;
                Ok(Followed::Missed(u64::from_le_bytes(*count)))
            }
            _ => Err(bad("an answer to another question")),
        }
    }
}
