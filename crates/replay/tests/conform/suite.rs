//! Cases of one file, `FOLDER/cases.txt`, for this router and for nftables: with the same rules in `base.toml` and
//! `base.nft`.
//!
//! A case is a line `case NAME | REQUIREMENT | WHAT IT SAYS`, lines `KEY: VALUE` and packets (`case.rs`). A page of the
//! documentation is made from them; `THALWEG_BLESS=1` rewrites it, and as root `linux.txt`, the kernel's last results.

use crate::conformance::case::Case;
#[cfg(target_os = "linux")]
use crate::conformance::{Answer, ask_the_kernel, keep, linux};
use crate::conformance::{is_current, plays, table};
use std::path::{Path, PathBuf};

pub(crate) struct Suite {
    pub(crate) folder: &'static str,
    /// The page, and how it begins.
    pub(crate) page: &'static str,
    pub(crate) head: &'static str,
    /// The fewest cases.
    pub(crate) least: usize,
}

impl Suite {
    fn root(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(self.folder)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }

    fn cases(&self) -> Vec<Case> {
        let text = self.read("cases.txt");
        let cases: Vec<Case> = text.split("\ncase ").skip(1).map(case).collect();
        assert!(cases.len() >= self.least, "{} cases", cases.len());
        cases
    }

    /// Fails if this router does not do what the cases say, or the page is not current.
    pub(crate) fn is_what_this_router_does(&self) {
        let cases = self.cases();
        plays(&cases, &self.read("base.toml"));
        is_current(self.page, &table::page_of(self.head, &cases, &self.root()));
    }

    /// Fails if nftables does not do what the cases say: they are what both promise. A case that only one of them
    /// fulfills says so.
    #[cfg(target_os = "linux")]
    pub(crate) fn is_what_nftables_does(&self) {
        let (cases, rules) = (self.cases(), self.read("base.nft"));
        let answers = match ask_the_kernel(&cases, |case| linux::Kernel::of_both_families(case, &rules)) {
            Ok(answers) => answers,
            Err(why) => return thalweg_testdata::skipped(&format!("nftables was not asked: {why}")),
        };
        keep(&answers, &self.root());
        let differs = |(case, (_, answer)): (&Case, &(String, Answer))| {
            let why = answer.as_ref().err().filter(|_| case.linux_answer.is_none())?;
            Some(format!("{}: {why}", case.name))
        };
        let differences: Vec<String> = cases.iter().zip(&answers).filter_map(differs).collect();
        assert!(differences.is_empty(), "\n{}", differences.join("\n"));
    }
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
