//! Experiments with routers in namespaces, at their smallest size. No test says how fast anything was.

/// One test for both, because both need the machine's namespaces and the same processor.
#[test]
fn live_experiments_with_the_kernel_and_ourselves() {
    if !thalweg_lab::forwarding::is_root() {
        return thalweg_testdata::skipped("live experiments: not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let short = ["--quick", "--trial", "0.05", "--drivers", "af_packet"];
    let few = ["--only", "set-up,established,tear-down,capacity", "--live-sessions", "200"];
    let fewer = ["--set-up-sessions", "200", "--capacity-limit", "400"];
    let output = crate::experiment(&[&["lab", "nat"][..], &short, &few, &fewer].concat(), folder.path());
    let json = crate::results(&output, folder.path());
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab nat: {why}")));
    let live = json["results"]["live"].as_array().expect("cells");
    // The kernel has four figures; our router has three, because tear-down is measured for the kernel only. On a
    // busy machine nothing can be said about throughput, except that it is at most the offered load.
    for (subject, figures) in [("linux", 4), ("thalweg", 3)] {
        let here: Vec<_> = live.iter().filter(|cell| cell["subject"] == subject).collect();
        let is_left_out = left_out.iter().any(|why| why.as_str().is_some_and(|why| why.starts_with(subject)));
        assert!(here.len() == figures || is_left_out, "{subject}: {live:?}");
    }
    let held = live.iter().filter(|cell| cell["measure"] == "capacity");
    held.for_each(|cell| assert!(cell["sessions"].as_u64() <= Some(400), "{cell}"));

    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--firewall", "3,200", "--only", "established", "--live-sessions", "200"];
    let output = crate::experiment(&[&["lab", "nat"][..], &short, &few, &fewer].concat(), folder.path());
    let json = crate::results(&output, folder.path());
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab nat --firewall: {why}")));
    let live = json["results"]["live"].as_array().expect("cells");
    assert_eq!(live.len() + left_out.len(), 4, "both routers with both numbers of rules: {json}");
    live.iter()
        .for_each(|cell| assert!(cell["change"].as_str().is_some_and(|change| change.ends_with("rules"))));

    let folder = tempfile::tempdir().expect("a folder");
    let small = ["--only", "throughput", "--frames", "64", "--subjects", "linux,thalweg"];
    let output = crate::experiment(&[&["lab", "forwarding"][..], &short, &small].concat(), folder.path());
    let json = crate::results(&output, folder.path());
    assert!(json["results"].is_object(), "{json}");

    let folder = tempfile::tempdir().expect("a folder");
    let slow = ["--rate", "10", "--calls", "2"];
    let output = crate::experiment(&[&["lab", "qos"][..], &short, &slow].concat(), folder.path());
    let json = crate::results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    let ours = cells.iter().filter(|cell| cell["subject"] == "thalweg").collect::<Vec<_>>();
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab qos: {why}")));
    let is_left_out = left_out.iter().any(|why| why.as_str().is_some_and(|why| why.starts_with("thalweg")));
    assert!(ours.len() == 2 || is_left_out, "{json}");
    assert!(ours.iter().all(|cell| cell["sojourn"]["p99_us"].as_f64().is_some()), "{ours:?}");
    assert!(cells.iter().all(|cell| cell["line_bits_per_second"]["median"].as_f64().is_some()), "{json}");

    let folder = tempfile::tempdir().expect("a folder");
    let one = ["--loads", "up"];
    let output = crate::experiment(&[&["lab", "bulk"][..], &short, &one].concat(), folder.path());
    let json = crate::results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab bulk: {why}")));
    // The kernel between two kinds of hosts, and ours.
    assert_eq!(cells.len() + left_out.len(), 3, "{json}");
    assert!(cells.iter().all(|cell| cell["bits_per_second"]["median"].as_f64() > Some(0.0)), "{json}");
}

/// Every load of every router has a row, and a time that is planted in a router shows up in each of its frames.
#[test]
fn latency_by_load_and_schedule() {
    if !thalweg_lab::forwarding::is_root() {
        return thalweg_testdata::skipped("lab latency: not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let short = ["lab", "latency", "--quick", "--trial", "0.05", "--drivers", "af_packet"];
    let few = ["--loads", "idle,tenth,busy", "--schedules", "usual,nice-poll50", "--plant", "20000"];
    let output = crate::experiment(&[&short[..], &few].concat(), folder.path());
    let results = crate::results(&output, folder.path())["results"].clone();
    let left_out = results["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab latency: {why}")));
    let cells = results["cells"].as_array().expect("cells");
    let routers = results["routers"].as_array().expect("routers");
    // The kernel, two schedules of ours, two relays. A busy machine may pass no rate, and then no share of it either.
    assert_eq!(routers.len() + left_out.len(), 5, "{results}");
    for router in routers {
        let of = |load: &str| {
            let is_it = |cell: &&serde_json::Value| {
                cell["load"] == load
                    && ["subject", "driver", "change"].iter().all(|key| cell[key] == router[key])
            };
            cells.iter().filter(is_it).count()
        };
        assert_eq!((of("idle"), of("busy"), of("half")), (1, 1, 0), "{router} {cells:?}");
        assert!(router["idle_cores"]["median"].as_f64() < Some(1.0), "{router}");
    }
    let of = |change: &str| -> Vec<u64> {
        let here = cells.iter().filter(|cell| cell["change"] == change);
        here.map(|cell| cell["one_way"]["min_ns"].as_u64().expect("a number")).collect()
    };
    let planted = of("20000 us planted");
    assert!(planted.len() >= 2 && planted.iter().all(|ns| *ns >= 20_000_000), "{planted:?}");
}

/// Every router leaves a dead link; ours also leaves a silent gateway whose link is up, and comes back when it is killed.
#[test]
fn failover_of_links_gateways_and_the_process() {
    if !thalweg_lab::forwarding::is_root() {
        return thalweg_testdata::skipped("lab failover: not root");
    }
    let short = ["lab", "failover", "--quick", "--prefixes", "20", "--rate", "2000"];
    let measured = |chosen: &[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let output = crate::experiment(&[&short, chosen].concat(), folder.path());
        let results = crate::results(&output, folder.path())["results"].clone();
        let left_out = results["left_out"].as_array().expect("a list");
        left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab failover: {why}")));
        (results["cells"].as_array().expect("cells").clone(), left_out.len())
    };
    let number =
        |value: &serde_json::Value| value["median"].as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    let (cells, left_out) = measured(&["--failures", "link"]);
    assert_eq!(cells.len() + left_out, 4, "{cells:?}");
    for cell in &cells {
        assert!(number(&cell["gap_ms"]) > 0.0 && number(&cell["lost_back"]) >= 0.0, "{cell}");
    }
    assert!(cells.iter().any(|cell| cell["router"] == "kernel-group"), "{cells:?}");
    assert!(cells.iter().any(|cell| cell["router"] == "thalweg-check"), "{cells:?}");
    let (cells, left_out) = measured(&["--failures", "gateway,process", "--routers", "thalweg-check"]);
    assert_eq!((cells.len(), left_out), (2, 0), "{cells:?}");
    for cell in &cells {
        // The gateway is gone for several requests, and nobody forwards between two processes.
        assert!(number(&cell["lost"]) > 0.0, "{cell}");
        assert_eq!(cell["lost_back"].is_null(), cell["failure"] == "process", "{cell}");
    }
    // One that saves its forwarding table; left out without BIRD.
    let (cells, left_out) =
        measured(&["--failures", "process,link", "--routers", "thalweg-saved,thalweg-check"]);
    assert_eq!(cells.len() + left_out, 3, "{cells:?}");
    // A pair of routers: the second one takes over.
    let (cells, left_out) = measured(&["--failures", "router"]);
    assert_eq!(cells.len() + left_out, 4, "{cells:?}");
    assert!(cells.iter().any(|cell| cell["router"] == "thalweg-vrrp"), "{cells:?}");
    // And with a state, all connections.
    let with_state = cells.iter().find(|cell| cell["router"] == "thalweg-standby");
    let lost = &with_state.unwrap_or_else(|| panic!("{cells:?}"))["connections_lost"];
    assert_eq!(number(lost), 0.0, "{cells:?}");
    // The sender of a busy machine may pause while the second router takes over: then nothing is lost.
    cells.iter().for_each(|cell| assert!(number(&cell["gap_ms"]) > 0.0, "{cell}"));
}
