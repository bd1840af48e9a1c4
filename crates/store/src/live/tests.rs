//! Compares views of a dataset that is written at full speed with the records that were put in.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use thalweg_flow::{EndReason, FlowRecord};
use thalweg_testdata::Stop;

use super::client::Answer;
use super::*;
use crate::dataset::{Dataset, View, Window};
use crate::error::StoreError;
use crate::filter::Filter;
use crate::query::{Metric, Query, Sums, top};
use crate::testing::{self, Chance};
use crate::writer::{Writer, WriterOptions};

/// A writer that publishes a file for every few thousand records.
fn busy_options() -> WriterOptions {
    WriterOptions { pending_records_max: 4096, upkeep_interval_s: 0, ..WriterOptions::new(|| 0) }
}

fn record(chance: &mut Chance, number: u64) -> FlowRecord {
    let mut record = testing::likely_record(chance);
    // Flows of a few hours, each with its own key.
    record.counters.packets = 1;
    record.counters.bytes = 100;
    record.counters.first_ns = testing::START_NS + number;
    record.counters.last_ns = testing::START_NS + number + chance.next_u64() % (3 * 3_600_000_000_000);
    record
}

fn total(dataset: &Dataset) -> (Sums, Vec<Writing>) {
    total_of(dataset.live_view(Window::ALL).unwrap())
}

fn total_of((view, writing): (View, Vec<Writing>)) -> (Sums, Vec<Writing>) {
    let query = Query { threads: 1, ..Query::new(Window::ALL, Filter::default()) };
    let answer = top(&view, &query, &[], Metric::Packets, 0).unwrap();
    assert_eq!(answer.scanned.skipped.count, 0);
    (answer.total, writing)
}

/// Asks repeatedly while other threads work. Every answer lies between the work done before the question and the
/// work begun by the time of the answer, and answers never shrink. A slow machine gives answers that say that they are
/// incomplete; at least one must be whole.
fn watch(dataset: &Dataset, times: usize, begun: &AtomicU64, done: &AtomicU64, stop: &AtomicBool) {
    let _stop = Stop(stop);
    let (mut before, mut checked) = (0, 0);
    for _ in 0..times {
        let least = done.load(SeqCst);
        let (sums, writing) = match dataset.live_view(Window::ALL) {
            Ok(found) => total_of(found),
            Err(StoreError::Moving(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let most = begun.load(SeqCst);
        match &writing[..] {
            [Writing::Answered(facts)] if facts.on_the_way > 0 || facts.cache_left_out => continue,
            [Writing::Answered(_)] => {}
            [Writing::Silent(why)] if why.contains("said nothing") => continue,
            other => panic!("{other:?}"),
        }
        assert!(least <= sums.packets && sums.packets <= most, "{least} <= {} <= {most}", sums.packets);
        assert_eq!(sums.bytes, sums.packets * 100);
        assert!(sums.packets >= before, "{} after {before}", sums.packets);
        before = sums.packets;
        checked += 1;
    }
    assert!(checked > 0, "no answer was whole");
}

#[test]
fn what_is_pending_counts_once_while_files_are_published_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), busy_options()).unwrap();
    let server = writer.serve(None).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = Stop(&stop);
            let mut chance = Chance::new(1);
            let mut number = 0;
            while !stop.load(SeqCst) {
                let records: Vec<FlowRecord> =
                    (0..500).map(|place| record(&mut chance, number + place)).collect();
                number += 500;
                begun.fetch_add(500, SeqCst);
                writer.append(&records).unwrap();
                done.fetch_add(500, SeqCst);
            }
        });
        scope.spawn(|| {
            let _stop = Stop(&stop);
            while !stop.load(SeqCst) {
                writer.compact().unwrap();
            }
        });
        watch(&dataset, 40, &begun, &done, &stop);
    });
    let all = done.load(SeqCst);
    assert_eq!(total(&dataset).0.packets, all);
    drop(server);
    writer.close().unwrap();
    assert_eq!(total(&dataset), (Sums { packets: all, bytes: all * 100, flows: all }, Vec::new()));
}

/// A cache of some flows, from which records go over a queue to the writer.
struct Flows {
    slots: Vec<Mutex<Option<FlowRecord>>>,
    exported: AtomicU64,
    delivered: AtomicU64,
}

impl Flows {
    /// Counts a packet, and sometimes ends flows.
    fn packet(&self, chance: &mut Chance, number: u64, queue: &SyncSender<FlowRecord>) {
        let at = chance.below(self.slots.len() as u32) as usize;
        let mut slot = self.slots[at].lock();
        let flow = slot.get_or_insert_with(|| {
            let mut flow = record(chance, number);
            // Few keys, so that the same flow begins again soon after it ended.
            flow.key.src_port = at as u16;
            flow.key.dst_port = 0;
            (flow.key.src, flow.key.dst) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
            flow.counters.packets = 0;
            flow.counters.bytes = 0;
            flow
        });
        flow.counters.packets += 1;
        flow.counters.bytes += 100;
        flow.counters.last_ns = testing::START_NS + number;
        if chance.below(4) == 0
            && let Some(flow) = slot.take()
        {
            self.exported.fetch_add(1, SeqCst);
            drop(slot);
            queue.send(flow).unwrap();
        }
    }
}

impl Cache for Flows {
    fn show(&self, take: &mut dyn FnMut(&[FlowRecord]) -> ControlFlow<()>) -> bool {
        for slots in self.slots.chunks(8) {
            let flows: Vec<FlowRecord> = slots.iter().filter_map(|slot| *slot.lock()).collect();
            if take(&flows).is_break() {
                break;
            }
        }
        true
    }

    fn settle(&self, timeout: Duration) -> Option<u64> {
        let (until, began) = (self.exported.load(SeqCst), std::time::Instant::now());
        loop {
            let missing = until.saturating_sub(self.delivered.load(SeqCst));
            if missing == 0 || began.elapsed() > timeout {
                return Some(missing);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn deliver(flows: &Flows, queue: &Receiver<FlowRecord>, writer: &Writer) {
    let mut waiting = VecDeque::new();
    while let Ok(record) = queue.recv() {
        waiting.push_back(record);
        waiting.extend(queue.try_iter().take(200));
        writer.append(waiting.make_contiguous()).unwrap();
        flows.delivered.fetch_add(waiting.len() as u64, SeqCst);
        waiting.clear();
    }
}

#[test]
fn flows_of_the_cache_count_once_while_they_end_and_begin_again() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), busy_options()).unwrap();
    let slots = (0..2000).map(|_| Mutex::new(None)).collect();
    let flows = Arc::new(Flows { slots, exported: AtomicU64::new(0), delivered: AtomicU64::new(0) });
    let server = writer.serve(Some(flows.clone())).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    let (begun, done, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (queue, arrivals) = sync_channel(256);
        let (begun, done, stop) = (&begun, &done, &stop);
        let (flows, writer) = (&*flows, &writer);
        scope.spawn(move || {
            let _stop = Stop(stop);
            let mut chance = Chance::new(2);
            for number in 1.. {
                if stop.load(SeqCst) {
                    break;
                }
                begun.fetch_add(1, SeqCst);
                flows.packet(&mut chance, number, &queue);
                done.fetch_add(1, SeqCst);
            }
        });
        scope.spawn(move || deliver(flows, &arrivals, writer));
        watch(&dataset, 60, begun, done, stop);
    });
    let (sums, writing) = total(&dataset);
    assert_eq!(sums.packets, done.load(SeqCst));
    let [Writing::Answered(facts)] = writing[..] else { panic!("{writing:?}") };
    let cached = flows.slots.iter().filter(|slot| slot.lock().is_some()).count() as u64;
    assert_eq!((facts.cached, facts.on_the_way, facts.has_cache), (cached, 0, true));
    drop(server);
    writer.close().unwrap();
}

/// A record that covers what the cache showed replaces it; one of an earlier part of the flow does not.
#[test]
fn only_what_came_in_meanwhile_is_left_out() {
    use super::frame::{Note, Notes};
    let mut chance = Chance::new(4);
    let mut shown = testing::any_record(&mut chance);
    (shown.counters.first_ns, shown.counters.last_ns) = (1000, 2000);
    let note = |first_ns, last_ns| {
        let mut record = shown;
        (record.counters.first_ns, record.counters.last_ns) = (first_ns, last_ns);
        record.end_reason = Some(EndReason::IdleTimeout);
        record.src_as = 1;
        Note::of(&record)
    };
    for (first_ns, last_ns, is_same) in
        [(1000, 2000, true), (1000, 3000, true), (900, 2000, true), (500, 999, false), (2001, 3000, false)]
    {
        let notes = Notes::new(vec![Note::of(&record(&mut chance, 1)), note(first_ns, last_ns)]);
        assert_eq!(notes.has(&shown), is_same, "{first_ns} to {last_ns}");
    }
    let mut other = shown;
    other.key.src_port ^= 1;
    assert!(!Notes::new(vec![note(1000, 2000)]).has(&other));
}

/// Data beyond the limit of the asker, or of the answerer's notes, is left out, and the answer says so.
#[test]
fn a_cache_that_is_too_large_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), WriterOptions::new(|| 0)).unwrap();
    let mut chance = Chance::new(8);
    let slots = (0..50).map(|n| Mutex::new(Some(record(&mut chance, n)))).collect();
    let flows = Flows { slots, exported: AtomicU64::new(0), delivered: AtomicU64::new(0) };
    let _server = writer.serve(Some(Arc::new(flows))).unwrap();
    writer.append(&[record(&mut chance, 100)]).unwrap();
    for (records_max, cached) in [(50, 50), (49, 0), (0, 0)] {
        let answer = Answer::ask(folder.path(), Window::ALL, records_max).unwrap().unwrap();
        let (view, facts) = answer.view(folder.path(), Window::ALL).unwrap();
        let facts_of = LiveFacts { pending: 1, cached, has_cache: true, ..LiveFacts::default() };
        let expected = LiveFacts { cache_left_out: cached == 0, ..facts_of };
        assert_eq!(facts, expected);
        assert_eq!((view.summary().pending_records, view.summary().cached_records), (1, cached));
    }
    // Notes of two records are kept; three come.
    let listener = writer.shared().listen_for_notes(2);
    writer.append(&[record(&mut chance, 101), record(&mut chance, 102)]).unwrap();
    assert_eq!(writer.shared().moment(Window::ALL, &listener).unwrap().notes.len(), 2);
    writer.append(&[record(&mut chance, 103)]).unwrap();
    assert!(!writer.shared().moment(Window::ALL, &listener).unwrap().notes_whole);
}

#[test]
fn the_socket_is_the_owners_or_the_folders_groups_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    // Longer than a socket address may be.
    let deep = folder.path().join("d".repeat(60)).join("e".repeat(60));
    let (writer, _) = Writer::open(&deep, busy_options()).unwrap();
    // A socket left by a killed writer.
    let stale = Way::to(&deep, SOCKET).unwrap();
    drop(UnixListener::bind(&stale.path).unwrap());
    let dataset = Dataset::open(&deep).unwrap();
    let (_, writing) = dataset.live_view(Window::ALL).unwrap();
    assert!(matches!(&writing[..], [Writing::Silent(why)] if why.contains("was killed")), "{writing:?}");
    let server = writer.serve(None).unwrap();
    let socket = deep.join(SOCKET);
    assert_eq!(socket.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
    writer.append(&[record(&mut Chance::new(1), 0)]).unwrap();
    let (view, writing) = dataset.live_view(Window::ALL).unwrap();
    assert_eq!(view.summary().pending_records, 1);
    assert_eq!(writing, [Writing::Answered(LiveFacts { pending: 1, ..LiveFacts::default() })]);
    drop(server);
    assert!(!socket.exists());
    assert_eq!(dataset.live_view(Window::ALL).unwrap().1, []);
    let left: Vec<_> = std::fs::read_dir(&deep).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [std::ffi::OsStr::new(".writer.lock")]);
    // A folder that gives its group to what is made in it is for that group.
    std::fs::set_permissions(&deep, std::fs::Permissions::from_mode(0o2750)).unwrap();
    let server = writer.serve(None).unwrap();
    let [shared, made] = [&deep, &socket].map(|path| path.symlink_metadata().unwrap());
    assert_eq!((made.permissions().mode() & 0o777, made.gid()), (0o660, shared.gid()));
    drop(server);
}

#[test]
fn who_answers_nonsense_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    let answers: [&[u8]; 5] =
        [b"", b"\x01\x00", b"\x09\x00\x00\x00\x00", b"\x01\xff\xff\xff\xff", b"\x01\x02\x00\x00\x00ab"];
    for answer in answers {
        let writing = std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = String::new();
                std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut question).unwrap();
                assert_eq!(question, "thalweg live 1 view 0 18446744073709551615\n");
                std::io::Write::write_all(&mut stream, answer).unwrap();
            });
            dataset.live_view(Window::ALL).unwrap().1
        });
        assert!(matches!(writing[..], [Writing::Silent(_)]), "{answer:?}: {writing:?}");
    }
}

#[test]
fn who_follows_gets_every_record_or_hears_how_many_he_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = Writer::open(folder.path(), WriterOptions::new(|| 0)).unwrap();
    let dataset = Dataset::open(folder.path()).unwrap();
    assert!(dataset.follow().unwrap().is_empty());
    let server = writer.serve(None).unwrap();
    let mut follow = dataset.follow().unwrap().pop().unwrap();
    let mut chance = Chance::new(6);
    let records: Vec<FlowRecord> =
        (0..FOLLOWED_MAX as u64 + 20_000).map(|n| record(&mut chance, n)).collect();
    writer.append(&records[..10]).unwrap();
    let mut received = Vec::new();
    while received.len() < 10 {
        let Followed::Records(next) = follow.wait().unwrap() else { panic!("few records are missing") };
        received.extend(next);
    }
    assert_eq!(received, records[..10]);
    writer.append(&records).unwrap();
    let mut count = 0;
    while count < records.len() as u64 {
        match follow.wait().unwrap() {
            Followed::Records(next) => count += next.len() as u64,
            Followed::Missed(missed) => count += missed,
            Followed::End => panic!("the writer is there"),
        }
    }
    assert_eq!(count, records.len() as u64);
    drop(server);
    while follow.wait().unwrap() != Followed::End {}
}
