//! Facts about the addresses of records, from files of the user's: origin AS and prefix from a BGP table (MRT),
//! country and AS from MMDB databases, names of networks from a list.
//!
//! Records get them when they are made or received, as nProbe and Akvorado do it: who announced an address, and
//! where it was, is true of the time of the flow, and cannot be found out later. nfdump asks a database when it
//! prints; then an old flow gets today's answer.
//!
//! What a record says already (from the router's own BGP, from an exporter) counts before the files: a table
//! before a database, and a database before the one named after it. A file that changes is read again within
//! [`LOOK_EVERY`]; one that cannot be read leaves its former contents in force, and is reported.

mod database;
mod networks;
mod ranges;
mod rib;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use thalweg_base::Name;
use thalweg_flow::{FlowRecord, NO_AS};
use thalweg_ports::MrtError;
use thalweg_store::Notify;

use database::Database;
use ranges::Table;
use rib::Route;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Addresses with a cached answer.
const ADDRESSES_MAX: usize = 1 << 16;

/// The files; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnrichFiles {
    /// A table of BGP routes in MRT.
    pub rib: Option<PathBuf>,
    /// MMDB databases; the first that knows something counts.
    pub databases: Vec<PathBuf>,
    /// A list of networks.
    pub networks: Option<PathBuf>,
}

impl EnrichFiles {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EnrichError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Rib(#[from] MrtError),
    #[error("{path}: no table of BGP routes: expected MRT of type TABLE_DUMP or TABLE_DUMP_V2 with routes")]
    NoRoutes { path: PathBuf },
    #[error("{path} is no MMDB database: {error}")]
    Database { path: PathBuf, error: maxminddb::MaxMindDbError },
    #[error("{path}, line {line}: expected {expected}")]
    Networks { path: PathBuf, line: usize, expected: &'static str },
}

/// What the files say about an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    origin_as: u32,
    neighbor_as: u32,
    prefix_length: Option<u8>,
    country: Name,
    network: Name,
}

/// Tells one state of a file from the next.
type Stamp = (u64, i64, i64, u64);

/// A file, and what was read from it.
struct Followed<T> {
    path: PathBuf,
    read: fn(&Path) -> Result<(T, String), EnrichError>,
    stamp: Mutex<Option<Stamp>>,
    contents: RwLock<Arc<T>>,
}

impl<T> Followed<T> {
    fn open(
        path: PathBuf,
        read: fn(&Path) -> Result<(T, String), EnrichError>,
        notify: &Notify,
    ) -> Result<Self, EnrichError> {
        // Before the contents: what changes meanwhile is read again.
        let stamp = Mutex::new(stamp(&path));
        let (contents, about) = read(&path)?;
        notify.info(&about);
        Ok(Self { path, read, stamp, contents: RwLock::new(Arc::new(contents)) })
    }

    /// Reads the file again if it changed; returns whether its contents did.
    fn renew(&self, notify: &Notify) -> bool {
        let now = stamp(&self.path);
        let before = std::mem::replace(&mut *self.stamp.lock(), now);
        // A file that is missing for a moment is being replaced.
        if now.is_none() || now == before {
            return false;
        }
        match (self.read)(&self.path) {
            Ok((contents, about)) => {
                *self.contents.write() = Arc::new(contents);
                notify.info(&about);
                true
            }
            Err(error) => {
                notify.warn(&format!("{error}; its former contents stay in force"));
                false
            }
        }
    }

    fn get(&self) -> Arc<T> {
        Arc::clone(&self.contents.read())
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.mtime(), facts.mtime_nsec(), facts.len()))
}

/// The files that are read, shared by all that complete records.
pub struct Enrichment {
    rib: Option<Followed<Table<Route>>>,
    databases: Vec<Followed<Database>>,
    networks: Option<Followed<Table<Name>>>,
    /// How often contents changed.
    changes: AtomicU64,
}

impl Enrichment {
    /// Reads the files, and follows them from now on.
    pub fn start(files: &EnrichFiles, notify: &Notify) -> Result<Arc<Self>, EnrichError> {
        let this = Arc::new(Self::open(files, notify)?);
        let (weak, told) = (Arc::downgrade(&this), notify);
        let notify = notify.clone();
        let follow = move || {
            loop {
                thread::sleep(LOOK_EVERY);
                let Some(this) = weak.upgrade() else { return };
                this.renew(&notify);
            }
        };
        if let Err(error) = thread::Builder::new().name("enrichment".to_owned()).spawn(follow) {
            told.warn(&format!(
                "changes of --rib, --mmdb and --networks are not followed: no thread ({error})"
            ));
        }
        Ok(this)
    }

    fn open(files: &EnrichFiles, notify: &Notify) -> Result<Self, EnrichError> {
        let path = |file: &Option<PathBuf>| file.clone();
        let rib = path(&files.rib).map(|path| Followed::open(path, read_rib, notify)).transpose()?;
        let databases =
            files.databases.iter().map(|path| Followed::open(path.clone(), read_database, notify));
        let networks = path(&files.networks).map(|path| Followed::open(path, read_networks, notify));
        Ok(Self {
            rib,
            databases: databases.collect::<Result<_, _>>()?,
            networks: networks.transpose()?,
            changes: AtomicU64::new(0),
        })
    }

    fn renew(&self, notify: &Notify) {
        let mut changed = self.rib.as_ref().is_some_and(|file| file.renew(notify));
        changed |= self.networks.as_ref().is_some_and(|file| file.renew(notify));
        for file in &self.databases {
            changed |= file.renew(notify);
        }
        self.changes.fetch_add(u64::from(changed), Ordering::Release);
    }

    fn facts(&self, address: IpAddr) -> Facts {
        let mut facts = Facts::default();
        if let Some(route) = self.rib.as_ref().and_then(|rib| rib.get().get(address)) {
            (facts.origin_as, facts.neighbor_as) = (route.origin_as, route.neighbor_as);
            facts.prefix_length = Some(route.length);
        }
        for database in &self.databases {
            let (country, number) = database.get().facts(address);
            if facts.country == Name::NONE {
                facts.country = country;
            }
            if facts.origin_as == NO_AS {
                facts.origin_as = number;
            }
        }
        let networks = self.networks.as_ref().map(Followed::get);
        facts.network = networks.and_then(|networks| networks.get(address)).unwrap_or_default();
        facts
    }

    /// Completes records; has a cache of its own.
    pub fn completion(self: &Arc<Self>) -> impl FnMut(&mut FlowRecord) + Send + use<> {
        let mut enricher = Enricher { files: Arc::clone(self), known: HashMap::new(), changes: 0 };
        move |record| enricher.complete(record)
    }
}

fn read_rib(path: &Path) -> Result<(Table<Route>, String), EnrichError> {
    let (table, damaged) = rib::read(path)?;
    if table.prefixes() == 0 {
        return Err(EnrichError::NoRoutes { path: path.to_owned() });
    }
    let damaged = if damaged == 0 { String::new() } else { format!(" ({damaged} damaged records left out)") };
    let about = format!("{}: BGP routes to {} prefixes{damaged}", path.display(), table.prefixes());
    Ok((table, about))
}

fn read_database(path: &Path) -> Result<(Database, String), EnrichError> {
    let database = Database::read(path);
    let database = database.map_err(|error| EnrichError::Database { path: path.to_owned(), error })?;
    let about = format!("{}: database {}", path.display(), database.kind());
    Ok((database, about))
}

fn read_networks(path: &Path) -> Result<(Table<Name>, String), EnrichError> {
    let owned = || path.to_owned();
    let text = fs::read_to_string(path).map_err(|error| EnrichError::Read { path: owned(), error })?;
    let table = networks::parse(&text);
    let table = table.map_err(|(line, expected)| EnrichError::Networks { path: owned(), line, expected })?;
    let about = format!("{}: names of {} networks", path.display(), table.prefixes());
    Ok((table, about))
}

struct Enricher {
    files: Arc<Enrichment>,
    known: HashMap<IpAddr, Facts>,
    /// The state of the files that `known` is from.
    changes: u64,
}

impl Enricher {
    fn complete(&mut self, record: &mut FlowRecord) {
        let changes = self.files.changes.load(Ordering::Acquire);
        if changes != self.changes || self.known.len() >= ADDRESSES_MAX {
            (self.changes, self.known) = (changes, HashMap::new());
        }
        // A list of the user's names the inside of NAT; the world knows its outside.
        record.src_place.network = self.facts(record.key.src).network;
        record.dst_place.network = self.facts(record.key.dst).network;
        let from = self.facts(record.translation.map_or(record.key.src, |after| after.src));
        let toward = self.facts(record.translation.map_or(record.key.dst, |after| after.dst));
        (record.src_place.country, record.dst_place.country) = (from.country, toward.country);
        if record.src_as == NO_AS {
            record.src_as = from.origin_as;
        }
        if record.dst_as == NO_AS {
            record.dst_as = toward.origin_as;
        }
        if record.next_as == NO_AS {
            record.next_as = toward.neighbor_as;
        }
        let details = &mut record.details;
        details.src_prefix_length = details.src_prefix_length.or(from.prefix_length);
        details.dst_prefix_length = details.dst_prefix_length.or(toward.prefix_length);
    }

    fn facts(&mut self, address: IpAddr) -> Facts {
        *self.known.entry(address).or_insert_with(|| self.files.facts(address))
    }
}

#[cfg(test)]
mod tests;
