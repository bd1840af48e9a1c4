//! The crates that know nothing of the machine: what they do depends on what they are given alone, so that tests, the laboratory
//! and fuzzers can run them on made-up time and input.

use std::path::Path;

use super::Finding;
use super::source::{line_of, words};

/// Their folders under `crates`.
pub(crate) const PURE: &[&str] = &["base", "wire", "dataplane", "bgp", "flow"];

/// Names of threads, clocks, files, sockets and locks.
const IMPURE: &[&str] = &[
    "thread",
    "Instant",
    "File",
    "OpenOptions",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "UnixStream",
    "Mutex",
    "RwLock",
    "Condvar",
];

/// Where one of them stands nevertheless, and why. An entry that is not needed any more is a failure.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/base/src/slab.rs", "Mutex", "buffers come back from other threads"),
    ("crates/base/src/slab.rs", "Condvar", "who wants a buffer waits for one"),
    (
        "crates/dataplane/src/nat/stage.rs",
        "Mutex",
        "a lock for each shard: chunks of several workers meet there",
    ),
    ("crates/bgp/src/attrs/interner.rs", "Mutex", "one copy of each attribute set for all shards"),
    ("crates/bgp/src/export/log.rs", "Mutex", "one writer and many readers of a group's messages"),
    ("crates/flow/src/meter.rs", "Mutex", "a lock for each shard: chunks of several workers meet there"),
];

/// Impure names in a pure crate's product code.
pub(super) fn check(file: &Path, code: &str) -> Vec<Finding> {
    if !is_pure(file) {
        return Vec::new();
    }
    let product = code.find("#[cfg(test)]\nmod ").map_or(code, |end| &code[..end]);
    let mut findings = Vec::new();
    for name in IMPURE {
        let excused = exception(file, name).is_some();
        match words(product, name).next() {
            Some((at, _)) if !excused => {
                let message =
                    format!("`{name}` in a crate that knows no thread, clock, file, socket or lock");
                findings.push(Finding::failure(file, line_of(code, at), message));
            }
            None if excused => {
                let message = format!("the exception for `{name}` in tidy/purity.rs is not needed any more");
                findings.push(Finding::failure(file, 0, message));
            }
            _ => {}
        }
    }
    findings
}

fn exception(file: &Path, name: &str) -> Option<&'static str> {
    let found = EXCEPTIONS.iter().find(|(where_, what, _)| file == Path::new(where_) && *what == name);
    found.map(|(.., why)| *why)
}

/// Whether it is product code of a pure crate: files of tests are called so.
fn is_pure(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let (first, crate_, src) = (parts.next(), parts.next(), parts.next());
    first.as_deref() == Some("crates")
        && crate_.is_some_and(|name| PURE.contains(&&*name))
        && src.as_deref() == Some("src")
        && !parts.any(|part| matches!(&*part, "tests" | "tests.rs" | "testing" | "testing.rs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pure_crates_have_no_clock_but_their_tests_may() {
        let code = "use std::time::Instant;\nfn a() {}\n";
        assert_eq!(check(Path::new("crates/bgp/src/rib.rs"), code).len(), 1);
        assert!(check(Path::new("crates/node/src/plan.rs"), code).is_empty());
        assert!(check(Path::new("crates/bgp/src/rib/tests.rs"), code).is_empty());
        assert!(
            check(Path::new("crates/bgp/src/rib.rs"), "fn a() {}\n#[cfg(test)]\nmod tests { use Instant; }")
                .is_empty()
        );
    }

    #[test]
    fn an_exception_that_is_not_needed_fails() {
        assert!(check(Path::new("crates/flow/src/meter.rs"), "struct Mutex;").is_empty());
        assert_eq!(check(Path::new("crates/flow/src/meter.rs"), "struct Meter;").len(), 1);
    }
}
