//! `thalweg web`: serves the HTTP API, in a process of its own or as a thread of the router's.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use thalweg_config::{ConfigSource, WebConfig};
use thalweg_daemon::{RunError, rights};
use thalweg_ports::live::wall_ns;
use thalweg_web::{Web, WebOptions};

use crate::Failure;
use crate::cli::WebArgs;
use crate::signals::stop_on_signals;

/// How often a process that only serves looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &WebArgs) -> Result<(), Failure> {
    let source = ConfigSource::read(&args.config).map_err(Failure::Config)?;
    let setup = source.web().map_err(Failure::Config)?;
    let setup = setup.ok_or_else(|| Failure::Usage(format!("{} has no [web]", args.config.display())))?;
    let router = args.socket.clone().unwrap_or(setup.control_socket);
    let records = args.data.clone().or(setup.store);
    rights::take_to_serve(&setup.files, &args.config, records.as_deref())
        .map_err(|error| Failure::Router(RunError::Rights(error)))?;
    let stop = stop_on_signals()?;
    let _web = start(&setup.web, router, records)?;
    while !stop.load(Ordering::Acquire) {
        thread::park_timeout(LOOK_EVERY);
    }
    Ok(())
}

/// Starts the thread that serves the API of the router with this control socket.
pub(crate) fn start(config: &WebConfig, router: PathBuf, store: Option<PathBuf>) -> Result<Web, Failure> {
    let options = WebOptions { router, store, version: env!("CARGO_PKG_VERSION"), wall_ns };
    Web::start(config, options).map_err(|error| Failure::Run(error.to_string()))
}
