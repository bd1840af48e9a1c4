//! `[kernel] neighbors`: permanent neighbors of the kernel become the router's, and neighbors that the router
//! resolved become the kernel's, on mirrors.
//!
//! ```text
//! kernel's news ──> KernelNeighbors ── others' on mirrors and ports' interfaces ──> host thread: neighbors   (import)
//! forwarding tables: neighbors ── those of ports with a mirror ──> KernelNeighbors::apply                    (export)
//! ```
//!
//! Nothing goes round in circles: [`KernelNeighbors`] distinguishes ours, which are never imported. An address that
//! another program has set on a mirror is left alone there, even if the router learned it from that entry.
//!
//! A resolved neighbor has answered the router's own solicitation, and there are at most some thousands: a scan of
//! a /64 fills neither table. At most [`EXPORTED_MAX`] of a port are exported. Those already in the kernel stay, so
//! that new ones cannot push them out. The system resolves the others itself, through the mirror.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_config::KernelSync;
use thalweg_node::control::NeighborSyncView;
use thalweg_node::forwarding::ForwardingTables;
use thalweg_ports::kernel::{KernelError, KernelNeighbors, NeighborChange, NeighborKey, PROTOCOL};
use thalweg_wire::MacAddr;

use super::{AFTER_FAILURE, SHARE};
use crate::packets::PacketSide;

/// The most neighbors of one port in the kernel.
const EXPORTED_MAX: usize = 1024;

/// The minimum time between two comparisons of exported neighbors.
const BETWEEN_EXPORTS: Duration = Duration::from_millis(50);

/// Neighbors by port and address.
type OfPorts = BTreeMap<(u16, IpAddr), MacAddr>;

/// Why neighbors are not in line.
#[derive(Debug, thiserror::Error)]
pub(super) enum NeighborSyncError {
    #[error("neighbors: {0}")]
    Kernel(#[from] KernelError),
    #[error("the host thread does not answer about neighbors")]
    HostSilent,
    /// The first change that the kernel refused.
    #[error("{0}")]
    Refused(String),
}

/// Keeps neighbors in sync with the kernel; see the module.
pub(super) struct NeighborSync {
    packets: Arc<PacketSide>,
    tables: Arc<ForwardingTables>,
    config: KernelSync,
    neighbors: KernelNeighbors,
    view: NeighborSyncView,
    /// All neighbors must be read again.
    read_is_due: bool,
    read_not_before: Instant,
    /// What the router was last told, and the number of reloads then; `None` before the first time.
    told: Option<(OfPorts, u64)>,
    tell_not_before: Instant,
    /// Others' neighbors have changed, or may have.
    tell_again: bool,
    /// The version of the router's neighbors at the last export.
    exported_changes: Option<u64>,
    export_not_before: Instant,
    /// Our neighbors in the kernel have changed, or may have.
    look_again: bool,
    /// Refusals of the kernel at the last comparison.
    refused: u64,
}

/// The present interfaces of ports.
pub(super) struct Interfaces<'i> {
    /// Ports by the indexes of their interfaces.
    pub(super) ports: &'i HashMap<u32, u16>,
    /// Mirrors by port.
    pub(super) mirrors: &'i HashMap<u16, u32>,
}

impl NeighborSync {
    /// Opens the sockets to the kernel.
    pub(super) fn new(
        packets: Arc<PacketSide>,
        tables: Arc<ForwardingTables>,
        config: KernelSync,
    ) -> Result<Self, KernelError> {
        let now = Instant::now();
        Ok(Self {
            packets,
            tables,
            config,
            neighbors: KernelNeighbors::open(PROTOCOL)?,
            view: NeighborSyncView::default(),
            read_is_due: false,
            read_not_before: now,
            told: None,
            tell_not_before: now,
            tell_again: false,
            exported_changes: None,
            export_not_before: now,
            look_again: false,
            refused: 0,
        })
    }

    /// Follows a change of links: reads all neighbors of the ports' present interfaces.
    pub(super) fn handle_links(&mut self, interfaces: &Interfaces<'_>) {
        self.neighbors.watch(interfaces.ports.keys().copied());
        self.read_is_due = true;
    }

    /// Brings both sides in line. With `scan` it reads everything, and counts differences that no notification
    /// explains. Errors are returned in words.
    pub(super) fn turn(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), NeighborSyncError> {
        let mut heard = self.read_changes()?;
        if scan && !self.read_is_due {
            let [others, ours] = self.read()?;
            // Differences that notifications explain are not drift.
            let after = self.read_changes()?;
            if !heard && !after && self.config.import_neighbors && others > 0 {
                self.view.import_drift += others;
                tracing::warn!(neighbors = others, "kernel: corrected drift of imported neighbors");
            }
            heard |= after || others + ours > 0;
        } else if self.read_is_due && Instant::now() >= self.read_not_before {
            self.read()?;
            self.read_is_due = false;
            heard = true;
        }
        self.look_again |= heard;
        self.tell_again |= heard;
        if self.config.import_neighbors {
            self.import(interfaces)?;
        }
        if self.config.export_neighbors {
            self.export(interfaces, scan)?;
        }
        Ok(())
    }

    pub(super) fn view(&self) -> NeighborSyncView {
        self.view.clone()
    }

    /// Returns whether there were notifications.
    fn read_changes(&mut self) -> Result<bool, KernelError> {
        let heard = self.neighbors.hear()?;
        self.view.notifications += heard.others + heard.ours;
        self.view.overruns += u64::from(heard.overrun);
        self.read_is_due |= heard.overrun;
        Ok(heard.others + heard.ours > 0 || heard.overrun)
    }

    fn read(&mut self) -> Result<[u64; 2], KernelError> {
        let begun = Instant::now();
        let read = self.neighbors.read();
        self.view.reads += 1;
        let pause = if read.is_ok() { begun.elapsed() * SHARE } else { AFTER_FAILURE };
        self.read_not_before = Instant::now() + pause;
        read
    }

    /// Tells the router others' neighbors, if they changed.
    fn import(&mut self, interfaces: &Interfaces<'_>) -> Result<(), NeighborSyncError> {
        let reloads = self.tables.reloads();
        // A new configuration may give the port other addresses.
        let is_told = self.told.as_ref().is_some_and(|(_, at)| *at == reloads) && !self.tell_again;
        if is_told || Instant::now() < self.tell_not_before {
            return Ok(());
        }
        let wanted = imported(self.neighbors.others(), interfaces);
        if self.told.as_ref().is_some_and(|(told, at)| *told == wanted && *at == reloads) {
            self.tell_again = false;
            return Ok(());
        }
        let neighbors: Vec<_> = wanted.iter().map(|((port, address), mac)| (*port, *address, *mac)).collect();
        let Some(counts) = self.packets.set_kernel_neighbors(neighbors) else {
            self.tell_not_before = Instant::now() + AFTER_FAILURE;
            return Err(NeighborSyncError::HostSilent);
        };
        self.view.imported = counts.in_force;
        self.view.imported_behind = counts.behind;
        self.view.not_on_link = counts.not_on_link;
        self.view.without_room = counts.without_room + self.neighbors.without_room();
        self.told = Some((wanted, reloads));
        self.tell_again = false;
        Ok(())
    }

    /// Puts resolved neighbors into the kernel where the two differ.
    fn export(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), NeighborSyncError> {
        let now = Instant::now();
        let changes = self.tables.read().neighbor_changes();
        let is_news = self.exported_changes != Some(changes);
        let is_due = scan || (is_news || self.look_again) && now >= self.export_not_before;
        // Before the first full read it is unknown which of the kernel's are ours.
        if !is_due || self.view.reads == 0 {
            return Ok(());
        }
        self.export_not_before = now + AFTER_FAILURE;
        let neighbors = self.tables.read().neighbors();
        let Wanted { neighbors: wanted, beyond_limit, left_alone } =
            wanted(neighbors, interfaces, self.neighbors.others(), self.neighbors.ours());
        (self.view.beyond_limit, self.view.left_alone) = (beyond_limit, left_alone);
        let mends = mends(&wanted, self.neighbors.ours());
        let report = self.neighbors.apply(&mends)?;
        let mended = report.set + report.removed;
        if !is_news {
            // What the kernel refused before and now accepts is not drift.
            let drift = mended.saturating_sub(self.refused);
            self.view.export_drift += drift;
            if drift > 0 {
                tracing::warn!(neighbors = drift, "kernel: corrected drift of exported neighbors");
            }
        }
        self.exported_changes = Some(changes);
        self.look_again = false;
        self.refused = report.failed;
        self.view.exported = self.neighbors.ours().len() as u64;
        self.export_not_before = Instant::now() + BETWEEN_EXPORTS.max(now.elapsed() * SHARE);
        report.failures.into_iter().next().map_or(Ok(()), |failure| Err(NeighborSyncError::Refused(failure)))
    }
}

/// Others' neighbors by port. An entry on a mirror takes precedence over one on the port's interface.
fn imported(others: &BTreeMap<NeighborKey, MacAddr>, interfaces: &Interfaces<'_>) -> OfPorts {
    let is_mirror = |interface: &u32, port: &u16| interfaces.mirrors.get(port) == Some(interface);
    let mut imported = BTreeMap::new();
    for mirrors in [false, true] {
        for ((interface, address), mac) in others {
            let port = interfaces.ports.get(interface);
            if let Some(port) = port.filter(|port| is_mirror(interface, port) == mirrors) {
                imported.insert((*port, *address), *mac);
            }
        }
    }
    imported
}

/// The neighbors that the kernel should have, and how many are left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    neighbors: BTreeMap<NeighborKey, MacAddr>,
    beyond_limit: u64,
    left_alone: u64,
}

fn wanted(
    mut neighbors: Vec<((u16, IpAddr), MacAddr)>,
    interfaces: &Interfaces<'_>,
    others: &BTreeMap<NeighborKey, MacAddr>,
    ours: &BTreeMap<NeighborKey, MacAddr>,
) -> Wanted {
    let place = |(port, address): (u16, IpAddr)| Some((*interfaces.mirrors.get(&port)?, address));
    // Neighbors already in the kernel come first.
    neighbors.sort_unstable_by_key(|(neighbor, _)| {
        (place(*neighbor).is_none_or(|place| !ours.contains_key(&place)), *neighbor)
    });
    let mut wanted = Wanted::default();
    let mut of_mirror: HashMap<u32, usize> = HashMap::new();
    for (neighbor, mac) in neighbors {
        let Some(place) = place(neighbor) else { continue };
        let count = of_mirror.entry(place.0).or_default();
        if others.contains_key(&place) {
            wanted.left_alone += 1;
        } else if *count == EXPORTED_MAX {
            wanted.beyond_limit += 1;
        } else {
            *count += 1;
            wanted.neighbors.insert(place, mac);
        }
    }
    wanted
}

/// The changes that turn `ours` into `wanted`, removals first to make room.
fn mends(
    wanted: &BTreeMap<NeighborKey, MacAddr>,
    ours: &BTreeMap<NeighborKey, MacAddr>,
) -> Vec<NeighborChange> {
    let gone =
        ours.keys().filter(|place| !wanted.contains_key(place)).map(|place| NeighborChange::Remove(*place));
    let set = wanted.iter().filter(|(place, mac)| ours.get(place) != Some(mac));
    gone.chain(set.map(|(place, mac)| NeighborChange::Set(*place, *mac))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn address(host: u32) -> IpAddr {
        IpAddr::from((0x0a01_0000 + host).to_be_bytes())
    }

    /// Port 0 has interface 10 and mirror 20; port 1 interface 11 and no mirror.
    fn interfaces() -> (HashMap<u32, u16>, HashMap<u16, u32>) {
        (HashMap::from([(10, 0), (20, 0), (11, 1)]), HashMap::from([(0, 20)]))
    }

    #[test]
    fn a_mirror_counts_before_its_ports_interface() {
        let (ports, mirrors) = interfaces();
        let interfaces = Interfaces { ports: &ports, mirrors: &mirrors };
        let others = BTreeMap::from([
            ((10, address(1)), A),
            ((20, address(1)), B),
            ((10, address(2)), A),
            ((11, address(3)), A),
            ((99, address(4)), A),
        ]);
        let expected = BTreeMap::from([((0, address(1)), B), ((0, address(2)), A), ((1, address(3)), A)]);
        assert_eq!(imported(&others, &interfaces), expected);
    }

    #[test]
    fn what_others_set_is_left_alone_and_ports_without_a_mirror_are_left_out() {
        let (ports, mirrors) = interfaces();
        let interfaces = Interfaces { ports: &ports, mirrors: &mirrors };
        let neighbors = vec![((0, address(1)), A), ((0, address(2)), A), ((1, address(3)), A)];
        let others = BTreeMap::from([((20, address(1)), A)]);
        let wanted = wanted(neighbors, &interfaces, &others, &BTreeMap::new());
        assert_eq!(wanted.neighbors, BTreeMap::from([((20, address(2)), A)]));
        assert_eq!((wanted.left_alone, wanted.beyond_limit), (1, 0));
    }

    #[test]
    fn new_ones_push_nobody_out() {
        let (ports, mirrors) = interfaces();
        let interfaces = Interfaces { ports: &ports, mirrors: &mirrors };
        let known = (0, IpAddr::from([10, 9, 9, 9]));
        let ours = BTreeMap::from([((20, known.1), A)]);
        let mut neighbors = vec![(known, A)];
        neighbors.extend((0..5000).map(|host| ((0, address(host)), B)));
        let first = wanted(neighbors.clone(), &interfaces, &BTreeMap::new(), &ours);
        assert_eq!(first.neighbors.len(), EXPORTED_MAX);
        assert_eq!(first.beyond_limit, 5001 - EXPORTED_MAX as u64);
        assert_eq!(first.neighbors.get(&(20, known.1)), Some(&A));
        // A neighbor that is in stays in, even if others come before it in order.
        neighbors.extend((0..100).map(|host| ((0, IpAddr::from([10, 0, 0, host])), B)));
        assert_eq!(
            wanted(neighbors, &interfaces, &BTreeMap::new(), &first.neighbors).neighbors,
            first.neighbors
        );
    }

    #[test]
    fn mends_make_ours_what_is_wanted() {
        let wanted = BTreeMap::from([((20, address(1)), A), ((20, address(2)), A), ((20, address(3)), A)]);
        let ours = BTreeMap::from([((20, address(2)), A), ((20, address(3)), B), ((20, address(4)), B)]);
        let expected = [
            NeighborChange::Remove((20, address(4))),
            NeighborChange::Set((20, address(1)), A),
            NeighborChange::Set((20, address(3)), A),
        ];
        assert_eq!(mends(&wanted, &ours), expected);
        assert_eq!(mends(&wanted, &wanted), []);
    }
}
