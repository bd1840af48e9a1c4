//! Stores records on disk until a collector is back: an ordered queue of files in a folder, with bounded
//! size.
//!
//! ```text
//! folder/lock
//! folder/4294967296.flows    the oldest: read first, removed when it was read completely
//! folder/4294967297.flows
//! folder/4294967298.flows    the newest: records are appended
//! ```
//!
//! A file begins with a mark of its format, followed by images of records
//! (`thalweg_flow::export::write_image`). Each has a checksum, so a file torn by a crash ends at its last
//! whole record. Files are not synced: a crash of the program loses its buffers (one batch), a crash of the
//! machine what the kernel had not written. Records that were read stay in memory until they are
//! acknowledged; a crash then loses at most those of one file.

use super::{CollectorError, SpoolOptions};
use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use thalweg_flow::FlowRecord;
use thalweg_flow::export::{Amount, IMAGE_BYTES_MAX, read_image, write_image};

const MARK: &[u8; 8] = b"thwlspl1";
/// The target size of a file; the last batch may exceed it.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The number of the first file: it leaves room for records that are put back before it.
const FIRST_NUMBER: u64 = 1 << 32;
/// Records returned at a time; incoming batches are expected to be no larger.
const BATCH_RECORDS: usize = 1024;

/// A spool; see the module documentation.
pub(super) struct Spool {
    folder: PathBuf,
    bytes_max: u64,
    bytes: u64,
    /// The records in the spool, except those being read.
    amount: Amount,
    files: VecDeque<SpoolFile>,
    /// The last of `files`, while records are appended to it.
    tail: Option<File>,
    reading: Reading,
    torn_files: u64,
    /// Held while the spool is in use.
    _lock: Lock,
}

/// A file that one process has locked.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process between fork and exec has it open too. If unlocking
        // fails, closing must do.
        let _ = self.0.unlock();
    }
}

struct SpoolFile {
    number: u64,
    bytes: u64,
    amount: Amount,
}

/// The oldest file, read as a whole.
#[derive(Default)]
struct Reading {
    bytes: Vec<u8>,
    at: usize,
    left: Amount,
}

/// Records read from a spool, and those it lost.
pub(super) struct Read {
    pub(super) records: Vec<FlowRecord>,
    /// Records that the file should have had.
    pub(super) lost: Lost,
}

/// Records lost by the spool or on the way to it.
#[derive(Debug, Default)]
pub(super) struct Lost {
    pub(super) amount: Amount,
    /// The system's error, if there was one.
    pub(super) error: Option<io::Error>,
}

impl Spool {
    pub(super) fn open(options: &SpoolOptions) -> Result<Self, CollectorError> {
        let folder = options.folder.clone();
        let failed = |path: &Path, source| CollectorError::Spool { path: path.to_owned(), source };
        fs::create_dir_all(&folder).map_err(|source| failed(&folder, source))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).map_err(|source| failed(&lock_path, source))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => CollectorError::SpoolTaken { path: folder.clone() },
            TryLockError::Error(source) => failed(&lock_path, source),
        })?;
        let mut spool = Self {
            folder,
            bytes_max: options.bytes_max,
            bytes: 0,
            amount: Amount::default(),
            files: VecDeque::new(),
            tail: None,
            reading: Reading::default(),
            torn_files: 0,
            _lock: Lock(lock),
        };
        spool.migrate_from().map_err(|source| failed(&spool.folder, source))?;
        Ok(spool)
    }

    /// Takes over the files of an earlier process.
    fn migrate_from(&mut self) -> io::Result<()> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".flows")?.parse::<u64>().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable();
        for number in numbers {
            let bytes = fs::read(self.path(number))?;
            let mut amount = Amount::default();
            let mut rest = bytes.strip_prefix(MARK).unwrap_or_default();
            while let Ok((record, after)) = read_image(rest) {
                amount += Amount::of(&record);
                rest = after;
            }
            if !rest.is_empty() || !bytes.starts_with(MARK) {
                self.torn_files += 1;
            }
            if amount.records == 0 {
                fs::remove_file(self.path(number))?;
                continue;
            }
            self.bytes += bytes.len() as u64;
            self.amount += amount;
            self.files.push_back(SpoolFile { number, bytes: bytes.len() as u64, amount });
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.amount() == Amount::default()
    }

    pub(super) fn amount(&self) -> Amount {
        let mut amount = self.amount;
        amount += self.reading.left;
        amount
    }

    /// Files of an earlier process that ended inside a record.
    pub(super) fn torn_files(&self) -> u64 {
        self.torn_files
    }

    /// Whether a batch of the usual size fits, however long its images are.
    pub(super) fn has_room(&self) -> bool {
        self.bytes + (MARK.len() + IMAGE_BYTES_MAX * BATCH_RECORDS) as u64 <= self.bytes_max
    }

    /// Appends a batch; returns `false` if there is no room for it.
    pub(super) fn append(&mut self, records: &[FlowRecord]) -> io::Result<bool> {
        let (images, amount) = images(records);
        if self.bytes + (MARK.len() + images.len()) as u64 > self.bytes_max {
            return Ok(false);
        }
        if self.tail.is_none() || self.files.back().is_none_or(|file| file.bytes >= FILE_BYTES_MAX) {
            let number = self.files.back().map_or(FIRST_NUMBER, |file| file.number + 1);
            self.tail = Some(self.create(number)?);
            self.bytes += MARK.len() as u64;
            self.files.push_back(SpoolFile { number, bytes: MARK.len() as u64, amount: Amount::default() });
        }
        if let (Some(tail), Some(file)) = (&mut self.tail, self.files.back_mut()) {
            if let Err(error) = tail.write_all(&images) {
                // Remove what was written of it, so that attempts on a full disk do not add up. Nothing may
                // follow a torn end.
                let cut = tail.set_len(file.bytes).and_then(|()| tail.seek(SeekFrom::End(0)));
                if cut.is_err() {
                    self.tail = None;
                }
                return Err(error);
            }
            file.bytes += images.len() as u64;
            file.amount += amount;
        }
        self.bytes += images.len() as u64;
        self.amount += amount;
        Ok(true)
    }

    /// For the end: stores records before everything else, regardless of the limit because they were taken
    /// before, together with the records being read, whose file is gone. Returns what is lost of both.
    pub(super) fn put_back(&mut self, records: &[FlowRecord]) -> Lost {
        let (mut records, mut lost) = (records.to_vec(), Lost::default());
        // The records being read come after `records` and before the files.
        while self.reading.left != Amount::default() {
            let read = self.take_images();
            records.extend(read.records);
            lost.amount += read.lost.amount;
        }
        if records.is_empty() {
            return lost;
        }
        let (images, amount) = images(&records);
        let number = self.files.front().map_or(FIRST_NUMBER, |file| file.number - 1);
        if let Err(error) = self.create(number).and_then(|mut file| file.write_all(&images)) {
            // They are lost and counted as such: the next process must not find a part of them.
            let _ = fs::remove_file(self.path(number));
            lost.amount += amount;
            lost.error = Some(error);
            return lost;
        }
        let bytes = (MARK.len() + images.len()) as u64;
        self.bytes += bytes;
        self.amount += amount;
        self.files.push_front(SpoolFile { number, bytes, amount });
        lost
    }

    /// The oldest records; empty if there are none.
    pub(super) fn read(&mut self) -> io::Result<Read> {
        if self.reading.left == Amount::default() {
            let Some(file) = self.files.pop_front() else {
                return Ok(Read { records: Vec::new(), lost: Lost::default() });
            };
            if self.files.is_empty() {
                self.tail = None;
            }
            self.bytes -= file.bytes;
            self.amount.records -= file.amount.records;
            self.amount.packets -= file.amount.packets;
            self.amount.bytes -= file.amount.bytes;
            let path = self.path(file.number);
            match fs::read(&path) {
                Ok(bytes) => self.reading = Reading { bytes, at: MARK.len(), left: file.amount },
                Err(error) => {
                    let lost = Lost { amount: file.amount, error: Some(error) };
                    return Ok(Read { records: Vec::new(), lost });
                }
            }
            fs::remove_file(&path)?;
        }
        Ok(self.take_images())
    }

    /// The next records of the file being read.
    fn take_images(&mut self) -> Read {
        let mut records = Vec::with_capacity(BATCH_RECORDS);
        while records.len() < BATCH_RECORDS && self.reading.left.records > 0 {
            let rest = self.reading.bytes.get(self.reading.at..).unwrap_or_default();
            let Ok((record, after)) = read_image(rest) else {
                let amount = std::mem::take(&mut self.reading).left;
                return Read { records, lost: Lost { amount, error: None } };
            };
            self.reading.at = self.reading.bytes.len() - after.len();
            let amount = Amount::of(&record);
            let left = &mut self.reading.left;
            left.records -= 1;
            left.packets = left.packets.saturating_sub(amount.packets);
            left.bytes = left.bytes.saturating_sub(amount.bytes);
            records.push(record);
        }
        if self.reading.left.records == 0 {
            self.reading = Reading::default();
        }
        Read { records, lost: Lost::default() }
    }

    fn create(&self, number: u64) -> io::Result<File> {
        let mut file = File::create(self.path(number))?;
        file.write_all(MARK).inspect_err(|_| drop(fs::remove_file(self.path(number))))?;
        Ok(file)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.flows"))
    }
}

fn images(records: &[FlowRecord]) -> (Vec<u8>, Amount) {
    let (mut images, mut amount) = (Vec::with_capacity(128 * records.len()), Amount::default());
    for record in records {
        write_image(record, &mut images);
        amount += Amount::of(record);
    }
    (images, amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::IpAddr;
    use thalweg_flow::{Counters, EndReason, FlowKey};

    fn record(n: u64) -> FlowRecord {
        let address = IpAddr::from([10, 0, 0, 1]);
        let key = FlowKey {
            src: address,
            dst: address,
            src_port: n as u16,
            dst_port: 1,
            protocol: 17,
            traffic_class: 0,
            ingress: 0,
            vlan: 0,
            mpls_label: None,
        };
        let counters = Counters { packets: n, bytes: 100 * n, ..Counters::default() };
        FlowRecord::new(key, counters, EndReason::IdleTimeout)
    }

    fn batch(numbers: std::ops::Range<u64>) -> Vec<FlowRecord> {
        numbers.map(record).collect()
    }

    fn drain(spool: &mut Spool) -> Vec<u64> {
        let mut numbers = Vec::new();
        while !spool.is_empty() {
            let read = spool.read().unwrap();
            assert_eq!(read.lost.amount, Amount::default());
            numbers.extend(read.records.iter().map(|record| record.counters.packets));
        }
        numbers
    }

    fn options(folder: &Path) -> SpoolOptions {
        SpoolOptions { folder: folder.to_owned(), bytes_max: 64 << 20 }
    }

    #[test]
    fn records_come_back_in_order_and_files_go() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        let mut expected = Vec::new();
        // Written while it is read, over several files.
        let mut numbers = Vec::new();
        for n in 0..100 {
            assert!(spool.append(&batch(n * 1000..(n + 1) * 1000)).unwrap());
            expected.extend(n * 1000..(n + 1) * 1000);
            if n % 3 == 0 {
                numbers.extend(spool.read().unwrap().records.iter().map(|record| record.counters.packets));
            }
        }
        numbers.extend(drain(&mut spool));
        assert_eq!(numbers, expected);
        assert_eq!(spool.bytes, 0);
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["lock"]);
    }

    #[test]
    fn the_bound_holds() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&SpoolOptions { bytes_max: 20_000, ..options(folder.path()) }).unwrap();
        let taken =
            (0..100).take_while(|n| spool.append(&batch(n * 10..n * 10 + 10)).unwrap()).count() as u64;
        assert!(taken > 10 && taken < 100);
        let on_disk: u64 =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(on_disk <= 20_000);
        assert_eq!(drain(&mut spool), (0..taken * 10).collect::<Vec<_>>());
        assert!(spool.append(&batch(0..10)).unwrap(), "room again");
    }

    #[test]
    fn what_comes_back_is_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        spool.append(&batch(0..3000)).unwrap();
        let first = spool.read().unwrap().records;
        assert_eq!(spool.put_back(&first).amount, Amount::default());
        spool.append(&batch(3000..3010)).unwrap();
        assert_eq!(drain(&mut spool), (0..3010).collect::<Vec<_>>());
    }

    #[test]
    fn what_cannot_be_put_back_is_lost_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        spool.append(&batch(0..3000)).unwrap();
        let before = spool.amount();
        let first = spool.read().unwrap().records;
        // Its name is taken by a folder, which no file can replace.
        fs::create_dir_all(spool.path(FIRST_NUMBER).join("x")).unwrap();
        let lost = spool.put_back(&first);
        assert!(lost.error.is_some());
        assert_eq!((lost.amount, spool.amount()), (before, Amount::default()), "what was being read, too");
    }

    #[test]
    fn what_is_being_read_is_put_back_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        spool.append(&batch(0..3000)).unwrap();
        let taken = spool.read().unwrap().records.len() as u64;
        assert_eq!(spool.put_back(&[]).amount, Amount::default());
        drop(spool);
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        assert_eq!(drain(&mut spool), (taken..3000).collect::<Vec<_>>());
    }

    #[test]
    fn another_process_finds_what_one_left_up_to_a_torn_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        spool.append(&batch(0..10)).unwrap();
        assert!(matches!(Spool::open(&options(folder.path())), Err(CollectorError::SpoolTaken { .. })));
        let path = spool.path(FIRST_NUMBER);
        drop(spool);
        let mut torn = Vec::new();
        write_image(&record(11), &mut torn);
        fs::OpenOptions::new().append(true).open(path).unwrap().write_all(&torn[..20]).unwrap();
        fs::write(folder.path().join("77.flows"), b"something else").unwrap();
        let mut spool = Spool::open(&options(folder.path())).unwrap();
        assert_eq!(spool.torn_files(), 2);
        spool.append(&batch(10..20)).unwrap();
        assert_eq!(drain(&mut spool), (0..20).collect::<Vec<_>>());
    }
}
