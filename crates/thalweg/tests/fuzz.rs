//! Runs every fuzz target on its corpus and on randomly changed inputs.
//!
//! The targets are the files of `fuzz/fuzz_targets` themselves; this program stands in for `libfuzzer_sys`. So they
//! are compiled and run with every test run, without libFuzzer, and with the overflow checks and assertions of
//! tests. Nothing here searches for new paths: `cargo xtask fuzz` does.
//!
//! Randomness starts from a fixed seed: the same inputs in the same order on every machine. Each target gets
//! [`INPUTS`] of them, or as many as fit into `THALWEG_FUZZ_SECONDS`. A failing input is written to a file.
#![allow(
    clippy::duplicate_mod,
    reason = "targets are programs of their own, each with the modules that it shares"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use thalweg_base::XorShift64Star;

extern crate self as libfuzzer_sys;

/// Changed inputs for each target if no time is given.
const INPUTS: u32 = 2_000;
/// Longer inputs are truncated, as in libFuzzer.
const INPUT_BYTES_MAX: usize = 4_096;

macro_rules! fuzz_target_as_test {
    (|$input:ident: &[u8]| $body:expr) => {
        #[test]
        fn holds() {
            crate::try_inputs(module_path!(), |$input: &[u8]| $body);
        }
    };
    (|$text:ident: &str| $body:expr) => {
        #[test]
        fn holds() {
            let whole = |$text: &str| $body;
            crate::try_inputs(module_path!(), |bytes: &[u8]| whole(crate::text_of(bytes)));
        }
    };
}
pub(crate) use fuzz_target_as_test as fuzz_target;

macro_rules! targets {
    ($($name:ident = $path:literal,)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[allow(unused_attributes)] // `no_main` is for libFuzzer.
            #[path = $path]
            mod $name;
        )*
    };
}

targets! {
    bgp_export = "../../../fuzz/fuzz_targets/bgp_export.rs",
    bgp_message = "../../../fuzz/fuzz_targets/bgp_message.rs",
    bgp_rib = "../../../fuzz/fuzz_targets/bgp_rib.rs",
    bgp_session = "../../../fuzz/fuzz_targets/bgp_session.rs",
    config = "../../../fuzz/fuzz_targets/config.rs",
    firewall = "../../../fuzz/fuzz_targets/firewall.rs",
    flow_parse = "../../../fuzz/fuzz_targets/flow_parse.rs",
    flow_relay = "../../../fuzz/fuzz_targets/flow_relay.rs",
    fragmentation = "../../../fuzz/fuzz_targets/fragmentation.rs",
    helpers = "../../../fuzz/fuzz_targets/helpers.rs",
    icmp = "../../../fuzz/fuzz_targets/icmp.rs",
    mrt = "../../../fuzz/fuzz_targets/mrt.rs",
    names = "../../../fuzz/fuzz_targets/names.rs",
    nat = "../../../fuzz/fuzz_targets/nat.rs",
    nat64 = "../../../fuzz/fuzz_targets/nat64.rs",
    nat_icmp = "../../../fuzz/fuzz_targets/nat_icmp.rs",
    neighbor = "../../../fuzz/fuzz_targets/neighbor.rs",
    netflow = "../../../fuzz/fuzz_targets/netflow.rs",
    pcap = "../../../fuzz/fuzz_targets/pcap.rs",
    pcapng = "../../../fuzz/fuzz_targets/pcapng.rs",
    questions = "../../../fuzz/fuzz_targets/questions.rs",
    router = "../../../fuzz/fuzz_targets/router.rs",
    rtr = "../../../fuzz/fuzz_targets/rtr.rs",
    standby = "../../../fuzz/fuzz_targets/standby.rs",
    trace = "../../../fuzz/fuzz_targets/trace.rs",
    web_request = "../../../fuzz/fuzz_targets/web_request.rs",
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// A target that is built for libFuzzer but missing here would be one that no test compiles.
#[test]
fn every_target_of_the_manifest_is_here() {
    let manifest = fs::read_to_string(fuzz_folder().join("Cargo.toml")).unwrap();
    let bins = manifest.split("[[bin]]").skip(1);
    let names: Vec<&str> = bins.map(|bin| bin.split('"').nth(1).unwrap()).collect();
    assert_eq!(names, TARGETS);
}

/// Calls a target with its corpus and then with changed inputs.
fn try_inputs(module: &'static str, target: impl Fn(&[u8])) {
    let name = module.rsplit("::").next().expect("a name");
    let seeds = corpus(name);
    for seed in &seeds {
        try_input(name, seed, &target);
    }
    let seconds = env::var("THALWEG_FUZZ_SECONDS").ok();
    let until =
        seconds.map(|text| Instant::now() + Duration::from_secs(text.parse().expect("whole seconds")));
    let mut chance = XorShift64Star::new(1);
    let mut count = 0;
    while until.map_or(count < INPUTS, |until| Instant::now() < until) {
        try_input(name, &changed(&seeds, &mut chance), &target);
        count += 1;
    }
    println!("{name}: {} seeds, {count} changed inputs", seeds.len());
}

fn try_input(name: &str, input: &[u8], target: impl Fn(&[u8])) {
    let failing = Failing { name, input };
    target(input);
    drop(failing);
}

/// The present input: written to a file if the target panics.
struct Failing<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", self.name));
            match fs::write(&file, self.input) {
                Ok(()) => eprintln!("the input is in {}", file.display()),
                Err(error) => eprintln!("{}: {error}; the input is {:02x?}", file.display(), self.input),
            }
        }
    }
}

/// The seeds of a target, by name.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = fuzz_folder().join("corpus").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no seed", folder.display());
    files.iter().map(|file| fs::read(file).expect("a seed")).collect()
}

/// One of the seeds with one to eight changes.
fn changed(seeds: &[Vec<u8>], chance: &mut XorShift64Star) -> Vec<u8> {
    let mut input = one_of(seeds, chance).clone();
    for _ in 0..=chance.below(8) {
        change(&mut input, seeds, chance);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], chance: &mut XorShift64Star) {
    const EDGES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];
    let start = chance.below(input.len() as u32 + 1) as usize;
    let piece = start..(start + chance.below(16) as usize + 1).min(input.len());
    match (chance.below(8), input.get_mut(start)) {
        (0, Some(byte)) => *byte ^= 1 << chance.below(8),
        (1, Some(byte)) => *byte = chance.below(256) as u8,
        (2, Some(byte)) => *byte = *one_of(&EDGES, chance),
        (3, Some(byte)) => *byte = byte.wrapping_add(chance.below(9) as u8).wrapping_sub(4),
        (4, Some(_)) => drop(input.drain(piece)),
        (5, Some(_)) => {
            let copy = input[piece].to_vec();
            let to = chance.below(input.len() as u32 + 1) as usize;
            input.splice(to..to, copy);
        }
        (6, _) => {
            let other = one_of(seeds, chance);
            input.truncate(start);
            input.extend_from_slice(&other[chance.below(other.len() as u32 + 1) as usize..]);
        }
        (7, Some(_)) if chance.below(8) == 0 => input.truncate(start),
        (..) => {
            let fresh: Vec<u8> = (0..=chance.below(16)).map(|_| chance.below(256) as u8).collect();
            input.splice(start..start, fresh);
        }
    }
}

fn one_of<'a, T>(items: &'a [T], chance: &mut XorShift64Star) -> &'a T {
    &items[chance.below(items.len() as u32) as usize]
}

/// The valid text in some bytes.
fn text_of(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes)
        .unwrap_or_else(|error| std::str::from_utf8(&bytes[..error.valid_up_to()]).expect("text"))
}
