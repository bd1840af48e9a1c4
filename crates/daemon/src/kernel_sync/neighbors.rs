//! `[kernel] neighbors`: permanent neighbors of the kernel become the router's, and neighbors that the router resolved
//! become the kernel's, on mirrors.
//!
//! ```text
//! kernel's news ──> KernelNeighbors ── others' on mirrors and ports' interfaces ──> host thread: neighbors   (import)
//! forwarding tables: neighbors ── those of ports with a mirror ──> KernelNeighbors::apply                    (export)
//! ```
//!
//! Nothing goes round in circles: ours are told apart by [`KernelNeighbors`] and never imported, and an address that
//! somebody else has set on a mirror is left alone there, also when the router knows it from just there.
//!
//! What the router has resolved answered a question of its own, and it knows at most some thousands: a scan of a /64 fills
//! neither table. Of a port at most [`EXPORTED_MAX`] are exported; who is in the kernel already stays, so that new ones, however
//! many, push nobody out. For the others the system asks itself, by the mirror, as without all this.

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

/// Neighbors of one port in the kernel.
const EXPORTED_MAX: usize = 1024;

/// From one comparison of exported neighbors to the next, at least.
const BETWEEN_EXPORTS: Duration = Duration::from_millis(50);

/// Neighbors by the port they are on and their address.
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

/// See the module.
pub(super) struct NeighborSync {
    packets: Arc<PacketSide>,
    tables: Arc<ForwardingTables>,
    config: KernelSync,
    neighbors: KernelNeighbors,
    view: NeighborSyncView,
    /// Everything is to be read.
    read_is_due: bool,
    read_not_before: Instant,
    /// What the router was told, and at which configuration; `None` before the first time.
    told: Option<(OfPorts, u64)>,
    tell_not_before: Instant,
    /// Others' neighbors are different, or may be.
    tell_again: bool,
    /// The router's neighbors that the kernel was last brought in line with.
    exported_changes: Option<u64>,
    export_not_before: Instant,
    /// The kernel's are others than ours were, or may be.
    look_again: bool,
    /// What the kernel refused at the last comparison.
    refused: u64,
}

/// The interfaces of ports as they are now.
pub(super) struct Interfaces<'i> {
    /// Ports by the numbers of interfaces that stand for them.
    pub(super) ports: &'i HashMap<u32, u16>,
    /// Mirrors by port.
    pub(super) mirrors: &'i HashMap<u16, u32>,
}

impl NeighborSync {
    /// Opens the ways to the kernel.
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

    /// Links changed: reads everything of the interfaces that stand for ports now.
    pub(super) fn handle_links(&mut self, interfaces: &Interfaces<'_>) {
        self.neighbors.watch(interfaces.ports.keys().copied());
        self.read_is_due = true;
    }

    /// Brings both sides in line. With `scan` everything is read, and what is different although nobody said so is
    /// counted. What went wrong is returned.
    pub(super) fn turn(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), NeighborSyncError> {
        let mut heard = self.read_changes()?;
        if scan && !self.read_is_due {
            let [others, ours] = self.read()?;
            // What the news explain is no drift.
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

    /// The numbers now.
    pub(super) fn view(&self) -> NeighborSyncView {
        self.view.clone()
    }

    /// Whether there was news.
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

    /// Tells the router what others have set, where that is something else than before.
    fn import(&mut self, interfaces: &Interfaces<'_>) -> Result<(), NeighborSyncError> {
        let reloads = self.tables.reloads();
        // After another configuration other addresses may be the port's.
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

    /// Puts into the kernel what the router has resolved, where that is not as it should be.
    fn export(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), NeighborSyncError> {
        let now = Instant::now();
        let changes = self.tables.read().neighbor_changes();
        let is_news = self.exported_changes != Some(changes);
        let is_due = scan || (is_news || self.look_again) && now >= self.export_not_before;
        // Before everything was read nobody knows whose the kernel's are.
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
            // What the kernel had refused and now takes is none.
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

/// Others' neighbors by port. What is set on a mirror counts before what is set on the port's interface.
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

/// What the kernel is to have, and how many neighbors it is not to have.
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
    // Who is there already comes first.
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

/// What makes `ours` what is wanted: who goes makes room first.
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
