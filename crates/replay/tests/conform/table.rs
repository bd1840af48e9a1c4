//! Makes `docs/nat-conformance.md` from the cases, the kernel's results, and `requirements.txt`; and the pages about the
//! firewall and the edge likewise.

use super::case::Case;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const HEAD: &str = "# What the RFCs on NAT require, and who does it\n\n\
Which requirements of the RFCs does this router meet, and which does the Linux kernel?\n\n\
`cargo test -p thalweg-replay --test main conformance` makes this page from the folders under\n\
`crates/replay/tests/conformance`; do not edit it. Each case is a few packets and the expected result. This router\n\
replays every case under every execution model, and the test fails when this page differs from the outcome. Rows with a\n\
case were run; rows without one say what is known otherwise.\n\n";

/// The page about NAT.
pub(crate) fn page(cases: &[Case], root: &Path) -> String {
    let others = std::fs::read_to_string(root.join("requirements.txt")).unwrap_or_default();
    let mut rows = Vec::new();
    for line in others.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [requirement, says, ours, linux] = cells[..] else { panic!("requirements.txt: {line}") };
        let row = format!("| {requirement} | {says} | {ours} | {linux} | |\n");
        rows.push((order(requirement, says), row));
    }
    made(HEAD, "`masquerade`, or with the rules of the case,", cases, root, rows)
}

/// The page about the cases of a file.
pub(crate) fn page_of(head: &str, cases: &[Case], root: &Path) -> String {
    made(head, "the same rules", cases, root, Vec::new())
}

/// The place of a row in its table.
type Order = (u32, u32, String);

fn made(head: &str, rules: &str, cases: &[Case], root: &Path, more: Vec<(Order, String)>) -> String {
    let recorded = std::fs::read_to_string(root.join("linux.txt")).unwrap_or_default();
    let mut lines = recorded.lines();
    let kernel = lines.next().and_then(|line| line.strip_prefix("kernel ")).unwrap_or("unknown").to_owned();
    let answers: HashMap<&str, &str> = lines.filter_map(|line| line.split_once(": ")).collect();
    let mut rows: BTreeMap<Order, String> = more.into_iter().collect();
    for case in cases {
        let ours = match &case.deviates {
            None => "yes".to_owned(),
            Some(why) => format!("**no**: {why}"),
        };
        let linux = answers.get(case.name.as_str()).copied().unwrap_or("not asked");
        let linux = case.linux_answer.as_deref().unwrap_or(linux);
        let note = case.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
        let row =
            format!("| {} | {}{note} | {ours} | {linux} | `{}` |\n", case.requirement, case.says, case.name);
        rows.insert(order(&case.requirement, &case.name), row);
    }
    let mut text = head.to_owned();
    text += &format!(
        "\"Linux\" is nftables of kernel {kernel} with {rules} in a namespace with TAP interfaces, at the time of the \
         record.\n\n"
    );
    text += "| requirement | what it says, in short | Thalweg | Linux | case |\n|---|---|---|---|---|\n";
    text.extend(rows.into_values());
    text
}

/// RFC and number of the requirement, so that REQ-10 comes after REQ-9.
fn order(requirement: &str, name: &str) -> Order {
    let mut numbers =
        requirement.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0), format!("{requirement} {name}"))
}

/// The kernel's results, one line per case.
#[cfg(target_os = "linux")]
pub(crate) fn record(kernel: &str, answers: &[(String, Result<(), String>)]) -> String {
    let mut text = format!("kernel {kernel}\n");
    for (name, answer) in answers {
        let answer = match answer {
            Ok(()) => "yes".to_owned(),
            Err(why) if why.starts_with("not run") => why.clone(),
            Err(why) => format!("**no**: {}", without_chance(why)),
        };
        text += &format!("{name}: {answer}\n");
    }
    text
}

/// Without identifications, which differ every time.
#[cfg(target_os = "linux")]
fn without_chance(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_chance = |place: usize| words[place] == "id" || place > 0 && words[place - 1] == "id";
    let kept: Vec<&str> =
        (0..words.len()).filter(|place| !is_chance(*place)).map(|place| words[place]).collect();
    kept.join(" ")
}
