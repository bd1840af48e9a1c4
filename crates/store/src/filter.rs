//! Filters select the records of a query.
//!
//! A filter is a sentence in the style of tcpdump and nfdump (grammar: [`parse`](Filter::parse)). It is
//! evaluated column by column on a row group: a test of addresses examines each distinct address once, a
//! conjunction stops loading columns when no row is left, and a row group that its statistics exclude is not
//! read.

mod parse;

use std::net::IpAddr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use thalweg_base::{IpPrefix, Name};

use crate::block::{Dictionary, Distinct, Spare, is_host};
use crate::dataset::Batch;
use crate::error::StoreError;
use crate::file::FlowFile;
use crate::rows::{Rows, Task};
use thalweg_flow::FlowRecord;
use thalweg_flow::fields::{ABSENT_WIDE, Field, NO_SMALL, NO_TRANSLATION};

/// A condition on flow records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub(crate) expression: Expression,
}

/// Why a filter's text is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter, column {column}: {message}")]
pub struct FilterError {
    /// In characters from 1.
    pub column: usize,
    /// What was expected there, and what was found.
    pub message: String,
}

/// The addresses of a host's name.
pub type Resolve<'a> = &'a dyn Fn(&str) -> Vec<IpAddr>;

impl FilterError {
    /// The text with a mark below the error.
    pub fn shown_in(&self, text: &str) -> String {
        format!("{self}\n  {text}\n  {}^", " ".repeat(self.column.saturating_sub(1)))
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Expression {
    #[default]
    Any,
    All(Vec<Expression>),
    OneOf(Vec<Expression>),
    Not(Box<Expression>),
    Test(Test),
}

/// A single condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Test {
    /// One of these columns has an address in this prefix.
    Address(&'static [Field], IpPrefix),
    /// One of these columns has a number in this range.
    Number(&'static [Field], u64, u64),
    /// The sum of these counters, multiplied by the sampling interval, is in this range.
    Sum(&'static [Field], u64, u64),
    /// The flow's duration in nanoseconds is in this range.
    Duration(u64, u64),
    /// All these TCP flags were seen.
    Flags(u32),
    /// IPv6 if `true`, IPv4 if `false`.
    Version6(bool),
    /// The flow was translated.
    Translated,
    /// One of these columns has this name or, with `*` at its end or beginning, one that begins or ends so.
    Name(&'static [Field], String),
}

impl Filter {
    /// The words that filters are made of, for completion.
    pub const WORDS: &'static [&'static str] = &[
        "and",
        "or",
        "not",
        "any",
        "src",
        "dst",
        "ip",
        "host",
        "net",
        "port",
        "as",
        "src-port",
        "dst-port",
        "src-as",
        "dst-as",
        "next-as",
        "country",
        "src-country",
        "dst-country",
        "network",
        "src-net",
        "dst-net",
        "proto",
        "tcp",
        "udp",
        "icmp",
        "icmpv6",
        "sctp",
        "gre",
        "esp",
        "ipv4",
        "ipv6",
        "app",
        "end",
        "flags",
        "nat",
        "nat-src",
        "nat-src-port",
        "nat-dst",
        "nat-dst-port",
        "next-hop",
        "bgp-next-hop",
        "ingress",
        "egress",
        "vlan",
        "mpls",
        "tos",
        "dscp",
        "ttl",
        "packets",
        "bytes",
        "duration",
        "dropped",
        "sampling",
        "icmp-type",
        "icmp-code",
        "exporter",
        "domain",
        "in-if",
        "out-if",
        "in-vrf",
        "out-vrf",
        "direction",
        "event",
        "name",
        "server-name",
        "resolved-name",
        "dns-name",
        "dns-type",
        "dns-code",
        "alpn",
        "ja4",
    ];

    /// Parses a filter; an empty text selects every record.
    ///
    /// ```text
    /// filter     = term { "or" term }
    /// term       = factor { "and" factor }
    /// factor     = [ "not" ] ( "(" filter ")" | test )
    /// test       = [ "src" | "dst" ] ( NET | "ip" ADDRESS | "host" HOST | "net" NET | "port" PORT | "as" N )
    ///            | "proto" PROTOCOL | "tcp" | "udp" | "icmp" | "icmpv6" | "ipv4" | "ipv6"
    ///            | "app" NAME | ( "end" | "direction" | "event" ) WORD | "flags" LETTERS | "nat" | "any"
    ///            | ( "next-hop" | "bgp-next-hop" | "nat-src" | "nat-dst" ) NET
    ///            | ( "nat-src-port" | "nat-dst-port" ) PORT
    ///            | ( "ingress" | "egress" | "vlan" | "mpls" | "tos" | "dscp" | "ttl" | "packets" | "bytes"
    ///              | "duration" | "dropped" | "sampling" | "icmp-type" | "icmp-code" | "domain"
    ///              | "in-vrf" | "out-vrf" | "dns-type" | "dns-code" | "next-as" ) N
    ///            | "exporter" ( NAME | NET )
    ///            | ( "in-if" | "out-if" | [ "src-" | "dst-" ] "country" | "network" | "src-net" | "dst-net" | "name"
    ///              | "server-name" | "resolved-name" | "dns-name" | "alpn" | "ja4" ) [ "=" ] NAME
    /// NET        = ADDRESS | PREFIX; HOST is an ADDRESS or a name that has one
    /// N          = [ "=" | "!=" ] RANGE { "," RANGE } | ( "<" | "<=" | ">" | ">=" ) NUMBER
    /// RANGE      = NUMBER [ "-" NUMBER ]
    /// ```
    ///
    /// A PORT is an N with names of services for numbers, a PROTOCOL likewise. ADDRESS, HOST, NET, and the NAME of an
    /// application, a country or a network may be several, separated by commas. Names of hosts have no address here:
    /// [`Self::parse_with`].
    ///
    /// # Errors
    /// The text is no filter.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Self::parse_with(text, &|_| Vec::new())
    }

    /// [`Self::parse`], with the addresses of hosts by their names.
    ///
    /// # Errors
    /// The text is no filter, or a host has no address.
    pub fn parse_with(text: &str, resolve: Resolve<'_>) -> Result<Self, FilterError> {
        parse::parse(text, resolve).map(|expression| Self { expression })
    }

    /// Whether each record matches.
    ///
    /// # Errors
    /// None for records in memory; the signature is that of columns from files.
    pub fn select(&self, records: &Arc<[FlowRecord]>) -> Result<Vec<bool>, StoreError> {
        let task = Task::Batch(Batch { records: Arc::clone(records), is_cached: true });
        self.expression.evaluate(&mut Rows::new(&task, false, &mut Spare::default()))
    }

    /// The same condition with source and destination, and ingress and egress, exchanged.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self { expression: self.expression.reversed() }
    }

    /// Whether all tests are of values in columns for which this holds.
    pub(crate) fn is_about(&self, has: &dyn Fn(Field) -> bool) -> bool {
        self.expression.is_about(has)
    }

    /// Whether a test is about this column.
    pub(crate) fn names(&self, id: Field) -> bool {
        self.expression.names(id)
    }
}

impl Expression {
    fn names(&self, id: Field) -> bool {
        match self {
            Self::All(parts) | Self::OneOf(parts) => parts.iter().any(|part| part.names(id)),
            Self::Not(part) => part.names(id),
            Self::Test(Test::Number(columns, ..)) => columns.contains(&id),
            Self::Any | Self::Test(_) => false,
        }
    }

    fn is_about(&self, has: &dyn Fn(Field) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::All(parts) | Self::OneOf(parts) => parts.iter().all(|part| part.is_about(has)),
            Self::Not(part) => part.is_about(has),
            Self::Test(Test::Address(columns, _) | Test::Number(columns, ..) | Test::Name(columns, _)) => {
                columns.iter().all(|column| has(*column))
            }
            // Small sums of a family stay of that family.
            Self::Test(Test::Version6(_)) => true,
            Self::Test(Test::Sum(..) | Test::Duration(..) | Test::Flags(_) | Test::Translated) => false,
        }
    }

    fn reversed(&self) -> Self {
        let each = |parts: &[Self]| parts.iter().map(Self::reversed).collect();
        match self {
            Self::Any => Self::Any,
            Self::All(parts) => Self::All(each(parts)),
            Self::OneOf(parts) => Self::OneOf(each(parts)),
            Self::Not(part) => Self::Not(Box::new(part.reversed())),
            Self::Test(test) => test.reversed(),
        }
    }

    /// Whether rows of a row group can match, by the bounds of values in its footer.
    pub(crate) fn may_match(&self, file: &FlowFile, row_group: usize) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.may_match(file, row_group)),
            Self::OneOf(parts) => parts.iter().any(|part| part.may_match(file, row_group)),
            Self::Test(Test::Number(columns, from, to)) => columns.iter().any(|id| {
                let bounds = file.bounds(row_group, *id);
                bounds.is_none_or(|(smallest, largest)| *from <= largest && *to >= smallest)
            }),
            Self::Test(Test::Address(columns, prefix)) if is_host(prefix) => {
                let text = prefix.address().to_string();
                columns.iter().any(|id| {
                    let bounds = file.text_bounds(row_group, *id);
                    bounds.is_none_or(|(first, last)| (first..=last).contains(&text.as_bytes()))
                })
            }
            Self::Any | Self::Not(_) | Self::Test(_) => true,
        }
    }

    /// The conditions all of which have to hold.
    pub(crate) fn conditions(&self) -> &[Self] {
        match self {
            Self::Any => &[],
            Self::All(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// Whether each row matches.
    pub(crate) fn evaluate(&self, rows: &mut Rows<'_>) -> Result<Vec<bool>, StoreError> {
        match self {
            Self::Any => Ok(vec![true; rows.len()]),
            Self::All(parts) => {
                let mut all = vec![true; rows.len()];
                for part in parts {
                    if !all.contains(&true) {
                        break;
                    }
                    let part = part.evaluate(rows)?;
                    all.iter_mut().zip(part).for_each(|(all, part)| *all &= part);
                }
                Ok(all)
            }
            Self::OneOf(parts) => {
                let mut any = vec![false; rows.len()];
                for part in parts {
                    let part = part.evaluate(rows)?;
                    any.iter_mut().zip(part).for_each(|(any, part)| *any |= part);
                }
                Ok(any)
            }
            Self::Not(part) => {
                let mut not = part.evaluate(rows)?;
                not.iter_mut().for_each(|row| *row = !*row);
                Ok(not)
            }
            Self::Test(test) => test.evaluate(rows),
        }
    }
}

impl Test {
    fn reversed(&self) -> Expression {
        match self {
            Self::Address(columns, prefix) => turned(columns, |column| Self::Address(column, *prefix)),
            Self::Number(columns, from, to) => turned(columns, |column| Self::Number(column, *from, *to)),
            Self::Name(columns, pattern) => turned(columns, |column| Self::Name(column, pattern.clone())),
            Self::Sum(..) | Self::Duration(..) | Self::Flags(_) | Self::Version6(_) | Self::Translated => {
                Expression::Test(self.clone())
            }
        }
    }

    fn evaluate(&self, rows: &mut Rows<'_>) -> Result<Vec<bool>, StoreError> {
        match self {
            Self::Address(columns, prefix) => by_address(rows, columns, |distinct| distinct.within(prefix)),
            Self::Version6(wanted) => by_address(rows, &[Field::Src], |distinct| {
                let is_it = |address: Option<IpAddr>| address.is_some_and(|it| it.is_ipv6() == *wanted);
                distinct.iter().map(is_it).collect()
            }),
            Self::Number(columns, from, to) => {
                let mut matches = rows.flags();
                for id in *columns {
                    // An unknown value is 0 or above all known ones; it must match no range.
                    let unknown = id.row().absent.filter(|absent| *absent != 0);
                    let here = |value: u32| {
                        (*from..=*to).contains(&u64::from(value)) && unknown != Some(u64::from(value))
                    };
                    let has_unknown = id.row().absent.is_some_and(|absent| here(absent as u32));
                    if !has_unknown && excludes_numbers(rows, *id, here)? {
                        continue;
                    }
                    rows.need(&[*id])?;
                    let values = rows.block().numbers(*id)?;
                    matches.iter_mut().zip(values).for_each(|(row, value)| *row |= here(*value));
                }
                Ok(matches)
            }
            Self::Sum(columns, from, to) => {
                // A counter that no row has adds nothing.
                let columns: Vec<Field> = columns.iter().copied().filter(|id| !rows.is_absent(*id)).collect();
                rows.need(&columns)?;
                rows.need_scale()?;
                let mut matches = rows.flags();
                let sums = match columns[..] {
                    [id] if id.row().absent.is_none() => rows.block().wide(id)?.into(),
                    _ => {
                        let mut sums = vec![0; rows.len()];
                        for id in columns {
                            let counters = rows.block().wide(id)?;
                            sums.iter_mut()
                                .zip(counters)
                                .for_each(|(all, counter)| *all = sum(*all, *counter));
                        }
                        sums.into()
                    }
                };
                let sums = rows.scaled(sums)?;
                matches.iter_mut().zip(&*sums).for_each(|(row, sum)| *row = (*from..=*to).contains(sum));
                Ok(matches)
            }
            Self::Duration(from, to) => {
                rows.need(&[Field::FlowStart, Field::FlowEnd])?;
                let starts = rows.block().wide(Field::FlowStart)?;
                let both = starts.iter().zip(rows.block().wide(Field::FlowEnd)?);
                Ok(both.map(|(start, end)| (*from..=*to).contains(&end.saturating_sub(*start))).collect())
            }
            Self::Flags(flags) => {
                rows.need(&[Field::TcpFlags])?;
                let seen = rows.block().numbers(Field::TcpFlags)?;
                Ok(seen.iter().map(|seen| *seen != NO_SMALL && seen & flags == *flags).collect())
            }
            Self::Translated => {
                rows.need(&[Field::NatSrcPort])?;
                let ports = rows.block().numbers(Field::NatSrcPort)?;
                Ok(ports.iter().map(|port| *port != NO_TRANSLATION).collect())
            }
            Self::Name(columns, pattern) => {
                let mut matches = rows.flags();
                let mut by_code: HashMap<u32, bool, RandomState> = HashMap::default();
                let mut is_match =
                    |code: u32| *by_code.entry(code).or_insert_with(|| has_name(code, pattern));
                for id in *columns {
                    if excludes_numbers(rows, *id, &mut is_match)? {
                        continue;
                    }
                    rows.need(&[*id])?;
                    let codes = rows.block().numbers(*id)?;
                    matches.iter_mut().zip(codes).for_each(|(row, code)| *row |= is_match(*code));
                }
                Ok(matches)
            }
        }
    }
}

/// A test of any of these columns, about those of the other end.
fn turned(columns: &[Field], test: impl Fn(&'static [Field]) -> Test) -> Expression {
    let opposite = |column: &Field| column.opposite().unwrap_or(*column);
    let place = |column: Field| Field::ALL.iter().position(|each| *each == column);
    let tests = columns.iter().map(opposite).filter_map(place);
    one_of(tests.map(|place| Expression::Test(test(&Field::ALL[place..=place]))).collect())
}

/// One of several conditions.
fn one_of(mut parts: Vec<Expression>) -> Expression {
    if parts.len() == 1 { parts.remove(0) } else { Expression::OneOf(parts) }
}

/// Whether a name is this one or, with `*` at the end or the beginning, begins or ends so.
fn has_name(code: u32, pattern: &str) -> bool {
    let name = Name::from_code(code);
    let text = name.text();
    name != Name::NONE
        && match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
            (Some(beginning), _) => text.starts_with(beginning),
            (None, Some(end)) => text.ends_with(end),
            (None, None) => text == pattern,
        }
}

/// A counter of both directions; the reverse one may be unknown.
pub(crate) fn sum(forward: u64, reverse: u64) -> u64 {
    if reverse == ABSENT_WIDE { forward } else { forward.saturating_add(reverse) }
}

/// Whether the dictionary of a column shows that no row has such a number.
fn excludes_numbers(
    rows: &mut Rows<'_>,
    id: Field,
    test: impl FnMut(u32) -> bool,
) -> Result<bool, StoreError> {
    rows.excludes(id, |dictionary| match dictionary {
        Dictionary::Numbers(values) => values.iter().copied().any(test),
        _ => true,
    })
}

/// Tests each distinct address once; most often the dictionary alone shows that there is no such row.
fn by_address(
    rows: &mut Rows<'_>,
    columns: &[Field],
    test: impl Fn(&Distinct) -> Vec<bool>,
) -> Result<Vec<bool>, StoreError> {
    let mut matches = rows.flags();
    for id in columns {
        let mut known = None;
        let excludes = rows.excludes(*id, |dictionary| match dictionary {
            Dictionary::Addresses(distinct) => known.insert(test(distinct)).contains(&true),
            _ => true,
        })?;
        if excludes {
            continue;
        }
        rows.need(&[*id])?;
        let addresses = rows.block().addresses(*id)?;
        let mut by_code = known.unwrap_or_else(|| test(&addresses.distinct));
        // NULL, which the dictionary alone has not, is no address.
        by_code.resize(addresses.distinct.len(), false);
        if by_code.contains(&true) {
            let codes = addresses.codes.iter();
            matches.iter_mut().zip(codes).for_each(|(row, code)| *row |= by_code[*code as usize]);
        }
    }
    Ok(matches)
}
