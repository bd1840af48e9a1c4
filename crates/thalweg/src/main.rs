//! `thalweg`: the command line. It parses arguments, calls the other crates, and shows the result.
//!
//! Results go to standard output, as tables or (`--format json`) as one JSON object; everything else goes to
//! standard error. Exit codes: 0 success, 1 failure, 2 invalid usage or configuration.

mod capture;
mod check;
mod cli;
mod client;
mod config_keys;
mod control;
mod demo;
mod flows;
mod flows_import;
mod init;
mod lab;
mod log;
mod metering;
mod mrt;
mod pages;
mod probe;
mod progress;
mod received;
mod replay;
mod run;
mod screen;
mod show;
mod signals;
mod summary;
mod tables;
mod top;
mod trace;
mod web;
mod whatif;

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use thalweg_config::{ConfigErrors, ConfigSource, RouterConfig};
use thalweg_daemon::RunError;
use thalweg_probe::{ProbeError, ProbeSummary};
use thalweg_replay::{ReplayError, summary::ReplaySummary};

use cli::{Cli, Command, ConfigCommand};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Human,
    Json,
}

/// Why a command failed; combines the errors of all crates.
#[derive(Debug)]
enum Failure {
    Config(ConfigErrors),
    /// Arguments that contradict each other.
    Usage(String),
    Replay(ReplayError),
    /// The replay lost or invented packets: a bug.
    Conservation(Box<ReplaySummary>),
    Probe(ProbeError),
    /// The probe lost or invented packets: a bug.
    ProbeConservation(Box<ProbeSummary>),
    /// The work is done and its summary printed, but parts of it failed: what, and advice.
    Incomplete(Vec<String>),
    /// The input had errors, which were reported; all readable parts were printed.
    Damaged {
        errors: u64,
        /// Errors that were not shown individually.
        not_shown: u64,
    },
    /// The router cannot start, or failed.
    Router(RunError),
    /// Another command failed.
    Run(String),
    /// A running router does not answer, or refuses.
    Control(String),
    Output(std::io::Error),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Config(_) | Failure::Usage(_) | Failure::Replay(ReplayError::Options(_)) => 2,
            Failure::Probe(error) if error.is_usage() => 2,
            _ => 1,
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Failure::Config(errors) => {
                json!({ "error": "configuration", "diagnostics": errors.diagnostics })
            }
            other => json!({ "error": other.to_string() }),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Config(errors) => write!(f, "{errors}"),
            Failure::Usage(what) => write!(f, "error: {what}"),
            Failure::Replay(error) => write!(f, "error: {error}"),
            Failure::Conservation(summary) => write!(
                f,
                "error: {} packets in, but {} out and {} dropped: please report this, with the input",
                summary.packets_in,
                summary.packets_out,
                summary.dropped_total()
            ),
            Failure::Probe(error) => write!(f, "error: {error}"),
            Failure::ProbeConservation(summary) => write!(
                f,
                "error: {} packets seen, but {} exported, {} cached and {} dropped (or bytes that do not add up): please \
                 report this, with the input",
                summary.packets_seen,
                summary.packets_exported,
                summary.packets_cached,
                summary.dropped_total()
            ),
            Failure::Incomplete(what) => {
                // It may quote the input, which must not control the terminal.
                let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
                let lines: Vec<String> = what.iter().map(|line| line.chars().map(clean).collect()).collect();
                write!(f, "error: {}", lines.join("\nerror: "))
            }
            Failure::Damaged { errors, not_shown: 0 } => write!(f, "error: errors in the input: {errors}"),
            Failure::Damaged { errors, not_shown } => {
                write!(f, "error: errors in the input: {errors}, not shown of them: {not_shown}")
            }
            Failure::Router(error) => write!(f, "error: {error}"),
            Failure::Run(what) | Failure::Control(what) => write!(f, "error: {what}"),
            Failure::Output(error) => write!(f, "error: cannot write to standard output: {error}"),
        }
    }
}

/// Raises the limit of open files to what the system allows: a question about months opens thousands of files, and a
/// shell's limit is 1024.
fn open_as_many_files_as_allowed() {
    let limits = getrlimit(Resource::Nofile);
    // Where it is refused, the error about a file that cannot be opened tells it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => return tell(&said),
    };
    open_as_many_files_as_allowed();
    let format = cli.format;
    let result = match cli.command {
        Command::Check(args) => check::run(&args, format),
        Command::Config(ConfigCommand::Keys(args)) => config_keys::run(&args, format),
        Command::Init(args) => init::run(&args),
        Command::Replay(args) => replay::run(&args, format),
        Command::Probe(args) => probe::run(&args, format),
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args, format),
        Command::Show(args) => show::run(&args, format),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args, format),
        Command::Capture(args) => capture::run(&args, format),
        Command::Reload(args) => control::reload(&args, format),
        Command::Clear(args) => control::clear(&args, format),
        Command::Stop(args) => control::stop(&args),
        Command::Bgp(args) => control::bgp_command(args),
        Command::Lab(args) => lab::run(&args, format),
        Command::Flows(args) => flows::run(&args, format),
        Command::Mrt(args) => mrt::run(&args, format),
        Command::Whatif(args) => whatif::run(&args, format),
        Command::Web(args) => web::run(&args),
        Command::Pages(args) => pages::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader that closed the pipe has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // The printed output is valid, with one object per line.
            if format == Format::Json && !matches!(failure, Failure::Damaged { .. } | Failure::Incomplete(_))
            {
                let _ = print(&format!("{:#}\n", failure.to_json()));
            }
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Prints help or the version, or what is wrong with the arguments.
fn tell(said: &clap::Error) -> ExitCode {
    let printed = said.print().and_then(|()| std::io::stdout().flush());
    match printed.map_err(Failure::Output) {
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) if !said.use_stderr() => {
            let _ = writeln!(std::io::stderr(), "{failure}");
            ExitCode::from(failure.exit_code())
        }
        _ => ExitCode::from(u8::try_from(said.exit_code()).unwrap_or(1)),
    }
}

/// Reads a configuration; warnings go to standard error.
fn load_config(path: &Path) -> Result<RouterConfig, Failure> {
    load_with_source(path).map(|(_, config)| config)
}

/// [`load_config`] with the source text.
fn load_with_source(path: &Path) -> Result<(ConfigSource, RouterConfig), Failure> {
    let source = ConfigSource::read(path).map_err(Failure::Config)?;
    let config = parsed(&source)?;
    Ok((source, config))
}

/// Parses a configuration; warnings go to standard error.
fn parsed(source: &ConfigSource) -> Result<RouterConfig, Failure> {
    let config = source.config(&[]).map_err(Failure::Config)?;
    for warning in &config.warnings {
        let _ = writeln!(std::io::stderr(), "{warning}");
    }
    Ok(config)
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}
