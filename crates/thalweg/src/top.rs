//! `thalweg top`: the overview of a running router in a terminal, drawn again every second.
//!
//! It asks what `show` asks. A frame is written over the one before, line by line, so nothing flickers. In a pipe it
//! prints one frame, without colors and control sequences.

use std::cmp::Reverse;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use thalweg_node::control::{
    BgpNeighborView, BgpRequest, CountersView, PacketRequest, PortRates, PortView, Request, StatusView,
};
use thalweg_text::units::{age, bit_rate, bytes, count, counted, packet_rate};
use thalweg_text::{Table, wrap};

use crate::cli::TopArgs;
use crate::client::views;
use crate::screen::{Line, SIZE, Screen, size, wait};
use crate::signals::stop_on_signals;
use crate::{Failure, print};

/// Rows of the tables of drop reasons and of neighbors.
const ROWS: usize = 10;

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let socket = &args.router.socket;
    if !io::stdout().is_terminal() {
        let lines = frame(&State::read(socket)?, None, SIZE.0);
        return print(&lines.iter().map(|line| format!("{}\n", line.text)).collect::<String>());
    }
    let stop = stop_on_signals()?;
    let screen = Screen::enter()?;
    let mut before: Option<State> = None;
    while !stop.load(Ordering::Acquire) {
        let (width, height) = size();
        let lines = match State::read(socket) {
            Ok(state) => {
                let lines = frame(&state, before.as_ref(), width);
                before = Some(state);
                lines
            }
            Err(failure) => wrap(&failure.to_string(), width).into_iter().map(Line::bad).collect(),
        };
        screen.draw(&lines, height)?;
        wait(&stop, Duration::from_secs(args.interval));
    }
    Ok(())
}

/// What a frame shows.
struct State {
    at: Instant,
    status: StatusView,
    /// Empty without ports.
    ports: Vec<PortView>,
    counters: Option<CountersView>,
    /// Empty without BGP.
    neighbors: Vec<BgpNeighborView>,
}

impl State {
    fn read(socket: &Path) -> Result<Self, Failure> {
        let status = views(socket, &Request::Status)?.pop();
        // A router without ports or BGP refuses these: it has nothing to show there.
        let counters = views(socket, &Request::Packets(PacketRequest::Counters)).unwrap_or_default().pop();
        Ok(Self {
            at: Instant::now(),
            status: status.ok_or_else(|| Failure::Control("the router has no status".to_owned()))?,
            ports: views(socket, &Request::Packets(PacketRequest::Ports)).unwrap_or_default(),
            counters,
            neighbors: views(socket, &Request::Bgp(BgpRequest::Neighbors)).unwrap_or_default(),
        })
    }
}

/// The lines of a frame. Rates of drops need the state before.
fn frame(state: &State, before: Option<&State>, width: usize) -> Vec<Line> {
    let StatusView { version, uptime_s, config, problems, memory_bytes, threads, .. } = &state.status;
    let head = format!(
        "thalweg {version}, up for {}, {}, {} in {}",
        age(*uptime_s),
        config.display(),
        bytes(*memory_bytes),
        counted(*threads, "thread")
    );
    let mut lines: Vec<Line> = wrap(&head, width).iter().map(|line| Line::new("\x1b[1m", line)).collect();
    if problems.is_empty() {
        lines.push(Line::new("\x1b[32m", "nothing is wrong"));
    }
    lines
        .extend(problems.iter().flat_map(|problem| wrap(&format!("wrong: {problem}"), width)).map(Line::bad));
    lines.extend(wrap(&traffic(state), width).iter().map(|line| Line::new("", line)));
    let tables = [ports(state), drops(state, before), neighbors(state)];
    for table in tables.into_iter().filter(|table| !table.rows().is_empty()) {
        lines.push(Line::new("", ""));
        lines.extend(table.render(Some(width)).lines().map(|line| Line::new("", line)));
    }
    lines
}

/// All ports together, and how full NAT is.
fn traffic(state: &State) -> String {
    let rates: Vec<PortRates> = state.ports.iter().filter_map(|port| port.rates).collect();
    let sum = |of: fn(&PortRates) -> u64| rates.iter().map(of).sum::<u64>() as f64;
    let mut parts = Vec::new();
    if !rates.is_empty() {
        let (bits, packets) =
            (sum(|rates| rates.bits_received_per_s), sum(|rates| rates.packets_received_per_s));
        parts.push(format!("received {}, {}", bit_rate(bits), packet_rate(packets)));
        let (bits, packets) = (sum(|rates| rates.bits_sent_per_s), sum(|rates| rates.packets_sent_per_s));
        parts.push(format!("sent {}, {}", bit_rate(bits), packet_rate(packets)));
    }
    let nat = state.status.nat;
    parts.extend(
        nat.map(|nat| format!("NAT {} of {} sessions", count(nat.sessions), count(nat.sessions_max))),
    );
    let routes = state.status.installed;
    parts.extend(routes.map(|routes| format!("{} BGP routes installed", count(routes.ipv4 + routes.ipv6))));
    parts.join("; ")
}

fn ports(state: &State) -> Table {
    let rate = |port: &PortView, of: fn(&PortRates) -> u64, form: fn(f64) -> String| {
        port.rates.as_ref().map_or_else(|| "-".to_owned(), |rates| form(of(rates) as f64))
    };
    Table::of("", &state.ports)
        .words("Port", |port| port.name.clone())
        .words("Link", |port| if port.up { "up" } else { "down" }.to_owned())
        .number("Received", |port| rate(port, |rates| rates.bits_received_per_s, bit_rate))
        .number("Packets in", |port| rate(port, |rates| rates.packets_received_per_s, packet_rate))
        .number("Sent", |port| rate(port, |rates| rates.bits_sent_per_s, bit_rate))
        .number("Packets out", |port| rate(port, |rates| rates.packets_sent_per_s, packet_rate))
        .number("Missed", |port| count(port.missed))
        .number("Waiting", |port| count(port.queued))
        .optional(&["Waiting", "Missed", "Packets out", "Packets in"])
        .table()
}

/// Drop reasons, the most frequent since the frame before first.
fn drops(state: &State, before: Option<&State>) -> Table {
    let dropped = state.counters.as_ref().map(|counters| &counters.dropped);
    let earlier = before.and_then(|before| Some((before.at, &before.counters.as_ref()?.dropped)));
    let rate = |reason: &String, packets: u64| {
        let (at, counts) = earlier?;
        let grown = packets.checked_sub(counts.get(reason).copied().unwrap_or(0))?;
        Some(grown as f64 / state.at.duration_since(at).as_secs_f64())
    };
    let mut rows: Vec<(&String, u64, Option<f64>)> = dropped
        .into_iter()
        .flatten()
        .filter(|(_, packets)| **packets > 0)
        .map(|(reason, packets)| (reason, *packets, rate(reason, *packets)))
        .collect();
    let now = |row: &(&String, u64, Option<f64>)| row.2.unwrap_or(0.0);
    rows.sort_by(|a, b| now(b).total_cmp(&now(a)).then(b.1.cmp(&a.1)));
    Table::of("", rows.iter().take(ROWS))
        .words("Dropped because", |(reason, ..)| (*reason).clone())
        .number("Now", |(_, _, rate)| rate.map_or_else(|| "-".to_owned(), packet_rate))
        .number("Packets", |(_, packets, _)| count(*packets))
        .table()
}

/// Neighbors, those that are down first.
fn neighbors(state: &State) -> Table {
    let mut neighbors: Vec<&BgpNeighborView> = state.neighbors.iter().collect();
    neighbors.sort_by_key(|each| (each.uptime_s.is_some(), Reverse(each.accepted)));
    Table::of("", neighbors.into_iter().take(ROWS))
        .words("BGP neighbor", |each| each.name.clone())
        .number("AS", |each| each.remote_as.clone())
        .words("State", |each| each.state.clone())
        .words("Up", |each| each.uptime_s.map_or_else(String::new, age))
        .number("Routes", |each| count(each.accepted))
        .words("Last error", |each| each.last_error.clone().unwrap_or_default())
        .optional(&["Last error", "AS"])
        .table()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn state(at: Instant, dropped: u64) -> State {
        let rates = PortRates { bits_received_per_s: 1_240_000_000, ..PortRates::default() };
        let port = PortView { name: "wan".to_owned(), up: true, rates: Some(rates), ..PortView::default() };
        let dropped = BTreeMap::from([("no-route".to_owned(), dropped), ("blackhole".to_owned(), 7)]);
        State {
            at,
            status: StatusView {
                version: "1".to_owned(),
                problems: vec!["neighbor x is Idle: \x1b[2Jgone".to_owned()],
                ..StatusView::default()
            },
            ports: vec![port],
            counters: Some(CountersView { dropped, ..CountersView::default() }),
            neighbors: Vec::new(),
        }
    }

    #[test]
    fn a_frame_has_rates_problems_and_nothing_that_controls_a_terminal() {
        let begin = Instant::now();
        let (before, after) = (state(begin, 1_000), state(begin + Duration::from_secs(2), 5_000));
        let lines = frame(&after, Some(&before), 80);
        let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let has = |words: &[&str]| text.iter().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(has(&["wrong: neighbor x is Idle", "gone"]), "{text:#?}");
        assert!(has(&["wan", "up", "1.24 Gbit/s"]), "{text:#?}");
        assert!(has(&["no-route", "2.00 kpps", "5,000"]), "{text:#?}");
        assert!(text.iter().all(|line| !line.contains('\x1b')), "{text:#?}");
        assert!(
            text.iter().position(|line| line.contains("no-route"))
                < text.iter().position(|line| line.contains("blackhole"))
        );
    }

    #[test]
    fn the_first_frame_has_no_rates_of_drops() {
        let lines = frame(&state(Instant::now(), 3), None, 80);
        assert!(lines.iter().any(|line| line.text.contains("no-route") && line.text.contains('-')));
    }
}
