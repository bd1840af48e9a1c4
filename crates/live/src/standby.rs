//! Keeps the other router of the virtual routers up to date about sessions and states, or is kept so: the thread between
//! the socket, the tables of the plan in force and [`Standby`], which decides.
//!
//! ```text
//!   host thread ── is one of the virtual routers Active? ──> Share <── what it knows ── thread "standby" ── UDP ── peer
//!               <── may it take over from another? ─────────                                │
//!                                                                             shards of the plan in force
//! ```
//!
//! Each datagram ends in an HMAC-SHA256 of all before it, by the secret that both routers have. It is authentic, but not
//! secret: who sees the link reads addresses and ports.
//!
//! The link's address may come after the router, as addresses of other interfaces do at boot. Until then the other
//! router is not heard, and a socket is tried every second.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ring::hmac;
use thalweg_config::{RouterConfig, StandbyConfig, VrfIndex};
use thalweg_dataplane::nat::NatConfig;
use thalweg_dataplane::standby::{Sameness, Shards, Standby, StandbyRun, StandbyView, Tables};
use thalweg_node::plan::RouterPlan;
use thalweg_ports::live::LiveClock;
use thalweg_wire::standby::{DATAGRAM_BYTES_MAX, TAG_BYTES};

/// The number of the main table.
const MAIN: VrfIndex = 0;
/// Between two turns of the protocol.
const TURN: Duration = Duration::from_millis(10);
/// Between two looks at what `show` is told.
const LOOK_NS: u64 = 500_000_000;
/// Between two attempts to get a socket.
const SOCKET_NS: u64 = 1_000_000_000;
/// Lengths of a secret.
const SECRET_CHARACTERS: std::ops::RangeInclusive<usize> = 32..=256;

/// Why there is no standby.
#[derive(Debug, thiserror::Error)]
pub enum StandbyError {
    #[error("[standby] cannot read {path}: {source}")]
    Key { path: PathBuf, source: io::Error },
    /// The secret is too short to be one.
    #[error("[standby] the first line of {path} is no secret of 32 to 256 characters")]
    Secret { path: PathBuf },
    #[error("[standby] cannot use {listen}: {source}")]
    Socket { listen: std::net::SocketAddr, source: io::Error },
}

/// The secret that both routers have.
#[derive(Clone, Debug)]
pub(crate) struct Secret(hmac::Key);

impl Secret {
    pub(crate) fn read(path: &Path) -> Result<Self, StandbyError> {
        let text =
            fs::read_to_string(path).map_err(|source| StandbyError::Key { path: path.to_owned(), source })?;
        let line = text.lines().next().unwrap_or_default().trim();
        if !SECRET_CHARACTERS.contains(&line.chars().count()) {
            return Err(StandbyError::Secret { path: path.to_owned() });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, line.as_bytes())))
    }

    /// A number that only those who have the secret can know, the same for all of them.
    fn number(&self, about: &str) -> u64 {
        let tag = hmac::sign(&self.0, about.as_bytes());
        tag.as_ref().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// The seed of hashes, which put an entry into the same shard of both routers.
    pub(crate) fn seed(&self) -> u64 {
        self.number("hashes")
    }

    /// Digests of what should be the same on both routers.
    fn sameness(&self, config: &RouterConfig) -> Sameness {
        // Which networks are not translated follows from routes, which may differ.
        let nat = config.nat.as_ref().map(|nat| NatConfig { untranslated: Vec::new(), ..nat.clone() });
        let firewall = config.firewall.as_ref().map(|firewall| &firewall.firewall);
        let placement = format!("placement {nat:?} {}", firewall.is_some());
        // Sessions name the VRFs of NAT's ports, states those of all.
        let of_nat = nat.iter().flat_map(|nat| nat.vrfs.iter().copied());
        let of_states = config.ports.iter().filter(|port| firewall.is_some() && !port.is_vacant());
        let numbers = of_nat.chain(of_states.map(|port| port.vrf)).filter(|vrf| *vrf != MAIN);
        let vrfs: BTreeSet<_> = numbers.map(|vrf| (vrf, config.routing.vrf_name(vrf))).collect();
        Sameness {
            placement: self.number(&placement),
            rules: self.number(&format!("rules {firewall:?}")),
            vrfs: if vrfs.is_empty() { 0 } else { self.number(&format!("vrfs {vrfs:?}")).max(1) },
        }
    }
}

/// What the thread shares with others.
#[derive(Debug)]
pub(crate) struct Share {
    /// One of the virtual routers is Active.
    is_active: AtomicBool,
    /// They leave their addresses to another router that is.
    holds: AtomicBool,
    /// What the configuration in force is like.
    same: Mutex<Sameness>,
    view: Mutex<Option<StandbyView>>,
    secret: Secret,
}

impl Share {
    /// Says which configuration is in force.
    pub(crate) fn configure(&self, config: &RouterConfig) {
        *self.same.lock() = self.secret.sameness(config);
    }

    pub(crate) fn set_active(&self, is_active: bool) {
        self.is_active.store(is_active, Ordering::Release);
    }

    pub(crate) fn holds(&self) -> bool {
        self.holds.load(Ordering::Acquire)
    }

    pub(crate) fn view(&self) -> Option<StandbyView> {
        self.view.lock().clone()
    }
}

/// The thread "standby".
pub(crate) struct StandbyThread {
    standby: Standby,
    settings: StandbyConfig,
    /// Or when to try again to get one.
    socket: Result<UdpSocket, u64>,
    share: Arc<Share>,
    plan: Arc<ArcSwap<RouterPlan>>,
    clock: LiveClock,
    /// The plan whose tables are used, and what its configuration is like.
    known: Option<(Arc<RouterPlan>, Sameness)>,
    turn_at_ns: u64,
    look_at_ns: u64,
}

impl StandbyThread {
    /// `run` is a number that no other run of a router has.
    pub(crate) fn open(
        settings: &StandbyConfig,
        (secret, config): (Secret, &RouterConfig),
        plan: Arc<ArcSwap<RouterPlan>>,
        clock: LiveClock,
        run: u64,
    ) -> Result<Self, StandbyError> {
        let now_ns = clock.now_ns();
        let socket = match socket(settings) {
            Err(source) if may_pass(&source) => {
                tracing::warn!(
                    "[standby] cannot use {} yet: {source}; trying again every second",
                    settings.listen
                );
                Err(now_ns + SOCKET_NS)
            }
            opened => Ok(opened.map_err(|source| StandbyError::Socket { listen: settings.listen, source })?),
        };
        let share = Share {
            is_active: AtomicBool::new(false),
            holds: AtomicBool::new(true),
            same: Mutex::new(secret.sameness(config)),
            view: Mutex::default(),
            secret,
        };
        let run = StandbyRun { number: run | 1, secret: share.secret.number("parts") };
        Ok(Self {
            standby: Standby::new(run, now_ns),
            settings: settings.clone(),
            socket,
            share: Arc::new(share),
            plan,
            clock,
            known: None,
            turn_at_ns: now_ns,
            look_at_ns: now_ns,
        })
    }

    pub(crate) fn share(&self) -> Arc<Share> {
        self.share.clone()
    }

    pub(crate) fn run(mut self, stop: &AtomicBool) {
        let mut datagram = [0; DATAGRAM_BYTES_MAX + 1];
        while !stop.load(Ordering::Acquire) {
            match self.receive(&mut datagram) {
                Ok(length) => self.with_tables(|thread, tables| thread.take(&datagram[..length], tables)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                // The peer's host says that nobody listens there, or the link is down.
                Err(_) => thread::sleep(TURN),
            }
            if self.clock.now_ns() >= self.turn_at_ns {
                self.turn_at_ns = self.clock.now_ns() + TURN.as_nanos() as u64;
                self.with_tables(Self::turn);
            }
        }
    }

    /// Waits for a datagram. Without a socket fails, and tries to get one when that is due.
    fn receive(&mut self, datagram: &mut [u8]) -> io::Result<usize> {
        match &self.socket {
            Ok(socket) => return socket.recv(datagram),
            Err(at_ns) if self.clock.now_ns() < *at_ns => {}
            Err(_) => {
                let opened = socket(&self.settings);
                if opened.is_ok() {
                    tracing::info!("[standby] uses {} now", self.settings.listen);
                }
                self.socket = opened.map_err(|_| self.clock.now_ns() + SOCKET_NS);
            }
        }
        Err(ErrorKind::NotConnected.into())
    }

    /// Calls `act` with the tables of the plan in force.
    fn with_tables(&mut self, act: impl FnOnce(&mut Self, &Tables<'_>)) {
        let (plan, same) = (self.plan.load_full(), *self.share.same.lock());
        let nat = plan.nat_stage();
        let (sessions, firewall) = (nat.as_ref().map(|nat| nat.copies()), plan.firewall());
        let are_same = self.standby.has_same_rules();
        let states = firewall.map(|firewall| firewall.stage.copies(&firewall.rules, are_same));
        let tables = Tables {
            sessions: sessions.as_ref().map(|shards| shards as &dyn Shards),
            states: states.as_ref().map(|shards| shards as &dyn Shards),
            now_ns: self.clock.now_ns(),
        };
        let is_known = |(known, its): &(Arc<RouterPlan>, Sameness)| Arc::ptr_eq(known, &plan) && *its == same;
        if !self.known.as_ref().is_some_and(is_known) {
            self.standby.set_configuration(same, &tables);
            self.known = Some((plan.clone(), same));
        }
        act(self, &tables);
    }

    fn take(&mut self, datagram: &[u8], tables: &Tables<'_>) {
        let Some((message, tag)) = datagram.split_last_chunk::<TAG_BYTES>() else {
            return self.standby.note_forged();
        };
        match hmac::verify(&self.share.secret.0, message, tag) {
            Ok(()) => self.standby.handle(message, tables),
            Err(_) => self.standby.note_forged(),
        }
        self.send();
    }

    fn turn(&mut self, tables: &Tables<'_>) {
        self.standby.set_active(self.share.is_active.load(Ordering::Acquire), tables.now_ns);
        self.standby.handle_timer(tables);
        self.send();
        self.share.holds.store(self.standby.holds(tables.now_ns), Ordering::Release);
        if tables.now_ns < self.look_at_ns {
            return;
        }
        self.look_at_ns = tables.now_ns + LOOK_NS;
        let view = self.standby.view(tables);
        let before = self.share.view.lock().replace(view.clone());
        if before.is_none_or(|before| before.state != view.state) {
            tracing::info!(behind = view.behind, "standby: {}", view.state.means());
        }
    }

    fn send(&mut self) {
        while let Some(mut datagram) = self.standby.poll_output() {
            let tag = hmac::sign(&self.share.secret.0, &datagram);
            datagram.extend_from_slice(tag.as_ref());
            // What is lost here is found by the next walk, as is what the link loses.
            if !self.socket.as_ref().is_ok_and(|socket| socket.send(&datagram).is_ok()) {
                self.standby.note_unsent();
            }
        }
    }
}

fn socket(settings: &StandbyConfig) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(settings.listen)?;
    socket.connect(settings.peer)?;
    socket.set_read_timeout(Some(TURN))?;
    Ok(socket)
}

/// Whether an address or a route is missing, which may come.
fn may_pass(error: &io::Error) -> bool {
    use ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable)
}
