//! `thalweg check`: which rights `run` needs, and what it denies itself.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thalweg_config::RouterConfig;
use thalweg_daemon::rights::{self, Need, Sandbox, needs, trials};
use thalweg_daemon::{RunError, RunOptions};
use thalweg_exec::ModelKind;

use crate::cli::CheckArgs;
use crate::tables::table;
use crate::{Failure, print};

/// Whether `run` takes this configuration.
fn runs(config: &RouterConfig) -> bool {
    config.bgp.is_some() || config.ports.iter().any(|port| port.interface.is_some())
}

pub(super) fn render(text: &mut String, config: &RouterConfig, args: &CheckArgs) {
    if !runs(config) {
        return;
    }
    let held = |need: &Need| if need.capability.is_held() { "held" } else { "missing" }.to_owned();
    let rows = needs(config).into_iter().map(|need| {
        let known = [need.capability.name().to_owned(), need.what.to_owned()];
        known.into_iter().chain((!args.offline).then(|| held(&need))).collect()
    });
    let header = ["capability", "for", "this user"];
    *text += &table(if args.offline { &header[..2] } else { &header }, &[], rows);
    let _ = match &config.system.user {
        Some(user) => writeln!(text, "Started by root, `run` becomes {user} and keeps only capabilities."),
        None => writeln!(text, "Started by root, `run` remains root: see [system] user."),
    };
    let sandbox = Sandbox::of(config);
    if let Some(version) = sandbox.landlock {
        let _ = writeln!(
            text,
            "Sandbox: it opens only files that this configuration names (Landlock {version})."
        );
    }
    if let Some(calls) = sandbox.refused_calls {
        let _ = writeln!(text, "Sandbox: {calls} system calls are refused to it (seccomp).");
    }
    for why in &sandbox.missing {
        let _ = writeln!(text, "Sandbox: not complete: {why}.");
    }
    text.push('\n');
    if !args.offline {
        render_reads(text, &rights::files_read(config));
    }
}

/// The files that a process reads, and what became of opening them here.
pub(super) fn render_reads(text: &mut String, files: &BTreeSet<PathBuf>) {
    if files.is_empty() {
        return;
    }
    let found = |path: &PathBuf| unreadable(path).unwrap_or_else(|| "readable".to_owned());
    let rows = files.iter().map(|path| vec![path.display().to_string(), found(path)]);
    *text += &table(&["reads", "this user"], &[], rows);
    text.push('\n');
}

/// The same as JSON.
pub(super) fn reads_json(files: &BTreeSet<PathBuf>) -> Vec<Value> {
    files.iter().map(|path| json!({ "path": path, "error": unreadable(path) })).collect()
}

/// Why this user cannot read a file or folder.
fn unreadable(path: &Path) -> Option<String> {
    let listed = if path.is_dir() { fs::read_dir(path).map(drop) } else { File::open(path).map(drop) };
    listed.err().map(|error| error.to_string())
}

pub(super) fn to_json(config: &RouterConfig) -> Value {
    let Sandbox { landlock, refused_calls, missing } = Sandbox::of(config);
    let need = |need: Need| json!({ "name": need.capability.name(), "for": need.what, "held": need.capability.is_held() });
    json!({
        "user": config.system.user,
        "capabilities": needs(config).into_iter().map(need).collect::<Vec<_>>(),
        "reads": reads_json(&rights::files_read(config)),
        "sandbox": { "landlock": landlock, "refused_calls": refused_calls, "missing": missing },
    })
}

/// Becomes what `run` would, and tries what it must not be able to do.
pub(super) fn try_sandbox(config: &RouterConfig, args: &CheckArgs) -> Result<(), Failure> {
    let options = RunOptions {
        config: args.config.clone(),
        scheduling: None,
        threads: None,
        model: ModelKind::RunToCompletion,
        workers: None,
        socket: None,
        restarting: false,
        profile_functions: false,
    };
    rights::take(config, &options).map_err(|error| Failure::Router(RunError::Rights(error)))?;
    try_what_is_forbidden()
}

/// Tries what this process, in its sandbox, must not be able to do.
pub(super) fn try_what_is_forbidden() -> Result<(), Failure> {
    let trials = trials();
    let said = |is_refused| if is_refused { "refused" } else { "ALLOWED" };
    let rows = trials.iter().map(|trial| vec![trial.act.clone(), said(trial.is_refused).to_owned()]);
    print(&table(&["tried", "and"], &[], rows))?;
    match trials.iter().filter(|trial| !trial.is_refused).count() {
        0 => Ok(()),
        allowed => Err(Failure::Run(format!("the sandbox allows {allowed} of {} trials", trials.len()))),
    }
}
