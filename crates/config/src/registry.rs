//! All tables of keys, for the reference and `thalweg config keys`.

use crate::key::{SectionInfo, Table, table};
use crate::{
    acl, alarms, bgp, control, dpdk, firewall, flows, kernel, nat, policy, ports, prefix_translation, qos,
    routing, sets, standby, system, vrrp, web, workers,
};

table! {
    /// The root table with all sections.
    pub(crate) static ROOT: "", "the configuration";

    row ports::PORTS;
    row kernel::KERNEL;
    row workers::WORKERS;
    row dpdk::DPDK;
    row flows::FLOWS;
    row alarms::ALARMS;
    row ports::NEIGHBORS;
    row routing::ROUTING;
    row routing::ROUTES;
    row vrrp::VRRP;
    row standby::STANDBY;
    row nat::NAT;
    row prefix_translation::PREFIX_TRANSLATION;
    row acl::ACL;
    row firewall::FIREWALL;
    row sets::SETS;
    row qos::QOS;
    row qos::VALIDATE;
    row bgp::BGP;
    row policy::POLICY;
    row control::CONTROL;
    row web::WEB;
    row system::SYSTEM;
}

/// Every table once: each before the sections that begin in it, with shared tables at the end.
pub(crate) fn tables() -> Vec<&'static Table> {
    let mut all = Vec::new();
    collect(&ROOT, &mut all);
    all
}

fn collect(table: &'static Table, all: &mut Vec<&'static Table>) {
    if all.iter().any(|known| known.name == table.name) {
        return;
    }
    all.push(table);
    let begun = table.rows.iter().filter_map(|row| row.table());
    for table in begun.chain(table.shared) {
        collect(table, all);
    }
}

/// Every key of the configuration, section by section.
pub fn keys() -> Vec<SectionInfo> {
    tables().into_iter().map(Table::info).collect()
}

impl SectionInfo {
    /// The section's table in `docs/configuration.md`.
    pub fn markdown(&self) -> String {
        let tells_reload = self.keys.iter().any(|key| key.reload != "live");
        let mut header = vec!["key", "meaning", "value", "default"];
        header.extend(tells_reload.then_some("reload"));
        let mut text = format!("| {} |\n|{}\n", header.join(" | "), "---|".repeat(header.len()));
        for key in &self.keys {
            let name = match key.former {
                Some(former) => format!("`{}` (formerly `{former}`)", key.key),
                None => format!("`{}`", key.key),
            };
            let mut cells = vec![name, key.help.to_owned(), key.value.markdown(), key.default_words()];
            cells.extend(tells_reload.then(|| key.reload_words().to_owned()));
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text
    }
}
