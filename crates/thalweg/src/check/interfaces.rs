//! `thalweg check`: how this machine would drive the ports.

use serde_json::{Value, json};
use thalweg_config::{Driver, RouterConfig, SubInterface};
use thalweg_exec::Priority;
use thalweg_live::{PortPreflight, preflight, start_dpdk};
use thalweg_wire::MacAddr;

use super::port_name;
use crate::tables::table;

/// The preflight of this machine.
pub(super) struct Interfaces {
    /// By port; `None` for ports without an interface.
    ports: Vec<Option<PortPreflight>>,
    /// The priority that forwarding threads get, and what is missing for the configured one.
    priority: Option<(Priority, Option<String>)>,
    /// Why they cannot be bound to their cores.
    cores: Option<String>,
}

impl Interfaces {
    /// Tries all interfaces.
    pub(super) fn look(config: &RouterConfig) -> Self {
        // A sub-interface uses its parent's.
        let own = |port: &&thalweg_config::PortConfig| port.sub_interface.is_none();
        let look = |(index, port): (u16, &thalweg_config::PortConfig)| {
            let port = Some(port).filter(own)?;
            let is_parent = |sub: SubInterface| sub.parent == index;
            let carries_vlans = config.ports.iter().any(|port| port.sub_interface.is_some_and(is_parent));
            Some(preflight(port, port.interface.as_ref()?, carries_vlans, config.dpdk.mbufs))
        };
        // A failure is reported at each port that needs DPDK.
        let _ = start_dpdk(config);
        let ports: Vec<_> = (0u16..).zip(&config.ports).map(look).collect();
        let forwards = ports.iter().any(Option::is_some);
        let priority = forwards.then(|| thalweg_daemon::priority::here(config.workers.priority));
        let cores = thalweg_daemon::priority::cores(&config.workers).err().filter(|_| forwards);
        let cores = cores.map(|error| error.to_string());
        Self { ports, priority, cores }
    }

    /// Tries nothing.
    pub(super) fn unknown(config: &RouterConfig) -> Self {
        Self { ports: vec![None; config.ports.len()], priority: None, cores: None }
    }

    /// A line for each port with an interface, or on another's link; remarks follow.
    pub(super) fn render(&self, text: &mut String, config: &RouterConfig) {
        if self.ports.iter().all(Option::is_none) {
            return;
        }
        let mut rows = Vec::new();
        let mut notes = String::new();
        for (port, found) in config.ports.iter().zip(&self.ports) {
            if let (Some(interface), Some(found)) = (&port.interface, found) {
                let mode = found.mode.clone().unwrap_or_else(|| "cannot be opened".to_owned());
                rows.push(vec![port.name.clone(), interface.name.clone(), mode]);
                let why = found.why_not_better.iter().map(|why| format!("not better: {why}"));
                for note in why.chain(found.findings.iter().cloned()) {
                    let note = note.strip_prefix(&format!("{}: ", interface.name)).unwrap_or(&note);
                    notes += &format!("{}: {note}\n", port.name);
                }
            } else if let Some(sub) = port.sub_interface {
                let parent = port_name(config, sub.parent);
                rows.push(vec![
                    port.name.clone(),
                    format!("VLAN {} of {parent}", sub.vlan),
                    format!("as {parent}"),
                ]);
            }
        }
        *text += &table(&["port", "interface", "here and now"], &[], rows);
        text.push_str(&notes);
        if let Some((priority, remark)) = &self.priority {
            *text += &format!("Forwarding threads get priority {priority} here.\n");
            text.extend(remark.iter().chain(&self.cores).map(|remark| format!("workers: {remark}\n")));
        }
        *text += &workers_text(config);
        text.push('\n');
    }

    /// The part `workers` of the JSON.
    pub(super) fn workers_json(&self, config: &RouterConfig) -> Value {
        let (here, remark) = self.priority.clone().unzip();
        json!({
            "count": config.workers.count,
            "priority": config.workers.priority.name(),
            "priority_here": here.map(Priority::name),
            "remark": remark.flatten().or(self.cores.clone()),
            "busy_poll_us": config.workers.busy_poll.as_micros() as u64,
            "each": (0..config.workers.count)
                .map(|worker| json!({
                    "worker": worker,
                    "core": core_of(config, worker),
                    "queues": queues_of(config, worker)
                        .map(|(port, queue)| json!({ "port": port, "queue": queue }))
                        .collect::<Vec<_>>(),
                }))
                .collect::<Vec<_>>(),
        })
    }

    /// Whether the port has no Ethernet headers.
    pub(super) fn is_bare(&self, port: usize) -> bool {
        self.ports.get(port).and_then(Option::as_ref).is_some_and(|found| found.is_bare)
    }

    /// The MAC address that a port will have, if it is known here.
    pub(super) fn mac_of(&self, config: &RouterConfig, port: usize) -> Option<MacAddr> {
        let of = config.ports.get(port)?;
        match (of.sub_interface, &of.interface) {
            // A VLAN has its parent's, unless it has its own and no interface.
            (Some(sub), Some(_)) => self.mac_of(config, usize::from(sub.parent)),
            (None, Some(interface)) if interface.own_mac => self.ports.get(port)?.as_ref()?.mac,
            _ => Some(of.mac),
        }
    }

    /// [`Self::mac_of`] in words.
    pub(super) fn mac_text(&self, config: &RouterConfig, port: usize) -> String {
        if let Some(known) = self.mac_of(config, port) {
            return known.to_string();
        }
        let interface = config.ports.get(port).and_then(|port| port.interface.as_ref());
        match interface {
            Some(interface) if interface.driver == Driver::Tap => "made at start".to_owned(),
            Some(interface) => format!("that of {}, at start", interface.name),
            None => String::new(),
        }
    }

    /// A port's interface and its preflight.
    pub(super) fn json_of(&self, config: &RouterConfig, port: usize) -> Value {
        let interface = config.ports.get(port).and_then(|port| port.interface.as_ref());
        let Some(interface) = interface else { return Value::Null };
        let found = self.ports.get(port).cloned().flatten();
        json!({
            "name": interface.name,
            "looked_at": found.is_some(),
            "mode": found.as_ref().and_then(|found| found.mode.clone()),
            "why_not_better": found.as_ref().and_then(|found| found.why_not_better.clone()),
            "findings": found.map(|found| found.findings).unwrap_or_default(),
        })
    }
}

/// The core that a worker is bound to, if it is.
fn core_of(config: &RouterConfig, worker: usize) -> Option<usize> {
    let cores = config.workers.cores.as_ref()?;
    cores.get(worker % cores.len()).copied()
}

/// Port and number of the queues that are said to belong to a worker.
fn queues_of(config: &RouterConfig, worker: usize) -> impl Iterator<Item = (&str, usize)> {
    let named = config.ports.iter().filter_map(|port| {
        let workers = port.interface.as_ref()?.queue_workers.as_ref()?;
        Some(workers.iter().enumerate().map(|(queue, of)| (port.name.as_str(), queue, *of)))
    });
    named.flatten().filter(move |(.., of)| *of == worker).map(|(port, queue, _)| (port, queue))
}

/// What belongs to each worker, where the configuration says something about them.
fn workers_text(config: &RouterConfig) -> String {
    let workers = &config.workers;
    if workers.count == 1 && workers.cores.is_none() {
        return String::new();
    }
    let row = |worker| {
        let core = core_of(config, worker).map_or_else(|| "any".to_owned(), |core| core.to_string());
        let named = queues_of(config, worker).map(|(port, queue)| format!("{port} {queue}"));
        let queues: Vec<String> = named.collect();
        let queues = if queues.is_empty() { "as found".to_owned() } else { queues.join(", ") };
        vec![worker.to_string(), core, queues]
    };
    table(&["worker", "core", "receive queues"], &[], (0..workers.count).map(row))
}
