//! The thread of one cache: a TCP connection around [`RtrClient`].

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use thalweg_bgp::peer::Millis;
use thalweg_bgp::rpki::{CacheConfig, CacheState, ClientStep, RtrClient};
use thalweg_node::control::RpkiSourceView;

use super::Seen;

/// The longest time without a look at the flag that ends the thread.
const WAIT: Duration = Duration::from_millis(500);

/// The longest time that a connection may take to come up, in steps of [`WAIT`] at the end of the program.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Works until `stop` is set.
pub(super) fn run(address: SocketAddr, config: CacheConfig, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let begun = Instant::now();
    let now = || Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    let mut client = RtrClient::new(config);
    let (mut stream, mut output): (Option<TcpStream>, Vec<u8>) = (None, Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    let mut told = None;
    while !stop.load(Ordering::Acquire) {
        if client.handle_timer(now()) == Some(ClientStep::Connect) {
            match connect(address) {
                Ok(connected) => {
                    stream = Some(connected);
                    client.handle_connected(now());
                }
                Err(error) => client.handle_disconnected(&format!("cannot connect: {error}"), now()),
            }
        }
        client.poll_output(&mut output);
        if let Some(open) = &mut stream
            && let Err(error) = open.write_all(&output)
        {
            client.handle_disconnected(&format!("cannot write: {error}"), now());
            stream = None;
        }
        output.clear();
        while let Some(step) = client.poll_step() {
            match step {
                ClientStep::Close => stream = None,
                ClientStep::Changed => {
                    seen.lock().table = client.updated().map(|_| client.table().clone());
                }
                // Only the timer wants it.
                ClientStep::Connect => {}
            }
        }
        tell(address, &client, &mut told);
        seen.lock().view = view(address, &client, now());
        match &mut stream {
            None => thread::park_timeout(WAIT),
            Some(open) => match open.read(&mut buffer) {
                Ok(0) => {
                    client.handle_disconnected("the cache closed the connection", now());
                    stream = None;
                }
                Ok(bytes) => client.handle_bytes(&buffer[..bytes], now()),
                Err(error) if is_nothing(&error) => {}
                Err(error) => {
                    client.handle_disconnected(&error.to_string(), now());
                    stream = None;
                }
            },
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(CONNECT_MAX))?;
    Ok(stream)
}

fn is_nothing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Logs that a cache is synced, or what is wrong with it, when that is news.
fn tell(address: SocketAddr, client: &RtrClient, told: &mut Option<(bool, Option<String>, u64)>) {
    let is_synced = client.state() == CacheState::Synced;
    let news = (is_synced, client.last_error().map(str::to_owned), client.counters().expired);
    // A connection that is on its way is no news.
    if !is_synced && news.1.is_none() || told.as_ref() == Some(&news) {
        return;
    }
    match &news.1 {
        None => tracing::info!(version = client.version(), "rpki: cache {address} is synced"),
        Some(error) if client.updated().is_some() => {
            tracing::warn!("rpki: cache {address}: {error}; its VRPs are used until they expire");
        }
        Some(error) => tracing::warn!("rpki: cache {address}: {error}"),
    }
    *told = Some(news);
}

fn view(address: SocketAddr, client: &RtrClient, now: Millis) -> RpkiSourceView {
    let (timers, counters) = (client.timers(), client.counters());
    let age_s = client.updated().map(|updated| now.since(updated) / 1000);
    RpkiSourceView {
        source: address.to_string(),
        kind: "cache".to_owned(),
        used: false,
        state: client.state().to_string(),
        version: Some(client.version()),
        session: client.session().map(|(session, _)| session),
        serial: client.session().map(|(_, serial)| serial),
        vrps: client.table().counts().map(|count| count as u64).into(),
        age_s,
        expires_in_s: age_s.map(|age| u64::from(timers.expire_s).saturating_sub(age)),
        refresh_s: Some(timers.refresh_s),
        retry_s: Some(timers.retry_s),
        expire_s: Some(timers.expire_s),
        last_error: client.last_error().map(str::to_owned),
        counters: json!({
            "connections": counters.connections,
            "answers": counters.answers,
            "announced": counters.announced,
            "withdrawn": counters.withdrawn,
            "notifies": counters.notifies,
            "cache_resets": counters.cache_resets,
            "router_keys": counters.router_keys,
            "errors_received": counters.errors_received,
            "refused": counters.refused,
            "expired": counters.expired,
        }),
    }
}
