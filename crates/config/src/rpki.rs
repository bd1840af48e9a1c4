//! `[[bgp.rpki_source]]`: where the VRPs of route origin validation come from, in order of preference.

use std::net::SocketAddr;
use std::path::PathBuf;

use thalweg_bgp::rpki::CacheConfig;

use crate::bgp_types::{RpkiPlace, RpkiSource};
use crate::diagnostic::ErrorKind;
use crate::key::{Differs, Key, Sub, table};
use crate::reader::Reader;
use crate::section::Section;

pub(crate) static RPKI: Key<Sub> = Key::sections("rpki_source", &TABLE)
    .restart(Differs::Bgp(|old, new| old.has_rpki() != new.has_rpki()))
    .help("sources of VRPs for route origin validation, in order of preference: see [rpki.md](rpki.md)");
table! {
    static TABLE: "bgp.rpki_source", "[[bgp.rpki_source]]";

    static CACHE: Key<SocketAddr> = Key::text("cache", "an address, perhaps with a port", cache)
        .otherwise("required without `file`")
        .example("\"192.0.2.53:323\"")
        .help("a cache that speaks RTR (RFC 8210), with a port if it is not 323");
    static FILE: Key<PathBuf> = Key::by("file", "a path", Reader::path)
        .help("instead of a cache, JSON as rpki-client writes it; it is read again when it changes");
    static REFRESH_S: Key<u32> = Key::number("refresh_s", 1..=86_400)
        .unit("seconds")
        .otherwise("the cache says so, or 3600")
        .help("time between two queries; a cache also says when it has something new");
    static RETRY_S: Key<u32> = Key::number("retry_s", 1..=7200)
        .unit("seconds")
        .otherwise("the cache says so, or 600")
        .help("time until a connection that failed or ended is tried again");
    static EXPIRE_S: Key<u32> = Key::number("expire_s", 600..=172_800)
        .unit("seconds")
        .otherwise("the cache says so, or 7200; a file's VRPs do not expire")
        .help("VRPs that were not confirmed for so long, or are in a file that is older, are not used any more");
    static VRPS_MAX: Key<usize> = Key::number("vrps_max", 1..=100_000_000)
        .unit("VRPs")
        .default(4_000_000)
        .help("limit of VRPs of this source; one with more is refused");
}

/// TCP's port of RTR.
const RTR_PORT: u16 = 323;

/// As many caches and files as anybody has; each cache has a thread.
const SOURCES_MAX: usize = 16;

fn cache(text: &str) -> Result<SocketAddr, &'static str> {
    let with_port = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
    let address = with_port.or_else(|| Some(SocketAddr::new(text.parse().ok()?, RTR_PORT)));
    address.ok_or("an address, with a port where it is not 323: \"192.0.2.53\" or \"[2001:db8::53]:8282\"")
}

pub(crate) fn read_rpki(reader: &mut Reader, bgp: &mut Section<'_>) -> Vec<RpkiSource> {
    let mut sources: Vec<RpkiSource> = Vec::new();
    for mut section in bgp.sections(reader, &RPKI) {
        let (cache, file) = (section.get(reader, &CACHE), section.get(reader, &FILE));
        let config = CacheConfig {
            refresh_s: section.get(reader, &REFRESH_S),
            retry_s: section.get(reader, &RETRY_S),
            expire_s: section.get(reader, &EXPIRE_S),
            vrps_max: section.get(reader, &VRPS_MAX).unwrap_or(usize::MAX),
        };
        let span = section.span.clone();
        section.finish(reader);
        let place = match (cache, file) {
            (Some(address), None) => RpkiPlace::Cache(address),
            (None, Some(path)) => RpkiPlace::File(path),
            (given, _) => {
                let has =
                    if given.is_some() { "both `cache` and `file`" } else { "neither `cache` nor `file`" };
                reader.error(
                    ErrorKind::Conflict,
                    &span,
                    format!("[[bgp.rpki_source]] has {has}"),
                    "one of them",
                );
                continue;
            }
        };
        if sources.iter().any(|other| other.place == place) {
            let message = format!("source {place} is given twice");
            reader.error(ErrorKind::Duplicate, &span, message, "each source once");
        } else if sources.len() == SOURCES_MAX {
            let expected = format!("at most {SOURCES_MAX}");
            reader.error(ErrorKind::TooMany, &span, "too many sources of VRPs", expected);
        } else {
            sources.push(RpkiSource { place, cache: config });
        }
    }
    sources
}
