//! `[kernel] neighbours`: stations that somebody set for good in the kernel become the router's, and what the router has
//! resolved becomes the kernel's, on mirrors.
//!
//! ```text
//! kernel's news ──> KernelStations ── others' on mirrors and ports' interfaces ──> host thread: neighbours   (import)
//! forwarding tables: neighbours ── those of ports with a mirror ──> KernelStations::apply                    (export)
//! ```
//!
//! Nothing goes round in circles: ours are told apart by [`KernelStations`] and never imported, and an address that
//! somebody else has set on a mirror is left alone there, also when the router knows it from just there.
//!
//! What the router has resolved answered a question of its own, and it knows at most some thousands: a scan of a /64 fills
//! neither table. Of a port at most [`EXPORTED_MAX`] are exported; who is in the kernel already stays, so that new ones, however
//! many, push nobody out. For the others the system asks itself, by the mirror, as without all this.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thalweg_node::config::KernelSync;
use thalweg_node::forwarding::{FibForwarding, NeighboursInStepView};
use thalweg_ports::kernel::{KernelError, KernelStations, PROTOCOL, StationChange, StationPlace};

use super::{AFTER_FAILURE, SHARE};
use crate::run::live::LiveSide;

/// Neighbours of one port in the kernel.
const EXPORTED_MAX: usize = 1024;

/// From one comparison of exported neighbours to the next, at least.
const BETWEEN_EXPORTS: Duration = Duration::from_millis(50);

type Mac = [u8; 6];

/// Stations by the port they are on and their address.
type OfPorts = BTreeMap<(u16, IpAddr), Mac>;

/// See the module.
pub(super) struct NeighboursInStep {
    live: Arc<LiveSide>,
    fib: Arc<FibForwarding>,
    config: KernelSync,
    stations: KernelStations,
    view: NeighboursInStepView,
    /// Everything is to be read.
    read_is_due: bool,
    read_not_before: Instant,
    /// What the router was told, and at which configuration; `None` before the first time.
    told: Option<(OfPorts, u64)>,
    tell_not_before: Instant,
    /// Others' stations are different, or may be.
    tell_again: bool,
    /// The router's neighbours that the kernel was last brought in line with.
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

impl NeighboursInStep {
    /// Opens the ways to the kernel.
    pub(super) fn new(
        live: Arc<LiveSide>,
        fib: Arc<FibForwarding>,
        config: KernelSync,
    ) -> Result<Self, KernelError> {
        let now = Instant::now();
        Ok(Self {
            live,
            fib,
            config,
            stations: KernelStations::open(PROTOCOL)?,
            view: NeighboursInStepView::default(),
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
        self.stations.watch(interfaces.ports.keys().copied());
        self.read_is_due = true;
    }

    /// Brings both sides in line. With `scan` everything is read, and what is different although nobody said so is
    /// counted. What went wrong is returned.
    pub(super) fn turn(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), String> {
        let stations = |error: KernelError| format!("neighbours: {error}");
        let mut heard = self.hear().map_err(stations)?;
        if scan && !self.read_is_due {
            let [others, ours] = self.read().map_err(stations)?;
            // What the news explain is no drift.
            let after = self.hear().map_err(stations)?;
            if !heard && !after && self.config.import_neighbours && others > 0 {
                self.view.import_drift += others;
                tracing::warn!(
                    neighbours = others,
                    "kernel: imported neighbours were not as its news had said, and were mended"
                );
            }
            heard |= after || others + ours > 0;
        } else if self.read_is_due && Instant::now() >= self.read_not_before {
            self.read().map_err(stations)?;
            self.read_is_due = false;
            heard = true;
        }
        self.look_again |= heard;
        self.tell_again |= heard;
        if self.config.import_neighbours {
            self.import(interfaces)?;
        }
        if self.config.export_neighbours {
            self.export(interfaces, scan)?;
        }
        Ok(())
    }

    /// The numbers now.
    pub(super) fn view(&self) -> NeighboursInStepView {
        self.view.clone()
    }

    /// Whether there was news.
    fn hear(&mut self) -> Result<bool, KernelError> {
        let heard = self.stations.hear()?;
        self.view.news += heard.others + heard.ours;
        self.view.overruns += u64::from(heard.overrun);
        self.read_is_due |= heard.overrun;
        Ok(heard.others + heard.ours > 0 || heard.overrun)
    }

    fn read(&mut self) -> Result<[u64; 2], KernelError> {
        let begun = Instant::now();
        let read = self.stations.read();
        self.view.reads += 1;
        let pause = if read.is_ok() { begun.elapsed() * SHARE } else { AFTER_FAILURE };
        self.read_not_before = Instant::now() + pause;
        read
    }

    /// Tells the router what others have set, where that is something else than before.
    fn import(&mut self, interfaces: &Interfaces<'_>) -> Result<(), String> {
        let reloads = self.fib.reloads();
        // After another configuration other addresses may be the port's.
        let is_told = self.told.as_ref().is_some_and(|(_, at)| *at == reloads) && !self.tell_again;
        if is_told || Instant::now() < self.tell_not_before {
            return Ok(());
        }
        let wanted = imported(self.stations.others(), interfaces);
        if self.told.as_ref().is_some_and(|(told, at)| *told == wanted && *at == reloads) {
            self.tell_again = false;
            return Ok(());
        }
        let stations: Vec<_> = wanted.iter().map(|((port, address), mac)| (*port, *address, *mac)).collect();
        let Some(counts) = self.live.set_kernel_stations(stations) else {
            self.tell_not_before = Instant::now() + AFTER_FAILURE;
            return Err("neighbours: the host thread does not answer".to_owned());
        };
        self.view.imported = counts.in_force;
        self.view.imported_behind = counts.behind;
        self.view.not_on_link = counts.not_on_link;
        self.view.without_room = counts.without_room + self.stations.without_room();
        self.told = Some((wanted, reloads));
        self.tell_again = false;
        Ok(())
    }

    /// Puts into the kernel what the router has resolved, where that is not as it should be.
    fn export(&mut self, interfaces: &Interfaces<'_>, scan: bool) -> Result<(), String> {
        let now = Instant::now();
        let changes = self.fib.with_tables(|tables| tables.neighbour_changes());
        let is_news = self.exported_changes != Some(changes);
        let is_due = scan || (is_news || self.look_again) && now >= self.export_not_before;
        // Before everything was read nobody knows whose the kernel's are.
        if !is_due || self.view.reads == 0 {
            return Ok(());
        }
        self.export_not_before = now + AFTER_FAILURE;
        let neighbours = self.fib.with_tables(|tables| tables.neighbours());
        let Wanted { stations: wanted, beyond_limit, left_alone } =
            wanted(neighbours, interfaces, self.stations.others(), self.stations.ours());
        (self.view.beyond_limit, self.view.left_alone) = (beyond_limit, left_alone);
        let mends = mends(&wanted, self.stations.ours());
        let report = self.stations.apply(&mends).map_err(|error| format!("neighbours: {error}"))?;
        let mended = report.set + report.removed;
        if !is_news {
            // What the kernel had refused and now takes is none.
            let drift = mended.saturating_sub(self.refused);
            self.view.export_drift += drift;
            if drift > 0 {
                tracing::warn!(
                    neighbours = drift,
                    "kernel: neighbours were not as they should be, and were mended"
                );
            }
        }
        self.exported_changes = Some(changes);
        self.look_again = false;
        self.refused = report.failed;
        self.view.exported = self.stations.ours().len() as u64;
        self.export_not_before = Instant::now() + BETWEEN_EXPORTS.max(now.elapsed() * SHARE);
        report.failures.into_iter().next().map_or(Ok(()), Err)
    }
}

/// Others' stations by port. What is set on a mirror counts before what is set on the port's interface.
fn imported(others: &BTreeMap<StationPlace, Mac>, interfaces: &Interfaces<'_>) -> OfPorts {
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

/// What the kernel is to have, and how many neighbours it is not to have.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    stations: BTreeMap<StationPlace, Mac>,
    beyond_limit: u64,
    left_alone: u64,
}

fn wanted(
    mut neighbours: Vec<((u16, IpAddr), Mac)>,
    interfaces: &Interfaces<'_>,
    others: &BTreeMap<StationPlace, Mac>,
    ours: &BTreeMap<StationPlace, Mac>,
) -> Wanted {
    let place = |(port, address): (u16, IpAddr)| Some((*interfaces.mirrors.get(&port)?, address));
    // Who is there already comes first.
    neighbours.sort_unstable_by_key(|(neighbour, _)| {
        (place(*neighbour).is_none_or(|place| !ours.contains_key(&place)), *neighbour)
    });
    let mut wanted = Wanted::default();
    let mut of_mirror: HashMap<u32, usize> = HashMap::new();
    for (neighbour, mac) in neighbours {
        let Some(place) = place(neighbour) else { continue };
        let count = of_mirror.entry(place.0).or_default();
        if others.contains_key(&place) {
            wanted.left_alone += 1;
        } else if *count == EXPORTED_MAX {
            wanted.beyond_limit += 1;
        } else {
            *count += 1;
            wanted.stations.insert(place, mac);
        }
    }
    wanted
}

/// What makes `ours` what is wanted: who goes makes room first.
fn mends(wanted: &BTreeMap<StationPlace, Mac>, ours: &BTreeMap<StationPlace, Mac>) -> Vec<StationChange> {
    let gone =
        ours.keys().filter(|place| !wanted.contains_key(place)).map(|place| StationChange::Remove(*place));
    let set = wanted.iter().filter(|(place, mac)| ours.get(place) != Some(mac));
    gone.chain(set.map(|(place, mac)| StationChange::Set(*place, *mac))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

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
        let neighbours = vec![((0, address(1)), A), ((0, address(2)), A), ((1, address(3)), A)];
        let others = BTreeMap::from([((20, address(1)), A)]);
        let wanted = wanted(neighbours, &interfaces, &others, &BTreeMap::new());
        assert_eq!(wanted.stations, BTreeMap::from([((20, address(2)), A)]));
        assert_eq!((wanted.left_alone, wanted.beyond_limit), (1, 0));
    }

    #[test]
    fn new_ones_push_nobody_out() {
        let (ports, mirrors) = interfaces();
        let interfaces = Interfaces { ports: &ports, mirrors: &mirrors };
        let known = (0, IpAddr::from([10, 9, 9, 9]));
        let ours = BTreeMap::from([((20, known.1), A)]);
        let mut neighbours = vec![(known, A)];
        neighbours.extend((0..5000).map(|host| ((0, address(host)), B)));
        let first = wanted(neighbours.clone(), &interfaces, &BTreeMap::new(), &ours);
        assert_eq!(first.stations.len(), EXPORTED_MAX);
        assert_eq!(first.beyond_limit, 5001 - EXPORTED_MAX as u64);
        assert_eq!(first.stations.get(&(20, known.1)), Some(&A));
        // Who is in stays in, whoever comes before in order.
        neighbours.extend((0..100).map(|host| ((0, IpAddr::from([10, 0, 0, host])), B)));
        assert_eq!(
            wanted(neighbours, &interfaces, &BTreeMap::new(), &first.stations).stations,
            first.stations
        );
    }

    #[test]
    fn mends_make_ours_what_is_wanted() {
        let wanted = BTreeMap::from([((20, address(1)), A), ((20, address(2)), A), ((20, address(3)), A)]);
        let ours = BTreeMap::from([((20, address(2)), A), ((20, address(3)), B), ((20, address(4)), B)]);
        let expected = [
            StationChange::Remove((20, address(4))),
            StationChange::Set((20, address(1)), A),
            StationChange::Set((20, address(3)), A),
        ];
        assert_eq!(mends(&wanted, &ours), expected);
        assert_eq!(mends(&wanted, &wanted), []);
    }
}
