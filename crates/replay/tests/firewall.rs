//! Cases of the firewall, for this router and for nftables: `firewall/cases.txt`, with the same rules in
//! `firewall/base.toml` and `firewall/base.nft`.
//!
//! `docs/firewall-conformance.md` is made from them, as `docs/nat-conformance.md` from the cases of NAT; `THALWEG_BLESS=1`
//! rewrites it, and as root `firewall/linux.txt`, the kernel's last results.

use crate::conformance::case::Case;
#[cfg(target_os = "linux")]
use crate::conformance::{Answer, ask_the_kernel, keep, linux};
use crate::conformance::{is_current, plays, table};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firewall")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn cases() -> Vec<Case> {
    let text = read("cases.txt");
    let cases: Vec<Case> = text.split("\ncase ").skip(1).map(case).collect();
    assert!(cases.len() >= 40, "{} cases", cases.len());
    cases
}

fn case(text: &str) -> Case {
    let (title, rest) = text.split_once('\n').expect("a line");
    let [name, requirement, says] = title.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
        panic!("case NAME | REQUIREMENT | WHAT IT SAYS: {title}")
    };
    let is_key = |line: &&str| line.split_once(": ").is_some_and(|(key, _)| !key.contains(' '));
    let keys: Vec<&str> = rest.lines().take_while(is_key).collect();
    let body: String = rest.lines().skip(keys.len()).flat_map(|line| [line, "\n"]).collect();
    let head = format!("requirement: {requirement}\nsays: {says}\n{}", keys.join("\n"));
    Case::of(name, head.trim_end(), &body)
}

#[test]
fn this_router_does_what_the_table_says() {
    let cases = cases();
    plays(&cases, &read("base.toml"));
    is_current("firewall-conformance.md", &table::firewall_page(&cases, &root()));
}

/// The kernel decides as the cases say: they are what both promise. A case that only one of them fulfills says so.
#[cfg(target_os = "linux")]
#[test]
fn nftables_decides_the_same() {
    let (cases, rules) = (cases(), read("base.nft"));
    let answers = match ask_the_kernel(&cases, |case| linux::Kernel::of_firewall(case, &rules)) {
        Ok(answers) => answers,
        Err(why) => return thalweg_testdata::skipped(&format!("nftables was not asked: {why}")),
    };
    keep(&answers, &root());
    let differs = |(case, (_, answer)): (&Case, &(String, Answer))| {
        let why = answer.as_ref().err().filter(|_| case.linux_answer.is_none())?;
        Some(format!("{}: {why}", case.name))
    };
    let differences: Vec<String> = cases.iter().zip(&answers).filter_map(differs).collect();
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}
