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

/// What Linux made of a case; an error says where it differs.
#[cfg(target_os = "linux")]
pub(crate) type Answer = Result<(), String>;

fn blesses() -> bool {
    std::env::var_os("THALWEG_BLESS").is_some_and(|v| v == "1")
}

/// Plays the cases on this router with `base` as its configuration. Fails if it does not do what a case says, or does
/// although the case says that it deviates.
pub(crate) fn plays(cases: &[Case], base: &str) {
    let mut failures = Vec::new();
    for case in cases {
        match (ours::run(case, base), &case.deviates) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Err(why), None) => failures.push(format!("{}: {why}", case.name)),
            (Ok(()), Some(_)) => failures.push(format!("{}: does not deviate any more", case.name)),
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// Fails if a page of the documentation is not the one that was made; writes it instead if asked to.
pub(crate) fn is_current(page: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    if blesses() {
        std::fs::write(&path, made).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "docs/{page} is not current: run this with THALWEG_BLESS=1");
}

/// The kernel's answers by case, or why it cannot be asked. Cases mostly wait, for timeouts and for silence, and each
/// has its own namespace, so all run at once.
#[cfg(target_os = "linux")]
pub(crate) fn ask_the_kernel(
    cases: &[Case],
    open: impl Fn(&Case) -> Result<linux::Kernel, String> + Sync,
) -> Result<Vec<(String, Answer)>, String> {
    std::thread::scope(|scope| {
        let open = &open;
        let ask = |case| scope.spawn(move || open(case).map(|mut kernel| kernel.run(case)));
        let asked: Vec<_> = cases.iter().map(ask).collect();
        let answers = asked.into_iter().map(|answer| answer.join().expect("a case panics"));
        cases.iter().zip(answers).map(|(case, answer)| Ok((case.name.clone(), answer?))).collect()
    })
}

/// Keeps the kernel's answers if asked to.
#[cfg(target_os = "linux")]
pub(crate) fn keep(answers: &[(String, Answer)], root: &Path) {
    if blesses() {
        let text = table::record(&linux::version(), answers);
        std::fs::write(root.join("linux.txt"), text).expect("the record can be written");
    }
}

#[test]
fn this_router_does_what_the_table_says() {
    let base = std::fs::read_to_string(root().join("base.toml")).expect("base.toml");
    let cases = cases();
    plays(&cases, &base);
    is_current("nat-conformance.md", &table::page(&cases, &root()));
}

/// Runs the cases with the kernel. This test does not judge its results, only that the cases run.
#[cfg(target_os = "linux")]
#[test]
fn the_kernel_is_asked_the_same() {
    let answers = match ask_the_kernel(&cases(), linux::Kernel::new) {
        Ok(answers) => answers,
        Err(why) => return thalweg_testdata::skipped(&format!("the kernel's NAT was not asked: {why}")),
    };
    answers.iter().for_each(|(case, answer)| println!("{case}: {answer:?}"));
    assert!(answers.iter().any(|(_, answer)| answer.is_ok()), "no packet got through: {answers:?}");
    keep(&answers, &root());
}
