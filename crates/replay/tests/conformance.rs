//! The RFCs' requirements for NAT as cases, for this router and for the Linux kernel: a folder each under
//! `conformance/`, named by RFC and requirement. `conform/case.rs` describes the folder.
//!
//! `docs/nat-conformance.md` is made from them: the test fails if its column for this router differs from the
//! cases' results. `THALWEG_BLESS=1` rewrites the page; as root also `conformance/linux.txt`, the kernel's last
//! results. `conformance/requirements.txt` has the requirements that no replayed packet can show.

#[path = "conform/case.rs"]
pub(crate) mod case;
#[cfg(target_os = "linux")]
#[path = "conform/linux.rs"]
pub(crate) mod linux;
#[path = "conform/ours.rs"]
pub(crate) mod ours;
#[path = "conform/table.rs"]
pub(crate) mod table;

use crate::{build, show};
use case::Case;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

fn cases() -> Vec<Case> {
    let entries = std::fs::read_dir(root()).expect("the cases");
    let mut folders: Vec<PathBuf> =
        entries.map(|e| e.expect("an entry").path()).filter(|p| p.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= 10, "where are the cases?");
    folders.iter().map(|folder| Case::read(folder)).collect()
}

pub(crate) fn blesses() -> bool {
    std::env::var_os("THALWEG_BLESS").is_some_and(|v| v == "1")
}

#[test]
fn this_router_does_what_the_table_says() {
    let base = std::fs::read_to_string(root().join("base.toml")).expect("base.toml");
    let mut failures = Vec::new();
    let cases = cases();
    for case in &cases {
        match (ours::run(case, &base), &case.deviates) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(why), None) => failures.push(format!("{}: {why}", case.name)),
            (Ok(()), Some(_)) => failures.push(format!("{}: does not deviate any more", case.name)),
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nat-conformance.md");
    let made = table::page(&cases, &root());
    if blesses() {
        std::fs::write(&page, &made).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&page).unwrap_or_default();
    assert!(there == made, "docs/nat-conformance.md is not current: run this with THALWEG_BLESS=1");
}

/// Runs the cases with the kernel. This test does not judge its results, only that the cases run.
#[cfg(target_os = "linux")]
#[test]
fn the_kernel_is_asked_the_same() {
    // Cases mostly wait, for timeouts and for silence, and each has its own namespace, so all run at once.
    let cases = cases();
    let asked: Vec<Result<_, String>> = std::thread::scope(|scope| {
        let ask = |case| scope.spawn(move || Ok(linux::Kernel::new(case)?.run(case)));
        let asked: Vec<_> = cases.iter().map(ask).collect();
        asked.into_iter().map(|answer| answer.join().expect("a case panics")).collect()
    });
    let mut answers = Vec::new();
    for (case, answer) in cases.iter().zip(asked) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => return thalweg_testdata::skipped(&format!("the kernel's NAT was not asked: {why}")),
        };
        println!("{}: {answer:?}", case.name);
        answers.push((case.name.clone(), answer));
    }
    assert!(answers.iter().any(|(_, answer)| answer.is_ok()), "no packet got through: {answers:?}");
    if blesses() {
        let text = table::record(&linux::version(), &answers);
        std::fs::write(root().join("linux.txt"), text).expect("the record can be written");
    }
}
