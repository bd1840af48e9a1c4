//! `[[acl]]`: access lists, which ports name in `acl_in` and `acl_out`.

use std::ops::{Range, RangeInclusive};

use ipnet::IpNet;
use thalweg_dataplane::acl::{AccessList, AclSet, Action, Fragment, IcmpKind, Rule, TcpFlags};
use thalweg_wire::{ip_protocol, tcp};

use crate::diagnostic::{ErrorKind, nearest, one_of};
use crate::items::{
    DSCP_LIST, PORT_LIST, PREFIX_LIST, PROTOCOL_LIST, check_families, parse_name, read_dscp, read_protocol,
};
use crate::key::{Key, Sub, table};
use crate::ports::Ports;
use crate::reader::{At, Item, Reader, integer_of};
use crate::section::Section;
use crate::sets;
use crate::types::AclConfig;

pub(crate) static ACL: Key<Sub> =
    Key::sections("acl", &TABLE).help("access lists for ports: see [acl.md](acl.md)");
table! {
    static TABLE: "acl", "[[acl]]";

    static NAME: Key<String> =
        Key::text("name", "a name", parse_name).required("\"from-internet\"").help("name, for ports and reports");
    static DEFAULT: Key<Action> = Key::word("default", &ACTIONS)
        .default(Action::Deny)
        .help("action for packets that match no rule: `\"permit\"`, `\"deny\"` or `\"reject\"`");
    static RULES: Key<Sub> = Key::sections("rules", &RULE_TABLE).help("rules in order; the first match decides");
}

table! {
    static RULE_TABLE: "acl.rules", "[[acl.rules]]";

    pub(crate) static ACTION: Key<Action> = Key::word("action", &ACTIONS)
        .required("\"permit\"")
        .help("`\"permit\"`, `\"deny\"` silently, or `\"reject\"`, which tells the sender");
    pub(crate) static RULE_NAME: Key<String> =
        Key::text("name", "a name", parse_name).otherwise("its number").help("in reports");
    pub(crate) static SOURCE: Key<Vec<IpNet>> = Key::by("source", PREFIX_LIST, sets::prefixes)
        .otherwise("any")
        .help("prefixes of either family; `\"@office\"`: those of a [set](firewall.md#sets)");
    pub(crate) static DESTINATION: Key<Vec<IpNet>> = Key::by("destination", PREFIX_LIST, sets::prefixes)
        .otherwise("any")
        .help("prefixes of either family; `\"@office\"`: those of a [set](firewall.md#sets)");
    pub(crate) static PROTOCOL: Key<Vec<u8>> =
        Key::by("protocol", PROTOCOL_LIST, |reader, item| reader.all(item, read_protocol))
            .otherwise("any")
            .help("transport: `\"udp\"`, or a number");
    pub(crate) static SOURCE_PORTS: Key<Vec<RangeInclusive<u16>>> =
        Key::by("source_ports", PORT_LIST, sets::ports)
            .otherwise("any")
            .help("of TCP and UDP, numbers or ranges: `\"8080-8090\"`, `\"@web\"`");
    pub(crate) static DESTINATION_PORTS: Key<Vec<RangeInclusive<u16>>> =
        Key::by("destination_ports", PORT_LIST, sets::ports)
            .otherwise("any")
            .help("of TCP and UDP, numbers or ranges: `\"8080-8090\"`, `\"@web\"`");
    pub(crate) static DSCP: Key<Vec<u8>> = Key::by("dscp", DSCP_LIST, |reader, item| reader.all(item, read_dscp))
        .otherwise("any")
        .help("names or numbers: `[\"ef\", 46]`");
    static ESTABLISHED: Key<bool> = Key::flag("established").help("`true`: TCP with ACK or RST");
    static TCP_FLAGS_KEY: Key<Vec<TcpFlags>> =
        Key::by("tcp_flags", "flags or a list", |reader, item| reader.all(item, read_tcp_flags))
            .otherwise("any")
            .help("flags that are set, with `!` those that are not: `\"syn,!ack\"`");
    pub(crate) static ICMP: Key<()> = Key::raw("icmp", "a type or a list").otherwise("any").help(
        "types by name or number, with a code if that matters: `[\"echo\", \"3/4\", 11]`; wants `protocol` to be `icmp` or \
         `icmpv6`",
    );
    static FRAGMENT: Key<Vec<Fragment>> = Key::by("fragment", "a word or a list", |reader, item| {
        reader.all(item, |reader, entry| reader.word(entry, &FRAGMENTS))
    })
    .otherwise("any")
    .help("place in a fragmented datagram: `\"none\"`, `\"first\"` or `\"later\"`");
}

const ACTIONS: [(&str, Action); 3] =
    [("permit", Action::Permit), ("deny", Action::Deny), ("reject", Action::Reject)];

const FRAGMENTS: [(&str, Fragment); 3] =
    [("none", Fragment::Whole), ("first", Fragment::First), ("later", Fragment::Later)];

/// Names of ICMP types (RFC 792) and of ICMPv6 types (RFC 4443, RFC 4861).
const ICMP_NAMES: [(&str, u8); 8] = [
    ("echo-reply", 0),
    ("unreachable", 3),
    ("redirect", 5),
    ("echo", 8),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp", 13),
    ("timestamp-reply", 14),
];
const ICMPV6_NAMES: [(&str, u8); 11] = [
    ("unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo", 128),
    ("echo-reply", 129),
    ("router-solicitation", 133),
    ("router-advertisement", 134),
    ("neighbor-solicitation", 135),
    ("neighbor-advertisement", 136),
    ("redirect", 137),
];

/// Reads `[[acl]]` and resolves the names of lists at ports.
pub(crate) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &mut Ports) -> Vec<AclConfig> {
    let mut lists: Vec<(AclConfig, Range<usize>)> = Vec::new();
    for section in root.sections(reader, &ACL) {
        read_acl(reader, section, &mut lists);
    }
    let lists: Vec<AclConfig> = lists.into_iter().map(|(list, _)| list).collect();
    for (port, inbound, At { value: name, span }) in std::mem::take(&mut ports.acl_names) {
        let names = || lists.iter().map(|list| list.name.as_str());
        let Some(place) = names().position(|known| known == name) else {
            let expected = if lists.is_empty() { "a section [[acl]]".to_owned() } else { one_of(names()) };
            let message = format!("no access list is named `{name}`");
            let finding = reader.error(ErrorKind::UnknownName, &span, message, expected);
            finding.help = nearest(&name, names()).map(|s| format!("did you mean `{s}`?"));
            continue;
        };
        let config = &mut ports.configs[usize::from(port)];
        let list = if inbound { &mut config.acl_in } else { &mut config.acl_out };
        *list = Some(place as u16);
    }
    lists
}

fn read_acl(reader: &mut Reader, mut section: Section<'_>, lists: &mut Vec<(AclConfig, Range<usize>)>) {
    let name = section.read(reader, &NAME);
    if let Some(name) = &name {
        section.title = format!("access list `{}`", name.value);
    }
    let mut list = AccessList { rules: Vec::new(), default: Action::Deny };
    section.set(reader, &DEFAULT, &mut list.default);
    let mut rule_names = Vec::new();
    let rules = section.sections(reader, &RULES);
    read_rules(reader, rules, &mut list, &mut rule_names);
    section.finish(reader);
    let Some(At { value: name, span }) = name else { return };
    if let Some((_, first)) = lists.iter().find(|(list, _)| list.name == name) {
        let expected = format!("a name other than that on {}", reader.line(first));
        let message = format!("two access lists are named `{name}`");
        reader.error(ErrorKind::Duplicate, &span, message, expected);
    } else if lists.len() >= AclSet::LISTS_MAX {
        let expected = format!("at most {}", AclSet::LISTS_MAX);
        reader.error(ErrorKind::TooMany, &span, "too many access lists", expected);
    } else {
        lists.push((AclConfig { name, list, rule_names }, span));
    }
}

fn read_rules(
    reader: &mut Reader,
    sections: Vec<Section<'_>>,
    list: &mut AccessList,
    names: &mut Vec<String>,
) {
    let mut last_for_all: Option<Range<usize>> = None;
    for section in sections {
        let span = section.span.clone();
        if list.rules.len() >= AclSet::RULES_MAX {
            let expected = format!("at most {}", AclSet::RULES_MAX);
            reader.error(ErrorKind::TooMany, &span, "too many rules", expected);
            return;
        }
        let number = list.rules.len() + 1;
        let Some((rule, name, is_for_all)) = read_rule(reader, section, number) else { continue };
        if let Some(before) = last_for_all.take() {
            let message = "no packet gets as far as this rule";
            let expected =
                format!("a rule before that of {}, which every packet meets", reader.line(&before));
            reader.warning(ErrorKind::Conflict, &span, message, expected);
        }
        if is_for_all {
            last_for_all = Some(span);
        }
        list.rules.push(rule);
        names.push(name);
    }
}

/// A rule, its name, and whether every packet meets it. A rule with errors is read to its end, so that all
/// are reported.
fn read_rule(reader: &mut Reader, mut section: Section<'_>, number: usize) -> Option<(Rule, String, bool)> {
    let action = section.read(reader, &ACTION).map(|at| at.value);
    let name = section.get(reader, &RULE_NAME);
    let is_for_all = section.is_exhausted();
    let mut rule = Rule::all(action.unwrap_or(Action::Deny));
    read_match(reader, &mut section, &mut rule);
    section.set(reader, &TCP_FLAGS_KEY, &mut rule.tcp_flags);
    section.set(reader, &FRAGMENT, &mut rule.fragments);
    if let Some(At { value, span }) = section.read(reader, &ESTABLISHED) {
        read_established(reader, value, &span, &mut rule);
    }
    let span = section.span.clone();
    section.finish(reader);
    check_rule(reader, &rule, &span);
    action?;
    Some((rule, name.unwrap_or_else(|| number.to_string()), is_for_all))
}

/// Reads what a rule matches, except flags and fragments: a firewall's rules have those keys too.
pub(crate) fn read_match(reader: &mut Reader, section: &mut Section<'_>, rule: &mut Rule) {
    section.set(reader, &SOURCE, &mut rule.sources);
    section.set(reader, &DESTINATION, &mut rule.destinations);
    section.set(reader, &PROTOCOL, &mut rule.protocols);
    section.set(reader, &SOURCE_PORTS, &mut rule.source_ports);
    section.set(reader, &DESTINATION_PORTS, &mut rule.destination_ports);
    section.set(reader, &DSCP, &mut rule.dscp);
    if let Some(item) = section.take(&ICMP) {
        let entries = reader.filled_list(&item);
        let protocol = rule.protocols.clone();
        rule.icmp = entries.iter().filter_map(|entry| read_icmp(reader, entry, &protocol)).collect();
    }
}

fn read_established(reader: &mut Reader, established: bool, span: &Range<usize>, rule: &mut Rule) {
    if !established {
        let message = "`established = false` says nothing";
        reader.error(ErrorKind::BadValue, span, message, "true, or `tcp_flags = \"syn,!ack\"`");
    } else if rule.tcp_flags.is_empty() {
        rule.tcp_flags = TcpFlags::ESTABLISHED.to_vec();
    } else {
        let message = "`established` and `tcp_flags` are two ways to say one thing";
        reader.error(ErrorKind::Conflict, span, message, "either of them alone");
    }
}

fn read_tcp_flags(reader: &mut Reader, item: &Item<'_>) -> Option<TcpFlags> {
    const EXPECTED: &str = "flags out of fin, syn, rst, psh, ack and urg, each once, such as \"syn,!ack\"";
    fn parse(text: &str) -> Result<TcpFlags, &'static str> {
        let mut flags = TcpFlags { mask: 0, value: 0 };
        for word in text.split(',').map(str::trim) {
            let name = word.strip_prefix('!').unwrap_or(word);
            let (_, bit) = tcp::FLAG_NAMES.iter().find(|(known, _)| *known == name).ok_or(EXPECTED)?;
            if flags.mask & bit != 0 {
                return Err(EXPECTED);
            }
            flags.mask |= bit;
            flags.value |= if name == word { *bit } else { 0 };
        }
        Ok(flags)
    }
    reader.parse(item, parse).map(|at| at.value)
}

/// `echo`, `3/4` or `11`: the meaning of a name depends on the protocol.
fn read_icmp(reader: &mut Reader, item: &Item<'_>, protocols: &[u8]) -> Option<IcmpKind> {
    let names: &[(&str, u8)] = match protocols {
        [ip_protocol::ICMP] => &ICMP_NAMES,
        [ip_protocol::ICMPV6] => &ICMPV6_NAMES,
        _ => {
            let message = "`icmp` wants to know which";
            let expected = "`protocol = \"icmp\"` or `protocol = \"icmpv6\"`, alone";
            reader.error(ErrorKind::Conflict, &item.span, message, expected);
            return None;
        }
    };
    if integer_of(item.value).is_some() {
        let kind: u8 = reader.integer(item, 0..=255, "")?;
        return Some(IcmpKind { kind, code: None });
    }
    const EXPECTED: &str = "an ICMP type by name or number, with a code if that matters, such as \"3/4\"";
    let text = reader.string(item, EXPECTED)?;
    let (kind, code) = text.split_once('/').map_or((text, None), |(kind, code)| (kind, Some(code)));
    let named = names.iter().find(|(name, _)| *name == kind).map(|(_, number)| *number);
    let kind_number = named.or_else(|| kind.parse().ok());
    let code_number = code.map(|code| code.parse::<u8>());
    if let (Some(kind), None | Some(Ok(_))) = (kind_number, &code_number) {
        return Some(IcmpKind { kind, code: code_number.and_then(Result::ok) });
    }
    let finding =
        reader.error(ErrorKind::BadValue, &item.span, format!("bad value `{text}` for `icmp`"), EXPECTED);
    let suggestion = nearest(kind, names.iter().map(|(name, _)| *name)).filter(|_| kind_number.is_none());
    finding.help = suggestion.map(|s| format!("did you mean `{s}`?"));
    None
}

/// Reports conditions that no packet can meet together.
pub(crate) fn check_rule(reader: &mut Reader, rule: &Rule, span: &Range<usize>) {
    let only = |wanted: &[u8]| rule.protocols.is_empty() || rule.protocols.iter().any(|p| wanted.contains(p));
    let ports = !rule.source_ports.is_empty() || !rule.destination_ports.is_empty();
    let flags = !rule.tcp_flags.is_empty();
    let icmp = !rule.icmp.is_empty();
    if ports && !only(&[ip_protocol::TCP, ip_protocol::UDP]) {
        let message = "packets of this protocol have no ports";
        reader.error(ErrorKind::Conflict, span, message, "protocol tcp or udp, or no ports");
    } else if flags && !only(&[ip_protocol::TCP]) {
        let message = "packets of this protocol have no TCP flags";
        reader.error(
            ErrorKind::Conflict,
            span,
            message,
            "protocol tcp, or neither established nor tcp_flags",
        );
    } else if (ports || flags || icmp) && rule.fragments == [Fragment::Later] {
        let message = "later fragments have no ports, flags or types";
        reader.error(ErrorKind::Conflict, span, message, "addresses, protocol and dscp beside `fragment`");
    }
    let family = |v6: bool| {
        let of = |nets: &[ipnet::IpNet]| nets.is_empty() || nets.iter().any(|n| n.addr().is_ipv6() == v6);
        of(&rule.sources) && of(&rule.destinations)
    };
    if icmp
        && (rule.protocols == [ip_protocol::ICMP] && !family(false)
            || rule.protocols == [ip_protocol::ICMPV6] && !family(true))
    {
        let message = "ICMP and addresses are of different families";
        reader.error(
            ErrorKind::Conflict,
            span,
            message,
            "icmp with IPv4 prefixes, icmpv6 with IPv6 prefixes",
        );
    }
    check_families(reader, &rule.sources, &rule.destinations, span);
}
