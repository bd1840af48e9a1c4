//! The forwarding experiment in real namespaces, with the kernel as the router and everything as short as
//! possible.
//!
//! Needs root, `ip` and `nft`; otherwise it says so and is skipped. No result depends on the machine's speed.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thalweg_lab::forwarding::experiment::{Options, Outcome, Part, run};
use thalweg_lab::forwarding::frame::FrameSize;
use thalweg_lab::forwarding::load::{RouteTable, Scenario, flows};
use thalweg_lab::forwarding::method::{BurstOptions, SearchOptions};
use thalweg_lab::forwarding::subject::linux::Linux;
use thalweg_lab::forwarding::subject::{Label, Subject, Task};
use thalweg_lab::forwarding::tester::{Offer, Tester, Way};
use thalweg_lab::forwarding::topology::Topology;
use thalweg_lab::forwarding::{ForwardingError, is_root};

/// A router that never appears.
struct Absent(Label);

impl Subject for Absent {
    fn label(&self) -> &Label {
        &self.0
    }

    fn refuses(&self, task: &Task<'_>) -> Option<String> {
        task.nat.then(|| "it does not translate".to_owned())
    }

    fn set_up(&mut self, _: &Topology, _: &Task<'_>) -> Result<(), ForwardingError> {
        Ok(())
    }

    fn cpu_s(&self) -> f64 {
        0.0
    }

    fn said(&self) -> String {
        "I am not there".to_owned()
    }

    fn tear_down(&mut self) {}
}

/// Why namespaces are not available, if so.
fn possible() -> Result<(), String> {
    if !is_root() {
        return Err("not root".to_owned());
    }
    Topology::new(1500).map(drop).map_err(|error| error.to_string())
}

/// Namespaces that this process has made and not removed.
fn left_behind() -> Vec<String> {
    let mine = format!("thalweg-lab-{}-", std::process::id());
    let all = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = all.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&mine)).collect()
}

// One test, because the namespaces of one process have the same names.
#[test]
fn routers_in_namespaces() {
    if let Err(why) = possible() {
        return thalweg_testdata::skipped(&format!("the experiment on forwarding: {why}"));
    }
    assert_eq!(left_behind(), [""; 0]);
    counted_frame_by_frame();
    assert_eq!(left_behind(), [""; 0]);
    whole_experiment();
    assert_eq!(left_behind(), [""; 0]);
    interrupted();
    assert_eq!(left_behind(), [""; 0]);
}

/// Looks at every frame of some trials.
fn counted_frame_by_frame() {
    let topology = Topology::new(9000).expect("a topology was made before");
    let table = ["9.0.0.0/8".parse().expect("a prefix")];
    let task = Task { nat: false, table: &table, mtu: 9000 };
    Linux::default().set_up(&topology, &task).expect("the kernel forwards");
    let stop = AtomicBool::new(false);
    let scenario: Scenario = "full:100".parse().expect("a scenario");
    let flows = flows(&scenario, &table, 1);
    for bytes in [64, 1518, 9000] {
        let size = FrameSize::new(bytes).expect("a size");
        for way in [Way::Direct, Way::Router] {
            let mut tester = Tester::new(&topology, way, size, &flows, &stop).expect("packet sockets");
            let (trial, tagged) = tester.tagged(Offer::paced(5000.0, 0.1), 0, &|| 0.0).expect("a trial");
            // A busy machine may not send all frames in time; those sent must arrive once and correct.
            assert!(trial.sent > 0 && trial.sent <= trial.intended, "{way:?} {bytes}: {trial:?}");
            assert_eq!(trial.received, trial.sent, "{way:?} {bytes}: {trial:?}");
            assert_eq!(tagged.latencies_ns.len() as u64 + tagged.left_out, trial.sent, "{way:?} {bytes}");
            assert!(tagged.faults.is_empty(), "{way:?} {bytes}: {:?}", tagged.faults);
            assert_eq!(tagged.out_of_order, 0);
            let burst = tester.trial(Offer::burst(300), &|| 0.0).expect("a trial");
            assert_eq!((burst.intended, burst.sent), (300, 300));
            assert!(burst.received <= burst.sent);
            let (_, few) = tester.tagged(Offer::burst(256), 63, &|| 0.0).expect("a trial");
            assert!(few.latencies_ns.len() as u64 + few.left_out <= 4, "one in 64 of 256 at most");
        }
    }
}

fn short(scenarios: &[&str]) -> Options {
    Options {
        parts: Part::ALL.to_vec(),
        frames: [64, 512].iter().filter_map(|bytes| FrameSize::new(*bytes).ok()).collect(),
        scenarios: scenarios.iter().map(|text| text.parse().expect("a scenario")).collect(),
        runs: 1,
        trial_s: 0.02,
        // On a busy machine no rate would pass with the usual limit; this test is about tables, not figures.
        search: SearchOptions { loss_max: 0.9, width: 0.2, attempts: 1 },
        bursts: BurstOptions { repeats: 1, longest_s: 0.01 },
        message_bytes: vec![1, 1000],
        start_wait: Duration::from_secs(2),
        ..Options::default()
    }
}

fn whole_experiment() {
    let options = short(&["one:1", "full:200", "nat:20"]);
    let table =
        RouteTable { prefixes: vec!["9.0.0.0/8".parse().expect("a prefix")], description: "one".to_owned() };
    let mut subjects: Vec<Box<dyn Subject>> =
        vec![Box::new(Linux::default()), Box::new(Absent(Label::new("absent", "none", "")))];
    let mut steps = Vec::new();
    let stop = AtomicBool::new(false);
    let outcome = run(&mut subjects, &options, &table, &stop, &mut |progress| steps.push(progress));
    let outcome: Outcome = outcome.expect("the kernel can be measured");
    assert!(steps.iter().all(|step| step.done < step.total), "{steps:?}");

    assert_eq!(outcome.ceilings.len(), 2);
    assert!(outcome.ceilings.iter().all(|c| c.packets_per_second.min > 0.0 && c.latency.is_some()));
    let nat = outcome.left_out.iter().all(|why| !why.starts_with("linux"));
    if !nat {
        thalweg_testdata::skipped(&format!("the kernel's NAT: {:?}", outcome.left_out));
    }
    let names: Vec<String> =
        outcome.cells.iter().map(|cell| format!("{} {}", cell.scenario, cell.frame_bytes)).collect();
    let wanted = ["one:1 64", "one:1 512", "full:200 64", "nat:20 64"];
    assert_eq!(names, wanted[..if nat { 4 } else { 3 }]);
    for cell in &outcome.cells {
        let what = format!("{cell:?}");
        assert!(cell.packets_per_second.min > 0.0 && cell.native_ratio == Some(1.0), "{what}");
        assert_eq!(cell.latency.len(), 3, "{what}");
        assert!(cell.latency.iter().all(|at| at.percentiles.samples > 0), "{what}");
        assert!(cell.loss_curve.len() >= 2, "{what}");
        assert!(cell.loss_curve.iter().all(|p| p.received_pps <= p.sent_pps), "{what}");
        assert!(cell.cost.as_ref().is_some_and(|cost| cost.cpu_ns_per_packet.min > 0.0), "{what}");
    }
    assert!(outcome.applications.iter().all(|a| a.bytes_per_second.min > 0.0));
    let through_linux = outcome.applications.iter().filter(|a| a.label.is_some()).count();
    assert_eq!(
        (outcome.applications.len() - through_linux, through_linux),
        (4, if nat { 8 } else { 4 }),
        "two sizes of MTU"
    );
    // A missing router is named, with the number of frames that came through and its output.
    let absent: Vec<&String> = outcome.left_out.iter().filter(|why| why.starts_with("absent")).collect();
    assert_eq!(absent.len(), 3, "{absent:?}");
    assert!(absent.iter().any(|why| why.contains("0 came through") && why.contains("I am not there")));
    assert!(absent.iter().any(|why| why.contains("nat") && why.contains("it does not translate")));
}

fn interrupted() {
    let table = RouteTable { prefixes: Vec::new(), description: String::new() };
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Linux::default())];
    let stop = AtomicBool::new(true);
    let error = run(&mut subjects, &short(&["one:1"]), &table, &stop, &mut |_| {}).expect_err("interrupted");
    assert!(matches!(error, ForwardingError::Interrupted), "{error}");
}
