//! `[web]`: the HTTP API, the console, metrics and the looking glass.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::diagnostic::ErrorKind;
use crate::items::parse_name;
use crate::key::{Differs, Key, Sub, table};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::web_types::{WebConfig, WebRight, WebToken};

pub(crate) static WEB: Key<Sub> =
    Key::section("web", &TABLE).help("[HTTP API](api.md), console and [metrics](metrics.md)");
table! {
    static TABLE: "web", "[web]";

    row SOCKET;
    row LISTEN;
    row HOSTS;
    row CERTIFICATE;
    row KEY;
    row LOOKING_GLASS;
    row LOOKING_GLASS_HIDDEN;
    row REPORTS;
    row TOKEN;
}

static SOCKET: Key<PathBuf> = Key::by("socket", "a path", Reader::made_path)
    .restart(Differs::Process)
    .help("Unix socket for the API, relative to this file; who may open it may do everything");
static LISTEN: Key<Vec<SocketAddr>> = Key::by("listen", LISTEN_WHAT, addresses).restart(Differs::Process).help(
    "TCP addresses for the API: `\"127.0.0.1:8080\"`; other addresses than loopback need `certificate` and a token",
);
static HOSTS: Key<Vec<String>> = Key::by("hosts", "a name or a list", hosts).restart(Differs::Process).help(
    "names under which browsers reach this server, [against DNS rebinding](api.md#who-may); addresses and \
         `localhost` need no entry",
);
static CERTIFICATE: Key<PathBuf> = Key::by("certificate", "a path", Reader::path)
    .restart(Differs::Process)
    .help("certificates for TLS on all of `listen`, in PEM; with `key`");
static KEY: Key<PathBuf> = Key::by("key", "a path", Reader::path)
    .restart(Differs::Process)
    .help("the certificate's private key, in PEM");
static LOOKING_GLASS: Key<Vec<SocketAddr>> = Key::by("looking_glass", LISTEN_WHAT, addresses)
    .restart(Differs::Process)
    .help("loopback addresses for a [looking glass](api.md#looking-glass): `\"127.0.0.1:29184\"`");
static LOOKING_GLASS_HIDDEN: Key<Vec<String>> = Key::by("looking_glass_hidden", "a name or a list", hosts)
    .restart(Differs::Process)
    .help("BGP neighbors that the looking glass does not show");
static REPORTS: Key<PathBuf> = Key::by("reports", "a path", Reader::path).restart(Differs::Process).help(
    "folder whose folders are reports of [`thalweg lab`](bench-method.md), relative to this file; the console shows them",
);
static TOKEN: Key<Sub> = Key::sections("token", &TOKEN_TABLE)
    .help("who may do what over `listen`; without any, everybody on loopback may read");

table! {
    static TOKEN_TABLE: "web.token", "[[web.token]]";

    row NAME;
    row FILE;
    row MAY;
}
static NAME: Key<String> = Key::text("name", "a name", parse_name)
    .required("\"monitoring\"")
    .restart(Differs::Process)
    .help("for logs");
static FILE: Key<PathBuf> =
    Key::by("file", "a path", Reader::path).required("\"monitoring.token\"").restart(Differs::Process).help(
        "the file whose first line is the token, 16 to 256 characters; a changed file is read again by itself",
    );
static MAY: Key<WebRight> =
    Key::word("may", &WebRight::NAMES).default(WebRight::Read).restart(Differs::Process).help(
        "`\"looking-glass\"`: read about BGP; `\"read\"`: read everything; `\"operate\"`: change things too",
    );

const LISTEN_WHAT: &str = "an address with a port, or a list of at most 16";
const LISTEN_MAX: usize = 16;

/// Reads the section.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> Option<WebConfig> {
    let mut section = root.section(reader, &WEB)?;
    let mut web = WebConfig { socket: section.get(reader, &SOCKET), ..WebConfig::default() };
    section.set(reader, &LISTEN, &mut web.listen);
    section.set(reader, &HOSTS, &mut web.hosts);
    let certificate = section.read(reader, &CERTIFICATE);
    let key = section.read(reader, &KEY);
    section.set(reader, &LOOKING_GLASS, &mut web.looking_glass);
    section.set(reader, &LOOKING_GLASS_HIDDEN, &mut web.looking_glass_hidden);
    web.reports = section.get(reader, &REPORTS);
    web.tokens =
        section.sections(reader, &TOKEN).into_iter().filter_map(|each| token(reader, each)).collect();
    let span = section.finish(reader).unwrap_or_default();
    web.tls = identity(reader, certificate, key, ["certificate", "key"]);
    if web.socket.is_none() && web.listen.is_empty() && web.looking_glass.is_empty() {
        let message = "[web] listens nowhere";
        reader.error(ErrorKind::MissingKey, &span, message, "`socket`, `listen` or `looking_glass`");
    }
    let open = web.listen.iter().find(|address| !address.ip().is_loopback());
    if let Some(address) = open.filter(|_| web.tls.is_none() || web.tokens.is_empty()) {
        let message = format!("others than this host can reach {address}");
        let expected = "`certificate`, `key` and a `[[web.token]]`, or an address of loopback";
        reader.error(ErrorKind::Conflict, &span, message, expected);
    }
    if let Some(address) = web.looking_glass.iter().find(|address| !address.ip().is_loopback()) {
        let message =
            format!("others than this host can reach {address}, and a looking glass asks for no token");
        reader.error(ErrorKind::Conflict, &span, message, "an address of loopback");
    }
    Some(web)
}

/// A certificate and its key: both or neither.
pub(crate) fn identity(
    reader: &mut Reader,
    certificate: Option<At<PathBuf>>,
    key: Option<At<PathBuf>>,
    [first, second]: [&str; 2],
) -> Option<(PathBuf, PathBuf)> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate.value, key.value)),
        (Some(at), None) | (None, Some(at)) => {
            let expected = format!("both `{first}` and `{second}`");
            reader.error(ErrorKind::MissingKey, &at.span, "TLS needs a certificate and its key", expected);
            None
        }
        (None, None) => None,
    }
}

fn token(reader: &mut Reader, mut section: Section<'_>) -> Option<WebToken> {
    let (name, file) = (section.get(reader, &NAME), section.get(reader, &FILE));
    let may = section.get(reader, &MAY);
    section.finish(reader);
    Some(WebToken { name: name?, file: file?, may: may? })
}

fn addresses(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<SocketAddr>> {
    let entries = reader.filled_list(item);
    let parse = |text: &str| text.parse().map_err(|_| "\"127.0.0.1:8080\" or \"[::1]:8080\"");
    let found: Vec<SocketAddr> =
        entries.iter().filter_map(|entry| reader.parse(entry, parse)).map(|at| at.value).collect();
    if found.len() > LISTEN_MAX {
        reader.error(ErrorKind::TooMany, &item.span, "too many addresses", "at most 16");
    }
    Some(found)
}

fn hosts(reader: &mut Reader, item: &Item<'_>) -> Option<Vec<String>> {
    let entries = reader.filled_list(item);
    let parse = |text: &str| match text.is_empty() || text.chars().any(char::is_whitespace) {
        true => Err("a name without a port, such as \"router.example.net\""),
        false => Ok(text.to_ascii_lowercase()),
    };
    Some(entries.iter().filter_map(|entry| reader.parse(entry, parse)).map(|at| at.value).collect())
}
