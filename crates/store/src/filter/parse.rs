//! Parses a filter by recursive descent. Errors have the column.

use std::net::IpAddr;
use std::str::FromStr;

use thalweg_base::IpPrefix;
use thalweg_wire::application;

use super::{Expression, FilterError, Resolve, Test, one_of};
use thalweg_flow::fields::{Field as C, Vocabulary};

/// The deepest nesting of parentheses and negations: enough for users, and the stack cannot overflow.
const DEPTH_MAX: usize = 64;
const SECOND_NS: u64 = thalweg_text::calendar::SECOND_NS;

const TEST_EXPECTED: &str =
    "expected a test, such as `src net 10.0.0.0/8`, `port 443`, `proto udp`, `packets > 10`";

const INTERFACE_EXPECTED: &str =
    "expected an interface's name or description, or the beginning of one: `xe-0/*`";

const NAME_EXPECTED: &str = "expected a name, or its end: `*.example.org`";

const COUNTRY_EXPECTED: &str = "expected a country's two letters, such as `DE`";

const NETWORK_EXPECTED: &str = "expected a network's name, or the beginning of one: `office*`";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    Open,
    Close,
    Not,
    And,
    Or,
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

const SIGNS: [(&str, Sign); 14] = [
    ("(", Sign::Open),
    (")", Sign::Close),
    ("&&", Sign::And),
    ("||", Sign::Or),
    ("!=", Sign::Unequal),
    ("<=", Sign::AtMost),
    (">=", Sign::AtLeast),
    ("==", Sign::Equal),
    ("=", Sign::Equal),
    ("<", Sign::Less),
    (">", Sign::More),
    ("!", Sign::Not),
    ("&", Sign::And),
    ("|", Sign::Or),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Sign(Sign, &'a str),
    Word(&'a str),
}

pub(super) fn parse(text: &str, resolve: Resolve<'_>) -> Result<Expression, FilterError> {
    let tokens = tokens(text);
    let end = text.chars().count() + 1;
    let mut parser = Parser { tokens: &tokens, next: 0, end, depth: 0, resolve };
    if tokens.is_empty() {
        return Ok(Expression::Any);
    }
    let expression = parser.any_of()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.expected("expected `and`, `or` or the end")),
    }
}

/// Tokens with the columns at which they begin.
fn tokens(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut column = 1;
    while let Some(first) = rest.chars().next() {
        let token = if first.is_whitespace() {
            None
        } else if let Some((sign, meaning)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            Some((sign.len(), Token::Sign(*meaning, sign)))
        } else {
            let ends = |c: char| c.is_whitespace() || "()<>=!&|".contains(c);
            let length = rest.find(ends).unwrap_or(rest.len());
            Some((length, Token::Word(&rest[..length])))
        };
        let length = match token {
            Some((length, token)) => {
                tokens.push((column, token));
                length
            }
            None => first.len_utf8(),
        };
        column += rest[..length].chars().count();
        rest = &rest[length..];
    }
    tokens
}

struct Parser<'a> {
    tokens: &'a [(usize, Token<'a>)],
    next: usize,
    end: usize,
    depth: usize,
    resolve: Resolve<'a>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.next).map(|(_, token)| *token)
    }

    fn expected(&self, what: &str) -> FilterError {
        let (column, found) = match self.tokens.get(self.next) {
            Some((column, Token::Word(word) | Token::Sign(_, word))) => (*column, format!("`{word}`")),
            None => (self.end, "the end".to_owned()),
        };
        FilterError { column, message: format!("{what}; found {found}") }
    }

    fn take_sign(&mut self, sign: Sign) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(is, _)) if is == sign);
        self.next += usize::from(found);
        found
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(is)) if is.eq_ignore_ascii_case(word));
        self.next += usize::from(found);
        found
    }

    fn any_of(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.all_of()?];
        while self.take_word("or") || self.take_sign(Sign::Or) {
            parts.push(self.all_of()?);
        }
        Ok(one_of(parts))
    }

    fn all_of(&mut self) -> Result<Expression, FilterError> {
        let mut parts = vec![self.factor()?];
        while self.take_word("and") || self.take_sign(Sign::And) {
            parts.push(self.factor()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::All(parts) })
    }

    fn factor(&mut self) -> Result<Expression, FilterError> {
        if self.depth == DEPTH_MAX {
            return Err(self.expected("expected fewer parentheses and negations within each other"));
        }
        self.depth += 1;
        let expression = if self.take_word("not") || self.take_sign(Sign::Not) {
            Expression::Not(Box::new(self.factor()?))
        } else if self.take_sign(Sign::Open) {
            let expression = self.any_of()?;
            if !self.take_sign(Sign::Close) {
                return Err(self.expected("expected `)`, `and` or `or`"));
            }
            expression
        } else {
            self.test()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn test(&mut self) -> Result<Expression, FilterError> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(TEST_EXPECTED)) };
        let word = word.to_ascii_lowercase();
        if let Some(test) = self.bare(&word) {
            self.next += 1;
            return Ok(test);
        }
        self.next += 1;
        match word.as_str() {
            "src" => self.sided(&[C::Src], &[C::SrcPort], &[C::SrcAs]),
            "dst" => self.sided(&[C::Dst], &[C::DstPort], &[C::DstAs]),
            "ip" => self.address(&[C::Src, C::Dst], &ADDRESS),
            "host" => self.address(&[C::Src, C::Dst], &HOST),
            "net" => self.address(&[C::Src, C::Dst], &NET),
            "port" => self.port(&[C::SrcPort, C::DstPort]),
            "src-port" => self.port(&[C::SrcPort]),
            "dst-port" => self.port(&[C::DstPort]),
            "as" => self.number(&[C::SrcAs, C::DstAs], u32::MAX.into()),
            "src-as" => self.number(&[C::SrcAs], u32::MAX.into()),
            "dst-as" => self.number(&[C::DstAs], u32::MAX.into()),
            "next-as" => self.number(&[C::NextAs], u32::MAX.into()),
            "country" => self.names(&[C::SrcCountry, C::DstCountry], COUNTRY_EXPECTED),
            "src-country" => self.names(&[C::SrcCountry], COUNTRY_EXPECTED),
            "dst-country" => self.names(&[C::DstCountry], COUNTRY_EXPECTED),
            "network" => self.names(&[C::SrcNet, C::DstNet], NETWORK_EXPECTED),
            "src-net" => self.names(&[C::SrcNet], NETWORK_EXPECTED),
            "dst-net" => self.names(&[C::DstNet], NETWORK_EXPECTED),
            "next-hop" => self.address(&[C::NextHop], &NET),
            "bgp-next-hop" => self.address(&[C::BgpNextHop], &NET),
            "nat-src" => self.address(&[C::NatSrc], &NET),
            "nat-dst" => self.address(&[C::NatDst], &NET),
            "nat-src-port" => self.port(&[C::NatSrcPort]).map(with_blocks),
            "nat-dst-port" => self.port(&[C::NatDstPort]),
            "proto" | "protocol" => {
                self.range(Unit::Protocol, |from, to| Test::Number(&[C::Protocol], from, to))
            }
            "app" => self.application(),
            "end" => self.word(&[C::EndReasonWord], Vocabulary::EndReason),
            "event" => self.word(&[C::EventWord], Vocabulary::Event),
            "direction" => self.word(&[C::DirectionWord], Vocabulary::Direction),
            "in-vrf" => self.number(&[C::IngressVrf], u32::MAX.into()),
            "out-vrf" => self.number(&[C::EgressVrf], u32::MAX.into()),
            "flags" => self.flags(),
            "ingress" | "in" => self.number(&[C::Ingress], u32::MAX.into()),
            "egress" | "out" => self.number(&[C::Egress], u32::MAX.into()),
            "vlan" => self.number(&[C::Vlan], 4095),
            "mpls" => self.number(&[C::MplsLabel], (1 << 20) - 1),
            "tos" => self.number(&[C::TrafficClass], 255),
            "dscp" => self.dscp(),
            "ttl" => self.number(&[C::TtlMin, C::TtlMax], 255),
            "dropped" => self.range(Unit::Count, |from, to| Test::Sum(&[C::DroppedPackets], from, to)),
            "exporter" => self.exporter(),
            "in-if" => self.name(&[C::IngressName, C::IngressDescription], INTERFACE_EXPECTED),
            "out-if" => self.name(&[C::EgressName, C::EgressDescription], INTERFACE_EXPECTED),
            "name" => self.name(&[C::ServerName, C::ResolvedName, C::DnsQuestion], NAME_EXPECTED),
            "server-name" => self.name(&[C::ServerName], NAME_EXPECTED),
            "resolved-name" => self.name(&[C::ResolvedName], NAME_EXPECTED),
            "dns-name" => self.name(&[C::DnsQuestion], NAME_EXPECTED),
            "dns-type" => self.number(&[C::DnsType], u16::MAX.into()),
            "dns-code" => self.number(&[C::DnsCode], 15),
            "alpn" => self.name(&[C::Alpn], "expected protocols as they were offered: `h2,http/1.1`, `h3*`"),
            "ja4" => self.name(&[C::Ja4], "expected a fingerprint, or the beginning of one: `t13d1516h2_*`"),
            "domain" => self.number(&[C::ExporterDomain], u32::MAX.into()),
            "icmp-type" => self.number(&[C::IcmpType], 255),
            "icmp-code" => self.number(&[C::IcmpCode], 255),
            "sampling" => self.number(&[C::SamplingInterval], u32::MAX.into()),
            "packets" => {
                self.range(Unit::Count, |from, to| Test::Sum(&[C::Packets, C::ReversePackets], from, to))
            }
            "bytes" | "octets" => {
                self.range(Unit::Count, |from, to| Test::Sum(&[C::Bytes, C::ReverseBytes], from, to))
            }
            "duration" => self.range(Unit::Time, Test::Duration),
            _ => {
                self.next -= 1;
                Err(self.expected(TEST_EXPECTED))
            }
        }
    }

    /// Tests that are a single word.
    fn bare(&self, word: &str) -> Option<Expression> {
        let protocol = |number: u64| Test::Number(&[C::Protocol], number, number);
        let test = match word {
            "any" => return Some(Expression::Any),
            "tcp" => protocol(6),
            "udp" => protocol(17),
            "icmp" => protocol(1),
            "icmpv6" | "icmp6" => protocol(58),
            "sctp" => protocol(132),
            "gre" => protocol(47),
            "esp" => protocol(50),
            "ipv4" => Test::Version6(false),
            "ipv6" => Test::Version6(true),
            "nat" => Test::Translated,
            _ => return None,
        };
        Some(Expression::Test(test))
    }

    /// The test behind `src` or `dst`.
    fn sided(
        &mut self,
        addresses: &'static [C],
        ports: &'static [C],
        systems: &'static [C],
    ) -> Result<Expression, FilterError> {
        if self.take_word("port") {
            self.port(ports)
        } else if self.take_word("as") {
            self.number(systems, u32::MAX.into())
        } else if self.take_word("ip") {
            self.address(addresses, &ADDRESS)
        } else if self.take_word("host") {
            self.address(addresses, &HOST)
        } else {
            let named = self.take_word("net");
            self.address(addresses, &NET).map_err(|error| match named {
                true => error,
                false => self.expected("expected an address, a prefix, `ip`, `host`, `net`, `port` or `as`"),
            })
        }
    }

    /// Addresses, separated by commas.
    fn address(&mut self, columns: &'static [C], place: &Place) -> Result<Expression, FilterError> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(place.expected)) };
        let mut tests = Vec::new();
        for part in word.split(',') {
            let prefixes = self.prefixes(part, place)?;
            tests.extend(prefixes.into_iter().map(|prefix| Expression::Test(Test::Address(columns, prefix))));
        }
        self.next += 1;
        Ok(one_of(tests))
    }

    fn prefixes(&self, part: &str, place: &Place) -> Result<Vec<IpPrefix>, FilterError> {
        if let Ok(address) = IpAddr::from_str(part) {
            return Ok(vec![IpPrefix::host(address)]);
        }
        if place.takes_prefixes {
            return IpPrefix::from_str(part).map(|prefix| vec![prefix]).map_err(|error| {
                match part.contains('/') {
                    true => self.expected(&format!("expected a prefix ({error})")),
                    false => self.expected(place.expected),
                }
            });
        }
        let is_name = place.takes_names && part.contains(|c: char| c.is_ascii_alphabetic());
        let addresses = if is_name { (self.resolve)(part) } else { Vec::new() };
        match addresses.is_empty() {
            true => Err(self.expected(place.expected)),
            false => Ok(addresses.into_iter().map(IpPrefix::host).collect()),
        }
    }

    fn exporter(&mut self) -> Result<Expression, FilterError> {
        self.address(&[C::ExporterAddress], &NET).or_else(|_| {
            self.name(
                &[C::ExporterName],
                "expected an exporter's name, its address or a prefix, such as `edge1`",
            )
        })
    }

    fn name(&mut self, columns: &'static [C], what: &str) -> Result<Expression, FilterError> {
        self.take_sign(Sign::Equal);
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(what)) };
        self.next += 1;
        Ok(Expression::Test(Test::Name(columns, word.to_owned())))
    }

    /// Names, separated by commas.
    fn names(&mut self, columns: &'static [C], what: &str) -> Result<Expression, FilterError> {
        self.take_sign(Sign::Equal);
        self.list(what, |part| (!part.is_empty()).then(|| Test::Name(columns, part.to_owned())))
    }

    /// A test for each part of a word with commas.
    fn list(&mut self, what: &str, test: impl Fn(&str) -> Option<Test>) -> Result<Expression, FilterError> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(what)) };
        let tests: Option<Vec<_>> = word.split(',').map(|part| test(part).map(Expression::Test)).collect();
        let tests = tests.ok_or_else(|| self.expected(what))?;
        self.next += 1;
        Ok(one_of(tests))
    }

    fn port(&mut self, columns: &'static [C]) -> Result<Expression, FilterError> {
        self.range(Unit::Port, |from, to| Test::Number(columns, from, to))
    }

    fn number(&mut self, columns: &'static [C], most: u64) -> Result<Expression, FilterError> {
        self.range(Unit::UpTo(most), |from, to| Test::Number(columns, from, to))
    }

    fn dscp(&mut self) -> Result<Expression, FilterError> {
        self.range(Unit::UpTo(63), |from, to| {
            Test::Number(
                &[C::TrafficClass],
                from.saturating_mul(4),
                to.saturating_mul(4).saturating_add(3).min(255),
            )
        })
    }

    /// A comparison with a number; or numbers and ranges, separated by commas.
    fn range(&mut self, unit: Unit, test: impl Fn(u64, u64) -> Test) -> Result<Expression, FilterError> {
        let sign = match self.peek() {
            Some(Token::Sign(sign, _)) if sign as u8 >= Sign::Equal as u8 => {
                self.next += 1;
                sign
            }
            _ => Sign::Equal,
        };
        let number = |text: &str| unit.parse(text).map(|number| (number, number));
        match sign {
            Sign::Equal | Sign::Unequal => {
                let range = |text: &str| {
                    let (from, to) = text.split_once('-')?;
                    unit.parse(from).zip(unit.parse(to)).filter(|(from, to)| from <= to)
                };
                // Names of services may have a hyphen.
                let any = self.list(&unit.expected(), |part| {
                    number(part).or_else(|| range(part)).map(|(from, to)| test(from, to))
                })?;
                Ok(if sign == Sign::Equal { any } else { Expression::Not(Box::new(any)) })
            }
            _ => self.compared(sign, unit, test),
        }
    }

    /// A comparison by `<`, `<=`, `>` or `>=`.
    fn compared(
        &mut self,
        sign: Sign,
        unit: Unit,
        test: impl Fn(u64, u64) -> Test,
    ) -> Result<Expression, FilterError> {
        let word = match self.peek() {
            Some(Token::Word(word)) => unit.parse(word),
            _ => None,
        };
        let number = word.ok_or_else(|| self.expected(&unit.expected()))?;
        self.next += 1;
        let bounds = match sign {
            Sign::Less => number.checked_sub(1).map(|to| (0, to)),
            Sign::AtMost => Some((0, number)),
            Sign::More => number.checked_add(1).map(|from| (from, u64::MAX)),
            _ => Some((number, u64::MAX)),
        };
        // Nothing is below the minimum or above the maximum.
        let nothing = || Expression::Not(Box::new(Expression::Any));
        Ok(bounds.map_or_else(nothing, |(from, to)| Expression::Test(test(from, to))))
    }

    fn application(&mut self) -> Result<Expression, FilterError> {
        self.list("expected an application, such as `dns`, `https` or `sip`", |word| {
            let code = match (application::by_name(word), word) {
                (Some(application), _) => application.code.into(),
                (None, "unknown") => 0,
                _ => return None,
            };
            Some(Test::Number(&[C::App], code, code))
        })
    }

    /// One of a vocabulary's words, or `any` of them.
    fn word(&mut self, column: &'static [C], vocabulary: Vocabulary) -> Result<Expression, FilterError> {
        let word = match self.peek() {
            Some(Token::Word(word)) => word.to_ascii_lowercase(),
            _ => String::new(),
        };
        let known = vocabulary.code(&word).filter(|_| vocabulary.words().any(|known| known == word));
        let (from, to) = match known {
            Some(code) => (code.into(), code.into()),
            None if word == "any" => (1, u8::MAX.into()),
            None => {
                let words: Vec<&str> = vocabulary.words().collect();
                return Err(self.expected(&format!("expected one of {}", words.join(", "))));
            }
        };
        self.next += 1;
        Ok(Expression::Test(Test::Number(column, from, to)))
    }

    fn flags(&mut self) -> Result<Expression, FilterError> {
        let what = "expected TCP flags: letters of FSRPAUEC, or a number up to 255";
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(what)) };
        let letters = word
            .chars()
            .try_fold(0u32, |flags, letter| Some(flags | 1 << "FSRPAUEC".find(letter.to_ascii_uppercase())?));
        let flags = letters.or_else(|| word.parse().ok().filter(|number| *number <= 255));
        let flags = flags.ok_or_else(|| self.expected(what))?;
        self.next += 1;
        Ok(Expression::Test(Test::Flags(flags)))
    }
}

/// The same for ports in a block that NAT gave a host: the block's record has its first port as the translated one.
fn with_blocks(expression: Expression) -> Expression {
    match expression {
        Expression::Any => Expression::Any,
        Expression::All(parts) => Expression::All(parts.into_iter().map(with_blocks).collect()),
        Expression::OneOf(parts) => Expression::OneOf(parts.into_iter().map(with_blocks).collect()),
        Expression::Not(part) => Expression::Not(Box::new(with_blocks(*part))),
        Expression::Test(Test::Number(columns, from, to)) => {
            let is = |columns, from, to| Expression::Test(Test::Number(columns, from, to));
            let begins = is(columns, 0, to);
            let ends = is(&[C::NatBlockEnd], from, u16::MAX.into());
            Expression::OneOf(vec![is(columns, from, to), Expression::All(vec![begins, ends])])
        }
        Expression::Test(test) => Expression::Test(test),
    }
}

/// What names addresses.
struct Place {
    takes_prefixes: bool,
    takes_names: bool,
    expected: &'static str,
}

const ADDRESS: Place = Place { takes_prefixes: false, takes_names: false, expected: "expected an address" };
const NET: Place =
    Place { takes_prefixes: true, takes_names: false, expected: "expected an address or a prefix" };
const HOST: Place = Place {
    takes_prefixes: false,
    takes_names: true,
    expected: "expected an address, or the name of a host that has one",
};

/// The unit of a number.
#[derive(Clone, Copy)]
enum Unit {
    /// No unit; the number is at most this large.
    UpTo(u64),
    /// A port, or the name of a service.
    Port,
    /// A protocol's number or name.
    Protocol,
    /// A count; `k`, `M` and `G` mean thousands, millions, billions.
    Count,
    /// Seconds, or a number with `ms`, `s`, `m` or `h`; stored in nanoseconds.
    Time,
}

impl Unit {
    fn expected(self) -> String {
        match self {
            Self::UpTo(most) => format!("expected a number up to {most}"),
            Self::Port => "expected a port up to 65535, or a service such as `https`".to_owned(),
            Self::Protocol => {
                "expected a protocol: tcp, udp, icmp, icmpv6, sctp, gre, esp or a number up to 255".to_owned()
            }
            Self::Count => "expected a number, such as `1000` or `10k`".to_owned(),
            Self::Time => "expected a time, such as `500ms`, `2s` or `5m`".to_owned(),
        }
    }

    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Port => Self::UpTo(u16::MAX.into()).parse_number(text).or_else(|| {
                let service = application::by_name(text)?;
                (service.port != 0).then_some(service.port.into())
            }),
            Self::Protocol => Self::UpTo(u8::MAX.into()).parse_number(text).or_else(|| {
                let named = application::by_name(text)?;
                let is_protocol = application::by_ip_protocol(named.transport)
                    .is_some_and(|known| known.name == named.name);
                is_protocol.then_some(named.transport.into())
            }),
            _ => self.parse_number(text),
        }
    }

    fn parse_number(self, text: &str) -> Option<u64> {
        let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(at);
        let scale = match (self, unit) {
            (Self::UpTo(_) | Self::Count, "") => 1,
            (Self::Count, "k" | "K") => 1_000,
            (Self::Count, "M") => 1_000_000,
            (Self::Count, "G") => 1_000_000_000,
            (Self::Time, "ms") => SECOND_NS / 1_000,
            (Self::Time, "" | "s") => SECOND_NS,
            (Self::Time, "m") => 60 * SECOND_NS,
            (Self::Time, "h") => 3_600 * SECOND_NS,
            _ => return None,
        };
        let number = number.parse::<u64>().ok()?.checked_mul(scale)?;
        match self {
            Self::UpTo(most) if number > most => None,
            _ => Some(number),
        }
    }
}

#[cfg(test)]
mod tests;
