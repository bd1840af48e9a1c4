//! Interfaces through the probe: frames sent into one end of a veth are metered at the other.

#![cfg(target_os = "linux")]

#[path = "../../ports/tests/common/mod.rs"]
mod namespace;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Sums, Traffic, records, records_of, sums};
use namespace::{in_namespace, ip};
use thalweg_ports::live::packet::{self, PacketOptions};
use thalweg_ports::live::{NotTaken, PortTx};
use thalweg_probe::{
    ExportTargets, Input, LiveDriver, LiveInput, ModelKind, ProbeOptions, ProbeProgress, ProbeSummary,
    SflowOptions, Shape, probe,
};

use thalweg_store::live::Writing;
use thalweg_store::query::{Metric, Query, top};
use thalweg_store::{Dataset, Filter, View, Window};
use thalweg_wire::sflow::{CounterSample, Sample, read};

/// Longer than any frame takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Frames sent before waiting until the probe has seen them: fewer than a capture ring holds.
const BURST: usize = 2_000;

/// The probe's own reports.
#[derive(Clone, Default)]
struct Watch {
    is_open: Arc<AtomicBool>,
    packets: Arc<AtomicU64>,
}

impl ProbeProgress for Watch {
    fn advanced(&self, packets: u64, _fraction: Option<f64>) {
        self.packets.store(packets, Ordering::SeqCst);
        self.is_open.store(true, Ordering::SeqCst);
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends frames through the interface at the near end.
fn send(tx: &mut dyn PortTx, frames: &[(u64, Vec<u8>)]) {
    for (_, frame) in frames {
        wait_until("the interface takes no more", || match tx.push(frame) {
            Ok(()) => true,
            Err(NotTaken::Full) => {
                let _ = tx.flush();
                false
            }
            Err(other) => panic!("{other:?}"),
        });
    }
    wait_until("frames are stuck", || {
        let _ = tx.flush();
        tx.pending() == 0
    });
}

/// A veth whose ends send no packets of their own.
fn add_veth_pair() {
    ip("link add v0 type veth peer name v1");
    for end in ["v0", "v1"] {
        let path = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
        std::fs::write(path, "1").expect("in a namespace of our own");
        ip(&format!("link set {end} up"));
    }
}

/// Runs a probe at the far end, sends everything, calls `then`, and stops it.
fn metered(
    mut options: ProbeOptions,
    driver: LiveDriver,
    traffic: &Traffic,
    then: impl FnOnce(),
) -> ProbeSummary {
    let near = PacketOptions { exclusive: false, ..PacketOptions::new("v0") };
    let mut near = packet::open(&near).expect("the interface is there");
    let live =
        LiveInput { interfaces: vec!["v1".to_owned()], driver, ring: None, seconds: None, packets: None };
    options.input = Input::Live(live);
    let (stop, watch) = (Arc::new(AtomicBool::new(false)), Watch::default());
    std::thread::scope(|scope| {
        let (stop_it, heard) = (Arc::clone(&stop), watch.clone());
        let probe = scope.spawn(move || probe(&options, &stop_it, &heard));
        // Stops the probe, also after a panic.
        let _ends = thalweg_testdata::Stop(&stop);
        wait_until("the probe does not begin", || {
            watch.is_open.load(Ordering::SeqCst) || probe.is_finished()
        });
        let mut sent = 0;
        for burst in traffic.frames.chunks(BURST) {
            send(near.tx.as_mut(), burst);
            sent += burst.len() as u64;
            wait_until("packets do not come", || {
                watch.packets.load(Ordering::SeqCst) >= sent || probe.is_finished()
            });
        }
        then();
        stop.store(true, Ordering::SeqCst);
        probe.join().expect("the thread does not panic").expect("the probe ends without an error")
    })
}

fn options(lines: &Path) -> ProbeOptions {
    let input = Input::Live(LiveInput {
        interfaces: Vec::new(),
        driver: LiveDriver::AfPacket,
        ring: None,
        seconds: None,
        packets: None,
    });
    ProbeOptions { json: Some(lines.to_owned()), ..ProbeOptions::new(input) }
}

/// Asserts that records contain all sent traffic, and nothing else except frames other than IP.
fn assert_all_metered(summary: &ProbeSummary, found: &Sums, traffic: &Traffic) {
    assert!(summary.conserved, "{summary:?}");
    assert_eq!(*found, traffic.sums, "{summary:?}");
    assert_eq!(summary.packets_seen, traffic.frames.len() as u64, "{summary:?}");
    assert_eq!(summary.dropped_total(), traffic.not_ip, "{summary:?}");
    let captured = &summary.captured[0];
    assert_eq!((captured.packets, captured.missed), (summary.packets_seen, 0), "{summary:?}");
    assert!(captured.troubles.is_empty(), "{summary:?}");
}

#[test]
fn what_is_sent_is_metered_by_every_shape() {
    in_namespace("live::what_is_sent_is_metered_by_every_shape", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let lines = folder.path().join("records.json");
        let traffic = Traffic::mixed(6_000, 300, 1);
        let shapes = [
            Shape { model: ModelKind::Serial, ..Shape::default() },
            Shape { model: ModelKind::RunToCompletion, workers: 2, ..Shape::default() },
            Shape { model: ModelKind::Farm, pipelines: 2, ..Shape::default() },
            Shape { model: ModelKind::Farm, readers: 1, workers: 2, ..Shape::default() },
        ];
        for shape in shapes {
            let options = ProbeOptions { shape, ..options(&lines) };
            let summary = metered(options, LiveDriver::AfPacket, &traffic, || ());
            assert_all_metered(&summary, &sums(&records(&lines)), &traffic);
            assert!(summary.captured[0].mode.starts_with("af_packet"), "{summary:?}");
        }
    });
}

/// A record has the system's number of the interface, not its position among those being watched.
#[test]
fn records_have_the_systems_number_of_their_interface() {
    in_namespace("live::records_have_the_systems_number_of_their_interface", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let (lines, store) = (folder.path().join("records.json"), folder.path().join("flows"));
        let options = ProbeOptions { store: Some(store.clone()), ..options(&lines) };
        let traffic = Traffic::mixed(500, 20, 3);
        let summary = metered(options, LiveDriver::AfPacket, &traffic, || ());
        assert_all_metered(&summary, &sums(&records(&lines)), &traffic);
        let index = std::fs::read_to_string("/sys/class/net/v1/ifindex").expect("it is there");
        let index: u32 = index.trim().parse().expect("a number");
        assert_ne!(index, 1, "the place from 1");
        let view = Dataset::open(&store).and_then(|set| set.view(Window::ALL)).expect("a dataset");
        let query = Query::new(Window::ALL, Filter::default());
        let (kept, _) = thalweg_store::query::list(&view, &query, 10_000).expect("an answer");
        assert!(!kept.is_empty() && kept.iter().all(|record| record.key.ingress == index), "{kept:?}");

        let lines = std::fs::read_to_string(&lines).expect("lines");
        let interface = [format!("\"ingress\":{index},"), "\"ingress_name\":\"v1\"".to_owned()];
        assert!(lines.lines().all(|line| interface.iter().all(|part| line.contains(part))), "{lines}");
    });
}

/// What the kernel counts: packets, bytes, discards and errors, received and sent.
fn kernel_counts(interface: &str) -> [u64; 8] {
    ["rx", "tx"]
        .map(|way| {
            ["packets", "bytes", "dropped", "errors"].map(|what| {
                let path = format!("/sys/class/net/{interface}/statistics/{way}_{what}");
                let text = std::fs::read_to_string(path).expect("it is there");
                text.trim().parse::<u64>().expect("a number")
            })
        })
        .concat()
        .try_into()
        .expect("eight")
}

/// The same of a sample.
fn told_counts(sample: &CounterSample) -> [u64; 8] {
    let counters = sample.interface.expect("an interface's counters");
    [counters.received, counters.sent]
        .map(|of| {
            let packets = of.unicast.map(|unicast| unicast + of.multicast.unwrap_or(0));
            let [packets, discarded, errors] =
                [packets, of.discarded, of.errors].map(|count| u64::from(count.expect("known")));
            [packets, of.bytes.expect("known"), discarded, errors]
        })
        .concat()
        .try_into()
        .expect("eight")
}

/// All counter samples that have come.
fn counter_samples(collector: &UdpSocket) -> Vec<CounterSample> {
    let (mut all, mut datagram) = (Vec::new(), [0; 2048]);
    while let Ok(length) = thalweg_testdata::uninterrupted(|| collector.recv(&mut datagram)) {
        read(&datagram[..length], |_, sample| match sample {
            Sample::Counters(counters) => all.push(*counters),
            Sample::Flow(_) => {}
            Sample::Other => panic!("{sample:?}"),
        })
        .expect("it is sFlow");
    }
    all
}

#[test]
fn counter_samples_have_what_the_kernel_counts() {
    in_namespace("live::counter_samples_have_what_the_kernel_counts", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let lines = folder.path().join("records.json");
        let traffic = Traffic::mixed(3_000, 100, 8);
        for (round, driver) in (1..).zip([LiveDriver::AfPacket, LiveDriver::AfXdp]) {
            let collector = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
            collector.set_nonblocking(true).expect("it can");
            let collector = thalweg_testdata::with_room(collector);
            let here = collector.local_addr().expect("it has one");
            let sflow = SflowOptions { counters: SflowOptions::every_s(1), ..SflowOptions::default() };
            let addresses = vec![format!("sflow://{here}")];
            let export = ExportTargets { addresses, sflow, ..ExportTargets::default() };
            let shape = Shape { model: ModelKind::Serial, ..Shape::default() };
            let options = ProbeOptions { export, shape, ..options(&lines) };
            let mut all = Vec::new();
            let summary = metered(options, driver, &traffic, || {
                wait_until("no sample has the kernel's counters", || {
                    all.extend(counter_samples(&collector));
                    all.len() > 2 && all.last().is_some_and(|last| told_counts(last) == kernel_counts("v1"))
                });
            });
            let index = std::fs::read_to_string("/sys/class/net/v1/ifindex").expect("it is there");
            let index: u32 = index.trim().parse().expect("a number");
            for (number, sample) in (1..).zip(&all) {
                assert_eq!((sample.sequence, sample.source), (number, index), "{all:?}");
            }
            let last = all[all.len() - 1];
            assert!(told_counts(&last)[0] >= round * traffic.frames.len() as u64, "{driver:?}: {last:?}");
            let last = last.interface.expect("an interface's counters");
            assert!(last.is_enabled && last.is_up && last.bits_per_s == 10_000_000_000, "{last:?}");
            assert_eq!(
                (last.received.broadcast, last.sent.multicast, last.unknown_protocols),
                (None, None, None)
            );
            let outlet = summary.outlets.last().expect("the summary has the collector");
            assert!(outlet.counter_samples >= all.len() as u64 && outlet.lost.is_empty(), "{outlet:?}");
            assert_eq!(outlet.interfaces_uncounted, 0);
        }
    });
}

#[test]
fn af_xdp_meters_the_same() {
    in_namespace("live::af_xdp_meters_the_same", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let lines = folder.path().join("records.json");
        let traffic = Traffic::mixed(4_000, 200, 2);
        let mut options = options(&lines);
        options.shape = Shape { model: ModelKind::Serial, ..Shape::default() };
        let summary = metered(options.clone(), LiveDriver::AfXdp, &traffic, || ());
        assert_all_metered(&summary, &sums(&records(&lines)), &traffic);
        assert!(summary.captured[0].mode.starts_with("af_xdp"), "{summary:?}");
        // A veth has one receive queue by default.
        options.shape.pipelines = 2;
        options.input = Input::Live(LiveInput {
            interfaces: vec!["v1".to_owned()],
            driver: LiveDriver::AfXdp,
            ring: None,
            seconds: None,
            packets: None,
        });
        let error = probe(&options, &Arc::default(), &()).expect_err("one queue for two pipelines");
        assert!(error.is_usage() && error.to_string().contains("1 receive queues"), "{error}");
    });
}

#[test]
fn flows_end_on_a_silent_link() {
    in_namespace("live::flows_end_on_a_silent_link", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let lines = folder.path().join("records.json");
        let traffic = Traffic::mixed(500, 40, 3);
        for model in [ModelKind::Serial, ModelKind::Farm] {
            let mut options = options(&lines);
            options.shape.model = model;
            options.meter.idle_timeout_ns = 100_000_000;
            let summary = metered(options, LiveDriver::AfPacket, &traffic, || {
                wait_until("nothing is reported", || {
                    let text = std::fs::read_to_string(&lines).unwrap_or_default();
                    text.ends_with('\n') && sums(&records_of(&text)) == traffic.sums
                });
            });
            assert_all_metered(&summary, &sums(&records(&lines)), &traffic);
            assert_eq!(summary.records_by_reason.get("forced-end"), None, "{summary:?}");
        }
    });
}

/// A query to the dataset while the probe runs sees every packet once: in the cache, pending, or on disk.
#[test]
fn a_dataset_answers_with_what_is_in_the_cache() {
    in_namespace("live::a_dataset_answers_with_what_is_in_the_cache", || {
        add_veth_pair();
        let folder = tempfile::tempdir().expect("a folder");
        let (lines, store) = (folder.path().join("records.json"), folder.path().join("flows"));
        let traffic = Traffic::mixed(6_000, 300, 4);
        let shapes = [
            Shape { model: ModelKind::RunToCompletion, workers: 2, ..Shape::default() },
            Shape { model: ModelKind::Serial, ..Shape::default() },
        ];
        let packets = |view: &View| {
            let query = Query::new(Window::ALL, Filter::default());
            top(view, &query, &[], Metric::Packets, 0).expect("an answer").total.packets
        };
        let all = traffic.frames.len() as u64 - traffic.not_ip;
        for (number, shape) in (1..).zip(shapes) {
            let mut options = ProbeOptions { shape, store: Some(store.clone()), ..options(&lines) };
            // Most flows end early and continue as new flows.
            options.meter.idle_timeout_ns = 20_000_000;
            let summary = metered(options, LiveDriver::AfPacket, &traffic, || {
                let dataset = Dataset::open(&store).expect("the probe made it");
                let (mut before, mut told) = (0, None);
                wait_until("packets are not in the answer", || {
                    let (view, writing) = dataset.live_view(Window::ALL).expect("a view");
                    let [Writing::Answered(facts)] = writing[..] else { panic!("no answer: {writing:?}") };
                    let now = packets(&view);
                    if told.replace((now, facts.on_the_way)) != Some((now, facts.on_the_way)) {
                        println!("{now} of {} packets, {facts:?}", number * all);
                    }
                    assert!(facts.has_cache && !facts.cache_left_out, "{facts:?}");
                    if facts.on_the_way > 0 {
                        return false;
                    }
                    assert!(before <= now && now <= number * all, "{before} <= {now} <= {}", number * all);
                    before = now;
                    now == number * all
                });
            });
            assert!(summary.conserved, "{summary:?}");
            let (view, writing) =
                Dataset::open(&store).and_then(|it| it.live_view(Window::ALL)).expect("a view");
            assert_eq!((packets(&view), writing), (number * all, Vec::new()));
        }
    });
}

#[test]
fn a_time_or_a_number_of_packets_ends_it() {
    in_namespace("live::a_time_or_a_number_of_packets_ends_it", || {
        add_veth_pair();
        let mut options = ProbeOptions::new(Input::Live(LiveInput {
            interfaces: vec!["v1".to_owned()],
            driver: LiveDriver::AfPacket,
            ring: None,
            seconds: Some(1),
            packets: None,
        }));
        let summary = probe(&options, &Arc::default(), &()).expect("it ends by itself");
        assert_eq!((summary.packets_seen, summary.conserved), (0, true));
        if let Input::Live(live) = &mut options.input {
            live.interfaces = vec!["no-such-interface".to_owned()];
        }
        let error = probe(&options, &Arc::default(), &()).expect_err("there is no such interface");
        assert!(error.to_string().contains("no-such-interface"), "{error}");
    });
}
