//! `thalweg run`: runs the router in the foreground.

use thalweg_daemon::{RunError, RunOptions};

use crate::cli::RunArgs;
use crate::{Failure, load_with_source, log, web};

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (source, config) = load_with_source(&args.config)?;
    log::to_stderr(args)?;
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
    // Before the first thread, which inherits what remains.
    thalweg_daemon::rights::take(&config, &options)
        .map_err(|error| Failure::Router(RunError::Rights(error)))?;
    let web = config.web.as_ref().map(|web| {
        let router = args.socket.clone().unwrap_or_else(|| config.control.socket.clone());
        web::start(web, router, config.flows.as_ref().and_then(|flows| flows.store.clone()))
    });
    // Until the router has ended.
    let _web = web.transpose()?;
    thalweg_daemon::run(source, &config, &options).map_err(|error| match error {
        RunError::FlowRecordsLost(what) => Failure::Incomplete(what),
        other => Failure::Router(other),
    })
}
