//! `[kernel]`: whether the forwarding table and the kernel's are kept in step.
//!
//! ```toml
//! [kernel]
//! routes = "both"         # "import": others' routes by mirrors and ports; "export": ours for the system; "off". Default:
//!                         # "both" where a port has a mirror (and BGP's routes do not go into the kernel anyway), else "off"
//! neighbors = "off"      # "import": those set for good in the kernel; "export": the router's for mirrors; "both"
//! metric = 116            # of routes that go into the kernel
//! repair_s = 60           # between two looks for drift
//! ```

use crate::bgp_types::Install;
use crate::diagnostic::ErrorKind;
use crate::ports::Ports;
use crate::reader::{Reader, Section};
use crate::types::KernelSync;

const METRIC_MAX: u64 = u32::MAX as u64;
const REPAIR_MAX_S: u64 = 86_400;

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
    // Without routes, programs of the system would reach no farther than the networks of mirrors.
    let is_needed = has_port(true) && install != Some(Install::Kernel);
    (sync.import, sync.export) = (is_needed, is_needed);
    let Some(item) = root.take("kernel") else { return sync };
    let Some(mut section) = reader.section(&item, "[kernel]".to_owned()) else { return sync };
    const WAYS: [(&str, (bool, bool)); 4] = [
        ("off", (false, false)),
        ("import", (true, false)),
        ("export", (false, true)),
        ("both", (true, true)),
    ];
    let routes = section.take("routes");
    if let Some(routes) = &routes {
        (sync.import, sync.export) = reader.word(routes, &WAYS).unwrap_or_default();
    }
    let neighbors = section.take_renamed("neighbors", "neighbours");
    if let Some(neighbors) = &neighbors {
        (sync.import_neighbors, sync.export_neighbors) = reader.word(neighbors, &WAYS).unwrap_or_default();
    }
    let numbers = [
        ("metric", &mut sync.metric, 1..=METRIC_MAX, ""),
        ("repair_s", &mut sync.repair_s, 1..=REPAIR_MAX_S, "seconds"),
    ];
    for (key, value, range, unit) in numbers {
        if let Some(item) = section.take(key) {
            *value = reader.integer(&item, range, unit).map_or(*value, |number| number as u32);
        }
    }
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
