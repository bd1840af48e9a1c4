//! Objects in a bucket of S3, or of a store that speaks its protocol: MinIO, Ceph, Garage and others.
//!
//! Requests are signed (AWS Signature Version 4), their bodies too, so that a store refuses what was damaged on the way.
//! An object is written once: a store that knows `If-None-Match` refuses to write another of its name. Reads are tried
//! again if a store does not answer or is busy, and so is removal; what writes is left to the caller, who has time.
//!
//! Missing: parts (an object has at most 5 GB), anonymous access, credentials of a machine's metadata service.

mod address;
mod error;
mod sign;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use ring::digest;
use thalweg_text::calendar::{Moment, parse_time};

use crate::http::Server;
use crate::http::kept::{Answer, Asked, Body, Pool};
use crate::live::wall_ns;
use crate::webhook::Target;
use address::Settings;
use sign::{EMPTY_SHA256, Signed, Signer, encoded, hex};

pub use address::S3Address;
pub use error::S3Error;

/// How often a read is tried, and the first pause between two tries, which doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);
/// The member of an object with the checksum of its content.
const SUM: &str = "x-amz-meta-sha256";

/// A bucket, with credentials.
pub struct Bucket {
    pool: Pool,
    /// `s3://BUCKET/PREFIX`.
    name: String,
    /// Where an endpoint answers, for messages.
    server: String,
    host: String,
    /// Before keys in a path.
    base: String,
    /// Before keys; ends with a slash unless it is empty.
    prefix: String,
    settings: Settings,
    clock: fn() -> u64,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.name).finish()
    }
}

/// Objects below a prefix.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Names behind the bucket's prefix, and bytes.
    pub objects: Vec<(String, u64)>,
    /// What is below one more slash.
    pub folders: Vec<String>,
}

struct Ask<'a> {
    method: &'static str,
    key: &'a str,
    query: String,
    /// By names in small letters.
    header: Vec<(&'static str, String)>,
    body: Body<'a>,
    sum: &'a str,
}

impl<'a> Ask<'a> {
    fn of(method: &'static str, key: &'a str) -> Self {
        let (query, header) = Default::default();
        Self { method, key, query, header, body: Body::Nothing, sum: EMPTY_SHA256 }
    }
}

impl Bucket {
    /// Takes credentials from the address or the environment; asks nothing yet.
    pub fn open(address: &S3Address) -> Result<Self, S3Error> {
        Self::open_with(address, &|name| std::env::var(name).ok(), wall_ns)
    }

    fn open_with(
        address: &S3Address,
        variable: &dyn Fn(&str) -> Option<String>,
        clock: fn() -> u64,
    ) -> Result<Self, S3Error> {
        let settings = Settings::of(address, variable)?;
        let bucket = &address.bucket;
        let endpoint = match (settings.is_in_path, settings.endpoint.split_once("://")) {
            (false, Some((scheme, host))) => format!("{scheme}://{bucket}.{host}"),
            _ => settings.endpoint.clone(),
        };
        let Target { server, path } = Target::parse(&endpoint, address.authorities.clone())?;
        let base = path.trim_end_matches('/').to_owned();
        let base = if settings.is_in_path { format!("{base}/{bucket}") } else { base };
        let prefix = address.prefix.clone();
        let name = format!("s3://{bucket}/{prefix}").trim_end_matches('/').to_owned();
        let prefix = if prefix.is_empty() { prefix } else { prefix + "/" };
        let (host, at) = (host_of(&server), format!("{}:{}", server.host, server.port));
        Ok(Self { pool: Pool::new(server), name, server: at, host, base, prefix, settings, clock })
    }

    /// `s3://BUCKET/PREFIX`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Host and port of where it answers.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The objects whose names begin so; what has one more slash is named as a folder, unless `is_deep`.
    pub fn list(&self, under: &str, is_deep: bool, goes_on: &dyn Fn() -> bool) -> Result<Listing, S3Error> {
        self.list_of(under, is_deep, &|_| true, goes_on)
    }

    /// The objects whose names begin so and that were written before this time, in nanoseconds since the epoch, by the
    /// store's clock. One of which it does not say when is none.
    pub fn list_written_before(
        &self,
        under: &str,
        before_ns: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Listing, S3Error> {
        let is_old = |object: &str| {
            let written = element(object, "LastModified").and_then(parse_time);
            written.is_some_and(|written_ns| written_ns < before_ns)
        };
        self.list_of(under, true, &is_old, goes_on)
    }

    fn list_of(
        &self,
        under: &str,
        is_deep: bool,
        is_wanted: &dyn Fn(&str) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Listing, S3Error> {
        let mut listing = Listing::default();
        let mut token: Option<String> = None;
        loop {
            let mut query = String::new();
            if let Some(token) = &token {
                query = format!("continuation-token={}&", encoded(token, false));
            }
            if !is_deep {
                query += "delimiter=%2F&";
            }
            query += "list-type=2&prefix=";
            query += &encoded(&format!("{}{under}", self.prefix), false);
            let answer = self.read_again(&|| Ask { query: query.clone(), ..Ask::of("GET", "") }, goes_on)?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if !text.contains("<ListBucketResult") {
                return Err(S3Error::Strange(self.server.clone()));
            }
            let own = |key: String| key.strip_prefix(&self.prefix).map(str::to_owned);
            for object in elements(&text, "Contents").filter(|object| is_wanted(object)) {
                let key = element(object, "Key").map(plain).and_then(own);
                let size = element(object, "Size").and_then(|size| size.parse().ok());
                listing.objects.extend(key.zip(size));
            }
            for folder in elements(&text, "CommonPrefixes") {
                listing.folders.extend(element(folder, "Prefix").map(plain).and_then(own));
            }
            token = match element(&text, "IsTruncated") {
                Some("true") => Some(
                    element(&text, "NextContinuationToken")
                        .map(plain)
                        .ok_or_else(|| S3Error::Strange(self.server.clone()))?,
                ),
                _ => return Ok(listing),
            };
        }
    }

    /// These bytes of an object.
    pub fn read(&self, key: &str, range: Range<u64>) -> Result<Vec<u8>, S3Error> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let asked = format!("bytes={}-{}", range.start, range.end - 1);
        let ask = || Ask { header: vec![("range", asked.clone())], ..Ask::of("GET", key) };
        let answer = self.read_again(&ask, &|| true)?;
        // A server that knows no ranges sends everything.
        let start = if answer.status == 206 { 0 } else { usize::try_from(range.start).unwrap_or(usize::MAX) };
        let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let body = answer.body.get(start..).and_then(|rest| rest.get(..count));
        body.map(<[u8]>::to_vec).ok_or_else(|| {
            let source =
                io::Error::new(io::ErrorKind::UnexpectedEof, "the answer has fewer bytes than asked for");
            S3Error::Silent { server: self.server.clone(), source }
        })
    }

    /// All bytes of an object.
    pub fn read_all(&self, key: &str, goes_on: &dyn Fn() -> bool) -> Result<Vec<u8>, S3Error> {
        self.read_again(&|| Ask::of("GET", key), goes_on).map(|answer| answer.body)
    }

    /// Removes an object; one that is gone is none.
    pub fn remove(&self, key: &str, goes_on: &dyn Fn() -> bool) -> Result<(), S3Error> {
        match self.read_again(&|| Ask::of("DELETE", key), goes_on) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes of an object, and its checksum, if it was written with one.
    fn look(&self, key: &str, goes_on: &dyn Fn() -> bool) -> Result<(u64, Option<String>), S3Error> {
        let answer = self.read_again(&|| Ask::of("HEAD", key), goes_on)?;
        let size = answer.member("content-length").and_then(|size| size.parse().ok()).unwrap_or(0);
        Ok((size, answer.member(SUM).map(str::to_owned)))
    }

    /// Makes a file an object that was not there, and looks that it is whole; one that is there already must be the same.
    /// Returns the bytes that were sent. `goes_on` ends it early.
    pub fn put_new(&self, key: &str, path: &Path, goes_on: &dyn Fn() -> bool) -> Result<u64, S3Error> {
        let failed = |source| S3Error::File { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(failed)?;
        let (size, sum) = summed(&file).map_err(failed)?;
        let is_new = self.put_once(key, Body::File(&file, size), (size, &sum), goes_on)?;
        Ok(if is_new { size } else { 0 })
    }

    /// [`Self::put_new`] for bytes.
    pub fn put_new_bytes(&self, key: &str, bytes: &[u8], goes_on: &dyn Fn() -> bool) -> Result<(), S3Error> {
        let sum = sum_of(bytes);
        self.put_once(key, Body::Bytes(bytes), (bytes.len() as u64, &sum), goes_on).map(drop)
    }

    /// Makes bytes an object, in the place of one that is there.
    pub fn put(&self, key: &str, bytes: &[u8], goes_on: &dyn Fn() -> bool) -> Result<(), S3Error> {
        let sum = sum_of(bytes);
        let ask = || {
            let header = vec![(SUM, sum.clone())];
            Ask { header, body: Body::Bytes(bytes), sum: &sum, ..Ask::of("PUT", key) }
        };
        self.read_again(&ask, goes_on).map(drop)
    }

    /// Returns whether the object is new. The caller knows the bytes' number and checksum.
    fn put_once(
        &self,
        key: &str,
        body: Body<'_>,
        (size, sum): (u64, &str),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, S3Error> {
        let header = vec![("if-none-match", "*".to_owned()), (SUM, sum.to_owned())];
        let ask = Ask { header, body, sum, ..Ask::of("PUT", key) };
        let is_new = match self.ask(&ask, goes_on) {
            Ok(_) => true,
            // Another one was there, or is being written just now.
            Err(S3Error::Refused { status: 409 | 412, .. }) => false,
            Err(error) => return Err(error),
        };
        let (found_size, found_sum) = self.look(key, goes_on)?;
        if found_size == size && found_sum.as_deref() == Some(sum) {
            return Ok(is_new);
        }
        if !is_new {
            return Err(S3Error::Taken(format!("{}/{key}", self.name)));
        }
        let found = format!("{found_size} bytes, SHA-256 {}", found_sum.as_deref().unwrap_or("unknown"));
        let sent = format!("{size} bytes, SHA-256 {sum}");
        Err(S3Error::Differs { key: format!("{}/{key}", self.name), found, sent })
    }

    /// Asks until there is an answer, a few times.
    fn read_again<'a>(
        &self,
        ask: &dyn Fn() -> Ask<'a>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Answer, S3Error> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.ask(&ask(), goes_on) {
                Err(error) if error.passes() && goes_on() => std::thread::sleep(pause),
                result => return result,
            }
            pause *= 2;
        }
        self.ask(&ask(), goes_on)
    }

    fn ask(&self, ask: &Ask<'_>, goes_on: &dyn Fn() -> bool) -> Result<Answer, S3Error> {
        let key = if ask.key.is_empty() { String::new() } else { format!("{}{}", self.prefix, ask.key) };
        let path = format!("{}/{}", self.base, encoded(&key, true));
        let header = self.header(ask, &path);
        let path = if ask.query.is_empty() { path } else { format!("{path}?{}", ask.query) };
        let asked = Asked { method: ask.method, path: &path, header: &header, body: ask.body };
        let answer = self.pool.ask(&asked, goes_on);
        let answer = answer.map_err(|source| S3Error::Silent { server: self.server.clone(), source })?;
        if (200..300).contains(&answer.status) {
            return Ok(answer);
        }
        let text = String::from_utf8_lossy(&answer.body);
        let of = |name: &str| element(&text, name).map(plain).unwrap_or_default();
        let (bucket, status) = (self.name.clone(), answer.status);
        Err(S3Error::Refused { bucket, status, code: of("Code"), text: of("Message") })
    }

    /// The lines of a request, signed.
    fn header(&self, ask: &Ask<'_>, path: &str) -> String {
        let now = Moment::of((self.clock)());
        let time = format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            now.year, now.month, now.day, now.hour, now.minute, now.second
        );
        let credentials = &self.settings.credentials;
        let mut header = ask.header.clone();
        header.push(("host", self.host.clone()));
        header.push(("x-amz-content-sha256", ask.sum.to_owned()));
        header.push(("x-amz-date", time.clone()));
        header.extend(credentials.token.clone().map(|token| ("x-amz-security-token", token)));
        header.sort();
        let signer = Signer {
            access_key: &credentials.access_key,
            secret_key: &credentials.secret_key,
            region: &self.settings.region,
            time: &time,
        };
        let signed = Signed { method: ask.method, path, query: &ask.query, header: &header, body: ask.sum };
        let authorization = signer.authorization(&signed);
        let lines = header.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        lines.collect::<String>() + &format!("authorization: {authorization}\r\n")
    }
}

/// The value of `Host`: with the port, unless it is the scheme's.
fn host_of(server: &Server) -> String {
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let usual = if server.tls.is_some() { 443 } else { 80 };
    if server.port == usual { host } else { format!("{host}:{}", server.port) }
}

fn sum_of(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Bytes and SHA-256 of a file.
fn summed(mut file: &File) -> io::Result<(u64, String)> {
    use io::{Read, Seek};
    file.rewind()?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut piece = vec![0; 1 << 20];
    let mut size = 0;
    loop {
        match file.read(&mut piece)? {
            0 => return Ok((size, hex(context.finish().as_ref()))),
            count => {
                context.update(&piece[..count]);
                size += count as u64;
            }
        }
    }
}

/// The content of the first element of this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    elements(text, name).next()
}

/// The contents of the elements of this name, which do not contain each other.
fn elements<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&begin)?;
        let (content, behind) = behind.split_once(&end)?;
        rest = behind;
        Some(content)
    })
}

/// A text without entities.
fn plain(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&amp;", "&")];
    entities.into_iter().fold(text.to_owned(), |text, (entity, plain)| text.replace(entity, plain))
}
