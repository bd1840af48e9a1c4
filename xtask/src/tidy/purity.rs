//! Checks the pure crates, which know nothing of the machine: their results depend only on their inputs, so
//! that tests, the laboratory and fuzzers can run them with generated time and input.

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

/// The exceptions and their reasons: a structure that shards share by design, whose lock no scheduling could
/// hold, because it is held for one look-up or one message in the middle of a call. An unused entry is a
/// failure.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/base/src/name.rs", "RwLock", "one number for each name, for records that pass between threads"),
    ("crates/bgp/src/attrs/interner.rs", "Mutex", "one copy of each attribute set for all shards"),
    ("crates/bgp/src/export/log.rs", "Mutex", "one writer and many readers of a group's messages"),
];

/// Impure names in a pure crate's product code.
pub(super) fn check(file: &Path, code: &str) -> Vec<Finding> {
    if !is_pure(file) {
        return Vec::new();
    }
    let product = super::without_tests(code);
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

/// Whether it is product code of a pure crate.
fn is_pure(file: &Path) -> bool {
    let mut parts = file.iter().map(|part| part.to_string_lossy());
    let (first, crate_) = (parts.next(), parts.next());
    first.as_deref() == Some("crates")
        && crate_.is_some_and(|name| PURE.contains(&&*name))
        && super::is_product(file)
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
        assert!(check(Path::new("crates/bgp/src/export/log.rs"), "struct Mutex;").is_empty());
        assert_eq!(check(Path::new("crates/bgp/src/export/log.rs"), "struct Meter;").len(), 1);
    }
}
