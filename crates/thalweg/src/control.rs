//! `thalweg reload`, `clear`, `stop` and `bgp`: commands to a running router.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thalweg_node::control::{BgpRequest, FirewallCleared, NatClear, NatCleared, PacketRequest, Request};
use thalweg_text::units::counted;

use crate::cli::{
    BgpArgs, BgpCommand, ClearArgs, ClearCommand, ClearNatArgs, Format, ReloadArgs, SessionEndArgs, StopArgs,
};
use crate::client::{ask, parse};
use crate::{Failure, print};

pub(crate) fn reload(args: &ReloadArgs, format: Format) -> Result<(), Failure> {
    let mut changes = 0;
    let request = if args.dry_run { Request::CompareConfig } else { Request::Reload };
    ask(&args.router.socket, &request, |item| {
        changes += 1;
        match (format, item) {
            (Format::Human, Value::String(text)) => print(&format!("{text}\n")),
            (_, item) => print(&format!("{}\n", json!({ "change": item }))),
        }
    })?;
    match (format, changes) {
        (Format::Human, 0) if args.dry_run => print("nothing would change\n"),
        (Format::Human, 0) => print("nothing changed\n"),
        _ => Ok(()),
    }
}

pub(crate) fn clear(args: &ClearArgs, format: Format) -> Result<(), Failure> {
    let (request, what) = match &args.command {
        ClearCommand::Nat(which) => (clear_request(which), "NAT session"),
        ClearCommand::Firewall(args) => {
            (Request::Packets(PacketRequest::FirewallClear(args.which.clone().into())), "connection")
        }
    };
    let ended = |item| match &args.command {
        ClearCommand::Nat(_) => parse(item).map(|NatCleared { ended }| ended),
        ClearCommand::Firewall(_) => parse(item).map(|FirewallCleared { ended }| ended),
    };
    ask(&args.router.socket, &request, |item| match format {
        Format::Json => print(&format!("{item}\n")),
        Format::Human => print(&format!("{} ended\n", counted(ended(item)?, what))),
    })
}

/// The longest time for a router to end: it closes sessions, removes routes, and completes records and files.
const STOP_MAX: Duration = Duration::from_secs(60);

pub(crate) fn stop(args: &StopArgs) -> Result<(), Failure> {
    let keep_routes = (args.keep_routes || args.remove_routes).then_some(args.keep_routes);
    ask(&args.router.socket, &Request::Stop { keep_routes }, |_| Ok(()))?;
    let end = Instant::now() + STOP_MAX;
    // The router removes its socket last.
    while UnixStream::connect(&args.router.socket).is_ok() {
        if Instant::now() >= end {
            return Err(Failure::Control(format!(
                "the router has not stopped within {} s; its log says what it waits for",
                STOP_MAX.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

pub(crate) fn bgp_command(args: BgpArgs) -> Result<(), Failure> {
    let request = match args.command {
        BgpCommand::Refresh { neighbor } => BgpRequest::Refresh { neighbor },
        BgpCommand::Reset(SessionEndArgs { neighbor, text }) => BgpRequest::Reset { neighbor, text },
        BgpCommand::Shutdown(SessionEndArgs { neighbor, text }) => BgpRequest::Shutdown { neighbor, text },
        BgpCommand::Start { neighbor } => BgpRequest::Start { neighbor },
    };
    ask(&args.router.socket, &Request::Bgp(request), |_| Ok(()))
}

fn clear_request(args: &ClearNatArgs) -> Request {
    fn split<A>(endpoint: Option<(A, Option<u16>)>) -> (Option<A>, Option<u16>) {
        endpoint.map_or((None, None), |(address, port)| (Some(address), port))
    }
    let (inside, inside_port) = split(args.inside);
    let (public, port) = split(args.outside);
    let (remote, remote_port) = split(args.remote);
    let protocol = args.protocol.clone();
    Request::Packets(PacketRequest::NatClear(NatClear {
        inside,
        inside_port,
        vrf: args.vrf.clone(),
        public,
        port,
        remote,
        remote_port,
        protocol,
    }))
}
