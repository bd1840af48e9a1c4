//! What arrived is worked off although nothing more arrives: behind an action that the next message needs, behind
//! the end of a session, and before the end of a connection.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use thalweg_base::Prefix;
use thalweg_bgp::session::NeighborConfig;
use thalweg_config::RouterConfig;
use thalweg_exec::control_plane::{ControlPlane, Registry, Share, Token, Wakers};
use thalweg_node::control::{BgpNeighborView, BgpRequest, RouteFilter, RouteView};
use thalweg_node::speaker::{ByteStream, Incoming, Network, Speaker, SpeakerOptions, SpeakerWorker};
use thalweg_wire::bgp::{
    Capabilities, Family, GracefulRestart, Notification, Open, RestartFamily, cease, error, write_keepalive,
};

use crate::local::{announce, ask, plain_attributes};

const NEIGHBOR: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const NEIGHBOR_AS: u32 = 64_512;

/// What arrives on a connection.
#[derive(Default)]
struct Arriving {
    bytes: VecDeque<u8>,
    has_ended: bool,
}

#[derive(Clone, Default)]
struct Connection {
    arriving: Arc<Mutex<Arriving>>,
    /// A short read has left nothing; otherwise the connection is read again after it, as a socket is.
    short_read_is_last: bool,
}

impl ByteStream for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut arriving = self.arriving.lock().unwrap();
        let count = buffer.len().min(arriving.bytes.len());
        buffer.iter_mut().zip(arriving.bytes.drain(..count)).for_each(|(to, byte)| *to = byte);
        if count == 0 && !arriving.has_ended { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
    }

    fn short_read_is_last(&self) -> bool {
        self.short_read_is_last
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn shut_down_write(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn connected(&mut self) -> Option<io::Result<()>> {
        Some(Ok(()))
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((SocketAddr::from(([198, 18, 0, 1], 179)), SocketAddr::from((NEIGHBOR, 40_000))))
    }

    fn apply(&mut self, _: &NeighborConfig) -> io::Result<()> {
        Ok(())
    }

    fn register(&mut self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that the router opens, and those that the neighbor opens.
#[derive(Clone, Default)]
struct Connections {
    ours: Connection,
    waiting: Arc<Mutex<VecDeque<Connection>>>,
}

impl Network for Connections {
    fn register_listeners(&self, _: &Registry, _: Token) -> io::Result<()> {
        Ok(())
    }

    fn accept(&self) -> io::Result<Option<Incoming>> {
        let next = self.waiting.lock().unwrap().pop_front();
        let remote = SocketAddr::from((NEIGHBOR, 40_000));
        Ok(next.map(|stream| Incoming { stream: Box::new(stream), remote }))
    }

    fn connect(&self, _: &NeighborConfig) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.ours.clone()))
    }

    fn expect(&self, _: &NeighborConfig, _: bool) -> io::Result<()> {
        Ok(())
    }
}

/// A router that connects to its neighbor, whose identifier is higher.
struct Router {
    speaker: Speaker,
    worker: SpeakerWorker,
    connections: Connections,
    now_ms: u64,
}

impl Router {
    fn new(short_read_is_last: bool) -> Self {
        let text = format!(
            "[bgp]\nas = 64998\nrouter_id = \"198.18.0.1\"\nlisten = []\ninstall = \"none\"\nhold_time_s = 0\n\
             import = \"accept\"\nexport = \"accept\"\n\
             [[bgp.neighbor]]\naddress = \"{NEIGHBOR}\"\nas = {NEIGHBOR_AS}\ngraceful_restart = true\n"
        );
        let config = RouterConfig::from_text("router.toml", &text, Path::new(""));
        let config = Arc::new(config.unwrap_or_else(|errors| panic!("{errors}")).bgp.unwrap());
        let ours = Connection { short_read_is_last, ..Connection::default() };
        let connections = Connections { ours, ..Connections::default() };
        let speaker = Speaker::new(config, SpeakerOptions::new(connections.clone(), 1)).unwrap();
        speaker.begin(1, Wakers::default());
        let mut router = Self { speaker, worker: SpeakerWorker::default(), connections, now_ms: 0 };
        router.pass(1);
        router
    }

    /// Works until nothing is left to do before something arrives or time passes.
    fn work(&mut self) {
        let Self { speaker, worker, now_ms, .. } = self;
        let now_ms = *now_ms;
        for _ in 0..1000 {
            let reading = speaker.read(worker, 0, now_ms);
            if let Some(batch) = reading.batch {
                let touched = (0..speaker.shards()).filter(|shard| speaker.touches(&batch, *shard));
                touched.for_each(|shard| speaker.apply(worker, shard, &batch, now_ms));
            }
            let is_busy = speaker.background_work(worker, Share::ALL, now_ms);
            if !reading.more && !is_busy {
                return;
            }
        }
        panic!("the work does not end");
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.speaker.tick(&mut self.worker, Share::ALL, self.now_ms);
        self.work();
    }

    fn arrives(&mut self, on: &Connection, bytes: &[u8]) {
        on.arriving.lock().unwrap().bytes.extend(bytes);
        self.speaker.ready(0, true, false);
        self.work();
    }

    /// The neighbor connects.
    fn accepts(&mut self) -> Connection {
        let theirs = self.connections.ours.short_read_is_last;
        let theirs = Connection { short_read_is_last: theirs, ..Connection::default() };
        self.connections.waiting.lock().unwrap().push_back(theirs.clone());
        self.speaker.accept(&mut self.worker, self.now_ms);
        self.work();
        theirs
    }

    fn neighbor(&self) -> BgpNeighborView {
        ask(&self.speaker, &BgpRequest::Neighbors).remove(0)
    }

    fn prefixes(&self) -> Vec<String> {
        let routes = ask::<RouteView>(&self.speaker, &BgpRequest::Routes(RouteFilter::default()));
        routes.into_iter().map(|route| route.prefix).collect()
    }
}

fn open() -> Vec<u8> {
    let families = vec![RestartFamily { family: Family::Ipv4.into(), forwarding: true }];
    let restart = GracefulRestart { restarting: false, notification: false, time_s: 120, families };
    let capabilities = Capabilities {
        families: vec![Family::Ipv4.into()],
        route_refresh: true,
        enhanced_refresh: true,
        graceful_restart: Some(restart),
        ..Capabilities::default()
    };
    let mut bytes = Vec::new();
    Open::new(NEIGHBOR_AS, 0, NEIGHBOR, capabilities).write(&mut bytes);
    bytes
}

fn keepalive() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_keepalive(&mut bytes);
    bytes
}

fn update() -> Vec<u8> {
    let mut bytes = Vec::new();
    let prefix = Prefix::new(0x0a01_0000, 16).unwrap();
    announce(&mut bytes, plain_attributes(&[NEIGHBOR_AS], NEIGHBOR.octets()), &[prefix]);
    bytes
}

/// The neighbor's connection has precedence and says nothing. An UPDATE on ours shows that it chose ours: the session
/// comes up, and has the route.
#[test]
fn the_update_that_shows_the_neighbors_choice_counts() {
    for short_read_is_last in [true, false] {
        let mut router = Router::new(short_read_is_last);
        let ours = router.connections.ours.clone();
        router.accepts();
        router.arrives(&ours, &open());
        router.pass(1000);
        router.arrives(&ours, &keepalive());
        assert_eq!(router.neighbor().state, "OpenConfirm");
        router.arrives(&ours, &update());
        assert_eq!(router.neighbor().state, "Established");
        assert_eq!(router.prefixes(), ["10.1.0.0/16"], "a short read is the last: {short_read_is_last}");
    }
}

/// OPEN on a new connection ends the session of a neighbor that has restarted. Its KEEPALIVE came with it.
#[test]
fn what_follows_the_end_of_a_session_counts_for_the_next_one() {
    for short_read_is_last in [true, false] {
        let mut router = Router::new(short_read_is_last);
        let ours = router.connections.ours.clone();
        router.arrives(&ours, &[open(), keepalive(), update()].concat());
        assert_eq!(router.prefixes(), ["10.1.0.0/16"]);
        let theirs = router.accepts();
        router.arrives(&theirs, &[open(), keepalive()].concat());
        let view = router.neighbor();
        assert_eq!((view.state.as_str(), view.flaps), ("Established", 1), "{short_read_is_last}");
    }
}

/// Marks of a refresh take a turn each. The NOTIFICATION behind them was read with the end of the connection.
#[test]
fn the_end_of_a_connection_waits_for_what_came_before_it() {
    for short_read_is_last in [true, false] {
        let mut router = Router::new(short_read_is_last);
        let ours = router.connections.ours.clone();
        router.arrives(&ours, &[open(), keepalive(), update()].concat());
        let mark = |subtype: u8| [&[0xff; 16][..], &[0, 23, 5, 0, 1, subtype, 1]].concat();
        let mut last = [mark(1), update(), mark(2), mark(1), update(), mark(2)].concat();
        Notification::new(error::CEASE, cease::ADMINISTRATIVE_SHUTDOWN).write(&mut last);
        ours.arriving.lock().unwrap().has_ended = true;
        router.arrives(&ours, &last);
        let why = router.neighbor().last_error.unwrap_or_default();
        assert!(why.contains("Administrative Shutdown"), "{why}; {short_read_is_last}");
    }
}
