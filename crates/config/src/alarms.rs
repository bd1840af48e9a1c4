//! `[[alarms]]`: rules about what flows count. A probe has the same in a file of their own.

use std::path::Path;

use thalweg_base::IpPrefix;
use thalweg_flow::alarm::{AlarmRule, BLACKHOLE_KEY, Baseline, Blackhole, Measure};

use crate::diagnostic::{ConfigErrors, ErrorKind};
use crate::key::{Differs, Key, Sub, table};
use crate::reader::{At, Reader};
use crate::section::Section;
use crate::{ConfigSource, bgp, quantity};

pub(crate) static ALARMS: Key<Sub> = Key::sections("alarms", &TABLE)
    .restart(Differs::Router(|old, new| old.alarms != new.alarms))
    .help("[alarms](alarms.md) about flows; needs `[flows]`");
table! {
    static TABLE: "alarms", "[[alarms]]";

    static NAME: Key<String> = Key::text("name", "a name", name).required("\"syn-flood\"").help("name in events and metrics");
    static KEY: Key<String> = Key::text("key", "a key", key).required("\"dst\"").help(
        "what is judged one by one: a [key](flow-store.md#asking) of `thalweg flows`, or `\"all\"`",
    );
    static FILTER: Key<String> = Key::text("filter", "a filter", |text| Ok(text.to_owned()))
        .default_toml("\"\"")
        .help("only these flows, in the [language](flow-store.md#asking) of `thalweg flows`");
    static MEASURE: Key<Measure> =
        Key::word("measure", &Measure::NAMES).required("\"packets-per-second\"").help("what is [measured](alarms.md#measures)");
    static ABOVE: Key<u64> =
        Key::number("above", 1..=1 << 50).required("1000").help("an alarm is raised above this value");
    static BELOW: Key<u64> = Key::number("below", 1..=1 << 50).otherwise("half of `above`").help("an alarm ends below this value");
    static BASELINE_FACTOR: Key<u32> = Key::number("baseline_factor", 2..=1000).help(
        "raise only above this many times what is [usual](alarms.md#baselines) for the value of the key, too",
    );
    static BASELINE_WINDOW: Key<u64> = Key::text("baseline_window", "a time", quantity::seconds)
        .default_toml("\"1h\"")
        .help("time over which what is usual is learned");
    static WINDOW: Key<u64> =
        Key::text("window", "a time", quantity::seconds).default_toml("\"1s\"").help("time over which is measured, at most `60s`");
    static FOR: Key<u64> = Key::text("for", "a time", quantity::seconds)
        .otherwise("one window")
        .help("raise when it was above for this long");
    static CLEAR: Key<u64> = Key::text("clear", "a time", quantity::seconds)
        .default_toml("\"10s\"")
        .help("end when it was below `below` for this long");
    static SILENCE: Key<u64> = Key::text("silence", "a time", quantity::seconds)
        .otherwise("none")
        .help("after an alarm ended, do not tell another one of the same value for this long");
    static BLACKHOLE: Key<u64> = Key::text("blackhole", "a time", quantity::seconds).help(
        "let BGP announce the host as a [blackhole](alarms.md#blackholes) for this long; needs `key = \"dst\"`",
    );
    static BLACKHOLE_WITHIN: Key<Vec<IpPrefix>> = Key::by("blackhole_within", "a prefix or a list", bgp::networks)
        .otherwise("none")
        .help("networks whose hosts may become blackholes");
    static BLACKHOLE_MOST: Key<usize> = Key::number("blackhole_most", 1..=1000)
        .default_toml("16")
        .help("the most blackholes of the rule at once; further alarms are only told");
}

table! {
    /// A file with nothing but alarms.
    static FILE_TABLE: "", "the file of alarms";

    row ALARMS;
}

const WINDOW_MAX_S: u64 = 60;

fn name(text: &str) -> Result<String, &'static str> {
    let fits = (1..=64).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits { Ok(text.to_owned()) } else { Err("letters, digits and - _ . , at most 64") }
}

fn key(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("a key such as \"dst\"") } else { Ok(text.to_owned()) }
}

pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>) -> Vec<At<AlarmRule>> {
    let sections = root.sections(reader, &ALARMS);
    sections.into_iter().filter_map(|section| read_rule(reader, section)).collect()
}

fn read_rule(reader: &mut Reader, mut section: Section<'_>) -> Option<At<AlarmRule>> {
    let name = section.get(reader, &NAME);
    let key = section.get(reader, &KEY);
    let filter = section.get(reader, &FILTER).unwrap_or_default();
    let measure = section.get(reader, &MEASURE);
    let above = section.get(reader, &ABOVE);
    let below = section.read(reader, &BELOW);
    let factor = section.get(reader, &BASELINE_FACTOR);
    let learned_s = section.get(reader, &BASELINE_WINDOW);
    let window = section.read(reader, &WINDOW);
    let seconds = |seconds: Option<u64>| u32::try_from(seconds.unwrap_or(0)).unwrap_or(u32::MAX);
    let for_s = seconds(section.get(reader, &FOR));
    let clear_s = seconds(section.get(reader, &CLEAR));
    let silence_s = seconds(section.get(reader, &SILENCE));
    let blackhole = section.read(reader, &BLACKHOLE);
    let within = section.get(reader, &BLACKHOLE_WITHIN).unwrap_or_default();
    let most = section.get(reader, &BLACKHOLE_MOST).unwrap_or_default();
    let span = section.finish(reader).unwrap_or_default();
    let window_s = match window {
        Some(at) if at.value > WINDOW_MAX_S => {
            reader.error(ErrorKind::BadValue, &at.span, "the window is too long", "at most \"60s\"");
            return None;
        }
        Some(at) => seconds(Some(at.value)),
        None => 1,
    };
    let above = above?;
    if let Some(at) = below.as_ref().filter(|at| at.value > above) {
        reader.error(ErrorKind::Conflict, &at.span, "an alarm would end at once", "`below` at most `above`");
    }
    let below = below.map_or(above.div_ceil(2), |at| at.value);
    let baseline = factor.map(|factor| Baseline { factor, window_s: seconds(learned_s).max(1) });
    let (name, key, measure) = (name?, key?, measure?);
    if let Some(at) = &blackhole
        && (key != BLACKHOLE_KEY || within.is_empty())
    {
        let expected =
            "`key = \"dst\"`, and `blackhole_within` with the networks whose hosts may be announced";
        reader.error(ErrorKind::Conflict, &at.span, "nothing may become a blackhole", expected);
    }
    let blackhole = blackhole.map(|at| Blackhole { for_s: seconds(Some(at.value)).max(1), within, most });
    let value = AlarmRule {
        name,
        key,
        filter,
        measure,
        above,
        below,
        baseline,
        window_s,
        for_s,
        clear_s,
        silence_s,
        blackhole,
    };
    Some(At { value, span })
}

/// Blackholes are BGP's.
pub(crate) fn check_blackholes(reader: &mut Reader, alarms: &[At<AlarmRule>], has_bgp: bool) {
    if let Some(at) = alarms.iter().find(|at| at.value.blackhole.is_some() && !has_bgp) {
        let message = format!("alarm `{}` has a blackhole, which only BGP can announce", at.value.name);
        reader.error(ErrorKind::MissingKey, &at.span, message, "a router with a section [bgp]");
    }
}

/// Reads a file with nothing but `[[alarms]]`.
pub fn alarms_of(path: &Path) -> Result<Vec<AlarmRule>, ConfigErrors> {
    let source = ConfigSource::read(path)?;
    let (mut reader, document) = source.parsed()?;
    let mut root = Section::new(document.get_ref(), &FILE_TABLE, FILE_TABLE.title.to_owned(), 0..0);
    let rules = read(&mut reader, &mut root);
    check_blackholes(&mut reader, &rules, false);
    root.finish(&mut reader);
    let (diagnostics, failed) = reader.finish();
    if failed {
        Err(ConfigErrors { diagnostics })
    } else {
        Ok(rules.into_iter().map(|rule| rule.value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouterConfig;

    fn rules(text: &str) -> Result<Vec<AlarmRule>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("alarms.toml");
        std::fs::write(&path, text).expect("it can be written");
        alarms_of(&path).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_rule_has_defaults_and_mistakes_are_told() {
        let text = "[[alarms]]\nname = \"many\"\nkey = \"dst\"\nmeasure = \"ports\"\nabove = 101\n";
        let found = rules(text).expect("a rule").remove(0);
        let expected = AlarmRule {
            name: "many".to_owned(),
            key: "dst".to_owned(),
            filter: String::new(),
            measure: Measure::Ports,
            above: 101,
            below: 51,
            baseline: None,
            window_s: 1,
            for_s: 0,
            clear_s: 10,
            silence_s: 0,
            blackhole: None,
        };
        assert_eq!(found, expected);
        let learned = rules(&format!("{text}baseline_factor = 5\n")).expect("a rule").remove(0).baseline;
        assert_eq!(learned, Some(Baseline { factor: 5, window_s: 3600 }));
        for (more, said) in [
            ("below = 200", "`below` at most `above`"),
            ("window = \"2m\"", "at most \"60s\""),
            ("name = \"two words\"", "once"),
            ("shade = 1", "shade"),
        ] {
            let error = rules(&format!("{text}{more}\n")).expect_err(more);
            assert!(error.contains(said), "{more}: {error}");
        }
        let blackhole = "blackhole = \"10m\"\nblackhole_within = \"203.0.113.0/24\"\n";
        let error = rules(&format!("{text}{blackhole}")).expect_err("no BGP");
        assert!(error.contains("only BGP can announce"), "{error}");
        let error = rules(&format!("{text}blackhole = \"10m\"\n")).expect_err("no networks");
        assert!(error.contains("`blackhole_within` with the networks"), "{error}");
        assert!(rules("[flows]\n").expect_err("no alarms").contains("flows"));
        // Of a router, they are about the flows that it meters.
        let config = |text: &str| RouterConfig::from_text("test.toml", text, Path::new(""));
        let error = config(text).expect_err("no [flows]").to_string();
        assert!(error.contains("a section [flows]"), "{error}");
        let port = "[ports.lan]\nmac = \"02:00:00:00:00:01\"\naddresses = [\"192.0.2.1/28\"]\n";
        let router = config(&format!("{port}[flows]\nstore = \"flows\"\n{text}")).expect("a router");
        let flows = router.flows.expect("[flows]");
        assert_eq!((router.alarms, flows.meter.watched), (vec![expected], true));
        let bgp = "[bgp]\nas = 65001\nrouter_id = \"192.0.2.1\"\n";
        let router = config(&format!("{port}[flows]\nstore = \"flows\"\n{bgp}{text}{blackhole}"));
        let within = vec!["203.0.113.0/24".parse().expect("a prefix")];
        let found = router.expect("a router").alarms.remove(0).blackhole;
        assert_eq!(found, Some(Blackhole { for_s: 600, within, most: 16 }));
    }
}
