//! Reads route files: one route per line, plain or gzip (recognized by content, not by name).
//!
//! ```text
//! # prefix        next hop        port
//! 192.0.2.0/24    203.0.113.1     wan        # next hop on a port
//! 192.0.2.0/25    203.0.113.1     -          # its port follows from the connected prefixes
//! 198.51.100.0/24 -               lan        # on-link
//! 10.0.0.0/8      blackhole                  # or unreachable
//! 1.0.0.0/24                                 # the next of [routing] default_next_hops
//! ```
//!
//! Spaces separate fields; `#` begins a comment; CRLF is accepted. The file streams through a fixed buffer,
//! so a million routes need memory only for their table. A real table has few next hops, so each distinct
//! `next hop, port` text is resolved once and cached.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::diagnostic::{Diagnostic, ErrorKind, Severity, nearest};
use crate::ports::Ports;
use crate::route_table::{ROUTES_MAX, RouteTable};
use crate::types::{NextHop, PortIndex, RouteTarget, TargetIndex};

/// The most errors reported for one file; reading then stops.
const FINDINGS_MAX: usize = 20;
/// A line has a few dozen bytes; this much without a line end is no route file.
const LINE_MAX_BYTES: usize = 4096;
const BUFFER_BYTES: usize = 256 * 1024;
/// The most distinct next hops of one file, a limit of the look-up structures.
const TARGETS_MAX: usize = 1 << 16;

/// What a route file may refer to.
pub(crate) struct RouteFileContext<'a> {
    pub(crate) ports: &'a Ports,
    /// Targets of lines without a next hop, by family.
    pub(crate) default_v4: Vec<TargetIndex>,
    pub(crate) default_v6: Vec<TargetIndex>,
}

/// Adds the routes of a file to the table and returns all findings. Line 0 means the file itself. The caller
/// adds the name of the file.
pub(crate) fn load(path: &Path, context: &RouteFileContext<'_>, table: &mut RouteTable) -> Vec<Diagnostic> {
    let opened = File::open(path).and_then(|file| {
        let mut plain = BufReader::with_capacity(BUFFER_BYTES, file);
        let is_gzip = plain.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        Ok((plain, is_gzip))
    });
    match opened {
        Ok((plain, true)) => {
            read(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(plain)), context, table)
        }
        Ok((plain, false)) => read(plain, context, table),
        Err(error) => {
            let message = format!("cannot read route file: {error}");
            vec![finding(ErrorKind::File, 0, (0, 0), "", message, "")]
        }
    }
}

fn read(mut input: impl BufRead, context: &RouteFileContext<'_>, table: &mut RouteTable) -> Vec<Diagnostic> {
    let mut loader = Loader {
        context,
        table,
        targets: HashMap::new(),
        defaults_used: [0; 2],
        line_number: 0,
        findings: Vec::new(),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        loader.line_number += 1;
        match input.by_ref().take(LINE_MAX_BYTES as u64).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(n) if n == LINE_MAX_BYTES && line.last() != Some(&b'\n') => {
                loader.fail(
                    ErrorKind::Syntax,
                    &line,
                    (0, 1),
                    "line too long".to_owned(),
                    "at most 4096 bytes",
                );
                break;
            }
            Ok(_) => loader.line(line.trim_ascii_end()),
            Err(error) => {
                let what = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "the file ends in the middle of its compressed data",
                    _ => "the rest of the file cannot be read",
                };
                loader.fail(ErrorKind::File, &[], (0, 1), format!("{what}: {error}"), "");
                break;
            }
        }
        if loader.findings.len() >= FINDINGS_MAX {
            let help = format!("reading stopped here, after {FINDINGS_MAX} mistakes");
            if let Some(last) = loader.findings.last_mut() {
                last.help = Some(help);
            }
            break;
        }
    }
    loader.findings
}

struct Loader<'a> {
    context: &'a RouteFileContext<'a>,
    table: &'a mut RouteTable,
    /// Resolved "next hop, port" texts, by family.
    targets: HashMap<(bool, Vec<u8>), TargetIndex>,
    /// Lines that used a default next hop, by family.
    defaults_used: [usize; 2],
    line_number: usize,
    findings: Vec<Diagnostic>,
}

/// A field with its position.
type Field<'l> = (usize, &'l [u8]);

impl Loader<'_> {
    fn line(&mut self, line: &[u8]) {
        let mut fields = Fields { line, at: 0 };
        let Some(prefix_field) = fields.next() else { return };
        let Some(prefix) = self.prefix(line, prefix_field) else { return };
        if self.table.len() >= ROUTES_MAX {
            let message = format!("more than {ROUTES_MAX} routes");
            self.fail(ErrorKind::TooMany, line, (prefix_field.0, prefix_field.1.len()), message, "fewer");
            return;
        }
        let target = match fields.next() {
            None => self.default_target(line, prefix_field, &prefix),
            Some(next_hop) => {
                let port = fields.next();
                if let Some((at, extra)) = fields.next() {
                    let message = "too many fields".to_owned();
                    let expected = "`prefix next-hop port` and nothing more";
                    self.fail(ErrorKind::Syntax, line, (at, extra.len()), message, expected);
                    return;
                }
                self.target(line, &prefix, next_hop, port)
            }
        };
        match (prefix, target) {
            (IpNet::V4(net), Some(target)) => self.table.v4.push((net, target)),
            (IpNet::V6(net), Some(target)) => self.table.v6.push((net, target)),
            (_, None) => {}
        }
    }

    fn prefix(&mut self, line: &[u8], (at, text): Field<'_>) -> Option<IpNet> {
        let Some(net) = parse_prefix(text) else {
            let message = format!("bad prefix `{}`", String::from_utf8_lossy(text));
            let expected = "a prefix, such as 192.0.2.0/24 or 2001:db8::/32";
            self.fail(ErrorKind::BadValue, line, (at, text.len()), message, expected);
            return None;
        };
        if net.trunc() != net {
            let message = format!("prefix {net} has bits set beyond its length");
            let expected = format!("{}", net.trunc());
            self.fail(ErrorKind::BadValue, line, (at, text.len()), message, expected);
            return None;
        }
        Some(net)
    }

    fn default_target(&mut self, line: &[u8], (at, text): Field<'_>, prefix: &IpNet) -> Option<TargetIndex> {
        let (family, targets, name) = match prefix {
            IpNet::V4(_) => (0, &self.context.default_v4, "IPv4"),
            IpNet::V6(_) => (1, &self.context.default_v6, "IPv6"),
        };
        if targets.is_empty() {
            let message = format!("no next hop for {prefix}");
            let expected = format!("a next hop here, or an {name} address in [routing] default_next_hops");
            self.fail(ErrorKind::MissingKey, line, (at, text.len()), message, expected);
            return None;
        }
        let target = targets[self.defaults_used[family] % targets.len()];
        self.defaults_used[family] += 1;
        Some(target)
    }

    fn target(
        &mut self,
        line: &[u8],
        prefix: &IpNet,
        next_hop: Field<'_>,
        port: Option<Field<'_>>,
    ) -> Option<TargetIndex> {
        let end = port.map_or(next_hop.0 + next_hop.1.len(), |(at, text)| at + text.len());
        let key = (prefix.addr().is_ipv4(), line[next_hop.0..end].to_vec());
        if let Some(target) = self.targets.get(&key) {
            return Some(*target);
        }
        if self.targets.len() >= TARGETS_MAX {
            let message = format!("more than {TARGETS_MAX} different next hops");
            self.fail(ErrorKind::TooMany, line, (next_hop.0, end - next_hop.0), message, "fewer");
            return None;
        }
        let target = self.resolve(line, prefix, next_hop, port)?;
        let target = self.table.target(target);
        self.targets.insert(key, target);
        Some(target)
    }

    fn resolve(
        &mut self,
        line: &[u8],
        prefix: &IpNet,
        (at, text): Field<'_>,
        port: Option<Field<'_>>,
    ) -> Option<RouteTarget> {
        let port = port.filter(|(_, text)| *text != b"-");
        let action = match text {
            b"blackhole" => Some(RouteTarget::Blackhole),
            b"unreachable" => Some(RouteTarget::Unreachable),
            _ => None,
        };
        if let (Some(_), Some((at, port))) = (&action, port) {
            let message = "a route that discards has no port".to_owned();
            self.fail(ErrorKind::Conflict, line, (at, port.len()), message, "nothing or `-`");
            return None;
        }
        if action.is_some() {
            return action;
        }
        let port = match port {
            Some(field) => Some(self.port(line, field)?),
            None => None,
        };
        let place = (at, text.len());
        if text == b"-" {
            let Some(port) = port else {
                let message = "an on-link route needs a port".to_owned();
                self.fail(ErrorKind::MissingKey, line, place, message, "`- PORT`");
                return None;
            };
            return Some(RouteTarget::Forward(vec![NextHop { port, gateway: None }]));
        }
        let gateway = std::str::from_utf8(text).ok().and_then(|text| text.parse::<IpAddr>().ok());
        let Some(gateway) = gateway else {
            let message = format!("bad next hop `{}`", String::from_utf8_lossy(text));
            self.fail(ErrorKind::BadValue, line, place, message, "an address, `-`, blackhole or unreachable");
            return None;
        };
        if gateway.is_ipv4() != prefix.addr().is_ipv4() {
            let message = format!("next hop {gateway} is of another family than prefix {prefix}");
            self.fail(ErrorKind::Conflict, line, place, message, "an address of the prefix's family");
            return None;
        }
        match self.context.ports.next_hop(gateway, port, 0) {
            Ok(next_hop) => Some(RouteTarget::Forward(vec![next_hop])),
            Err((message, expected)) => {
                self.fail(ErrorKind::NotConnected, line, place, message, expected);
                None
            }
        }
    }

    fn port(&mut self, line: &[u8], (at, text): Field<'_>) -> Option<PortIndex> {
        let ports = &self.context.ports.configs;
        let found = ports.iter().position(|port| port.name.as_bytes() == text);
        if found.is_none() {
            let name = String::from_utf8_lossy(text).into_owned();
            let suggestion = nearest(&name, ports.iter().map(|port| port.name.as_str()))
                .map(|s| format!("did you mean `{s}`?"));
            let message = format!("no port is named `{name}`");
            self.fail(
                ErrorKind::UnknownName,
                line,
                (at, text.len()),
                message,
                "a port of the configuration, or `-`",
            );
            if let Some(last) = self.findings.last_mut() {
                last.help = suggestion;
            }
        }
        found.map(|index| index as PortIndex)
    }

    fn fail(
        &mut self,
        kind: ErrorKind,
        line: &[u8],
        place: (usize, usize),
        message: String,
        expected: impl Into<String>,
    ) {
        let text = String::from_utf8_lossy(line).into_owned();
        self.findings.push(finding(kind, self.line_number, place, &text, message, expected));
    }
}

fn finding(
    kind: ErrorKind,
    line: usize,
    (at, length): (usize, usize),
    text: &str,
    message: String,
    expected: impl Into<String>,
) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        kind,
        message,
        file: String::new(),
        line,
        column: at + 1,
        length,
        text: text.to_owned(),
        expected: expected.into(),
        help: None,
    }
}

/// Iterates over the fields of a line up to its comment.
struct Fields<'l> {
    line: &'l [u8],
    at: usize,
}

impl<'l> Iterator for Fields<'l> {
    type Item = Field<'l>;

    fn next(&mut self) -> Option<Field<'l>> {
        let rest = &self.line[self.at..];
        let start = self.at + rest.iter().position(|b| !b.is_ascii_whitespace())?;
        if self.line[start] == b'#' {
            self.at = self.line.len();
            return None;
        }
        let field = &self.line[start..];
        let length = field.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(field.len());
        self.at = start + length;
        Some((start, &field[..length]))
    }
}

/// `address/length`.
fn parse_prefix(text: &[u8]) -> Option<IpNet> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, length) = text.split_once('/')?;
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length = length.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(v4) => Ipv4Net::new(v4, length).ok().map(IpNet::V4),
        IpAddr::V6(v6) => Ipv6Net::new(v6, length).ok().map(IpNet::V6),
    }
}
