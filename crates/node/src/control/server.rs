//! The control socket: a line of JSON in, lines of JSON out.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use thalweg_base::IpPrefix;

use super::{ArpView, CaptureClient, CaptureRequest, CaptureSummary, Line, Request, capture};
use crate::config::OnStop;
use crate::forwarding::{FibView, Forwarding};
use crate::speaker::Speaker;

/// Clients served at once; further ones are told to come again.
const CLIENTS_MAX: usize = 32;

/// A request is short.
const REQUEST_MAX_BYTES: u64 = 64 << 10;

/// A client that takes nothing for so long is left.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the configuration again and applies it: what changed in words, or why it was refused.
pub type Reload = dyn Fn() -> Result<Vec<String>, String> + Send + Sync;

/// Stops the router: what becomes of routes, if not what the configuration says. Whether that was said before.
pub type Stop = dyn Fn(Option<OnStop>) -> bool + Send + Sync;

/// Who answers.
#[derive(Clone)]
pub struct Server {
    /// What concerns BGP, where the router speaks it.
    pub speaker: Option<Arc<Speaker>>,
    /// `Reload`.
    pub reload: Arc<Reload>,
    /// `Stop`.
    pub stop: Arc<Stop>,
    /// What concerns the place where best routes go, if they go anywhere.
    pub forwarding: Option<Arc<dyn Forwarding>>,
    /// What concerns packets, where the router forwards them.
    pub live: Option<Arc<dyn LiveControl>>,
}

/// What a router on live interfaces tells of itself.
pub trait LiveControl: Send + Sync {
    /// The items of the answer to [`Request::Ports`], [`Request::Counters`], [`Request::Arp`], [`Request::Queues`] or
    /// [`Request::NatCounters`], or [`Request::TracePacket`].
    fn answer(&self, request: &Request) -> Result<Vec<serde_json::Value>, String>;

    /// Hands the items of the answer to [`Request::NatSessions`] or [`Request::NatBlocks`] out one by one: there may
    /// be millions. The outer error is that of `item`.
    fn stream(
        &self,
        request: &Request,
        item: &mut dyn FnMut(serde_json::Value) -> io::Result<()>,
    ) -> io::Result<Result<(), String>>;

    /// Answers [`Request::Capture`]: gives the client packets until it has enough. The outer error is that of `client`.
    fn capture(
        &self,
        request: &CaptureRequest,
        client: &mut dyn CaptureClient,
    ) -> io::Result<Result<CaptureSummary, String>>;
}

/// Serves clients until the listener fails, which it does not. Each has a thread of its own.
pub fn serve(listener: &UnixListener, server: &Server) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: somebody else has to close one first.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::AcqRel);
            // The client sees the end of the stream whether or not this reaches it.
            let _ = refuse(stream);
            continue;
        }
        let (server, count) = (server.clone(), clients.clone());
        let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
            // A client that went away needs no answer.
            let _ = talk(&stream, &server);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let line = Line::Error(format!("{CLIENTS_MAX} clients are being served; try again"));
    writeln!(stream, "{}", serde_json::to_string(&line)?)
}

/// Answers a client's requests one after the other.
fn talk(stream: &UnixStream, server: &Server) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut writer = BufWriter::with_capacity(64 << 10, stream);
    loop {
        let mut text = String::new();
        if reader.by_ref().take(REQUEST_MAX_BYTES).read_line(&mut text)? == 0 {
            return Ok(());
        }
        let mut items = 0;
        let request = serde_json::from_str::<Request>(&text);
        if let Some(wanted) = request.as_ref().ok().and_then(Request::as_capture) {
            return capture::serve(wanted, server.live(), stream, reader, writer);
        }
        let result = match request {
            Err(error) => Err(format!("not a request: {error}")),
            Ok(Request::Reload) => (server.reload)().map(|changes| {
                items = changes.len();
                changes.into_iter().map(serde_json::Value::from).collect::<Vec<_>>()
            }),
            Ok(Request::Stop { keep_routes }) => {
                (server.stop)(keep_routes.map(OnStop::of));
                Ok(Vec::new())
            }
            Ok(Request::Forwarding) => server.forwarding().map(|forwarding| {
                items = 1;
                vec![to_json(&forwarding.status())]
            }),
            Ok(Request::Fib { destination }) => server.look_up(&destination).map(|view| {
                items = 1;
                vec![to_json(&view)]
            }),
            Ok(
                request @ (Request::Ports
                | Request::Counters
                | Request::Arp
                | Request::Queues
                | Request::TracePacket { .. }
                | Request::NatCounters
                | Request::FlowCache),
            ) => server.live().and_then(|live| live.answer(&request)).inspect(|rows| items = rows.len()),
            Ok(request @ (Request::NatSessions(_) | Request::NatBlocks(_))) => match server.live() {
                Ok(live) => live
                    .stream(&request, &mut |item| {
                        items += 1;
                        write_line(&mut writer, &Line::Item(item))
                    })?
                    .map(|()| Vec::new()),
                Err(none) => Err(none),
            },
            Ok(request) => {
                let Some(speaker) = &server.speaker else {
                    write_line(&mut writer, &Line::Error("this router does not speak BGP".to_owned()))?;
                    writer.flush()?;
                    continue;
                };
                let answered = speaker.answer(&request, &mut |item| {
                    items += 1;
                    write_line(&mut writer, &Line::Item(item))
                });
                match answered {
                    Ok(result) => result.map(|()| Vec::new()),
                    Err(lost) => return Err(lost),
                }
            }
        };
        match result {
            Ok(rest) => {
                rest.into_iter().try_for_each(|item| write_line(&mut writer, &Line::Item(item)))?;
                write_line(&mut writer, &Line::Done { items })?;
            }
            Err(error) => write_line(&mut writer, &Line::Error(error))?,
        }
        writer.flush()?;
    }
}

impl Server {
    fn forwarding(&self) -> Result<&dyn Forwarding, String> {
        self.forwarding.as_deref().ok_or_else(|| {
            "best routes go nowhere: [bgp] install is \"none\" (\"fib\" and \"kernel\" install them)"
                .to_owned()
        })
    }

    fn live(&self) -> Result<&dyn LiveControl, String> {
        self.live
            .as_deref()
            .ok_or_else(|| "this router forwards no packets: no port has an interface".to_owned())
    }

    fn look_up(&self, destination: &str) -> Result<FibView, String> {
        let host =
            destination.parse::<IpAddr>().ok().map(|address| format!("{address}/{}", bits_of(address)));
        let prefix = host.as_deref().unwrap_or(destination).parse::<IpPrefix>();
        let prefix = prefix.map_err(|_| format!("{destination}: expected an address or a prefix"))?;
        let mut view = self.forwarding()?.lookup(prefix)?;
        let neighbours = self.live.as_ref().map(|live| live.answer(&Request::Arp));
        for row in neighbours.into_iter().flatten().flatten() {
            let Ok(neighbour) = serde_json::from_value::<ArpView>(row) else { continue };
            for way in view.ways.iter_mut().filter(|way| way.port == neighbour.port) {
                if way.neighbor.is_some_and(|address| address.to_string() == neighbour.address) {
                    way.state = Some(neighbour.state.clone());
                }
            }
        }
        Ok(view)
    }
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Views are plain data: they always have a JSON form.
fn to_json(view: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(view).unwrap_or(serde_json::Value::Null)
}

pub(super) fn write_line(writer: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}
