//! Routes of a running router's neighbors before import: this program collects them, since the router keeps them only
//! of neighbors whose configuration says so.

use std::io::{ErrorKind, Read};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use thalweg_base::IpPrefix;
use thalweg_node::control::{
    BgpNeighborView, BgpRequest, Client, ClientError, Line, ReceivedItem, Request, RouteFilter, SentRouteView,
};
use thalweg_node::received::{Known, Received};
use thalweg_text::units::{count, counted};
use thalweg_text::{Align, Table};
use thalweg_wire::mrt::{Decoder, RibEntry, frame};

use crate::client::{ask, parse, views};
use crate::progress::Steps;
use crate::tables::stream;
use crate::{Failure, Format, print};

const READ_BYTES: usize = 64 << 10;

/// The longest line that a router sends between records.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The read timeout, after which the deadline is checked.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the router request routes from all neighbors, or from the one with this name or address, and
/// collects them until each neighbor has sent all its routes or cannot.
pub(crate) fn gather(socket: &Path, only: Option<&str>, steps: &Steps) -> Result<Received, Failure> {
    let question = match only {
        None => BgpRequest::Neighbors,
        Some(neighbor) => BgpRequest::Neighbor { neighbor: neighbor.to_owned() },
    };
    let neighbors: Vec<BgpNeighborView> = views(socket, &Request::Bgp(question))?;
    let mut received = Received::new(&neighbors);
    let mut client = Client::connect(socket, Some(LOOK))?;
    client.send(&Request::Received(received.request()))?;
    let mut incoming = Incoming::new(client.stream());
    let begun = Instant::now();
    loop {
        let now_ms = begun.elapsed().as_millis() as u64;
        incoming.read().map_err(ClientError::from)?;
        while incoming.take(&mut received, now_ms)? {}
        if incoming.is_watching {
            while let Some(neighbor) = received.next(now_ms) {
                refresh(socket, neighbor, &mut received);
            }
            if received.is_complete(now_ms) {
                return Ok(received);
            }
        }
        let routes = received.routes();
        steps.at(routes as usize, &format!("neighbors have sent {}", counted(routes, "route")));
    }
}

fn refresh(socket: &Path, neighbor: IpAddr, received: &mut Received) {
    let request = Request::Bgp(BgpRequest::Refresh { neighbor: neighbor.to_string() });
    if let Err(error) = ask(socket, &request, |_| Ok(())) {
        let why = match error {
            Failure::Control(why) => why,
            other => other.to_string(),
        };
        received.handle_refused(neighbor, format!("it was not asked: {why}"));
    }
}

/// The router's answer: lines, some of which are followed by MRT records.
struct Incoming<'s> {
    stream: &'s UnixStream,
    buffer: Vec<u8>,
    /// Bytes of records that the last line announced.
    records: Option<usize>,
    is_watching: bool,
    decoder: Decoder,
}

impl<'s> Incoming<'s> {
    fn new(stream: &'s UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), records: None, is_watching: false, decoder: Decoder::new() }
    }

    /// Reads available bytes; returns without any after a short wait.
    fn read(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the next line, or the records behind it, if they are complete.
    fn take(&mut self, received: &mut Received, now_ms: u64) -> Result<bool, Failure> {
        if let Some(bytes) = self.records {
            let Some(mut records) = self.buffer.get(..bytes) else { return Ok(false) };
            while let Ok(Some((record, length))) = frame(records) {
                let content = self.decoder.decode(&record).map_err(|fault| not_understood(&fault))?;
                received.handle(&content, now_ms);
                records = &records[length..];
            }
            if !records.is_empty() {
                return Err(not_understood(&"a record is not whole"));
            }
            self.buffer.drain(..bytes);
            self.records = None;
            return Ok(true);
        }
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return if self.buffer.len() > LINE_BYTES_MAX {
                Err(not_understood(&"a line without end"))
            } else {
                Ok(false)
            };
        };
        let line = serde_json::from_slice(&self.buffer[..end]).map_err(|error| not_understood(&error))?;
        self.buffer.drain(..=end);
        match line {
            Line::Item(item) => match parse(item)? {
                ReceivedItem::Mrt { bytes } => self.records = Some(bytes),
                ReceivedItem::Watching => self.is_watching = true,
            },
            Line::Done { .. } => return Err(Failure::Control("the router has ended its answer".to_owned())),
            Line::Error { text, .. } => return Err(Failure::Control(text)),
        }
        Ok(true)
    }
}

fn not_understood(what: &dyn std::fmt::Display) -> Failure {
    Failure::Control(format!("the router's answer is not understood: {what}"))
}

/// `thalweg show bgp routes --received`.
pub(crate) fn show(socket: &Path, filter: &RouteFilter, format: Format) -> Result<(), Failure> {
    let inside = filter
        .inside
        .as_ref()
        .map(|text| text.parse::<IpPrefix>().map_err(|error| Failure::Control(format!("{text}: {error}"))));
    let inside = inside.transpose()?;
    let steps = Steps::on_terminal();
    let received = gather(socket, filter.neighbor.as_deref(), &steps);
    steps.finish();
    let mut received = received?;
    let sources = received.sources();
    for source in &sources {
        let (name, note) = (&source.neighbor, source.note.as_deref().unwrap_or_default());
        match source.known {
            Known::AsSent => {}
            Known::AfterImport => {
                return Err(Failure::Control(format!(
                    "{name} does not offer route refresh, and what it sent before import is not kept; \
                     `thalweg show bgp routes --neighbor {name}` has its routes after import"
                )));
            }
            Known::Unknown => {
                return Err(Failure::Control(format!("routes of {name} are not known: {note}")));
            }
        }
    }
    let mut rows = stream(sent_route_columns());
    let mut left = filter.limit.unwrap_or(usize::MAX);
    received.drain(|entry| {
        let name = sources.first().map_or("", |source| &source.neighbor);
        let view = SentRouteView::new(entry.prefix, entry.path_id.unwrap_or(0), &entry.path(), name);
        let is_inside = inside.is_none_or(|outer| outer.covers(entry.prefix));
        if left == 0 || !is_inside || !admits(filter, entry, &view) {
            return Ok(());
        }
        left -= 1;
        match format {
            Format::Json => print(&format!("{}\n", thalweg_node::control::to_json(&view))),
            Format::Human => print(&rows.push(sent_route_row(view))),
        }
    })?;
    match format {
        Format::Json => Ok(()),
        Format::Human => print(&rows.finish()),
    }
}

/// Whether the filter for the router's routes admits this route of a neighbor.
fn admits(filter: &RouteFilter, entry: &RibEntry<'_>, view: &SentRouteView) -> bool {
    let is_v4 = entry.prefix.address().is_ipv4();
    let mut ases =
        view.as_path.split(|c: char| !c.is_ascii_digit()).filter_map(|each| each.parse::<u32>().ok());
    let (origin, through) = (ases.clone().next_back(), filter.through_as);
    filter.family.as_deref().is_none_or(|family| (family == "ipv4") == is_v4)
        && filter.origin_as.is_none_or(|asn| origin == Some(asn))
        && through.is_none_or(|asn| ases.any(|each| each == asn))
        && filter.community.as_ref().is_none_or(|text| view.communities.contains(text))
}

/// AS path and origin.
pub(crate) fn path_text(as_path: &str, origin: &str) -> String {
    let origin = match origin {
        "igp" => 'i',
        "egp" => 'e',
        _ => '?',
    };
    format!("{as_path} {origin}").trim_start().to_owned()
}

/// The columns of routes before import.
pub(crate) fn sent_route_columns() -> Table {
    let columns = [
        ("Prefix", Align::Left),
        ("Next hop", Align::Left),
        ("Pref", Align::Right),
        ("MED", Align::Right),
        ("AS path", Align::Left),
        ("Communities", Align::Left),
    ];
    Table::new("", columns).optional(&["Pref", "MED", "Communities"])
}

pub(crate) fn sent_route_row(route: SentRouteView) -> Vec<String> {
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| count(number.into()));
    vec![
        route.prefix,
        route.next_hop,
        number(route.local_pref),
        number(route.med),
        path_text(&route.as_path, &route.origin),
        route.communities.join(" "),
    ]
}
