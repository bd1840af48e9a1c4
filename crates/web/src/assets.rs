//! The files of the console, built into the program.

use hyper::body::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// The files of `assets/`, by their paths in it: see `build.rs`.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// A file of the console.
#[derive(Clone, Debug)]
pub(crate) struct Asset {
    pub(crate) kind: &'static str,
    pub(crate) etag: String,
    pub(crate) bytes: Bytes,
}

/// The file with this path.
pub(crate) fn find(name: &str) -> Option<Asset> {
    let (_, bytes) = FILES.iter().find(|(known, _)| *known == name)?;
    let etag = format!("\"{:016x}\"", xxh3_64(bytes));
    Some(Asset { kind: kind(name), etag, bytes: Bytes::from_static(bytes) })
}

fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    }
}
