//! All tables of keys: what the reference and `thalweg config keys` show.

use crate::key::{SectionInfo, Table};
use crate::{acl, bgp, control, dpdk, flows, kernel, nat, policy, ports, qos, routing, workers};

/// The sections.
pub(crate) static ROOT: Table = Table::new(
    "",
    "the configuration",
    &[
        &ports::PORTS,
        &kernel::KERNEL,
        &workers::WORKERS,
        &dpdk::DPDK,
        &flows::FLOWS,
        &ports::NEIGHBORS,
        &routing::ROUTING,
        &routing::ROUTES,
        &nat::NAT,
        &acl::ACL,
        &qos::QOS,
        &qos::VALIDATE,
        &bgp::BGP,
        &policy::POLICY,
        &control::CONTROL,
    ],
);

/// Every table once: each before the sections that begin in it, and keys that sections share behind them.
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

/// Every key that a configuration may have, section by section.
pub fn keys() -> Vec<SectionInfo> {
    tables().into_iter().map(Table::info).collect()
}
