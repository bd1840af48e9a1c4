//! `thalweg run`: runs the router in the foreground.

use std::io::{self, IsTerminal};

use thalweg_daemon::{RunError, RunOptions};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{LogFormat, RunArgs};
use crate::screen::has_color;
use crate::{Failure, load_with_source, web};

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (source, config) = load_with_source(&args.config)?;
    log_to_stderr(args)?;
    let options = RunOptions {
        config: args.config.clone(),
        scheduling: args.scheduling,
        threads: args.threads.map(usize::from),
        model: args.model,
        workers: args.workers.map(usize::from),
        socket: args.socket.clone(),
        restarting: args.restarting,
        profile_functions: args.profile_functions,
    };
    let web = config.web.as_ref().map(|web| {
        let router = args.socket.clone().unwrap_or_else(|| config.control_socket.clone());
        web::start(web, router, config.flows.as_ref().and_then(|flows| flows.store.clone()))
    });
    // Until the router has ended.
    let _web = web.transpose()?;
    thalweg_daemon::run(source, &config, &options).map_err(|error| match error {
        RunError::FlowRecordsLost(what) => Failure::Incomplete(what),
        other => Failure::Router(other),
    })
}

fn log_to_stderr(args: &RunArgs) -> Result<(), Failure> {
    let level: LevelFilter = args.log.parse().map_err(|_| {
        Failure::Usage(format!("--log {}: expected error, warn, info, debug, trace or off", args.log))
    })?;
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(io::stderr).with_target(false);
    match args.log_format {
        LogFormat::Text => builder.with_ansi(has_color(io::stderr().is_terminal())).init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}
