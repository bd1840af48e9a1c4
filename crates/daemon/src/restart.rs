//! Graceful restart of this router (RFC 4724): the note that a process leaves for its successor.
//!
//! While sessions with graceful restart are up, there is a note beside the control socket
//! (`/run/thalweg/thalweg.sock.restart`): which neighbors keep our routes if this process dies. It names the boot and the
//! network namespace, so that it is void after a reboot or in another namespace, where the former routes no longer
//! forward. A router that finds a valid note, or its own routes in the kernel, has restarted. Otherwise its start
//! is cold: it tells neighbors neither that it has restarted nor that forwarding continued.
//!
//! A router that is stopped removes the note, unless routes are to stay ([`OnStop`]).

use parking_lot::Mutex;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thalweg_config::{BgpConfig, OnStop};
use thalweg_node::speaker::{Restart, RestartNeighbor, Speaker};

/// Interval at which the note is updated after sessions came up or went down.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Identifies the kernel state of a router: in the same place, former routes still forward.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The kernel's boot ID.
    boot: String,
    namespace: String,
}

impl Place {
    fn here() -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/net")?.display().to_string();
        Ok(Self { boot, namespace })
    }
}

/// A neighbor that keeps our routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Neighbor {
    address: std::net::IpAddr,
    families: [bool; 2],
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    place: Place,
    neighbors: Vec<Neighbor>,
}

/// For how long each neighbor that keeps our routes over a restart does so.
pub(crate) fn restart_times(bgp: &BgpConfig) -> impl Iterator<Item = Duration> {
    let dynamic = bgp.groups.iter().filter_map(|group| group.dynamic.as_ref()).map(|range| &range.template);
    let all = bgp.neighbors.iter().map(|neighbor| &**neighbor).chain(dynamic);
    let restarts = all.filter_map(|neighbor| neighbor.capabilities.graceful_restart);
    restarts.filter(|each| each.forwarding_preserved).map(|each| Duration::from_secs(each.time_s.into()))
}

/// Whether some neighbor may keep our routes over a restart.
pub(crate) fn is_wanted(bgp: &BgpConfig) -> bool {
    restart_times(bgp).next().is_some()
}

/// The path of the note, beside the control socket.
pub(crate) fn path(socket: &Path) -> PathBuf {
    with_suffix(socket, ".restart")
}

/// The path with more at its end.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// What a predecessor left; `None` for a cold start. `forced` makes this a restart in any case.
pub(crate) fn find(path: &Path, bgp: &BgpConfig, forced: bool) -> Option<Restart> {
    let neighbors = if is_wanted(bgp) { read(path) } else { None };
    let restart = neighbors.map(|neighbors| Restart { neighbors: Some(neighbors) });
    restart.or_else(|| forced.then(Restart::default))
}

/// The neighbors of a note that is valid here and now.
fn read(path: &Path) -> Option<Vec<RestartNeighbor>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        other => other.map_err(|error| error.to_string()),
    };
    let note = text.and_then(|text| serde_json::from_str::<Note>(&text).map_err(|error| error.to_string()));
    let note = match note {
        Ok(note) => note,
        Err(error) => {
            tracing::warn!("cannot read {}, so this is a cold start: {error}", path.display());
            return None;
        }
    };
    if !Place::here().is_ok_and(|here| here == note.place) {
        tracing::info!("cold start: the previous router ran before a reboot or in another network namespace");
        return None;
    }
    let each = |each: Neighbor| RestartNeighbor { address: each.address, families: each.families };
    Some(note.neighbors.into_iter().map(each).collect())
}

/// Writes the note.
pub(crate) struct NoteKeeper {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    place: Place,
    /// The neighbors in the note; without any there is no file.
    neighbors: Vec<Neighbor>,
    /// The note must not change any more.
    is_closed: bool,
    has_failed: bool,
}

impl NoteKeeper {
    /// Takes over a predecessor's note, whose contents are `restart`, or starts without one.
    pub(crate) fn new(path: PathBuf, restart: Option<&Restart>) -> Self {
        let place = Place::here().unwrap_or_else(|error| {
            tracing::warn!("cannot read the boot ID, so the next restart is a cold start: {error}");
            Place::default()
        });
        let neighbors =
            restart.and_then(|restart| restart.neighbors.as_deref()).map(words).unwrap_or_default();
        let state = State { place, neighbors, is_closed: false, has_failed: false };
        Self { path, state: Mutex::new(state) }
    }

    /// Keeps the note up to date until `stop` is set.
    pub(crate) fn run(&self, speaker: &Speaker, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            if speaker.take_sessions_changed() {
                self.update(speaker);
            }
            thread::park_timeout(LOOK_EVERY);
        }
    }

    fn update(&self, speaker: &Speaker) {
        let mut neighbors = words(&speaker.restart_neighbors());
        let mut state = self.state.lock();
        if speaker.is_restarting() {
            // Neighbors that have not come back yet still keep our routes.
            let missing =
                state.neighbors.iter().filter(|old| neighbors.iter().all(|new| new.address != old.address));
            let missing: Vec<_> = missing.cloned().collect();
            neighbors.extend(missing);
        }
        state.write(&self.path, neighbors);
    }

    /// Writes the final note. Called while sessions are still up.
    pub(crate) fn close(&self, speaker: &Speaker, on_stop: OnStop) {
        match on_stop {
            OnStop::KeepRoutes => self.update(speaker),
            OnStop::RemoveRoutes => self.state.lock().write(&self.path, Vec::new()),
        }
        self.state.lock().is_closed = true;
    }
}

impl State {
    fn write(&mut self, path: &Path, neighbors: Vec<Neighbor>) {
        if self.is_closed || self.place == Place::default() {
            return;
        }
        let written = match neighbors.is_empty() {
            true => match fs::remove_file(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => other,
            },
            false => {
                let note = Note { place: self.place.clone(), neighbors: neighbors.clone() };
                serde_json::to_vec(&note).map_err(io::Error::from).and_then(|bytes| replace(path, &bytes))
            }
        };
        match written {
            Ok(()) => {
                self.neighbors = neighbors;
                self.has_failed = false;
            }
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => tracing::warn!(
                "cannot write {}: {error}; if this process dies, the next start may be a cold start: make its folder \
                 writable, or choose another with --socket",
                path.display()
            ),
            Err(_) => {}
        }
    }
}

/// Replaces a file as a whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = with_suffix(path, ".new");
    let done = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    // A part of a file takes the room that it lacked.
    done.inspect_err(|_| _ = fs::remove_file(&temporary))
}

fn words(neighbors: &[RestartNeighbor]) -> Vec<Neighbor> {
    let each = |each: &RestartNeighbor| Neighbor { address: each.address, families: each.families };
    neighbors.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbors() -> Vec<RestartNeighbor> {
        vec![RestartNeighbor { address: [192, 0, 2, 1].into(), families: [true, false] }]
    }

    #[test]
    fn a_note_holds_in_its_place_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("one.sock"));
        assert_eq!(read(&path), None);
        let keeper = NoteKeeper::new(path.clone(), None);
        keeper.state.lock().write(&path, words(&neighbors()));
        assert_eq!(read(&path), Some(neighbors()));
        for change in ["boot", "namespace"] {
            let mut note: Note = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let place = &mut note.place;
            *(if change == "boot" { &mut place.boot } else { &mut place.namespace }) = "another".into();
            replace(&path, &serde_json::to_vec(&note).unwrap()).unwrap();
            assert_eq!(read(&path), None, "another {change}");
        }
        fs::write(&path, "{").unwrap();
        assert_eq!(read(&path), None);
        keeper.state.lock().write(&path, Vec::new());
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_closed_note_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(&folder.path().join("one.sock"));
        let keeper = NoteKeeper::new(path.clone(), None);
        keeper.state.lock().write(&path, words(&neighbors()));
        keeper.state.lock().is_closed = true;
        keeper.state.lock().write(&path, Vec::new());
        assert_eq!(read(&path), Some(neighbors()));
    }
}
