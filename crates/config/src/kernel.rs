//! `[kernel]`: what is kept in sync between the forwarding table and the kernel.

use crate::bgp_types::Install;
use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, U32, table};
use crate::ports::Ports;
use crate::reader::Reader;
use crate::section::Section;
use crate::types::KernelSync;

pub(crate) static KERNEL: Key<Sub> =
    Key::section("kernel", &TABLE).help("live: [kernel sync](kernel-routes.md#kernel-sync)");
table! {
    static TABLE: "kernel", "[kernel]";

    static ROUTES: Key<(bool, bool)> = Key::word("routes", &WAYS)
        .otherwise("`\"both\"` where a port has a `mirror` (unless BGP has `install = \"kernel\"`), else `\"off\"`")
        .restart(Differs::Router(|old, new| {
            (old.kernel.import, old.kernel.export) != (new.kernel.import, new.kernel.export)
        }))
        .help(
            "`\"import\"`: routes of others in the kernel that lead to ports are used; `\"export\"`: the router's are put \
             into the kernel; `\"both\"`; `\"off\"`",
        );
    static NEIGHBORS: Key<(bool, bool)> = Key::word("neighbors", &WAYS)
        .former("neighbours")
        .default((false, false))
        .restart(Differs::Router(|old, new| {
            let ways = |sync: &KernelSync| (sync.import_neighbors, sync.export_neighbors);
            ways(&old.kernel) != ways(&new.kernel)
        }))
        .help(
            "`\"import\"`: the kernel's permanent neighbor entries are the router's; `\"export\"`: the router's \
             are put into the kernel's tables of mirrors; `\"both\"`; `\"off\"`",
        );
    static METRIC: Key<u32> = Key::number("metric", 1..=U32)
        .default_of(|| KernelSync::default().metric)
        .restart(Differs::Router(|old, new| old.kernel.metric != new.kernel.metric))
        .help("of the routes put into the kernel");
    static REPAIR_S: Key<u32> = Key::number("repair_s", 1..=86_400)
        .unit("seconds")
        .default_of(|| KernelSync::default().repair_s)
        .restart(Differs::Router(|old, new| old.kernel.repair_s != new.kernel.repair_s))
        .help("time between scans for drift");
}

/// Whether the kernel's entries are imported, and whether ours are exported.
const WAYS: [(&str, (bool, bool)); 4] =
    [("off", (false, false)), ("import", (true, false)), ("export", (false, true)), ("both", (true, true))];

/// Reads the section. `install` is where BGP's routes go, if there is BGP.
pub(crate) fn read(
    reader: &mut Reader,
    root: &mut Section<'_>,
    ports: &Ports,
    install: Option<Install>,
) -> KernelSync {
    let mut sync = KernelSync::default();
    let interfaces = || ports.configs.iter().filter_map(|port| port.interface.as_ref());
    let has_port =
        |needs_mirror: bool| interfaces().any(|interface| !needs_mirror || interface.mirror.is_some());
    // Without routes, programs of the system would reach only the networks of mirrors.
    let is_needed = has_port(true) && install != Some(Install::Kernel);
    (sync.import, sync.export) = (is_needed, is_needed);
    let mut section = root.section_or_empty(reader, &KERNEL);
    let routes = section.take(&ROUTES);
    if let Some(item) = &routes {
        (sync.import, sync.export) = ROUTES.value(reader, item).unwrap_or_default();
    }
    let neighbors = section.take(&NEIGHBORS);
    if let Some(item) = &neighbors {
        (sync.import_neighbors, sync.export_neighbors) = NEIGHBORS.value(reader, item).unwrap_or_default();
    }
    section.set(reader, &METRIC, &mut sync.metric);
    section.set(reader, &REPAIR_S, &mut sync.repair_s);
    section.finish(reader);
    let routes = routes.filter(|_| sync.import || sync.export);
    let neighbors = neighbors.filter(|_| sync.import_neighbors || sync.export_neighbors);
    for (item, needs_mirror) in [(&routes, sync.export), (&neighbors, sync.export_neighbors)] {
        if let Some(item) = item.as_ref().filter(|_| !has_port(needs_mirror)) {
            let message = "the kernel has no interface that stands for a port";
            reader.error(ErrorKind::MissingKey, &item.span, message, "a port with `interface` and `mirror`");
        }
    }
    if let Some(routes) = routes.filter(|_| install == Some(Install::Kernel)) {
        let message = "BGP's routes go into the kernel already";
        reader.error(
            ErrorKind::Conflict,
            &routes.span,
            message,
            "install = \"fib\" in [bgp], or no routes in [kernel]",
        );
    }
    sync
}
