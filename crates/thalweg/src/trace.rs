//! `thalweg trace packet`: shows what a router would do with a packet, and why.

use std::net::IpAddr;
use std::path::Path;

use thalweg_config::{RouterConfig, VrfIndex};
use thalweg_node::control::{PacketRequest, Request};
use thalweg_node::live_tables::{LiveTables, PortLink};
use thalweg_node::plan::RouterPlan;
use thalweg_node::trace::{NextNeighbor, PacketSpec, Surroundings, TraceView, explain};

use crate::cli::{Format, TraceArgs, TraceCommand};
use crate::client::views;
use crate::tables::{remark, table};
use crate::{Failure, load_config, print};

pub(crate) fn run(args: &TraceArgs, format: Format) -> Result<(), Failure> {
    let TraceCommand::Packet { packet, router, config } = &args.command;
    // A malformed packet is reported without asking the router.
    let spec = PacketSpec::parse(packet).map_err(|error| Failure::Usage(error.to_string()))?;
    let traced = match config {
        Some(file) => vec![of_file(file, &spec)?],
        None => {
            let request = PacketRequest::TracePacket { packet: packet.clone() };
            views(&router.socket, &Request::Packets(request))?
        }
    };
    for view in &traced {
        match format {
            Format::Json => {
                let text =
                    serde_json::to_string(view).map_err(|error| Failure::Control(error.to_string()))?;
                print(&format!("{text}\n"))?;
            }
            Format::Human => print(&render(view))?,
        }
    }
    Ok(())
}

fn render(view: &TraceView) -> String {
    let rows = view.steps.iter().map(|step| vec![step.stage.clone(), step.verdict.clone(), step.why.clone()]);
    let steps = table(&["Stage", "Verdict", "Why"], &[], rows);
    [remark(&view.packet), steps, remark(&view.summary)].concat()
}

/// Traces in a router that has just started with this file.
fn of_file(file: &Path, spec: &PacketSpec) -> Result<TraceView, Failure> {
    let config = load_config(file)?;
    let failed = |error: &dyn std::fmt::Display| Failure::Run(error.to_string());
    let tables = LiveTables::new(&config).map_err(|error| failed(&error))?;
    let plan = RouterPlan::with_router(&config, tables.router(), None).map_err(|error| failed(&error))?;
    let around = FromFile { config: &config, tables: &tables };
    explain(&config, &plan, &around, spec, 0).map_err(|error| Failure::Usage(error.to_string()))
}

/// The surroundings of the stages according to a file.
struct FromFile<'c> {
    config: &'c RouterConfig,
    tables: &'c LiveTables,
}

impl Surroundings for FromFile<'_> {
    fn prefix(&self, vrf: VrfIndex, destination: IpAddr) -> Option<String> {
        self.tables.fib().lookup(vrf, destination).1.map(|prefix| prefix.to_string())
    }

    fn next_of(&self, number: u32, flow_hash: u32, destination: IpAddr) -> Option<(u16, IpAddr)> {
        self.tables.next_of(number, flow_hash, destination)
    }

    fn link(&self, port: u16) -> Option<PortLink> {
        self.tables.port(port)
    }

    fn neighbor(&self, port: u16, address: IpAddr) -> Option<NextNeighbor> {
        let configured = self.config.neighbors.iter();
        let mut found = configured.filter(|each| (each.port, each.address) == (port, address));
        found.next().map(|each| NextNeighbor { state: "static".to_owned(), mac: Some(each.mac) })
    }

    fn waiting(&self, _port: u16, _class: u8) -> Option<u64> {
        None
    }
}
