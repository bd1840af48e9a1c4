//! Serves the control socket: a line of JSON in, lines of JSON out.

mod capture;
mod received;

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use thalweg_base::IpPrefix;

use thalweg_config::OnStop;
use thalweg_node::control::{
    Answer, AnswerError, Emit, FibFilter, FibView, Line, PacketStatus, Request, StatusView, emit_all, to_json,
};
use thalweg_node::forwarding::Forwarding;
use thalweg_node::speaker::Speaker;

use crate::identity::Identity;
use crate::orders::{Reload, Stop};
use crate::packets::PacketSide;

/// Clients served at once; further ones are refused.
const CLIENTS_MAX: usize = 32;

/// The longest request.
const REQUEST_MAX_BYTES: u64 = 64 << 10;

/// A client that accepts nothing for this long is dropped.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The timeout of a check whether a silent client has closed its connection.
const LOOK: Duration = Duration::from_millis(1);

/// Answers requests. Cloned for each client.
#[derive(Clone)]
pub(crate) struct ControlServer {
    pub(crate) identity: Arc<Identity>,
    /// Answers about BGP, if the router speaks it.
    pub(crate) speaker: Option<Arc<Speaker>>,
    pub(crate) reload: Arc<Reload>,
    pub(crate) stop: Arc<Stop>,
    /// Answers about best routes, if they are installed somewhere.
    pub(crate) forwarding: Option<Arc<dyn Forwarding>>,
    /// Answers about packets, if the router forwards them.
    pub(crate) packets: Option<Arc<PacketSide>>,
    /// Whether clients may change anything.
    pub(crate) may_change: bool,
}

/// Serves clients, each in a thread of its own. It returns only if the listener ends, which does not happen.
pub(crate) fn serve(listener: &UnixListener, server: &ControlServer) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Probably out of file descriptors: another client has to close one first.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::AcqRel);
            // The client sees the end of the stream even if this does not reach it.
            let _ = refuse(stream);
            continue;
        }
        let (server, count) = (server.clone(), clients.clone());
        let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
            // An error means that the client has gone.
            let _ = talk(&stream, &server);
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if spawned.is_err() {
            clients.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn refuse(mut stream: UnixStream) -> io::Result<()> {
    let line = Line::error(&AnswerError::TooManyClients(CLIENTS_MAX));
    writeln!(stream, "{}", serde_json::to_string(&line)?)
}

/// Answers a client's requests in order.
fn talk(stream: &UnixStream, server: &ControlServer) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut writer = BufWriter::with_capacity(64 << 10, stream);
    loop {
        let mut text = String::new();
        if reader.by_ref().take(REQUEST_MAX_BYTES).read_line(&mut text)? == 0 {
            return Ok(());
        }
        let allowed = |request: &Request| server.may_change || !request.needs_operator();
        let request = Request::parse(&text)
            .and_then(|request| if allowed(&request) { Ok(request) } else { Err(AnswerError::ReadOnly) });
        if let Some(wanted) = request.as_ref().ok().and_then(Request::as_capture) {
            return capture::serve(wanted, server.packets(), stream, reader, writer);
        }
        if let Some(wanted) = request.as_ref().ok().and_then(Request::as_received)
            && let Some(speaker) = &server.speaker
        {
            return received::serve(wanted, speaker, stream, reader, writer);
        }
        let mut items = 0;
        let answered = match request {
            Err(error) => Err(error),
            Ok(request) => server.answer(request, &mut |item| {
                items += 1;
                write_line(&mut writer, &Line::Item(item))
            })?,
        };
        match answered {
            Ok(()) => write_line(&mut writer, &Line::Done { items })?,
            Err(error) => write_line(&mut writer, &Line::error(&error))?,
        }
        writer.flush()?;
    }
}

impl ControlServer {
    fn answer(&self, request: Request, emit: Emit<'_>) -> Answer {
        match request {
            Request::Reload | Request::CompareConfig => {
                let changes = (self.reload)(request == Request::CompareConfig);
                emit_all(changes.map_err(AnswerError::failed), emit)
            }
            Request::Stop { keep_routes } => {
                (self.stop)(keep_routes.map(OnStop::of));
                Ok(Ok(()))
            }
            Request::Status => emit_all(Ok([self.status()]), emit),
            Request::Config => emit_all(Ok([self.identity.config()]), emit),
            Request::Forwarding => emit_all(self.forwarding().map(|table| [table.status()]), emit),
            Request::Fib { destination, vrf } => {
                emit_all(self.look_up(vrf.as_deref(), &destination).map(|view| [view]), emit)
            }
            Request::Vrfs => emit_all(self.forwarding().and_then(|table| table.vrfs()), emit),
            Request::FibRoutes(filter) => self.fib_routes(&filter, emit),
            // `talk` serves these, with the whole connection.
            Request::Capture(_) => Ok(Err(AnswerError::NeedsConnection)),
            Request::Received(_) => Ok(Err(AnswerError::NoBgp)),
            Request::Packets(request) => match self.packets() {
                Ok(packets) => packets.answer(&request, emit),
                Err(none) => Ok(Err(none)),
            },
            Request::Bgp(request) => match &self.speaker {
                Some(speaker) => speaker.answer(&request, emit),
                None => Ok(Err(AnswerError::NoBgp)),
            },
        }
    }

    fn forwarding(&self) -> Result<&dyn Forwarding, AnswerError> {
        self.forwarding.as_deref().ok_or(AnswerError::NoForwarding)
    }

    fn packets(&self) -> Result<&PacketSide, AnswerError> {
        self.packets.as_deref().ok_or(AnswerError::NoPackets)
    }

    pub(crate) fn status(&self) -> StatusView {
        let mut status = self.identity.status();
        if let Some(speaker) = &self.speaker {
            let (neighbors, problems) = speaker.neighbor_status();
            status.bgp_neighbors = Some(neighbors);
            status.problems.extend(problems);
        }
        if let Some(packets) = &self.packets {
            let PacketStatus { ports, nat, problems } = packets.status();
            (status.ports, status.nat) = (Some(ports), nat);
            status.problems.extend(problems);
        }
        if let (Some(forwarding), Some(_)) = (&self.forwarding, &self.speaker) {
            let view = forwarding.status();
            status.installed = Some(view.prefixes);
            status.problems.extend(view.unresolved.iter().map(|each| format!("next hop unresolved: {each}")));
            let kernel = view.kernel.iter().flat_map(|kernel| &kernel.failures).last();
            status.problems.extend(kernel.map(|failure| format!("the kernel refused a route: {failure}")));
        }
        status
    }

    /// Emits the routes of the forwarding table slice by slice.
    fn fib_routes(&self, filter: &FibFilter, emit: Emit<'_>) -> Answer {
        let prefix = |text: &Option<String>| text.as_deref().map(AnswerError::prefix).transpose();
        let (inside, mut after) = match (prefix(&filter.inside), prefix(&filter.after)) {
            (Ok(inside), Ok(after)) => (inside, after),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
        };
        let family = match filter.family.as_deref() {
            None => None,
            Some("ipv4") => Some(true),
            Some("ipv6") => Some(false),
            Some(other) => return Ok(Err(AnswerError::Family(other.to_owned()))),
        };
        let mut left = filter.limit.unwrap_or(usize::MAX);
        while left > 0 {
            let vrf = filter.vrf.as_deref();
            let routes = self.forwarding().and_then(|table| table.routes(vrf, after, FIB_SLICE));
            let routes = match routes {
                Ok(routes) => routes,
                Err(why) => return Ok(Err(why)),
            };
            let Some(last) = routes.last().and_then(|route| route.prefix.parse::<IpPrefix>().ok()) else {
                break;
            };
            after = Some(last);
            for route in &routes {
                let Ok(prefix) = route.prefix.parse::<IpPrefix>() else { continue };
                let is_wanted = filter.source.as_ref().is_none_or(|source| *source == route.source)
                    && family.is_none_or(|is_v4| is_v4 == prefix.address().is_ipv4())
                    && inside.is_none_or(|outer| outer.covers(prefix));
                if is_wanted && left > 0 {
                    left -= 1;
                    emit(to_json(route))?;
                }
            }
        }
        Ok(Ok(()))
    }

    fn look_up(&self, vrf: Option<&str>, destination: &str) -> Result<FibView, AnswerError> {
        let host =
            destination.parse::<IpAddr>().ok().map(|address| format!("{address}/{}", bits_of(address)));
        let prefix = host.as_deref().unwrap_or(destination).parse::<IpPrefix>();
        let prefix = prefix.map_err(|_| AnswerError::NoDestination(destination.to_owned()))?;
        let mut view = self.forwarding()?.lookup(vrf, prefix)?;
        let neighbors = self.packets.as_ref().and_then(|packets| packets.neighbors().ok());
        for neighbor in neighbors.into_iter().flatten() {
            for way in view.next_hops.iter_mut().filter(|way| way.port == neighbor.port) {
                if way.neighbor.is_some_and(|address| address.to_string() == neighbor.address) {
                    way.state = Some(neighbor.state.clone());
                }
            }
        }
        Ok(view)
    }
}

/// Routes read while holding the lock of the forwarding table once.
const FIB_SLICE: usize = 512;

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether the client of a capture wants no more: it closed its half, or is gone.
fn has_enough(reader: &mut BufReader<&UnixStream>) -> bool {
    match reader.fill_buf() {
        Ok([]) => true,
        Ok(said) => {
            let length = said.len();
            reader.consume(length);
            false
        }
        Err(error) => !matches!(
            error.kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
        ),
    }
}

fn write_line(writer: &mut impl Write, line: &Line) -> io::Result<()> {
    serde_json::to_writer(&mut *writer, line)?;
    writer.write_all(b"\n")
}
