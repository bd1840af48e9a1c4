//! The format of a case folder, and the comparison of a result with the case.
//!
//! `case.txt` begins with lines of `key: value`:
//!
//! | key | meaning |
//! |---|---|
//! | `requirement` | RFC and requirement, as the table names it |
//! | `says` | the requirement in a few words |
//! | `nat` | a line for the configuration, from `[nat]` on; may be repeated |
//! | `linux` | a command of nftables in the table `nat` with its chains `pre` and `post`; may be repeated. Without one: `add rule ip nat post oifname wan masquerade` |
//! | `linux-setting` | instead of running the case with Linux: a file under `/proc/sys/net/netfilter` and its minimum value |
//! | `linux-answer` | instead of the result with Linux: why the case does not test Linux fairly |
//! | `deviates` | this router does not fulfill the requirement: the case must fail, and this is the reason |
//! | `note` | further text for the table |
//!
//! Then, after a line of dashes, come packets in the language of `scenario/build.rs`, with the port first. Below
//! each stand the packets that leave because of it, in the form of `scenario/show.rs`, without MAC addresses and
//! without `ttl 63`, which all of them have:
//!
//! ```text
//! 0.0 lan ip 192.168.1.10 > 198.51.100.7 udp 4000 > 53
//!   > wan ip 203.0.113.2 > 198.51.100.7 udp $a > 53
//! check $a >= 1024
//! ```
//!
//! `$name` stands for the word that was there the first time. `..` at the end of a line matches anything. `?`
//! instead of `>` marks an optional packet, because not all routers send the same errors. A packet without lines
//! below it must cause none. `check A OP B` compares numbers: `==`, `!=`, `>=`, `<=`, `parity`.

use std::collections::HashMap;
use std::path::Path;

/// A case.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) requirement: String,
    pub(crate) says: String,
    pub(crate) nat: String,
    pub(crate) linux: Vec<String>,
    pub(crate) linux_setting: Option<(String, u64)>,
    pub(crate) linux_answer: Option<String>,
    pub(crate) deviates: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) steps: Vec<Step>,
}

/// A packet, the packets that it causes, and checks that must hold after it.
pub(crate) struct Step {
    pub(crate) time_s: f64,
    port: String,
    packet: String,
    expected: Vec<Expected>,
    checks: Vec<[String; 3]>,
}

struct Expected {
    required: bool,
    words: Vec<String>,
}

/// The words that names stand for.
pub(crate) type Names = HashMap<String, String>;

impl Case {
    /// Reads a folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let path = folder.join("case.txt");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (head, body) =
            text.split_once("\n---\n").unwrap_or_else(|| panic!("{}: no line of dashes", path.display()));
        Self::of(&folder.file_name().expect("a name").to_string_lossy(), head, body)
    }

    /// A case of this name, from the lines before and behind the dashes.
    pub(crate) fn of(name: &str, head: &str, body: &str) -> Self {
        let mut values: HashMap<&str, Vec<&str>> = HashMap::new();
        for line in head.lines().filter(|line| !line.starts_with('#')) {
            let (key, value) = line.split_once(':').unwrap_or_else(|| panic!("{name}: `{line}`"));
            values.entry(key).or_default().push(value.trim());
        }
        let mut take = |key: &str| values.remove(key).unwrap_or_default();
        let one = |all: Vec<&str>| all.first().map(|value| (*value).to_owned());
        let required = |key: &str, all: Vec<&str>| one(all).unwrap_or_else(|| panic!("{name}: no `{key}`"));
        let case = Self {
            name: name.to_owned(),
            requirement: required("requirement", take("requirement")),
            says: required("says", take("says")),
            nat: take("nat").join("\n"),
            linux: take("linux").into_iter().map(str::to_owned).collect(),
            linux_setting: one(take("linux-setting")).map(|value| {
                let (file, least) = value.split_once(' ').expect("a file and a number");
                (file.to_owned(), least.parse().expect("a number"))
            }),
            linux_answer: one(take("linux-answer")),
            deviates: one(take("deviates")),
            note: one(take("note")),
            steps: steps(body),
        };
        assert!(values.is_empty(), "{name}: what is {:?}?", values.keys());
        case
    }
}

fn steps(body: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
            sign @ (">" | "?") => {
                let expected = Expected { required: sign == ">", words: words[1..].to_vec() };
                steps.last_mut().expect("a packet first").expected.push(expected);
            }
            "check" => {
                let check = words[1..].to_vec().try_into().unwrap_or_else(|_| panic!("check A OP B: {line}"));
                steps.last_mut().expect("a packet first").checks.push(check);
            }
            time => steps.push(Step {
                time_s: time.parse().unwrap_or_else(|_| panic!("a time first: {line}")),
                port: words[1].clone(),
                packet: words[2..].join(" "),
                expected: Vec::new(),
                checks: Vec::new(),
            }),
        }
    }
    steps
}

impl Step {
    /// The packet as a line for `scenario/build.rs`, with names replaced; `Err` for an unknown name.
    pub(crate) fn line(&self, names: &Names) -> Result<String, String> {
        let words = self.packet.split_whitespace().map(|word| match word.strip_prefix('$') {
            Some(name) => names.get(name).cloned().ok_or_else(|| format!("nothing was ${name}")),
            None => Ok(word.to_owned()),
        });
        let words: Vec<String> = words.collect::<Result<_, _>>()?;
        Ok(format!("{} {}:eth {}", self.time_s, self.port, words.join(" ")))
    }

    /// The packet's input port.
    pub(crate) fn port(&self) -> &str {
        &self.port
    }

    /// Packets that must leave.
    pub(crate) fn required(&self) -> usize {
        self.expected.iter().filter(|expected| expected.required).count()
    }

    /// Compares the packets that left, each as `PORT ip ..`, with the expected ones.
    pub(crate) fn judge(&self, left: &[String], names: &mut Names) -> Result<(), String> {
        let mut rest = left.iter().peekable();
        for expected in &self.expected {
            match rest.peek() {
                Some(found) if expected.is_met_by(found, names) => drop(rest.next()),
                found if expected.required => {
                    let found = found.map_or("nothing", |found| found.as_str());
                    return Err(format!("after {} s: {found}", self.time_s));
                }
                _ => {}
            }
        }
        if let Some(more) = rest.next() {
            return Err(format!("after {} s: {more}", self.time_s));
        }
        for [a, op, b] in &self.checks {
            let number = |word: &str| -> Result<u32, String> {
                let text =
                    word.strip_prefix('$').map_or(Some(word), |name| names.get(name).map(String::as_str));
                text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("`{word}` is no number"))
            };
            let (left, right) = (number(a)?, number(b)?);
            let holds = match op.as_str() {
                "==" => left == right,
                "!=" => left != right,
                ">=" => left >= right,
                "<=" => left <= right,
                "parity" => left & 1 == right & 1,
                other => panic!("no comparison `{other}`"),
            };
            if !holds {
                return Err(format!("after {} s: {a} is {left}, not {op} {b}", self.time_s));
            }
        }
        Ok(())
    }
}

impl Expected {
    fn is_met_by(&self, found: &str, names: &mut Names) -> bool {
        let found: Vec<&str> = found.split_whitespace().collect();
        let mut learnt = Names::new();
        for (place, word) in self.words.iter().enumerate() {
            if word == ".." {
                names.extend(learnt);
                return true;
            }
            let Some(there) = found.get(place) else { return false };
            let known =
                word.strip_prefix('$').map(|name| (name, names.get(name).or(learnt.get(name)).cloned()));
            match known {
                Some((_, Some(known))) if known != *there => return false,
                Some((name, None)) => drop(learnt.insert(name.to_owned(), (*there).to_owned())),
                None if word != there => return false,
                _ => {}
            }
        }
        names.extend(learnt);
        found.len() == self.words.len()
    }
}

/// A shown packet without MAC addresses and without the TTL that a packet has behind one router.
pub(crate) fn plain(port: &str, shown: &str) -> String {
    let ip = shown.find("ip ").map_or(shown, |at| &shown[at..]);
    format!("{port} {}", ip.replacen(" ttl 63", "", 1))
}
