//! The documentation's examples work: every configuration in it is valid, every command in the README runs.
//!
//! A block with a configuration is fenced as `toml`. An incomplete one is fenced as `toml fragment`; the test
//! merges it into [`REST`], table by table.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{root, thalweg};

/// The configuration that fragments are merged into.
const REST: &str = r#"
[ports.wan]
interface = "eth0"
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/28"]
mirror = true
[ports.lan]
interface = "eth1"
mac = "02:00:00:00:00:02"
addresses = ["10.1.0.1/24"]
mirror = true
[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"
[[qos.classes]]
name = "voice"
strict = 0
match = [{ dscp = "ef" }]
"#;

/// A fenced block: its place, its label, its text.
struct Block {
    place: String,
    info: String,
    text: String,
}

/// The fenced blocks of a page.
fn blocks(path: &Path) -> Vec<Block> {
    let text = fs::read_to_string(path).expect("the page");
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in (1..).zip(text.lines()) {
        match (line.strip_prefix("```"), is_open) {
            (Some(info), false) => {
                let place = format!("{}:{number}", path.display());
                blocks.push(Block { place, info: info.trim().to_owned(), text: String::new() });
                is_open = true;
            }
            (Some(_), true) => is_open = false,
            (None, true) => {
                let block = blocks.last_mut().expect("one is open");
                block.text += line;
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!is_open, "{}: a block has no end", path.display());
    blocks
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in [
        "docs",
        "examples/demo",
        "examples/small-office",
        "examples/transit",
        "examples/home",
        "examples/live-transit",
        "examples/office-two-providers",
    ] {
        let entries =
            fs::read_dir(root().join(folder)).expect("a folder").map(|entry| entry.expect("an entry").path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages
}

/// Merges one table into another: tables are merged, lists concatenated, other values replaced.
fn laid_over(mut below: toml::Table, above: toml::Table) -> toml::Table {
    for (key, value) in above {
        let joined = match (below.remove(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => laid_over(below, above).into(),
            (Some(toml::Value::Array(mut below)), toml::Value::Array(above))
                if below.iter().any(toml::Value::is_table) =>
            {
                below.extend(above);
                below.into()
            }
            (_, value) => value,
        };
        below.insert(key, joined);
    }
    below
}

/// A value in one line.
fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| format!("{key:?} = {}", inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        toml::Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        other => panic!("{other:?} does not occur in configurations"),
    }
}

fn completed(fragment: &str) -> String {
    let parse = |text: &str| text.parse::<toml::Table>().expect("TOML");
    let whole = laid_over(parse(REST), parse(fragment));
    whole.iter().map(|(key, value)| format!("{key} = {}\n", inline(value))).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_configuration_in_the_documentation_is_valid() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut whole, mut fragments) = (0, 0);
    for block in pages().iter().flat_map(|page| blocks(page)) {
        let looks_like_one = block
            .text
            .lines()
            .any(|line| line.starts_with('[') && line.ends_with(']') && !line.contains(' '));
        let text = match block.info.as_str() {
            "toml" => {
                whole += 1;
                block.text
            }
            "toml fragment" => {
                fragments += 1;
                completed(&block.text)
            }
            "toml scenario" => {
                let plan = thalweg_sim::seeds::Case::from_text(&block.text);
                assert!(
                    plan.is_ok(),
                    "{}: {}",
                    block.place,
                    plan.err().map_or(String::new(), |e| e.to_string())
                );
                continue;
            }
            _ => {
                assert!(
                    !looks_like_one,
                    "{}: fence it as `toml`, `toml fragment` or `toml scenario`",
                    block.place
                );
                continue;
            }
        };
        let file = folder.path().join("router.toml");
        fs::write(&file, &text).expect("the folder is writable");
        let output = Command::new(env!("CARGO_BIN_EXE_thalweg"))
            .args(["check", "--offline"])
            .arg(&file)
            .output()
            .expect("the binary runs");
        // A configuration may name a driver that this build leaves out.
        let is_left_out = text.contains("\"dpdk\"") && said(&output).contains("dpdk");
        assert!(output.status.success() || is_left_out, "{}:\n{}", block.place, said(&output));
    }
    assert!(whole >= 4 && fragments >= 6, "{whole} configurations and {fragments} fragments were found");
}

/// How a command of the README is tested.
enum How {
    /// Runs as printed.
    Runs,
    /// Runs with more options that shorten an experiment from minutes to seconds. Its report must be where README
    /// says.
    Small(&'static str),
    /// Runs with the first argument replaced by the second.
    Less(&'static str, &'static str),
    /// Asks the router that the test has started.
    Asks,
    /// Only parsed, for this reason.
    Parsed(&'static str),
    /// Not a command of the program.
    Other(&'static str),
}

fn how(command: &str) -> How {
    match command {
        _ if command.starts_with("cargo xtask test") => How::Other("this is it"),
        _ if command.contains(" run examples/transit/") => {
            How::Parsed("listens on port 179 of all addresses")
        }
        _ if command.contains(" demo ") => How::Parsed("runs until Ctrl-C, and has a test of its own"),
        _ if command.ends_with(" lab models") => {
            How::Small("--quick --packets 400 --work-packets 100 --runs 1 --workers 1")
        }
        _ if command.contains(" lab lpm ") => How::Small("--quick --passes 1"),
        _ if command.contains(" lab bgp ") => {
            How::Small("--only speed-up --prefixes 300 --neighbors 3 --runs 1 --threads-per-core 1")
        }
        _ if command.contains(" lab all ") => How::Small("--only 000 --runs 1"),
        _ if command.contains(" lab predict ") => How::Small("--runs 1 --cores 1,2 --work none,queens:4"),
        _ if command.contains(" lab convergence ") => How::Small("--only damping"),
        // The tests of crates/sim run these seeds and many more.
        _ if command.contains(" lab seeds ") => How::Less("300", "20"),
        _ if command.contains(" lab probe ") => How::Small("--only table --packets 3000 --runs 1"),
        _ if command.starts_with("thalweg ") => How::Asks,
        _ => How::Runs,
    }
}

/// The commands in the README's blocks, without comments.
fn commands() -> Vec<String> {
    let blocks = blocks(&root().join("README.md"));
    let lines = blocks.iter().filter(|block| block.info.is_empty()).flat_map(|block| block.text.lines());
    lines.map(|line| line.split("   ").next().unwrap_or_default().trim().to_owned()).collect()
}

/// A command's arguments for the program.
fn arguments(command: &str) -> Vec<&str> {
    let rest =
        command.strip_prefix("cargo run --release -p thalweg -- ").or(command.strip_prefix("thalweg "));
    rest.unwrap_or_else(|| panic!("`{command}` is no command of the program")).split_whitespace().collect()
}

struct Router(Child);

impl Drop for Router {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A router with BGP on loopback, for commands that query one.
fn router(folder: &Path, socket: &Path) -> Router {
    let port = thalweg_testdata::free_port();
    let config = folder.join("bgp.toml");
    let text = format!(
        "[bgp]\nas = 64500\nrouter_id = \"192.0.2.1\"\nlisten = [\"127.0.0.1:{port}\"]\nnetworks = [\"192.0.2.0/24\"]\n\
         [[bgp.neighbor]]\nname = \"nobody\"\naddress = \"127.0.0.9\"\nport = {port}\nas = 64501\npassword = \"s3cret\"\n"
    );
    fs::write(&config, text).expect("the folder is writable");
    let child = Command::new(env!("CARGO_BIN_EXE_thalweg"))
        .args(["run", "--threads", "1", "--socket"])
        .args([socket, &config])
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let router = Router(child);
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the router does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    router
}

#[test]
fn every_command_in_the_readme_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(
        root().canonicalize().expect("it is there").join("examples"),
        folder.path().join("examples"),
    )
    .expect("a link");
    // `lab lpm` reads a table that the reader provides.
    fs::copy(root().join("examples/full-table/prefixes.txt"), folder.path().join("prefixes.txt"))
        .expect("a copy");
    let gzip = Command::new("gzip").arg(folder.path().join("prefixes.txt")).status();
    assert!(gzip.is_ok_and(|status| status.success()), "gzip works");
    let socket = folder.path().join("router.sock");
    let _router = router(folder.path(), &socket);
    let (mut ran, mut parsed) = (0, 0);
    for command in commands() {
        let mut program = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        program.current_dir(folder.path()).stdin(Stdio::null());
        match how(&command) {
            How::Other(why) => {
                eprintln!("{command}: not run: {why}");
                continue;
            }
            How::Runs => {
                program.args(arguments(&command));
            }
            How::Small(more) => {
                program.args(arguments(&command)).args(more.split(' '));
            }
            How::Less(printed, instead) => {
                let arguments = arguments(&command);
                assert!(arguments.contains(&printed), "{command} has no {printed}");
                program.args(arguments.iter().map(|word| if *word == printed { instead } else { *word }));
            }
            How::Asks => {
                program.args(arguments(&command)).arg("--socket").arg(&socket);
            }
            How::Parsed(why) => {
                eprintln!("{command}: parsed alone: {why}");
                program.args(arguments(&command)).arg("--help");
            }
        }
        match how(&command) {
            How::Parsed(_) => parsed += 1,
            _ => ran += 1,
        }
        let output = program.output().expect("the binary runs");
        assert!(output.status.success(), "{command}:\n{}", said(&output));
        assert!(!output.stdout.is_empty(), "{command} says nothing");
        if let How::Small(_) = how(&command) {
            let report = format!("lab-{}/report.html", arguments(&command)[1]);
            assert!(folder.path().join(&report).is_file(), "{command} wrote no {report}:\n{}", said(&output));
        }
    }
    assert!(ran >= 11 && parsed == 2, "{ran} commands ran and {parsed} were parsed");
}

/// The parser refuses unknown arguments when called like this.
#[test]
fn a_command_that_is_wrong_is_found() {
    for wrong in ["lab bgp --quik --help", "show nieghbors --help", "probe x --stoer y --help"] {
        let output = thalweg(&wrong.split_whitespace().collect::<Vec<_>>());
        assert!(!output.status.success(), "{wrong}");
    }
}
