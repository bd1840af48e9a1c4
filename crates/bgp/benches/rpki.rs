//! Look-ups of validity and changes of VRPs, per route or VRP, on one core.
//!
//!     cargo bench -p thalweg-bgp --bench rpki --profile quick
//!
//! VRPs are the whole RPKI of July 2025 (723,521), routes those of a full table (503,590 of 2014); both are shared data
//! (see `thalweg-testdata`). `validity` judges all routes, in the table's order and in random order; `passed_over` asks
//! for each whether one of 100 changed VRPs covers it, as a revalidation does. `all` makes a table of VRPs in random
//! order, `change` applies a difference of 200 and compares old and new, which costs by the size of the table.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use divan::Bencher;
use divan::counter::ItemsCount;
use thalweg_base::{IpPrefix, XorShift64Star};
use thalweg_bgp::rpki::{Validity, Vrp, VrpList};
use thalweg_wire::mrt::{Content, Decoder, Records};

const VRPS: &str = "rpki/rpkiclient_20250720T093135Z.json.bz2";
const TABLE: &str = "mrt/rib.routeviews-jinx.20140530.2200.bz2";
/// VRPs announced, and as many withdrawn, by a change.
const CHANGED: usize = 100;

fn main() {
    divan::main();
}

fn unpacked(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    bzip2::read::MultiBzDecoder::new(File::open(path).ok()?).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// In random order.
fn vrps() -> Option<Vec<Vrp>> {
    let text = String::from_utf8(unpacked(&thalweg_testdata::shared(VRPS)?)?).ok()?;
    let vrp = |line: &str| {
        let field = |name: &str| {
            let rest = line.split_once(&format!("\"{name}\": "))?.1;
            Some(rest.split([',', ' ', '}']).next()?.trim_matches('"'))
        };
        let (prefix, max_length) = (field("prefix")?.parse().ok()?, field("maxLength")?.parse().ok()?);
        Some(Vrp { prefix, max_length, asn: field("asn")?.parse().ok()? })
    };
    let mut vrps: Vec<Vrp> = text.lines().filter_map(vrp).collect();
    shuffle(&mut vrps);
    Some(vrps)
}

/// Prefixes of all routes of the table, with their origin; `None` if the path ends with a set.
fn routes() -> Option<Vec<(IpPrefix, Option<u32>)>> {
    let bytes = unpacked(&thalweg_testdata::shared(TABLE)?)?;
    let (mut decoder, mut scratch, mut routes) = (Decoder::new(), Vec::new(), Vec::new());
    for record in Records::new(&bytes) {
        let Ok(Content::Rib(rib)) = decoder.decode(&record) else { continue };
        routes.extend(rib.entries().map(|entry| {
            let origin = entry.path().ends(&mut scratch).origin;
            (entry.prefix, (origin != 0).then_some(origin))
        }));
    }
    Some(routes)
}

fn shuffle<T>(list: &mut [T]) {
    let mut random = XorShift64Star::new(5);
    for at in (1..list.len()).rev() {
        list.swap(at, random.below(at as u32 + 1) as usize);
    }
}

fn list(vrps: &[Vrp]) -> VrpList {
    vrps.iter().copied().collect()
}

#[divan::bench(args = ["in order", "random"], sample_count = 20)]
fn validity(bencher: Bencher<'_, '_>, order: &str) {
    let (Some(vrps), Some(mut routes)) = (vrps(), routes()) else { return };
    if order == "random" {
        shuffle(&mut routes);
    }
    let table = list(&vrps).into_table();
    let count =
        |wanted| routes.iter().filter(|(prefix, origin)| table.validity(*prefix, *origin) == wanted).count();
    println!("{} VRPs, {} routes: {} bytes", table.len(), routes.len(), table.bytes());
    println!("{} valid, {} invalid", count(Validity::Valid), count(Validity::Invalid));
    bencher.counter(ItemsCount::new(routes.len())).bench_local(|| count(Validity::Valid));
}

#[divan::bench(sample_count = 20)]
fn passed_over(bencher: Bencher<'_, '_>) {
    let (Some(vrps), Some(mut routes)) = (vrps(), routes()) else { return };
    shuffle(&mut routes);
    let changed = list(&vrps[..CHANGED]).into_table();
    bencher
        .counter(ItemsCount::new(routes.len()))
        .bench_local(|| routes.iter().filter(|(prefix, _)| changed.covers(*prefix)).count());
}

#[divan::bench(sample_count = 10)]
fn all(bencher: Bencher<'_, '_>) {
    let Some(vrps) = vrps() else { return };
    bencher.counter(ItemsCount::new(vrps.len())).bench_local(|| list(&vrps).into_table());
}

#[divan::bench(sample_count = 10)]
fn change(bencher: Bencher<'_, '_>) {
    let Some(vrps) = vrps() else { return };
    let (announced, before) = vrps.split_at(CHANGED);
    let old = list(before).into_table();
    bencher.counter(ItemsCount::new(vrps.len())).bench_local(|| {
        let new = old.changed(list(announced), list(&before[..CHANGED])).expect("it fits");
        old.difference(&new).len()
    });
}
