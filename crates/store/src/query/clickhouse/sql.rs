//! Questions in the SQL of ClickHouse, about the table of `contrib/clickhouse/flows.sql`.
//!
//! Rows are asked for as `JSONEachRow`, under the names that answers of the HTTP API have; `received` reads both. Names
//! of an inner SELECT (`k0`, `p`, `b`, `s`) are never columns, since an alias hides the column of its name from WHERE.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thalweg_base::IpPrefix;
use thalweg_flow::fields::{Field, Kind, Vocabulary};

use crate::dataset::Window;
use crate::filter::{Expression, Test};
use crate::query::{Key, KeyValue, Metric, Query};

/// IPv4 addresses are stored as IPv6's that they are mapped to.
const V4: (Ipv6Addr, Ipv6Addr) =
    (Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), Ipv4Addr::BROADCAST.to_ipv6_mapped());
const HOUR_NS: u64 = 3600 * thalweg_text::calendar::SECOND_NS;

/// The statements of a query.
pub(super) struct Sql<'a> {
    table: &'a str,
    query: &'a Query,
}

impl<'a> Sql<'a> {
    /// A query of a table, whose name is taken as it is. Statements do not deduplicate.
    pub(super) fn new(table: &'a str, query: &'a Query) -> Self {
        Self { table, query }
    }

    /// First and last end of a flow in the hours that the window touches, and how many records there are.
    pub(super) fn span(&self) -> String {
        let Window { from_ns, to_ns } = self.query.window;
        let to_ns = to_ns.checked_next_multiple_of(HOUR_NS).unwrap_or(u64::MAX);
        let hours = within(Window { from_ns: from_ns / HOUR_NS * HOUR_NS, to_ns });
        format!(
            "SELECT min(flow_end) AS first, max(flow_end) AS last, count() AS records FROM {} WHERE {hours}",
            self.table
        )
    }

    /// The sums of all records, and how many of them were sampled.
    pub(super) fn totals(&self) -> String {
        let inner = self.inner(&[], "ifNull(sampling_interval, 0) AS i");
        format!("SELECT {SUMS}, countIf(i > 1) AS sampled, countIf(i = 0) AS sampling_unknown FROM ({inner})")
    }

    /// The number of distinct keys.
    pub(super) fn keys(&self, keys: &[Key]) -> String {
        format!(
            "SELECT count() AS keys FROM (SELECT 1 FROM ({}) GROUP BY {})",
            self.inner(keys, ""),
            names(keys)
        )
    }

    /// The sums of the largest keys, in order.
    pub(super) fn top(&self, keys: &[Key], by: Metric, count: usize) -> String {
        let shown: String =
            keys.iter().enumerate().map(|(place, key)| shown_key(place, *key) + ", ").collect();
        let order: Vec<String> = keys.iter().enumerate().map(|(place, key)| order(place, *key)).collect();
        let by = match by {
            Metric::Packets => "packets",
            Metric::Bytes => "bytes",
            Metric::Flows => "flows",
        };
        format!(
            "SELECT {shown}{SUMS} FROM ({}) GROUP BY {} ORDER BY {by} DESC, {} LIMIT {count}",
            self.inner(keys, ""),
            names(keys),
            order.join(", ")
        )
    }

    /// The sums by step and by line: 1 and so on for these values of the keys, 0 for all others.
    pub(super) fn steps(&self, keys: &[Key], values: &[Vec<KeyValue>], from_ns: u64, step_ns: u64) -> String {
        let step = format!("intDiv(toUnixTimestamp64Nano(flow_end) - {from_ns}, {step_ns}) AS s");
        let mut line = String::new();
        for (number, value) in (1..).zip(values) {
            let is_it = |(place, (key, value)): (usize, (&Key, &KeyValue))| is_value(place, *key, value);
            let is_it: Vec<String> = keys.iter().zip(value).enumerate().map(is_it).collect();
            // Writing to a string cannot fail. Without keys there is one line of all.
            let _ = write!(
                line,
                "if({}, {number}, ",
                if keys.is_empty() { "1".to_owned() } else { is_it.join(" AND ") }
            );
        }
        let line = format!("{line}0{}", ")".repeat(values.len()));
        format!(
            "SELECT s, g, {SUMS} FROM (SELECT s, {line} AS g, p, b FROM ({})) GROUP BY s, g",
            self.inner(keys, &step)
        )
    }

    /// The latest records.
    pub(super) fn list(&self, count: usize) -> String {
        let order = |field: &Field| match (field.row().kind, field.is_nullable()) {
            (Kind::Address, _) => format!("NOT ({}) DESC, {} DESC", is_v4(field.name()), field.name()),
            (_, false) => format!("{} DESC", field.name()),
            (_, true) => format!("ifNull(toInt64({}), -1) DESC", field.name()),
        };
        let order: Vec<String> = LIST_ORDER.iter().map(order).collect();
        let names: Vec<&str> = Field::STORED.iter().map(|field| field.name()).collect();
        let shown: Vec<String> = Field::STORED
            .iter()
            .map(|field| match field.row().kind {
                Kind::Address => format!("IPv6NumToString({0}) AS {0}", field.name()),
                _ => field.name().to_owned(),
            })
            .collect();
        format!(
            "SELECT {} FROM (SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {count})",
            shown.join(", "),
            names.join(", "),
            self.table,
            self.condition(),
            order.join(", ")
        )
    }

    /// The chosen records, with their keys, sums and a further column. A key of either end has a row for each end, and
    /// one if both are the same.
    fn inner(&self, keys: &[Key], more: &str) -> String {
        let mut columns = Vec::new();
        let ends = |key: &Key| (key.source.name(), key.destination.unwrap_or(key.source).name());
        if keys.iter().any(|key| key.destination.is_some()) {
            let same =
                keys.iter().map(ends).filter(|(here, there)| here != there).map(|(here, there)| {
                    format!("ifNull({here} = {there}, isNull({here}) AND isNull({there}))")
                });
            let same: Vec<String> = same.collect();
            columns.push(format!("arrayJoin(if({}, [0], [0, 1])) AS e", same.join(" AND ")));
        }
        for (place, key) in keys.iter().enumerate() {
            columns.push(match ends(key) {
                (here, there) if here == there => format!("{here} AS k{place}"),
                (here, there) => format!("if(e = 0, {here}, {there}) AS k{place}"),
            });
        }
        columns
            .extend([format!("{} AS p", self.counter("packets")), format!("{} AS b", self.counter("bytes"))]);
        columns.extend(Some(more.to_owned()).filter(|more| !more.is_empty()));
        format!("SELECT {} FROM {} WHERE {}", columns.join(", "), self.table, self.condition())
    }

    /// A counter of both directions.
    fn counter(&self, name: &str) -> String {
        match self.query.raw {
            true => format!("{name} + ifNull(reverse_{name}, 0)"),
            false => format!("scaled_{name}"),
        }
    }

    fn condition(&self) -> String {
        let Query { window, filter, raw, .. } = self.query;
        let mut parts = vec![within(*window)];
        if !filter.names(Field::EventWord) {
            parts.push("isNull(event)".to_owned());
        }
        parts.push(of_expression(&filter.expression, *raw));
        parts.join(" AND ")
    }
}

const SUMS: &str = "sum(p) AS packets, sum(b) AS bytes, count() AS flows";
/// How the latest records are told apart; that of `list`, but for the reason of the end.
const LIST_ORDER: [Field; 12] = [
    Field::FlowEnd,
    Field::FlowStart,
    Field::Src,
    Field::Dst,
    Field::SrcPort,
    Field::DstPort,
    Field::Protocol,
    Field::TrafficClass,
    Field::Ingress,
    Field::Vlan,
    Field::MplsLabel,
    Field::Bytes,
];

fn names(keys: &[Key]) -> String {
    (0..keys.len()).map(|place| format!("k{place}")).collect::<Vec<_>>().join(", ")
}

fn shown_key(place: usize, key: Key) -> String {
    let name = key.name.replace('-', "_");
    match key.is_address() {
        true => format!("IPv6NumToString(k{place}) AS `{name}`"),
        false => format!("k{place} AS `{name}`"),
    }
}

/// IPv4 is before IPv6, and unknown at the end.
fn order(place: usize, key: Key) -> String {
    let name = format!("k{place}");
    if key.is_address() { format!("NOT ({}), {name}", is_v4(&name)) } else { name }
}

fn is_value(place: usize, key: Key, value: &KeyValue) -> String {
    let literal = match value {
        KeyValue::Unknown => return format!("isNull(k{place})"),
        KeyValue::Address(address) => self::address(*address),
        KeyValue::Number(number) => number.to_string(),
        KeyValue::Word(word) => quoted(word),
    };
    known(key.source, format!("k{place} = {literal}"))
}

fn within(window: Window) -> String {
    let at = |time_ns: u64| format!("fromUnixTimestamp64Nano(toInt64({time_ns}), 'UTC')");
    let Window { from_ns, to_ns } = window;
    // Times of the table have 63 bits.
    match (i64::try_from(from_ns).is_ok(), i64::try_from(to_ns).is_ok()) {
        (false, _) => "0".to_owned(),
        (true, true) => format!("flow_end >= {} AND flow_end < {}", at(from_ns), at(to_ns)),
        (true, false) => format!("flow_end >= {}", at(from_ns)),
    }
}

fn of_expression(expression: &Expression, raw: bool) -> String {
    let each = |parts: &[Expression], sign: &str| {
        let parts: Vec<String> = parts.iter().map(|part| of_expression(part, raw)).collect();
        format!("({})", parts.join(sign))
    };
    match expression {
        Expression::Any => "1".to_owned(),
        Expression::All(parts) => each(parts, " AND "),
        Expression::OneOf(parts) => each(parts, " OR "),
        Expression::Not(part) => format!("NOT {}", of_expression(part, raw)),
        Expression::Test(test) => format!("({})", of_test(test, raw)),
    }
}

/// A test that is never NULL: what is unknown does not match, and does under `not`.
fn of_test(test: &Test, raw: bool) -> String {
    let any = |columns: &[Field], test: &dyn Fn(Field) -> String| {
        columns.iter().map(|column| test(*column)).collect::<Vec<_>>().join(" OR ")
    };
    match test {
        Test::Address(columns, prefix) => {
            any(columns, &|field| known(field, in_prefix(field.name(), *prefix)))
        }
        Test::Version6(true) => format!("NOT ({})", is_v4("src")),
        Test::Version6(false) => is_v4("src"),
        Test::Number(columns, from, to) => any(columns, &|field| number(field, *from, *to)),
        Test::Sum(columns, from, to) => {
            let counter = |field: &Field| match field.is_nullable() {
                true => format!("ifNull({}, 0)", field.name()),
                false => field.name().to_owned(),
            };
            let sum = columns.iter().map(counter).collect::<Vec<_>>().join(" + ");
            let scale = if raw { "1" } else { "ifNull(sampling_interval, 1)" };
            format!("({sum}) * {scale} BETWEEN {from} AND {to}")
        }
        Test::Duration(from, to) => {
            let duration = "toUnixTimestamp64Nano(flow_end) - toUnixTimestamp64Nano(flow_start)";
            format!("greatest({duration}, 0) BETWEEN {from} AND {to}")
        }
        Test::Flags(flags) => known(Field::TcpFlags, format!("bitAnd(tcp_flags, {flags}) = {flags}")),
        Test::Translated => "isNotNull(nat_src_port)".to_owned(),
        Test::Name(columns, pattern) => any(columns, &|field| {
            let name = field.name();
            known(
                field,
                match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
                    (Some(beginning), _) => format!("startsWith({name}, {})", quoted(beginning)),
                    (None, Some(end)) => format!("endsWith({name}, {})", quoted(end)),
                    (None, None) => format!("{name} = {}", quoted(pattern)),
                },
            )
        }),
    }
}

/// A number in a range; of words, those whose codes are in it.
fn number(field: Field, from: u64, to: u64) -> String {
    let (row, name) = (field.row(), field.name());
    let Kind::Word(vocabulary) = row.kind else {
        return match row.absent {
            Some(0) => format!("ifNull({name}, 0) BETWEEN {from} AND {to}"),
            _ => known(field, format!("{name} BETWEEN {from} AND {to}")),
        };
    };
    let unknown = if from == 0 { format!("isNull({name}) OR ") } else { String::new() };
    if from <= 1 && to >= u8::MAX.into() {
        return format!("{unknown}isNotNull({name})");
    }
    unknown + &known(field, format!("{name} IN ({})", words(vocabulary, from, to)))
}

fn words(vocabulary: Vocabulary, from: u64, to: u64) -> String {
    let codes = (1..=u32::from(u8::MAX)).filter(|code| (from..=to).contains(&u64::from(*code)));
    let words: Vec<String> = codes.map(|code| quoted(&vocabulary.text(code))).collect();
    // An empty list is no SQL.
    if words.is_empty() { "''".to_owned() } else { words.join(", ") }
}

fn known(field: Field, test: String) -> String {
    if field.is_nullable() { format!("ifNull({test}, 0)") } else { test }
}

fn in_prefix(name: &str, prefix: IpPrefix) -> String {
    let (first, last) = match prefix {
        IpPrefix::V4(prefix) => {
            let first = prefix.address();
            let last = first | u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            (Ipv4Addr::from(first).to_ipv6_mapped(), Ipv4Addr::from(last).to_ipv6_mapped())
        }
        IpPrefix::V6(prefix) => {
            let first = prefix.address();
            let last = first | u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0);
            (first.into(), last.into())
        }
    };
    let inside = between(name, (first, last));
    let has_v4 = matches!(prefix, IpPrefix::V6(_)) && first <= V4.0 && last >= V4.1;
    if has_v4 { format!("{inside} AND NOT ({})", is_v4(name)) } else { inside }
}

fn is_v4(name: &str) -> String {
    between(name, V4)
}

fn between(name: &str, (first, last): (Ipv6Addr, Ipv6Addr)) -> String {
    format!("{name} BETWEEN toIPv6('{first}') AND toIPv6('{last}')")
}

fn address(address: IpAddr) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    format!("toIPv6('{address}')")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_cannot_end_the_text() {
        assert_eq!(quoted(r"a'b\'; DROP TABLE flows --"), r"'a\'b\\\'; DROP TABLE flows --'");
    }

    #[test]
    fn a_prefix_of_ipv6_has_no_ipv4() {
        let all = in_prefix("src", "::/0".parse().unwrap());
        assert!(
            all.contains("toIPv6('::')") && all.contains("AND NOT (src BETWEEN toIPv6('::ffff:0.0.0.0')"),
            "{all}"
        );
        let ten = in_prefix("src", "10.0.0.0/8".parse().unwrap());
        assert_eq!(ten, "src BETWEEN toIPv6('::ffff:10.0.0.0') AND toIPv6('::ffff:10.255.255.255')");
        assert!(in_prefix("src", "2001:db8::1/128".parse().unwrap()).ends_with("AND toIPv6('2001:db8::1')"));
    }
}
