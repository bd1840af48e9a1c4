//! Generates an experiment's input and configuration by name, so that it runs without other files and can be
//! replayed by hand.
//!
//! | name | configuration | input |
//! |---|---|---|
//! | `flood` | two ports and a generated table of [`FLOOD_ROUTES`] routes | a capture of the smallest packets, one address each, drawn evenly over the routes |
//! | `nat` | one inside and one outside port, NAT with four addresses | a capture: sessions are opened, then used in both directions at random |
//! | `trace` | the router of the article (`examples/article`) | a text trace in the article's format |
//!
//! Everything is written into a folder and follows from the seed.

use super::destinations::Kind;
use super::flood::Flood;
use super::frames::{Chunks, Endpoint};
use super::nat::{NatOptions, NatSessions, TooFewEndpoints};
use super::{capture, prefixes, trace};
use ipnet::Ipv4Net;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use thalweg_base::{CHUNK_PACKETS_DEFAULT, Chunk};
use thalweg_config::{ConfigErrors, RouteTarget, RouterConfig};
use thalweg_exec::{ExecError, ModelKind, ModelOptions, Sink, Source};
use thalweg_node::BuildError;
use thalweg_node::plan::RouterPlan;

pub const FLOOD_ROUTES: usize = 100_000;
/// The most sessions of the `nat` workload; a quarter of the packets open one.
pub const NAT_SESSIONS_MAX: u64 = 100_000;
const GAP_NS: u64 = 1_000;

const FLOOD_CONFIG: &str = r#"# Made by `thalweg lab`: a transit router with a generated table.

[ports.core]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24"]
default_mac = "02:00:00:00:01:01"

[ports.edge]
mac = "02:00:00:00:00:02"
addresses = ["198.51.100.1/24"]
default_mac = "02:00:00:00:01:02"

[routing]
files = ["prefixes.txt"]
default_next_hops = ["192.0.2.11", "192.0.2.12", "198.51.100.11", "198.51.100.12"]
"#;

const NAT_CONFIG: &str = r#"# Made by `thalweg lab`: many hosts behind four addresses.

[ports.wan]
mac = "02:00:00:00:00:01"
addresses = ["203.0.113.2/28", "203.0.113.3/28", "203.0.113.4/28", "203.0.113.5/28"]
default_mac = "02:00:00:00:01:01"

[ports.lan]
mac = "02:00:00:00:00:02"
addresses = ["192.168.0.1/23"]
default_mac = "02:00:00:00:01:02"

[[routes]]
prefix = "0.0.0.0/0"
via = "203.0.113.1"

[nat]
outside = "wan"
inside = ["lan"]
addresses = ["203.0.113.2", "203.0.113.3", "203.0.113.4", "203.0.113.5"]
port_selection = "hash"
sessions_max = 131072
host_sessions_max = 0
host_sessions_per_second = 0
"#;

const TRACE_CONFIG: &str = include_str!("../../../../examples/article/router.toml");

thalweg_base::words! {
    /// The workloads that can be generated.
    #[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Generated {
        /// Minimum-size packets to addresses across the table.
        Flood => "flood",
        /// NAT sessions.
        Nat => "nat",
        /// The text trace of the ANTS'13 article.
        Trace => "trace",
    }
}

/// The generated files.
#[derive(Clone, Debug)]
pub struct Made {
    pub input: PathBuf,
    /// `None` if the caller has a configuration.
    pub config: Option<PathBuf>,
    /// A few words for the report.
    pub description: String,
}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A file or folder cannot be written.
    #[error("cannot write {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// The generated configuration does not load: a bug in this module.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The sessions do not fit: a bug in this module.
    #[error(transparent)]
    Sessions(#[from] TooFewEndpoints),
    /// The router that opens the sessions cannot be built.
    #[error("opening sessions: {0}")]
    Router(#[from] BuildError),
    /// The router that opens the sessions cannot run.
    #[error("opening sessions: {0}")]
    Run(#[from] ExecError),
    /// The configuration forwards no IPv4 prefix.
    #[error("the configuration forwards no IPv4 prefix to flood")]
    NoRoutes,
}

/// Writes a workload of `packets` packets into `folder`, which is created if needed.
pub fn generate(kind: Generated, packets: u64, seed: u64, folder: &Path) -> Result<Made, GenerateError> {
    put(folder, std::fs::create_dir_all(folder))?;
    let config = folder.join("router.toml");
    match kind {
        Generated::Flood => {
            // A seed other than that of the addresses.
            let routes = prefixes::v4(FLOOD_ROUTES, seed ^ 0x7ab1e);
            write_file(&folder.join("prefixes.txt"), |out| {
                routes.iter().try_for_each(|net| writeln!(out, "{net}"))
            })?;
            write_file(&config, |out| out.write_all(FLOOD_CONFIG.as_bytes()))?;
            let what = format!("a generated table of {FLOOD_ROUTES} IPv4 routes");
            flood(&routes, "core", packets, seed, folder, &what)
                .map(|made| Made { config: Some(config), ..made })
        }
        Generated::Nat => {
            write_file(&config, |out| out.write_all(NAT_CONFIG.as_bytes()))?;
            let router = RouterConfig::load(&config)?;
            nat(&router, packets, seed, folder).map(|made| Made { config: Some(config), ..made })
        }
        Generated::Trace => {
            write_file(&config, |out| out.write_all(TRACE_CONFIG.as_bytes()))?;
            let input = folder.join("input.txt");
            let options = trace::TraceOptions { seed, ..trace::TraceOptions::default() };
            write_file(&input, |out| trace::write(&options, packets, out))?;
            let description = format!("made: {packets} packets of the article's text trace, seed {seed}");
            Ok(Made { input, config: Some(config), description })
        }
    }
}

/// Writes a flood over the IPv4 routes of a configuration.
pub fn flood_for(
    config: &RouterConfig,
    packets: u64,
    seed: u64,
    folder: &Path,
) -> Result<Made, GenerateError> {
    put(folder, std::fs::create_dir_all(folder))?;
    let forwards =
        |target: &u32| matches!(config.routing.targets.get(*target as usize), Some(RouteTarget::Forward(_)));
    let routes: Vec<Ipv4Net> =
        config.routing.v4.iter().filter(|(_, target)| forwards(target)).map(|(net, _)| *net).collect();
    let Some(port) = config.ports.first().filter(|_| !routes.is_empty()) else {
        return Err(GenerateError::NoRoutes);
    };
    let what = format!("the configuration's {} IPv4 routes", routes.len());
    flood(&routes, &port.name, packets, seed, folder, &what)
}

fn flood(
    routes: &[Ipv4Net],
    port: &str,
    packets: u64,
    seed: u64,
    folder: &Path,
    what: &str,
) -> Result<Made, GenerateError> {
    let path = folder.join("input.pcap");
    // RFC 2544 reserves 198.18.0.0/15 for benchmarks.
    let from = Endpoint { address: 0xc612_0001, port: 5000 };
    let mut frames = Flood::new(Kind::Inside, routes, seed, from, 0);
    write_file(&path, |out| capture::write(out, &mut frames, packets, GAP_NS))?;
    let description =
        format!("made: {packets} packets of 64 bytes to addresses drawn over {what}, seed {seed}");
    // All packets arrive on the port that the argument names.
    let mut input = std::ffi::OsString::from(format!("{port}="));
    input.push(&path);
    Ok(Made { input: input.into(), config: None, description })
}

fn nat(config: &RouterConfig, packets: u64, seed: u64, folder: &Path) -> Result<Made, GenerateError> {
    let sessions = (packets / 4).clamp(1, NAT_SESSIONS_MAX);
    let net = |text: &str| text.parse::<Ipv4Net>().unwrap_or_default();
    let options = NatOptions {
        sessions: sessions as u32,
        inside: net("192.168.1.0/24"),
        outside: net("20.0.0.0/8"),
        inside_port: 1,
        outside_port: 0,
        translates: true,
        inward_percent: 50,
        seed,
    };
    let mut made = NatSessions::new(options)?;
    for chunk in opened(config, &made)? {
        made.learn(&chunk);
    }
    let input = folder.join("input.pcap");
    let mut all = Chained { openers: made.openers(), left: sessions, traffic: made.traffic() };
    write_file(&input, |out| capture::write(out, &mut all, packets.max(sessions), GAP_NS))?;
    let description = format!(
        "made: {packets} packets of 64 bytes, {sessions} NAT sessions opened ({} got a port) and then used both \
         ways, seed {seed}",
        made.established()
    );
    Ok(Made { input, config: None, description })
}

/// The openers as they leave the router.
fn opened(config: &RouterConfig, sessions: &NatSessions) -> Result<Vec<Chunk>, GenerateError> {
    struct FromFrames<I>(I);
    impl<I: Iterator<Item = Chunk> + Send> Source<Chunk> for FromFrames<I> {
        fn next(&mut self) -> Option<Chunk> {
            self.0.next()
        }
    }
    struct Kept(Vec<Chunk>);
    impl Sink<Chunk> for Kept {
        fn accept(&mut self, chunk: Chunk) {
            self.0.push(chunk);
        }
    }
    let plan = RouterPlan::from_config(config, None)?;
    let mut openers = sessions.openers();
    let chunks = Chunks::new(&mut openers, sessions.len() as u64, CHUNK_PACKETS_DEFAULT, GAP_NS);
    let mut kept = Kept(Vec::new());
    thalweg_exec::run(&plan, &mut FromFrames(chunks), &mut kept, &ModelOptions::new(ModelKind::Serial, 1))?;
    Ok(kept.0)
}

/// First the openers, then the traffic.
struct Chained<'a> {
    openers: super::nat::Openers<'a>,
    left: u64,
    traffic: super::nat::Traffic<'a>,
}

impl super::frames::FrameSource for Chained<'_> {
    fn next_frame(&mut self, frame: &mut super::frames::Frame) -> u16 {
        if self.left > 0 {
            self.left -= 1;
            return self.openers.next_frame(frame);
        }
        self.traffic.next_frame(frame)
    }
}

fn write_file(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), GenerateError> {
    let done = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        write(&mut out)?;
        out.flush()
    });
    put(path, done)
}

fn put(path: &Path, done: io::Result<()>) -> Result<(), GenerateError> {
    done.map_err(|source| GenerateError::File { path: path.to_path_buf(), source })
}
