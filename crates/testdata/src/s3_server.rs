//! A small store of objects that speaks S3's protocol, for tests: it checks signatures and checksums, and can fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use ring::{digest, hmac};

/// The credentials that it takes, and its only bucket.
pub const ACCESS_KEY: &str = "test-key";
pub const SECRET_KEY: &str = "test/secret+key";
pub const BUCKET: &str = "flows";

/// Keys of a page of a list: so few that lists have pages.
const PAGE_KEYS: usize = 3;
/// A request may be this old.
const SKEW_MAX_S: u64 = 900;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not: before others that do.
    None,
    /// With this status and word, and nothing done.
    Status(u16, &'static str),
    /// The connection is cut before anything is done.
    Cut,
    /// It is done, and the connection cut before the answer.
    CutAfter,
    /// The body of the answer breaks off in the middle.
    Truncate,
    /// Nothing is done, and there is no answer until the client is gone.
    Hang,
    /// It is done, and there is no answer until the client is gone.
    HangAfter,
}

#[derive(Clone)]
struct Object {
    bytes: Vec<u8>,
    sum: Option<String>,
    /// When it was written, in seconds.
    written_s: u64,
}

#[derive(Default)]
struct State {
    objects: Mutex<BTreeMap<String, Object>>,
    /// Methods that fail, how, and how often.
    faults: Mutex<Vec<(&'static str, Fault, usize)>>,
    requests: Mutex<Vec<String>>,
    is_down: AtomicBool,
    connections: AtomicUsize,
    hangs: AtomicBool,
}

/// The store. Its threads end with the process.
pub struct S3Server {
    address: SocketAddr,
    state: Arc<State>,
}

impl S3Server {
    /// Listens on a port of its own. The clock has nanoseconds since the epoch.
    pub fn start(clock: fn() -> u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                state.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || drop(serve(&socket, &state, clock)));
            }
        });
        Ok(Self { address, state })
    }

    /// `s3://flows/PREFIX?endpoint=..`
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}?endpoint=http://{}", self.address)
    }

    /// All objects, with their sizes.
    pub fn objects(&self) -> Vec<(String, usize)> {
        let objects = self.state.objects.lock();
        objects.iter().map(|(key, object)| (key.clone(), object.bytes.len())).collect()
    }

    /// Gives an object another content.
    pub fn overwrite(&self, key: &str, bytes: &[u8]) {
        let object = Object { bytes: bytes.to_vec(), sum: None, written_s: 0 };
        self.state.objects.lock().insert(key.to_owned(), object);
    }

    /// Makes all objects older.
    pub fn age(&self, seconds: u64) {
        let mut objects = self.state.objects.lock();
        objects.values_mut().for_each(|object| object.written_s = object.written_s.saturating_sub(seconds));
    }

    /// The content of an object.
    pub fn content(&self, key: &str) -> Option<Vec<u8>> {
        self.state.objects.lock().get(key).map(|object| object.bytes.clone())
    }

    /// Lets the next requests with this method fail.
    pub fn fail(&self, method: &'static str, fault: Fault, times: usize) {
        self.state.faults.lock().push((method, fault, times));
    }

    /// Whether connections are closed at once.
    pub fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Whether a request hangs, or did.
    pub fn hangs(&self) -> bool {
        self.state.hangs.load(Ordering::SeqCst)
    }

    /// Requests so far: method, path with query, and range.
    pub fn requests(&self) -> Vec<String> {
        self.state.requests.lock().clone()
    }
}

struct Request {
    method: String,
    path: String,
    query: String,
    /// By names in small letters.
    header: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    header: String,
    body: Vec<u8>,
}

fn serve(socket: &TcpStream, state: &State, clock: fn() -> u64) -> io::Result<()> {
    let mut reader = BufReader::new(socket);
    while !state.is_down.load(Ordering::SeqCst) {
        let Some(request) = read(&mut reader)? else { return Ok(()) };
        if state.is_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        let range = request.header.get("range").map(|range| format!(" {range}")).unwrap_or_default();
        let line = format!("{} {}?{}{range}", request.method, request.path, request.query);
        state.requests.lock().push(line);
        let fault = fault_of(state, &request.method);
        let answer = match fault {
            Some(Fault::Cut) => return Ok(()),
            Some(Fault::Hang) => return hang(state, &mut reader),
            Some(Fault::Status(status, code)) => refusal(status, code),
            _ => answer(state, &request, clock() / 1_000_000_000),
        };
        match fault {
            Some(Fault::CutAfter) => return Ok(()),
            Some(Fault::HangAfter) => return hang(state, &mut reader),
            _ => {}
        }
        let is_head = request.method == "HEAD";
        let length = match answer.header.contains("content-length:") {
            true => String::new(),
            false => format!("content-length: {}\r\n", answer.body.len()),
        };
        let head = format!("HTTP/1.1 {} X\r\n{}{length}\r\n", answer.status, answer.header);
        let mut socket = socket;
        socket.write_all(head.as_bytes())?;
        if fault == Some(Fault::Truncate) {
            socket.write_all(&answer.body[..answer.body.len() / 2])?;
            return Ok(());
        }
        if !is_head {
            socket.write_all(&answer.body)?;
        }
    }
    Ok(())
}

/// Waits for the client's end.
fn hang(state: &State, reader: &mut impl BufRead) -> io::Result<()> {
    state.hangs.store(true, Ordering::SeqCst);
    reader.read_line(&mut String::new()).map(drop)
}

fn fault_of(state: &State, method: &str) -> Option<Fault> {
    let mut faults = state.faults.lock();
    let at = faults.iter().position(|(theirs, _, _)| *theirs == method)?;
    let (_, fault, times) = &mut faults[at];
    let fault = *fault;
    *times -= 1;
    if *times == 0 {
        faults.remove(at);
    }
    Some(fault)
}

fn read(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut header = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        header.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = header.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    io::Read::read_exact(reader, &mut body)?;
    Ok(Some(Request { method, path: path.to_owned(), query: query.to_owned(), header, body }))
}

fn refusal(status: u16, code: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>as the test wants &amp; so</Message></Error>");
    Answer { status, header: String::new(), body: body.into_bytes() }
}

fn answer(state: &State, request: &Request, now_s: u64) -> Answer {
    if let Err(code) = check(request, now_s) {
        return refusal(if code == "XAmzContentSHA256Mismatch" { 400 } else { 403 }, code);
    }
    let path = decoded(&request.path);
    let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    if bucket != BUCKET {
        return refusal(404, "NoSuchBucket");
    }
    let mut objects = state.objects.lock();
    match (request.method.as_str(), key) {
        ("GET", "") => list(&objects, request),
        ("GET" | "HEAD", key) => match objects.get(key) {
            None => refusal(404, "NoSuchKey"),
            Some(object) => content(object, request),
        },
        ("PUT", key) => {
            if request.header.get("if-none-match").is_some_and(|what| what == "*")
                && objects.contains_key(key)
            {
                return refusal(412, "PreconditionFailed");
            }
            let sum = request.header.get("x-amz-meta-sha256").cloned();
            let object = Object { bytes: request.body.clone(), sum, written_s: now_s };
            objects.insert(key.to_owned(), object);
            Answer { status: 200, header: String::new(), body: Vec::new() }
        }
        ("DELETE", key) => {
            objects.remove(key);
            Answer { status: 204, header: String::new(), body: Vec::new() }
        }
        _ => refusal(405, "MethodNotAllowed"),
    }
}

fn content(object: &Object, request: &Request) -> Answer {
    let sum = object.sum.iter().map(|sum| format!("x-amz-meta-sha256: {sum}\r\n")).collect::<String>();
    if request.method == "HEAD" {
        let header = format!("{sum}content-length: {}\r\n", object.bytes.len());
        return Answer { status: 200, header, body: Vec::new() };
    }
    let range = request.header.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let numbers = range.and_then(|(from, to)| Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?)));
    match numbers {
        None => Answer { status: 200, header: sum, body: object.bytes.clone() },
        Some((from, to)) => {
            let end = object.bytes.len().min(to + 1);
            match object.bytes.get(from..end) {
                Some(part) => Answer { status: 206, header: sum, body: part.to_vec() },
                None => refusal(416, "InvalidRange"),
            }
        }
    }
}

fn list(objects: &BTreeMap<String, Object>, request: &Request) -> Answer {
    let parameter = |name: &str| {
        let mut pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(theirs, _)| *theirs == name).map(|(_, value)| decoded(value)).unwrap_or_default()
    };
    let (prefix, delimiter) = (parameter("prefix"), parameter("delimiter"));
    let after = parameter("continuation-token");
    let mut entries: BTreeMap<String, Option<(usize, u64)>> = BTreeMap::new();
    for (key, object) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let folder = (!delimiter.is_empty()).then(|| key[prefix.len()..].find('/')).flatten();
        match folder {
            Some(end) => entries.insert(key[..=prefix.len() + end].to_owned(), None),
            None => entries.insert(key.clone(), Some((object.bytes.len(), object.written_s))),
        };
    }
    let left: Vec<_> = entries.into_iter().filter(|(key, _)| *key > after).collect();
    let mut body = "<ListBucketResult>".to_owned();
    for (key, size) in left.iter().take(PAGE_KEYS) {
        // Writing to a string cannot fail.
        let _ = match size {
            Some((size, written_s)) => {
                let written = time_of(*written_s);
                write!(
                    body,
                    "<Contents><Key>{key}</Key><LastModified>{written}</LastModified><Size>{size}</Size></Contents>"
                )
            }
            None => write!(body, "<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
        };
    }
    let is_truncated = left.len() > PAGE_KEYS;
    if let Some((last, _)) = left.get(PAGE_KEYS - 1).filter(|_| is_truncated) {
        let _ = write!(body, "<NextContinuationToken>{last}</NextContinuationToken>");
    }
    let _ = write!(body, "<IsTruncated>{is_truncated}</IsTruncated></ListBucketResult>");
    Answer { status: 200, header: String::new(), body: body.into_bytes() }
}

/// Checks the signature (AWS Signature Version 4), the time and the body's checksum.
fn check(request: &Request, now_s: u64) -> Result<(), &'static str> {
    let member = |name: &str| request.header.get(name).map_or("", String::as_str);
    let authorization = member("authorization").strip_prefix("AWS4-HMAC-SHA256 ").ok_or("AccessDenied")?;
    let part = |name: &str| {
        let mut parts = authorization.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(theirs, _)| *theirs == name).map_or("", |(_, value)| value)
    };
    let (key, scope) = part("Credential").split_once('/').ok_or("AccessDenied")?;
    if key != ACCESS_KEY {
        return Err("InvalidAccessKeyId");
    }
    let time = member("x-amz-date");
    if seconds(time).is_none_or(|time| time.abs_diff(now_s) > SKEW_MAX_S) {
        return Err("RequestTimeTooSkewed");
    }
    let names: Vec<&str> = part("SignedHeaders").split(';').collect();
    if !names.contains(&"host") || !names.contains(&"x-amz-date") || !names.is_sorted() {
        return Err("SignatureDoesNotMatch");
    }
    let lines: String = names.iter().map(|name| format!("{name}:{}\n", member(name))).collect();
    let mut pairs: Vec<&str> = request.query.split('&').collect();
    pairs.sort_unstable();
    let canonical = [
        request.method.as_str(),
        &request.path,
        &pairs.join("&"),
        &lines,
        part("SignedHeaders"),
        member("x-amz-content-sha256"),
    ];
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.join("\n").as_bytes()));
    let mac = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let first = format!("AWS4{SECRET_KEY}").into_bytes();
    let key = scope.split('/').fold(first, |key, part| mac(&key, part));
    if hex(&mac(&key, &text)) != part("Signature") {
        return Err("SignatureDoesNotMatch");
    }
    if sha256(&request.body) != member("x-amz-content-sha256") {
        return Err("XAmzContentSHA256Mismatch");
    }
    Ok(())
}

/// Seconds since the epoch of a time like `20130524T000000Z`.
fn seconds(time: &str) -> Option<u64> {
    let number = |from: usize, to: usize| time.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    // Days of years that begin in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let of_day = 3600 * number(9, 11)? + 60 * number(11, 13)? + number(13, 15)?;
    (days.checked_sub(719_468)? * 86_400).checked_add(of_day)
}

/// The same backwards, as `2013-05-24T00:00:00.000Z`.
fn time_of(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month < 3);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.filter(|_| *first == b'%').and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
