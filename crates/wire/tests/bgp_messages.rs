//! Every message of the shared collection of BGP messages: captures with tcpdump's text or NetGauze's decoding,
//! messages that ExaBGP reads and writes, and inputs that once crashed GoBGP. Our reading of a message is
//! compared with theirs, and each file's outcomes are counted; nothing is left out silently.

#[path = "bgp_messages/capture.rs"]
mod capture;
#[path = "bgp_messages/expected.rs"]
mod expected;
#[path = "bgp_messages/outcomes.rs"]
mod outcomes;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use thalweg_base::Address;
use thalweg_wire::bgp::{
    AsPath, Codec, Fault, Frame, MessageKind, MpNlri, Nlri, Notification, Open, Origin, PeerFacts, PeerSide,
    RouteRefresh, Update, Verdict, attribute, begin_message, finish_message, frame,
};

const COLLECTION: &str = "bgp-messages";

fn four_bytes() -> Codec {
    Codec { four_octet_as: true, extended_next_hop: true, ..Codec::default() }
}

fn two_bytes() -> Codec {
    Codec { four_octet_as: false, ..four_bytes() }
}

fn inside() -> PeerFacts {
    PeerFacts { side: PeerSide::Internal, in_confederation: true, ..PeerFacts::default() }
}

/// The facts of an UPDATE, one per line.
fn facts(update: &Update<'_>) -> Vec<String> {
    let mut facts = Vec::new();
    let mut line =
        |name: &str, value: Option<String>| facts.extend(value.map(|value| format!("{name} {value}")));
    let mut scratch = Vec::new();
    for each in update.attributes() {
        match each.code {
            attribute::ORIGIN => {
                let word = match update.origin {
                    Origin::Igp => "igp",
                    Origin::Egp => "egp",
                    Origin::Incomplete => "incomplete",
                };
                line("origin", Some(word.to_owned()));
            }
            attribute::AS_PATH => {
                line("as-path", Some(AsPath::new(update.as_path(&mut scratch)).to_string()));
            }
            attribute::COMMUNITIES => {
                let each = each.value.as_chunks::<4>().0.iter();
                let words: Vec<String> = each.map(|four| u32::from_be_bytes(*four).to_string()).collect();
                line("communities", Some(words.join(" ")));
            }
            _ => {}
        }
    }
    line("med", update.med.map(|med| med.to_string()));
    line("local-pref", update.local_pref.map(|value| value.to_string()));
    line("aggregator", update.aggregator().map(|who| format!("{} {}", who.asn, who.address)));
    line("foreign", update.foreign_reach.map(|_| "reach".to_owned()));
    line("foreign", update.foreign_unreach.map(|_| "unreach".to_owned()));
    routes("withdraw", update.withdrawn, "", &mut facts);
    match update.mp_unreach {
        Some(MpNlri::Ipv4(nlri)) => routes("withdraw", nlri, "", &mut facts),
        Some(MpNlri::Ipv6(nlri)) => routes("withdraw", nlri, "", &mut facts),
        None => {}
    }
    let via = |next_hop: String| format!(" via {next_hop}");
    let next_hop = via(update.next_hop.map_or(String::new(), |address| address.to_string()));
    routes("announce", update.reach_v4, &next_hop, &mut facts);
    if let Some(reach) = update.mp_reach {
        let next_hop = via(reach.next_hop.to_string());
        match reach.routes {
            MpNlri::Ipv4(nlri) => routes("announce", nlri, &next_hop, &mut facts),
            MpNlri::Ipv6(nlri) => routes("announce", nlri, &next_hop, &mut facts),
        }
    }
    facts
}

fn routes<A: Address>(word: &str, nlri: Nlri<'_, A>, after: &str, facts: &mut Vec<String>) {
    for (path_id, prefix) in nlri {
        let id = if path_id == 0 { String::new() } else { format!("#{path_id}") };
        facts.push(format!("{word} {prefix}{id}{after}"));
    }
}

/// The outcome of a message: the words that are counted, and the facts of an UPDATE.
struct Read {
    outcome: String,
    facts: Vec<String>,
}

fn read(message: Frame<'_>, codec: &Codec, peer: &PeerFacts) -> Read {
    let told = |kind: &str, error: Notification| Read {
        outcome: format!("{kind} refused {}/{}", error.code, error.subcode),
        facts: Vec::new(),
    };
    let plain = |outcome: String, fact: String| Read { outcome, facts: vec![fact] };
    match message.kind {
        MessageKind::Keepalive => plain("keepalive".to_owned(), "keepalive".to_owned()),
        MessageKind::Open => match Open::parse(message.body) {
            Ok(open) => {
                let fact = format!("open {} {} {}", open.my_as, open.hold_time_s, open.router_id);
                plain("open".to_owned(), fact)
            }
            Err(error) => told("open", error),
        },
        MessageKind::Notification => {
            let notification = Notification::parse(message.body).expect("framed");
            plain(
                format!("notification {}/{}", notification.code, notification.subcode),
                notification.to_string(),
            )
        }
        MessageKind::RouteRefresh => match RouteRefresh::parse(message.body) {
            Ok(refresh) => plain("route-refresh".to_owned(), format!("{refresh:?}")),
            Err(error) => told("route-refresh", error),
        },
        MessageKind::Update => match Update::parse(message.body, codec, peer) {
            Ok(update) => {
                let foreign = update.foreign_reach.or(update.foreign_unreach).map_or("", |_| " foreign");
                let outcome = match update.verdict {
                    Verdict::Good if update.end_of_rib().is_some() => "end-of-rib".to_owned(),
                    Verdict::Good => format!("update{foreign}"),
                    Verdict::TreatAsWithdraw(problem) => format!("update{foreign} withdrawn: {problem}"),
                };
                Read { outcome, facts: facts(&update) }
            }
            Err(error) => told("update", error),
        },
    }
}

/// Splits bytes into messages; also returns why it ended early, if it did.
fn messages(bytes: &[u8]) -> (Vec<Frame<'_>>, Option<String>) {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        match frame(rest, 65_535) {
            Ok(Some(message)) => {
                rest = &rest[message.length..];
                found.push(message);
            }
            Ok(None) => return (found, Some("cut".to_owned())),
            Err(error) => return (found, Some(format!("stream refused: {error}"))),
        }
    }
    (found, None)
}

#[derive(Default)]
struct Counts(BTreeMap<String, usize>);

impl Counts {
    fn add(&mut self, outcome: &str) {
        *self.0.entry(outcome.to_owned()).or_default() += 1;
    }
}

/// All outcomes of a capture, and the messages in order of stream.
fn read_capture(path: &Path) -> (Counts, Vec<Read>, Vec<String>) {
    let file = std::fs::read(path).expect("readable");
    let (streams, others) = capture::streams(&file);
    let mut counts = Counts::default();
    counts.0.extend((others > 0).then(|| ("packet without bgp".to_owned(), others)));
    let (mut reads, mut heads) = (Vec::new(), Vec::new());
    let add_path = path.ends_with("bgp-addpath.pcap");
    for stream in &streams {
        let key = &stream.key;
        let back = streams.iter().find(|other| {
            (&other.key.2, other.key.3, &other.key.0, other.key.1) == (&key.0, key.1, &key.2, key.3)
        });
        // Both negotiated it, or one did and the other is unknown, or both are unknown.
        let says = |bytes: &[u8]| {
            let (found, _) = messages(bytes);
            let open = found.iter().find(|message| message.kind == MessageKind::Open);
            open.and_then(|open| Open::parse(open.body).ok())
                .map(|open| open.capabilities.four_octet_as.is_some())
        };
        let four =
            says(&stream.bytes).unwrap_or(true) && back.and_then(|back| says(&back.bytes)).unwrap_or(true);
        let mut codec = if four { four_bytes() } else { two_bytes() };
        codec.add_path_receive = [add_path; 2];
        let (found, end) = messages(&stream.bytes);
        for message in found {
            let read = read(message, &codec, &inside());
            counts.add(&read.outcome);
            let kind = message.kind.to_string();
            heads.push(format!("{} {}", kind[..1].to_owned() + &kind[1..].to_lowercase(), message.length));
            reads.push(read);
        }
        if let Some(end) = end {
            counts.add(&end);
        }
    }
    (counts, reads, heads)
}

fn files(folder: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut files: Vec<_> = entries
        .filter(|path| path.extension().map_or("", |ending| ending.to_str().unwrap_or("")) == extension)
        .collect();
    files.sort();
    files
}

fn assert_counts(name: &str, counts: &Counts) {
    let found: Vec<String> = counts.0.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let expected = outcomes::OUTCOMES.iter().find(|(file, _)| *file == name);
    let expected = expected.map_or(&[][..], |(_, outcomes)| outcomes);
    assert_eq!(found, expected, "{name}");
}

#[test]
fn tcpdump() {
    let Some(root) = thalweg_testdata::shared(COLLECTION) else { return };
    let folder = root.join("tcpdump");
    let captures: Vec<_> = [files(&folder, "pcap"), files(&folder, "pcapng")].concat();
    assert_eq!(captures.len(), 12);
    for path in captures {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let (counts, reads, mut heads) = read_capture(&path);
        assert_counts(name, &counts);
        let Ok(text) = std::fs::read_to_string(path.with_extension("out")) else { continue };
        let dumped = expected::tcpdump(&text);
        // Messages behind damage that ends the stream for us; tcpdump searches for them.
        if outcomes::TCPDUMP_GOES_ON.contains(&name) {
            continue;
        }
        let mut their_heads: Vec<String> = dumped.iter().map(|message| message.head.clone()).collect();
        their_heads.sort();
        heads.sort();
        assert_eq!(heads, their_heads, "{name}");
        let prefix = |fact: &String| {
            let mut words = fact.split(' ');
            matches!(words.next(), Some("announce" | "withdraw"))
                .then(|| words.next().map(str::to_owned))
                .flatten()
        };
        let mut ours: Vec<String> =
            reads.iter().flat_map(|read| read.facts.iter().filter_map(prefix)).collect();
        let refused = reads.iter().any(|read| read.outcome.contains("refused"));
        let foreign = refused || reads.iter().any(|read| read.outcome.contains("foreign"));
        let mut theirs: Vec<String> = dumped.iter().flat_map(|message| message.prefixes.clone()).collect();
        if !foreign {
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{name}");
        }
        // Paths without anything to merge.
        for path in dumped.iter().filter_map(|message| message.as_path.as_ref()) {
            let same = |read: &Read| read.facts.contains(&format!("as-path {path}"));
            let merged = path.split(' ').any(|asn| asn == "23456");
            assert!(merged || refused || reads.iter().any(same), "{name}: no AS_PATH {path:?}");
        }
    }
}

/// The session with AS_TRANS in tcpdump's captures: the real path comes from AS4_PATH.
#[test]
fn as_trans_is_replaced() {
    let Some(root) = thalweg_testdata::shared(COLLECTION) else { return };
    let (_, reads, _) = read_capture(&root.join("tcpdump/bgp-4byte-asn.pcap"));
    for path in ["200 1 222222 333333 4294967290", "2764334674 200 1 222222 333333 4294967290"] {
        let fact = format!("as-path {path}");
        assert!(reads.iter().any(|read| read.facts.contains(&fact)), "{path}");
    }
}

#[test]
fn netgauze() {
    let Some(root) = thalweg_testdata::shared(COLLECTION) else { return };
    let mut captures = Vec::new();
    for folder in std::fs::read_dir(root.join("netgauze")).expect("a folder") {
        captures.extend(files(&folder.expect("an entry").path(), "pcap"));
    }
    captures.sort();
    assert_eq!(captures.len(), 6);
    for path in captures {
        let stem = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let folder =
            path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a folder");
        let (counts, reads, _) = read_capture(&path);
        assert_counts(&format!("{folder}/{stem}"), &counts);
        let json = std::fs::read_to_string(path.with_file_name(format!("{stem}-bgp.json"))).expect("JSON");
        let sorted = |mut facts: Vec<String>| {
            facts.sort();
            facts.join(", ")
        };
        let mut theirs: Vec<String> = json
            .lines()
            .map(|line| {
                let message: Value = serde_json::from_str(line).expect("JSON");
                let other = || expected::netgauze_open(&message).unwrap_or_else(|| "keepalive".to_owned());
                expected::netgauze(&message).map_or_else(other, sorted)
            })
            .collect();
        let ours: Vec<String> = reads.into_iter().map(|read| sorted(read.facts)).collect();
        theirs.sort();
        // The JSON of the last capture covers only some of its connections.
        let partly = folder == "multiple-sessions";
        let mut unmatched = ours;
        for message in &theirs {
            let at = unmatched.iter().position(|ours| ours == message);
            assert!(at.is_some(), "{folder}/{stem}: {message}, but we have {unmatched:#?}");
            unmatched.remove(at.unwrap_or(0));
        }
        assert!(partly || unmatched.is_empty(), "{folder}/{stem}: only we have {unmatched:#?}");
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !matches!(byte, b':' | b' ')).collect();
    let pairs = digits.as_chunks::<2>().0.iter().map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

/// One of ExaBGP's messages with its JSON, if it has any.
fn exabgp_message(name: &str, hex: &str, json: Option<&str>, counts: &mut Counts) {
    let mut bytes = bytes(hex);
    if !bytes.starts_with(&[0xff; 16]) {
        // Some files have the body only.
        let mut message = Vec::new();
        let start = begin_message(&mut message, MessageKind::Update);
        message.append(&mut bytes);
        finish_message(&mut message, start).expect("the message fits");
        bytes = message;
    }
    let (found, end) = messages(&bytes);
    assert!(found.len() == 1 && end.is_none(), "{name}: {end:?}");
    let mut codec = if name == "conf-no-asn4.ci" { two_bytes() } else { four_bytes() };
    // End-of-RIB follows the routes and has no path identifiers.
    codec.add_path_receive = [name == "conf-path-information.ci"; 2];
    let read = read(found[0], &codec, &inside());
    counts.add(&read.outcome);
    let Some(json) = json else { return };
    let message: Value = serde_json::from_str(json).expect("JSON");
    let refused = read.outcome.contains("refused") || read.outcome.contains("withdrawn");
    let (mut ours, mut theirs) = (read.facts, expected::exabgp(&message));
    ours.retain(|fact| !fact.starts_with("foreign"));
    ours.sort();
    theirs.sort();
    if !refused {
        assert_eq!(ours, theirs, "{name}");
    }
}

#[test]
fn exabgp() {
    let Some(root) = thalweg_testdata::shared(COLLECTION) else { return };
    let decoding = files(&root.join("exabgp/decoding"), "");
    assert_eq!(decoding.len(), 15);
    let mut counts = Counts::default();
    for path in decoding {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let text = std::fs::read_to_string(&path).expect("text");
        let mut lines = text.lines().skip(1);
        let hex = lines.next().expect("hex");
        exabgp_message(name, hex, lines.next(), &mut counts);
    }
    assert_counts("exabgp/decoding", &counts);
    let encoding = files(&root.join("exabgp/encoding"), "ci");
    assert_eq!(encoding.len(), 20);
    let mut counts = Counts::default();
    for path in encoding {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let text = std::fs::read_to_string(&path).expect("text");
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some((number, hex)) = line.split_once(":raw:")
                && number.bytes().all(|byte| byte.is_ascii_digit())
            {
                let json = lines.peek().and_then(|line| line.split_once(":json:")).map(|(_, json)| json);
                exabgp_message(name, hex, json, &mut counts);
            }
        }
    }
    assert_counts("exabgp/encoding", &counts);
}

/// None has a valid marker, so all are refused at once; with a valid one they are refused too, or lose their
/// routes.
#[test]
fn gobgp() {
    let Some(root) = thalweg_testdata::shared(COLLECTION) else { return };
    let inputs = files(&root.join("gobgp-bad-len"), "");
    assert_eq!(inputs.len(), 11);
    let mut counts = Counts::default();
    for path in inputs {
        let mut bytes = std::fs::read(&path).expect("readable");
        assert!(frame(&bytes, 4096).is_err());
        bytes[..16].fill(0xff);
        let (found, end) = messages(&bytes);
        for message in found {
            for codec in [four_bytes(), two_bytes()] {
                counts.add(&read(message, &codec, &inside()).outcome);
            }
        }
        if let Some(end) = end {
            counts.add(&end);
        }
    }
    assert_counts("gobgp-bad-len", &counts);
}

/// Reading a four-octet path as two-octet is reported as a fault of AS_PATH.
#[test]
fn a_path_of_the_wrong_width_is_a_fault() {
    let body = [0, 0, 0, 9, 0x40, 2, 6, 2, 1, 0, 0, 0xfc, 0, 8, 10];
    let update = Update::parse(&body, &two_bytes(), &inside()).expect("not a reset: it announces");
    assert!(
        matches!(update.verdict, Verdict::TreatAsWithdraw(problem) if matches!(problem.fault, Fault::AsPath(_)))
    );
}
