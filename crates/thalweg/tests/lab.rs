//! Experiments through the real binary. Each must end with a self-contained report and with numbers that parse.
//! No test asserts a speed.

#[path = "lab/bgp.rs"]
mod bgp;
#[path = "lab/fed.rs"]
mod fed;
#[path = "lab/forwarding.rs"]
mod forwarding;
#[path = "lab/live.rs"]
mod live;
#[path = "lab/simulated.rs"]
mod simulated;
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use thalweg_lab::bgp::replay::Replay;

/// Runs an experiment in an empty folder, as the documents show it: its report goes to a folder named after the
/// command.
fn experiment(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(arguments).current_dir(folder).env("COLUMNS", "100").output().expect("the binary runs")
}

/// The absolute path of a file of the repository.
fn of_repository(path: &str) -> String {
    std::fs::canonicalize(support::root().join(path)).expect("it is there").display().to_string()
}

/// The report's folder, of the experiment that ran in this folder.
fn report(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let is_report = |path: &PathBuf| path.join("report.html").is_file();
    let mut reports = entries.filter(is_report);
    let report = reports.next().expect("a report");
    assert!(report.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lab-")), "{report:?}");
    assert_eq!(reports.next(), None, "one report");
    report
}

/// Checks the page of a report and returns its numbers.
fn results(output: &Output, folder: &Path) -> serde_json::Value {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = report(folder);
    let html = std::fs::read_to_string(folder.join("report.html")).expect("a page");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<link", "<script"] {
        assert!(!html.contains(outside), "{outside} in the report");
    }
    assert!(html.contains("<svg") && html.contains("<dt>Processor</dt>") && html.contains("<dt>Commit</dt>"));
    let json = std::fs::read_to_string(folder.join("results.json")).expect("numbers");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["origin"]["command"].as_str().is_some_and(|c| c.starts_with("thalweg lab ")), "{json}");
    json
}

/// Every experiment must have a test here that runs it in an empty folder.
#[test]
fn every_experiment_is_run_here() {
    let output = support::thalweg(&["lab", "--help"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let commands =
        text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    let tests = [
        include_str!("lab.rs"),
        include_str!("lab/bgp.rs"),
        include_str!("lab/live.rs"),
        include_str!("lab/simulated.rs"),
    ];
    let tests = tests.concat().replace([' ', '\n'], "");
    assert!(names.len() > 9 && names.contains(&"bgp"), "{text}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(tests.contains(&format!("\"lab\",\"{name}\"")), "no test runs `thalweg lab {name}`");
    }
}

#[test]
fn predictions_in_an_empty_folder_and_again_from_their_costs() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["lab", "predict", "--quick", "--runs", "1", "--cores", "1,2,5", "--work", "none,queens:4"];
    let json = results(&experiment(&few, folder.path()), folder.path());
    let points = json["results"]["points"].as_array().expect("points").clone();
    assert_eq!(points.len(), 2 * 6 * 3, "work, models, cores");
    assert!(points.iter().all(|point| point["speed_up"].as_f64().is_some_and(|x| x > 0.0)), "{points:?}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let validated = json["results"]["validation"].as_array().expect("cells").len();
    assert_eq!(validated > 0, cores > 1, "{validated} cells");
    let bgp = json["results"]["bgp"].clone();
    assert_eq!(bgp["points"].as_array().map(Vec::len), Some(3 * 3), "schedulings, cores: {bgp}");
    assert_eq!(bgp["validation"].as_array().is_some_and(|cells| cells.len() >= 3), cores > 1, "{bgp}");
    assert_eq!(bgp["thesis"][0]["found"], 5.5);
    // The same costs from a file instead of measuring give the same points.
    let costs = folder.path().join("lab-predict/costs.json").display().to_string();
    let elsewhere = tempfile::tempdir().expect("a folder");
    let again = ["lab", "predict", "--cores", "1,2,5", "--costs", &costs];
    let again = results(&experiment(&again, elsewhere.path()), elsewhere.path());
    assert_eq!(again["results"]["points"].as_array(), Some(&points));
    assert_eq!(again["results"]["bgp"]["points"], bgp["points"]);
}

#[test]
fn models_on_what_is_made() {
    for workload in ["flood", "nat", "trace"] {
        let folder = tempfile::tempdir().expect("a folder");
        let few = ["--packets", "4000", "--work-packets", "300", "--work", "none,queens:4", "--runs", "1"];
        let mut arguments = vec!["lab", "models", "--quick", "--generate", workload, "--format", "json"];
        arguments.extend(few);
        arguments.extend(["--workers", "1,3", "--chunks", "100,1600"]);
        let output = experiment(&arguments, folder.path());
        let json = results(&output, folder.path());
        let printed: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("JSON on the terminal");
        assert_eq!(printed, json, "the same numbers in file and terminal");

        let cells = json["results"]["cells"].as_array().expect("cells");
        assert_eq!(
            cells.len(),
            2 * 2 * (1 + 6 * 2),
            "work x chunk sizes x (serial and six models x workers)"
        );
        for cell in cells {
            let expected = match (cell["cell"]["work"].as_str(), cell["cell"]["chunk_packets"].as_u64()) {
                (Some("none"), Some(100)) => 4000,
                (Some("none"), _) => 4000,
                (_, Some(100)) => 300,
                _ => 1600, // whole chunks
            };
            assert_eq!(cell["packets"], expected, "{cell}");
            assert!(cell["speed_up"].as_f64().is_some_and(|s| s > 0.0), "{cell}");
            // Time shares come from the model's own clock, CPU time from the system's.
            let shares = cell["concurrency"]["time_shares"].as_array().expect("shares");
            let sum: f64 = shares.iter().filter_map(serde_json::Value::as_f64).sum();
            assert!((sum - 1.0).abs() < 1e-6 && cell["cpu_s"]["median"].as_f64() > Some(0.0), "{cell}");
        }
        let spots = json["results"]["hot_spots"].as_array().expect("hot spots");
        for work in ["none", "queens:4"] {
            let of_it = || spots.iter().filter(|spot| spot["work"] == work);
            let sum: f64 = of_it().filter_map(|spot| spot["share"].as_f64()).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{work}: {spots:?}");
            assert_eq!(of_it().any(|spot| spot["stage"] == "synthetic work"), work != "none", "{spots:?}");
        }
        // The generated files can be replayed by hand.
        let made = |name: &str| report(folder.path()).join(name).to_str().expect("a path").to_owned();
        let input = if workload == "trace" { made("input.txt") } else { made("input.pcap") };
        let config = made("router.toml");
        let replay = support::thalweg(&["replay", &input, "-c", &config, "--format", "json"]);
        let summary: serde_json::Value = serde_json::from_slice(&replay.stdout).expect("JSON");
        assert_eq!(summary["packets_in"], 4000);
        let out = summary["packets_out"].as_u64().unwrap_or(0);
        assert!(out > 2000, "{workload}: most packets pass: {summary}");
        assert!(replay.stderr.is_empty(), "{}", String::from_utf8_lossy(&replay.stderr));
    }
}

/// The claims of one paper and what they need; verdicts follow from the experiment's own results.
#[test]
fn claims_of_a_paper() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = experiment(&["lab", "all", "--quick", "--only", "000", "--runs", "1"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |path: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(folder.path().join("lab-all").join(path)).expect(path);
        serde_json::from_str(&text).expect("JSON")
    };
    let (all, models) = (read("results.json"), read("000-models/results.json"));
    let claims = all["results"]["claims"].as_array().expect("claims");
    let of = |id: &str| claims.iter().find(|claim| claim["id"] == id).expect(id);
    let spots = models["results"]["hot_spots"].as_array().expect("hot spots");
    let work = spots.iter().find(|spot| spot["stage"] == "synthetic work").expect("it is there");
    assert_eq!(of("000/bottom-up")["here"], serde_json::json!([work["share"]]));
    // The claim names this bound. The share depends on how busy the machine is.
    let is_most = work["share"].as_f64().expect("a share") > 0.9;
    let verdict = if is_most { "reproduced" } else { "differs" };
    assert_eq!(of("000/bottom-up")["verdict"], verdict, "{all}");
    let cores = thalweg_lab::cores::Cores::here().expect("cores").count();
    assert_eq!(of("000/summary/elapsed")["verdict"] == "not-run", cores < 24, "{all}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Of 5 statements") && text.contains("report.html"), "{text}");
    let refused = experiment(&["lab", "all", "--only", "9"], folder.path());
    assert_eq!(refused.status.code(), Some(2));
    // Existing results are not measured again, and give the same numbers; those of another program are.
    let measured = |json: &serde_json::Value| json["origin"]["measured_at"].clone();
    std::fs::remove_file(folder.path().join("lab-all/results.json")).expect("it was there");
    let resume = || {
        let words = ["lab", "all", "--quick", "--only", "000", "--runs", "1", "--resume"];
        let again = experiment(&words, folder.path());
        assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stderr));
    };
    resume();
    assert_eq!(read("results.json")["results"]["claims"], all["results"]["claims"]);
    assert_eq!(measured(&read("000-models/results.json")), measured(&models));
    let mut others = models.clone();
    others["origin"]["commit"] = "another".into();
    let path = folder.path().join("lab-all/000-models/results.json");
    std::fs::write(path, others.to_string()).expect("it can be written");
    resume();
    assert_eq!(read("000-models/results.json")["origin"]["commit"], models["origin"]["commit"]);
    // Merged with itself, each claim is the same on both sides.
    let merge = ["lab", "all", "--merge", "lab-all", "lab-all", "--output", "both", "--format", "json"];
    let merged = experiment(&merge, folder.path());
    assert_eq!(merged.status.code(), Some(0), "{}", String::from_utf8_lossy(&merged.stderr));
    let page = std::fs::read_to_string(folder.path().join("both/report.html")).expect("a page");
    assert!(page.contains(verdict) && page.contains("commit"), "{page}");
    let refused = experiment(&["lab", "all", "--merge", "lab-all/000-models"], folder.path());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("is no report of `thalweg lab all`"), "{said}");
}

/// A run of a given length makes as many passes as fit; each starts with the results of the pass before.
#[test]
fn claims_of_a_paper_for_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = ["lab", "all", "--quick", "--only", "000", "--hours", "0.001"];
    let output = experiment(&words, folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(folder.path().join("lab-all/results.json")).expect("results");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let passes = json["results"]["passes"].as_u64().expect("a number");
    assert!(passes >= 1, "{json}");
    let said = format!("in {passes} passes");
    assert!(json["origin"]["input"].as_str().is_some_and(|input| input.ends_with(&said)), "{json}");
    assert!(folder.path().join("lab-all/000-models/results.json").is_file());
    let of_pass = |pass: u64| folder.path().join(format!("lab-all/pass-{pass}/000-models/results.json"));
    assert!((2..=passes).all(|pass| of_pass(pass).is_file()) && !of_pass(passes + 1).exists());
    let refused = experiment(&["lab", "all", "--hours", "0"], folder.path());
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn a_farm_with_feedback() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--rows", "40", "--numbers", "60000", "--fibonacci", "25", "--workers", "1,2"];
    let output = experiment(&[&["lab", "divide", "--quick"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 3 * 3, "{json}");
    assert!(cells.iter().all(|cell| cell["speed_up"].as_f64().is_some_and(|times| times > 0.0)), "{json}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("9.21") && text.contains("not run"), "{text}");
}

#[test]
fn models_on_files_of_ones_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = of_repository("examples/small-office");
    let (capture, trace) = (format!("{small}/office.pcapng"), format!("{small}/trace.txt"));
    let config = format!("{small}/router.toml");
    let arguments = ["lab", "models", &capture, &trace, "-c", &config, "--quick", "--packets", "2000"];
    let some = ["--work", "none,queens:1-4/2/2/3", "--work-packets", "2000", "--runs", "1"];
    let arguments = [&arguments[..], &some].concat();
    let output = experiment(&arguments, folder.path());
    let json = results(&output, folder.path());
    let input = json["origin"]["input"].as_str().expect("an input");
    assert!(input.contains("office.pcapng") && input.contains("942 packets, over and over"), "{input}");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("run-to-completion") && table.contains("report.html"), "{table}");
    for line in table.lines().filter(|line| !line.starts_with("wrote")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for cell in json["results"]["cells"].as_array().expect("cells") {
        assert!((2000..2000 + 1600).contains(&cell["packets"].as_u64().unwrap_or(0)), "{cell}");
    }
}

/// Paper 004: who works on what when, and a unit that all ask, under every model, with the answer that the serial one gives.
#[test]
fn units_over_time_and_a_unit_that_all_share() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--packets", "600", "--work", "none", "--chunks", "64", "--runs", "1", "--workers", "2,3"];
    let output =
        experiment(&[&["lab", "models", "--coprocessor", "500,20000"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let lines = json["results"]["time_lines"].as_array().expect("time lines");
    let units_of = |model: &str| {
        let line = lines.iter().find(|line| line["model"] == model).expect("a time line");
        (line["units"].as_array().map_or(0, Vec::len), line["units_per_chunk"].as_f64().expect("a number"))
    };
    assert_eq!(lines.len(), 6, "of each model but serial: {lines:?}");
    assert!(units_of("run-to-completion").0 <= 3 && units_of("run-to-completion").1 == 1.0, "{lines:?}");
    assert_eq!(units_of("pipeline"), (3, 3.0), "each chunk meets each unit");
    assert!((2.0..=3.0).contains(&units_of("replicated").1), "{lines:?}");
    let html = std::fs::read_to_string(report(folder.path()).join("report.html")).expect("a page");
    assert!(html.contains("pipeline: chunks by unit over time"));
    let cells = json["results"]["coprocessor"].as_array().expect("cells");
    assert_eq!(cells.len(), 2 * (1 + 6 * 2), "service times, models, workers");
    let requests: BTreeSet<u64> = cells.iter().filter_map(|cell| cell["requests"].as_u64()).collect();
    assert_eq!(requests.len(), 1, "as many requests under every model: {cells:?}");
    for cell in cells {
        let number = |path: &str| cell.pointer(path).and_then(serde_json::Value::as_f64).expect("a number");
        let (service_s, busy) = (number("/service_ns") / 1e9, number("/busy_share/median"));
        assert!(busy > 0.0 && busy <= 1.0, "one request at a time: {cell}");
        let most = 3264.0 / (number("/requests") * service_s);
        assert!(number("/packets_per_second/median") <= most, "nobody is faster than the unit: {cell}");
    }
}

#[test]
fn a_flood_goes_over_the_routes_of_a_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = of_repository("examples/full-table/router.toml");
    let few = ["--packets", "500", "--runs", "1", "--work", "none", "--models", "serial", "--chunks", "64"];
    let arguments = [&["lab", "models", "--generate", "flood", "-c", &config][..], &few].concat();
    let json = results(&experiment(&arguments, folder.path()), folder.path());
    assert_eq!(json["results"]["cells"][0]["packets"], 512 - 12, "{json}");
    assert!(!report(folder.path()).join("router.toml").exists(), "the configuration is the caller's");
}

#[test]
fn look_ups() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("table.txt");
    std::fs::write(&table, "192.0.2.0/24\n198.51.100.0/24 192.0.2.1 core\n2001:db8::/32\n").expect("writing");
    let arguments = ["lab", "lpm", table.to_str().expect("a path"), "--quick", "--passes", "1"];
    let output = experiment(&arguments, folder.path());
    let json = results(&output, folder.path());
    let rows = json["results"].as_array().expect("rows");
    for (family, structure) in [("IPv4", "fib4"), ("IPv4", "dir24"), ("IPv4", "trie"), ("IPv6", "fib6")] {
        let found = rows.iter().filter(|row| row["structure"] == structure && row["family"] == family);
        assert!(found.count() >= 3, "{structure}: three kinds of addresses");
    }
    assert!(json["origin"]["input"].as_str().is_some_and(|i| i.contains("2 IPv4 and 1 IPv6")), "{json}");
    let table = String::from_utf8_lossy(&output.stdout);
    for line in table.lines().filter(|line| !line.starts_with("wrote")) {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn what_cannot_be_measured_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "# nothing\n").expect("writing");
    let empty = empty.to_str().expect("a path");
    let config = &of_repository("examples/article/router.toml");
    let cases: [(&[&str], i32, &str); 11] = [
        (&["lab", "probe", "--configurations", "3R"], 2, "expected a shape such as serial"),
        (&["lab", "probe", "--traffic", "zipf"], 2, "expected zipf:FLOWS"),
        (&["lab", "probe", "--only", "table", "--subjects", "softflowd"], 1, "nothing to measure"),
        (&["lab", "models", empty, "-c", config], 1, "no packets"),
        (&["lab", "models", "no/such.pcap", "-c", config], 1, "no/such.pcap"),
        (&["lab", "models", empty], 2, "--config"),
        (&["lab", "models", "-", "-c", config], 2, "standard input"),
        (&["lab", "models", "-c", config], 2, "--generate flood"),
        (&["lab", "models", "--chunks", "70000"], 2, "65535"),
        (&["lab", "lpm", "no/such.txt"], 1, "no/such.txt"),
        (&["lab", "lpm", empty], 1, "no prefixes"),
    ];
    for (arguments, code, word) in cases {
        let output = experiment(arguments, folder.path());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(word) && output.stdout.is_empty(), "{arguments:?}: {text}");
    }
}

#[test]
fn stages_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--workloads", "one,full,nat:300", "--quick", "--runs", "2", "--chunk", "200"];
    let output = experiment(&[&["lab", "stages"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 4 + 4 + 6, "stages of each workload, and all together");
    assert!(json["results"]["clock"]["ticks_per_ns"].as_f64().is_some_and(|rate| rate > 0.0), "{json}");
    for cell in cells {
        assert!(cell["tsc_cycles_per_packet"]["median"].as_f64().is_some_and(|c| c >= 0.0), "{cell}");
    }
    let output = experiment(&["lab", "stages", "--workloads", "nat:0"], folder.path());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn translation_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--only", "memory", "--sessions", "300,2000", "--quick", "--format", "json"];
    let output = experiment(&[&["lab", "nat"][..], &few].concat(), folder.path());
    let json = results(&output, folder.path());
    let memory = json["results"]["memory"].as_array().expect("cells");
    assert_eq!(memory.iter().filter_map(|cell| cell["sessions"].as_u64()).collect::<Vec<_>>(), [300, 2000]);
    let fill = &json["results"]["fill"];
    assert!(fill["held"].as_u64() <= fill["room"].as_u64() && fill["held"].as_u64() > Some(0), "{fill}");
    assert_eq!(json["results"]["live"].as_array().map(Vec::len), Some(0));
}

/// Every part with few packets: every program must count what the files contain.
#[test]
fn probes_on_the_same_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let few = ["--packets", "30000", "--traffic", "zipf:3000,uniform:5000,unique", "--flows", "200,4000"];
    let shapes =
        ["--configurations", "serial,2R+2W,2x(1R+1W),tokens:2,2xserial@pinned,run-to-completion:2@small"];
    let arguments = [&["lab", "probe", "--quick", "--runs", "2"][..], &few, &shapes].concat();
    let output = experiment(&arguments, folder.path());
    let json = results(&output, folder.path());
    let left_out = json["results"]["left_out"].as_array().expect("a list");
    left_out.iter().for_each(|why| thalweg_testdata::skipped(&format!("lab probe: {why}")));
    assert!(
        left_out.iter().all(|why| why.as_str().is_some_and(|why| why.starts_with("skipped: "))),
        "{json}"
    );
    let cells = json["results"]["cells"].as_array().expect("cells");
    let of = |part: &'static str| cells.iter().filter(move |cell| cell["part"] == part);
    assert_eq!(
        (of("table").count(), of("traffic").count(), of("flows").count(), of("grain").count()),
        (2 * 6, (2 + 4 + 2) * 6, 2, 3 * 6)
    );
    let works: BTreeSet<&str> = of("grain").filter_map(|cell| cell["work"].as_str()).collect();
    assert_eq!(works, BTreeSet::from(["none", "queens:4", "queens:6"]));
    for cell in cells {
        let ours = cell["subject"] == "thalweg";
        assert_eq!(cell["packets"], 30_000, "{cell}");
        assert_eq!(cell["bytes"], 30_000 * 46, "{cell}");
        assert!(cell["packets_per_second"]["median"].as_f64().is_some_and(|pps| pps > 0.0), "{cell}");
        assert!(cell["packets_per_cpu_second"]["median"].as_f64().is_some_and(|pps| pps > 0.0), "{cell}");
        assert!(cell["rss_peak_bytes"].as_u64() > Some(1 << 20), "{cell}");
        // Datagrams can get lost on a busy machine, but the loss must be counted.
        let lost = cell["lost"].as_u64().expect("a number");
        let is_datagrams = cell["to"].as_str().is_some_and(|to| to.ends_with("+udp"));
        assert!(lost == 0 || is_datagrams, "{cell}");
        assert!(!ours || cell["conserved"] == true, "{cell}");
        let differs = |what: &str| cell["difference"][what] != 0 && lost == 0;
        assert!(!differs("packets") && !differs("bytes"), "{cell}");
        // nfpcapd splits some flows into two records.
        assert!(!differs("flows") || cell["subject"] == "nfpcapd", "{cell}");
        if ours && lost == 0 {
            assert_eq!(
                (&cell["records"], &cell["equal"]),
                (&cell["flows"], &serde_json::json!(true)),
                "{cell}"
            );
            assert!(cell["to"] != "ipfix+tcp" || cell["fingerprint"].is_string(), "{cell}");
        }
    }
    for same in json["results"]["same_records"].as_array().expect("a list") {
        assert_eq!(same["different"], 1, "records do not depend on the configuration: {same}");
        assert!(same["cells"].as_u64() >= Some(6), "{same}");
    }
    let rivals: Vec<_> = of("rivals").filter(|cell| cell["subject"] != "thalweg").collect();
    assert_eq!((rivals.len() + left_out.len(), of("rivals").count() - rivals.len()), (3, 4), "{json}");
    assert!(
        rivals.iter().all(|cell| cell["ours_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)),
        "{rivals:?}"
    );
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("2x(1R+1W)") && !table.contains("DIFFER") && !table.contains("NOT EQUAL"),
        "{table}"
    );
    for line in table.lines().filter(|line| !line.starts_with("wrote")) {
        assert!(line.chars().count() <= 120, "{line}");
    }
}

#[test]
fn a_flood_has_fewer_places_than_flows() {
    let folder = tempfile::tempdir().expect("a folder");
    // More flows than fit into the cache's usual size.
    let few =
        ["--only", "traffic", "--traffic", "unique", "--packets", "1200000", "--configurations", "serial"];
    let arguments = [&["lab", "probe", "--quick", "--format", "json"][..], &few].concat();
    let output = experiment(&arguments, folder.path());
    let json = results(&output, folder.path());
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON on the terminal");
    assert_eq!(printed, json, "the same numbers in file and terminal");
    let cells = json["results"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 2, "{json}");
    for cell in cells {
        assert!(cell["evicted"].as_u64() >= Some(1_200_000 - (1 << 20)), "{cell}");
        assert_eq!((&cell["flows"], &cell["records"]), (&cell["packets"], &cell["packets"]), "{cell}");
        assert_eq!((&cell["conserved"], &cell["equal"]), (&true.into(), &true.into()), "{cell}");
        assert!(cell["cache_bytes"].as_u64() < Some(128 << 20), "{cell}");
    }
}

/// The small network of the examples: every network reaches every other one, before and after failures.
#[test]
fn twenty_networks() {
    let folder = tempfile::tempdir().expect("a folder");
    let graph = of_repository("examples/twenty-networks/relationships.txt");
    let arguments =
        ["lab", "network", "--caida", &graph, "--load", "links", "--events", "5", "--collect", "AS6"];
    let json = results(&experiment(&arguments, folder.path()), folder.path());
    assert_eq!(
        (&json["results"]["graph"]["ases"], &json["results"]["graph"]["links"]),
        (&20.into(), &33.into())
    );
    for phase in json["results"]["phases"].as_array().expect("phases") {
        let reached = phase["reached_over_time"].as_array().and_then(|points| points.last()).expect("points");
        assert!(phase["is_quiet"] == true && reached[1] == 1.0, "{phase}");
    }
    assert_eq!(json["results"]["collected"][0]["prefixes"], 20);
}

/// A daemon that receives the messages of a simulated router ends with that router's table, route for route.
#[test]
fn a_daemon_fed_the_trace_has_the_simulated_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--ases", "60", "--load", "links", "--events", "5", "--collect", "8"];
    let output = experiment(&[&["lab", "network"][..], &arguments].concat(), folder.path());
    let asn = &results(&output, folder.path())["results"]["collected"][0]["asn"];
    let file = |name: &str| report(folder.path()).join(format!("AS{asn}-{name}"));

    let mrt = support::thalweg(&["mrt", file("rib.mrt").to_str().expect("a path")]).stdout;
    let simulated: BTreeSet<Route> =
        String::from_utf8(mrt).expect("text").lines().map(Route::of_mrt).filter(Route::is_learned).collect();
    let configuration = std::fs::read_to_string(file("router.toml")).expect("a configuration");
    let replay = Replay::read(&file("updates.mrt"), usize::MAX).expect("a trace");
    let routes = |views: &[serde_json::Value]| views.iter().map(Route::of_view).collect::<BTreeSet<_>>();
    for scheduling in ["serial", "per-peer", "dynamic", "sharded"] {
        let is_right = |views: &[serde_json::Value]| routes(views) == simulated;
        let heard = routes(&fed::hear(&configuration, &replay, scheduling, folder.path(), is_right));
        assert!(
            simulated.len() > 60 && heard == simulated,
            "{scheduling}: {:?}",
            heard.symmetric_difference(&simulated).next()
        );
    }
    // The parts of `lab bgp` accept the trace, too. `lab bgp` itself checks that all its runs end with the same
    // table.
    let trace = file("updates.mrt").display().to_string();
    let lab = tempfile::tempdir().expect("a folder");
    let parts = "speed-up,functions,mixes,ways,blocks,receive";
    let few = ["--runs", "1", "--threads-per-core", "1", "--trace", &trace, "--only", parts];
    let arguments = [&["lab", "bgp", "--quick"][..], &few].concat();
    let json = results(&experiment(&arguments, lab.path()), lab.path());
    let cells = json["results"]["cells"].as_array().expect("cells");
    for part in ["speed-up", "functions", "mixes", "ways", "blocks"] {
        let of = || cells.iter().filter(|cell| cell["cell"]["part"] == part);
        let updates: BTreeSet<u64> = of().filter_map(|cell| cell["updates"].as_u64()).collect();
        let told: BTreeSet<u64> = of().filter_map(|cell| cell["prefixes"].as_u64()).collect();
        assert!(of().count() >= 4 && updates.len() == 1 && told.len() == 1, "{part}: {updates:?} {told:?}");
    }
    // So short a trace may have no whole block, and only whole ones are reported.
    for cell in cells.iter().filter(|cell| cell["cell"]["part"] == "blocks") {
        let (updates, blocks) = (cell["updates"].as_u64(), cell["blocks"]["median_s"].as_array());
        assert_eq!(Some(blocks.map_or(0, |all| all.len() as u64)), updates.map(|n| n / 500), "{cell}");
    }
    let received = json["results"]["receive"].as_array().expect("ways to receive");
    assert!(received.iter().any(|way| way["load"] == "the trace"), "{received:?}");
}

/// A route, with the fields that both tables show.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Route {
    prefix: String,
    /// The last three bytes of the neighbor's address: simulated neighbors are in 198.0.0.0/8, the client's on
    /// loopback.
    neighbor: String,
    path: String,
    local_pref: u64,
    communities: String,
}

impl Route {
    fn of_mrt(line: &str) -> Self {
        let fields: Vec<&str> = line.split('|').collect();
        Self {
            prefix: fields[5].to_owned(),
            neighbor: last_three(fields[3]),
            path: fields[6].to_owned(),
            local_pref: fields[9].parse().expect("a number"),
            communities: fields[11].to_owned(),
        }
    }

    fn of_view(view: &serde_json::Value) -> Self {
        let text = |name: &str| view[name].as_str().expect(name).to_owned();
        let communities = view["communities"].as_array().expect("a list").iter();
        Self {
            prefix: text("prefix"),
            neighbor: last_three(&text("neighbor")),
            path: text("as_path"),
            local_pref: view["local_pref"].as_u64().expect("a number"),
            communities: communities.filter_map(|each| each.as_str()).collect::<Vec<_>>().join(" "),
        }
    }

    fn is_learned(&self) -> bool {
        !self.path.is_empty()
    }
}

fn last_three(address: &str) -> String {
    address.split_once('.').map_or(address, |(_, rest)| rest).to_owned()
}

/// Seeds, one of them with every kind of event, and scenario files: valid, damaged, and one with a failing
/// invariant.
#[test]
fn seeds_and_scenarios() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = results(&experiment(&["lab", "seeds", "--count", "40"], folder.path()), folder.path());
    assert_eq!(
        (&json["results"]["seeds"], &json["results"]["failures"]),
        (&40.into(), &serde_json::json!([]))
    );
    assert_eq!(json["results"]["coverage"]["log: End-of-RIB received"], 40);

    let one = experiment(&["lab", "seeds", "--seed", "3"], folder.path());
    let text = String::from_utf8_lossy(&one.stdout).into_owned();
    assert_eq!(one.status.code(), Some(0), "{}", String::from_utf8_lossy(&one.stderr));
    assert!(text.contains("-- everything is mended") && text.contains("every invariant held"), "{text}");

    let kept = of_repository("crates/sim/tests/seeds/scenarios/garbage.toml");
    let played = experiment(&["lab", "seeds", "--scenario", &kept], folder.path());
    assert_eq!(played.status.code(), Some(0), "{}", String::from_utf8_lossy(&played.stderr));
    let shrunk = experiment(&["lab", "seeds", "--scenario", &kept, "--shrink"], folder.path());
    assert!(String::from_utf8_lossy(&shrunk.stderr).contains("there is nothing to shrink"));
    assert_eq!(shrunk.status.code(), Some(1));

    let good = std::fs::read_to_string(&kept).expect("a scenario");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, good.replace("hold_s = 30", "hold_s = 30\npaths = \"two\"")).expect("a file");
    let refused = experiment(&["lab", "seeds", "--scenario", bad.to_str().expect("a path")], folder.path());
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("bad.toml") && text.contains("line 7"), "{text}");
    assert_eq!(refused.status.code(), Some(1));
    // This link loses everything, so no session comes up.
    std::fs::write(&bad, good.replace("capacity = 65536", "capacity = 0")).expect("a file");
    let arguments =
        ["lab", "seeds", "--scenario", bad.to_str().expect("a path"), "--shrink", "--keep", "found"];
    let broken = experiment(&arguments, folder.path());
    assert_eq!(broken.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&broken.stderr).contains("sessions come up"));
    let found =
        std::fs::read_to_string(folder.path().join("found/bad.toml")).expect("the failing plan was kept");
    assert!(found.starts_with("# sessions come up") && found.contains("capacity = 0"), "{found}");
}

/// A simulated network: the same bytes for any number of threads, in files that other programs can read.
#[test]
fn networks_of_routers() {
    let run = |threads: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments =
            ["lab", "network", "--ases", "60", "--load", "links", "--events", "5", "--collect", "8"];
        let arguments = [&arguments[..], &["--threads", threads]].concat();
        let json = results(&experiment(&arguments, folder.path()), folder.path());
        (folder, json)
    };
    let (folder, json) = run("1");
    let (_, other) = run("3");
    assert_eq!(json["results"]["digest"], other["results"]["digest"], "any number of threads");
    let phases = json["results"]["phases"].as_array().expect("phases");
    assert_eq!(phases.len(), 2);
    for phase in phases {
        assert!(phase["is_quiet"] == true && phase["sessions_down"] == 0, "{phase}");
        assert!(phase["updates"].as_u64().is_some_and(|updates| updates > 50), "{phase}");
        let reached = phase["reached_over_time"].as_array().and_then(|points| points.last()).expect("points");
        assert_eq!(reached[1], 1.0, "every AS reaches every prefix in the end");
    }
    let collected = &json["results"]["collected"][0];
    let file = |name: &str| {
        let name = format!("AS{}-{name}", collected["asn"]);
        report(folder.path()).join(name).to_str().expect("a path").to_owned()
    };
    let mrt = |file: &str| String::from_utf8(support::thalweg(&["mrt", file]).stdout).expect("text");
    let table = mrt(&file("rib.mrt"));
    assert_eq!(table.lines().count() as u64, collected["routes"].as_u64().expect("a number"), "{table}");
    assert_eq!(collected["prefixes"], 60);
    let updates = mrt(&file("updates.mrt"));
    assert!(updates.lines().all(|line| line.starts_with("BGP4MP_ET|15778368")), "{updates}");
    for name in ["updates.mrt", "rib.mrt"] {
        match Command::new("bgpdump").args(["-m", &file(name)]).output() {
            Ok(output) => {
                assert!(output.stdout == mrt(&file(name)).as_bytes(), "bgpdump reads {name} in another way")
            }
            Err(_) => println!("SKIPPED: bgpdump is not installed: nobody else reads {name}"),
        }
    }
    let check = support::thalweg(&["check", &file("router.toml")]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}

/// Three ASes that each prefer the way through the next one: an error that names them, their routes and the proof.
#[test]
fn policies_without_a_stable_state_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let graph = folder.path().join("as-rel.txt");
    std::fs::write(&graph, "2|1|-1\n3|1|-1\n4|1|-1\n2|3|0\n3|4|0\n2|4|0\n").expect("writing");
    for (asn, next) in [(2, 3), (3, 4), (4, 2)] {
        let address = |asn: u32| format!("198.18.0.{asn}");
        let mut text = format!(
            "[bgp]\nas = {asn}\nrouter_id = \"{}\"\nlisten = []\ninstall = \"none\"\nimport = \"ranked\"\nexport = \"accept\"\n",
            address(asn)
        );
        for other in (1..=4).filter(|other| *other != asn) {
            text += &format!("[[bgp.neighbor]]\naddress = \"{}\"\nas = {other}\n", address(other));
        }
        for (path, pref) in [(format!("{next}_1"), 200), ("1".to_owned(), 100)] {
            text += &format!(
                "[[policy.rules.ranked]]\nmatch = {{ as_path = \"^{path}$\" }}\nset = {{ local_pref = {pref} }}\naction = \"accept\"\n"
            );
        }
        text += "[[policy.rules.ranked]]\ndefault = \"reject\"\n";
        std::fs::write(folder.path().join(format!("AS{asn}-router.toml")), text).expect("writing");
    }
    let [file, configurations] = [&graph, folder.path()].map(|path| path.to_str().expect("a path"));
    let arguments = ["lab", "network", "--caida", file, "--configurations", configurations];
    let output = experiment(&arguments, folder.path());
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    for part in [
        "oscillating: the best paths to ",
        " at AS2, AS3, AS4 change ",
        "AS2 takes 3 1",
        "so this never ends",
    ] {
        assert!(error.contains(part), "no \"{part}\": {error}");
    }
    let json = std::fs::read_to_string(report(folder.path()).join("results.json")).expect("numbers");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let oscillation = &json["results"]["phases"][0]["oscillation"];
    assert_eq!(oscillation["ases"], serde_json::json!([2, 3, 4]));
    assert!(oscillation["recurs_s"].is_number() && oscillation["round"].is_array(), "{oscillation}");
}

/// The second engine on a file of relationships, and its messages about invalid files and questions.
#[test]
fn routes_in_a_graph() {
    let folder = tempfile::tempdir().expect("a folder");
    let graph = folder.path().join("as-rel.txt");
    let file = graph.to_str().expect("a path");
    // 1 and 2 are peers; 3 is a customer of 1, 4 of 2; 5 is a customer of 3 and 4, 6 of 4.
    std::fs::write(&graph, "# made\n1|2|0|bgp\n1|3|-1|bgp\n2|4|-1|bgp\n3|5|-1|bgp\n4|5|-1|bgp\n4|6|-1|mlp\n")
        .expect("writing");
    let ask = |more: &[&str]| {
        let arguments = [&["lab", "network", "--engine", "fixpoint", "--caida", file], more].concat();
        experiment(&arguments, folder.path())
    };
    let last = |arguments: &[&str]| {
        let json = results(&ask(arguments), folder.path());
        json["results"]["steps"].as_array().and_then(|steps| steps.last()).expect("a step")["summary"].clone()
    };
    let summary = last(&["--origin", "6"]);
    assert_eq!(summary["by_class"], serde_json::json!([2, 1, 2, 1]), "providers, peers, customers, own");
    // 5 leaks its route from 4 to 3. 3 prefers it as a customer route, and so does 1.
    assert_eq!(last(&["--origin", "6", "--leak", "5"])["leaked"], 2);
    assert_eq!(last(&["--origin", "6", "--leak", "5", "--aspa", "1"])["leaked"], 0);
    assert_eq!(last(&["--hijack", "6,3"])["hijacked"], 3, "3 itself, 1 and 5");
    let all = results(&ask(&[]), folder.path());
    assert_eq!(all["results"]["totals"]["routes"], 36);
    let error = |output: Output| (output.status.code(), String::from_utf8(output.stderr).expect("text"));
    let (code, text) = error(ask(&["--origin", "7"]));
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "error: AS 7 is not in the graph: it has 6 ASes, among them 1, 2, 3\n")
    );
    let (code, text) = error(ask(&["--load", "flaps"]));
    assert!(code == Some(2) && text.contains("--load goes with --engine sessions"), "{text}");
    std::fs::write(&graph, "1|2|-1\n2|3|-1\n3|1|-1\n").expect("writing");
    let (code, text) = error(ask(&[]));
    assert!(code == Some(1) && text.contains("providers in a circle: AS1 -> AS3 -> AS2 -> AS1"), "{text}");
}
