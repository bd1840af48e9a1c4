//! `[[acl]]`: access lists, which ports name in `acl_in` and `acl_out`.
//!
//! ```toml
//! [[acl]]
//! name = "from-internet"       # required
//! default = "deny"             # for packets that meet no rule: permit, deny or reject; default deny
//!
//! [[acl.rules]]                # the first rule that a packet meets decides; all keys of a rule must be met
//! action = "permit"            # required: permit, deny (silently) or reject (the sender is told)
//! name = "web"                 # in reports; default: its number
//! source = "10.0.0.0/8"        # a prefix or a list of them; destination too
//! destination = ["203.0.113.0/28", "2001:db8::/48"]
//! protocol = "tcp"             # or a number, or a list
//! destination_ports = "80-443" # TCP and UDP; source_ports too; a port, a range or a list
//! dscp = ["ef", 46]
//! established = true           # TCP with ACK or RST; or:
//! tcp_flags = "syn,!ack"       # flags that are set, and (with !) that are not; or a list
//! icmp = ["echo", "3/4", 11]   # types by name or number, with a code if that matters; wants a protocol
//! fragment = "later"           # none, first or later, or a list
//! ```

use std::ops::Range;

use thalweg_dataplane::acl::{AccessList, AclSet, Action, Fragment, IcmpKind, Rule, TcpFlags};
use thalweg_wire::{ip_protocol, tcp};

use super::diagnostic::{ErrorKind, nearest, one_of};
use super::nat::port_range;
use super::ports::Ports;
use super::qos::{check_families, parse_name, read_dscp, read_list, read_prefix, read_protocol};
use super::reader::{At, Item, Reader, Section, integer_of};

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

/// One access list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclConfig {
    /// Its name.
    pub name: String,
    /// What it says.
    pub list: AccessList,
    /// Names of its rules, as many as there are: their own or their numbers, from 1.
    pub rule_names: Vec<String>,
}

/// Reads `[[acl]]` and tells the ports which lists they named.
pub(super) fn read(reader: &mut Reader, root: &mut Section<'_>, ports: &mut Ports) -> Vec<AclConfig> {
    let mut lists: Vec<(AclConfig, Range<usize>)> = Vec::new();
    if let Some(item) = root.take("acl") {
        for entry in reader.list(&item) {
            read_acl(reader, &entry, &mut lists);
        }
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

fn read_acl(reader: &mut Reader, entry: &Item<'_>, lists: &mut Vec<(AclConfig, Range<usize>)>) {
    let Some(mut section) = reader.section(entry, "[[acl]]".to_owned()) else { return };
    let name = section.require("name", "\"from-internet\"").and_then(|item| reader.parse(&item, parse_name));
    if let Some(name) = &name {
        section.title = format!("access list `{}`", name.value);
    }
    let default = section.take("default").and_then(|item| reader.word(&item, &ACTIONS));
    let mut list = AccessList { rules: Vec::new(), default: default.unwrap_or(Action::Deny) };
    let mut rule_names = Vec::new();
    if let Some(item) = section.take("rules") {
        read_rules(reader, &item, &mut list, &mut rule_names);
    }
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

fn read_rules(reader: &mut Reader, item: &Item<'_>, list: &mut AccessList, names: &mut Vec<String>) {
    let mut last_for_all: Option<Range<usize>> = None;
    for entry in reader.list(item) {
        if list.rules.len() >= AclSet::RULES_MAX {
            let expected = format!("at most {}", AclSet::RULES_MAX);
            reader.error(ErrorKind::TooMany, &entry.span, "too many rules", expected);
            return;
        }
        let number = list.rules.len() + 1;
        let Some((rule, name, is_for_all)) = read_rule(reader, &entry, number) else { continue };
        if let Some(before) = last_for_all.take() {
            let message = "no packet gets as far as this rule";
            let expected =
                format!("a rule before that of {}, which every packet meets", reader.line(&before));
            reader.warning(ErrorKind::Conflict, &entry.span, message, expected);
        }
        if is_for_all {
            last_for_all = Some(entry.span.clone());
        }
        list.rules.push(rule);
        names.push(name);
    }
}

/// A rule, its name and whether every packet meets it. A rule with mistakes is read to its end, so that all of
/// them are reported.
fn read_rule(reader: &mut Reader, entry: &Item<'_>, number: usize) -> Option<(Rule, String, bool)> {
    let mut section = reader.section(entry, "[[acl.rules]]".to_owned())?;
    let action = section.require("action", "\"permit\"").and_then(|item| reader.word(&item, &ACTIONS));
    let name = section.take("name").and_then(|item| reader.parse(&item, parse_name));
    let is_for_all = section.is_exhausted();
    let range = |reader: &mut Reader, item: &Item<'_>| {
        port_range(reader, item).map(|at| at.value.first..=at.value.last)
    };
    let mut rule = Rule {
        sources: read_list(reader, &mut section, "source", read_prefix),
        destinations: read_list(reader, &mut section, "destination", read_prefix),
        protocols: read_list(reader, &mut section, "protocol", read_protocol),
        source_ports: read_list(reader, &mut section, "source_ports", range),
        destination_ports: read_list(reader, &mut section, "destination_ports", range),
        dscp: read_list(reader, &mut section, "dscp", read_dscp),
        tcp_flags: read_list(reader, &mut section, "tcp_flags", read_tcp_flags),
        fragments: read_list(reader, &mut section, "fragment", |r, item| r.word(item, &FRAGMENTS)),
        ..Rule::all(action.unwrap_or(Action::Deny))
    };
    if let Some(item) = section.take("established") {
        read_established(reader, &item, &mut rule);
    }
    let protocol = rule.protocols.clone();
    rule.icmp = read_list(reader, &mut section, "icmp", |r, item| read_icmp(r, item, &protocol));
    let span = section.span.clone();
    section.finish(reader);
    check_rule(reader, &rule, &span);
    action?;
    Some((rule, name.map_or_else(|| number.to_string(), |at| at.value), is_for_all))
}

fn read_established(reader: &mut Reader, item: &Item<'_>, rule: &mut Rule) {
    let Some(established) = reader.boolean(item) else { return };
    if !established {
        let message = "`established = false` says nothing";
        reader.error(ErrorKind::BadValue, &item.span, message, "true, or `tcp_flags = \"syn,!ack\"`");
    } else if rule.tcp_flags.is_empty() {
        rule.tcp_flags = TcpFlags::ESTABLISHED.to_vec();
    } else {
        let message = "`established` and `tcp_flags` are two ways to say one thing";
        reader.error(ErrorKind::Conflict, &item.span, message, "either of them alone");
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

/// `echo`, `3/4` or `11`: what a name stands for depends on the protocol.
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
        let kind = reader.integer(item, 0..=255, "")? as u8;
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

/// Conditions that no packet can meet together.
fn check_rule(reader: &mut Reader, rule: &Rule, span: &Range<usize>) {
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
