//! A list compiled for one family: rows of rule bits, and for each part of a packet a function to a row.
//!
//! Rule `r` is bit `r % 64` of word `r / 64` of a row. Rows of up to 64 rules are one word; longer ones are runs of
//! cache lines with 512 rules each, which are and-ed as a whole, by vectors and without branches. Rows of more than
//! four lines also have a summary: bit `l` says that line `l` is not empty. Parts that no rule tests have no
//! function.
//!
//! Packets are processed [`LANES`] at a time, one part after another, so that the look-ups of different packets
//! wait for memory at the same time.
//!
//! Memory: a row is `rules / 8` bytes and a border of an interval 8 to 12; equal rows are stored once.

use super::steps::{StepFunction, StepNumber};
use super::{Fragment, Rule, icmp, ports, tcp_flags};
use ipnet::IpNet;
use std::collections::HashMap;
use thalweg_base::Packet;

/// The most bytes of rows in a table: a list of 16384 rules about 32768 disjoint networks has 67 MB.
pub(super) const ROW_BYTES_MAX: usize = 128 << 20;

/// Packets that are looked up together.
pub(super) const LANES: usize = 32;

/// The most parts of a packet, and so the most rows to combine.
const PARTS: usize = 7;
/// The number for a packet's first port if it has neither port nor ICMP type; ports are below it, ICMP types and
/// codes start at [`ICMP`].
const NO_PORT: u32 = 0x2_0000;
const ICMP: u32 = 0x1_0000;
/// Stands for the flags of packets other than TCP.
const NO_FLAGS: usize = 256;
/// No rule of the list.
pub(super) const NO_RULE: u32 = u32::MAX;

/// An address of either family.
pub(super) trait AclAddress: StepNumber {
    /// The first and the last address of a network of this family.
    fn span(net: &IpNet) -> Option<(Self, Self)>;
}

impl AclAddress for u32 {
    fn span(net: &IpNet) -> Option<(u32, u32)> {
        match net {
            IpNet::V4(n) => Some((n.network().into(), n.broadcast().into())),
            IpNet::V6(_) => None,
        }
    }
}

impl AclAddress for u128 {
    fn span(net: &IpNet) -> Option<(u128, u128)> {
        match net {
            IpNet::V6(n) => Some((n.network().into(), n.broadcast().into())),
            IpNet::V4(_) => None,
        }
    }
}

/// A list for addresses `A`.
#[derive(Clone, Debug)]
pub(super) struct Table<A: AclAddress> {
    rows: Rows,
    sources: Option<A::Steps>,
    destinations: Option<A::Steps>,
    /// Source port, or ICMP type and code: no packet has both.
    first_ports: Option<<u32 as StepNumber>::Steps>,
    destination_ports: Option<<u32 as StepNumber>::Steps>,
    protocols: Option<Box<[u32; 256]>>,
    /// Indexed by code point and fragment.
    dscp_fragments: Option<Box<[u32; 256]>>,
    tcp_flags: Option<Box<[u32; NO_FLAGS + 1]>>,
    asks_ports: bool,
    asks_icmp: bool,
    /// By bit: the index of the rule in the list.
    rules: Vec<u32>,
}

/// The bits of 512 rules in a row.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

impl Line {
    const RULES: usize = 512;

    /// The first bit, found without a branch per word, because its word cannot be predicted.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        let used = self.0.iter().enumerate().fold(0u32, |used, (w, word)| used | u32::from(*word != 0) << w);
        let word = used.trailing_zeros() as usize & 7;
        (used != 0).then(|| word * 64 + self.0[word].trailing_zeros() as usize)
    }
}

/// All distinct rows; the first has the bits of all rules.
#[derive(Clone, Debug, Default)]
struct Rows {
    /// Rows of up to 64 rules.
    words: Vec<u64>,
    /// Longer rows, `lines_per_row` lines each.
    lines: Vec<Line>,
    lines_per_row: usize,
    /// Indexed by row; empty if rows are too short to need summaries.
    summaries: Vec<u64>,
}

/// Rows of at most this many lines are combined without a summary.
const LINES_WITHOUT_SUMMARY: usize = 4;

/// The properties of a packet in the form that the functions take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<A> {
    source: A,
    destination: A,
    first_port: u32,
    destination_port: u32,
    tcp_flags: u16,
    protocol: u8,
    dscp_fragment: u8,
}

impl<A: AclAddress> Default for Key<A> {
    fn default() -> Self {
        Self {
            source: A::ZERO,
            destination: A::ZERO,
            first_port: NO_PORT,
            destination_port: NO_PORT,
            tcp_flags: NO_FLAGS as u16,
            protocol: 0,
            dscp_fragment: 0,
        }
    }
}

/// State needed only while a table is built.
struct Builder {
    rows: Rows,
    /// Words of a row.
    words: usize,
    known: HashMap<Vec<u64>, u32>,
    full: bool,
}

impl Builder {
    fn new(rules: usize) -> Self {
        let words = rules.div_ceil(64);
        let lines_per_row = if words > 1 { words.div_ceil(8) } else { 0 };
        let rows = Rows { lines_per_row, ..Rows::default() };
        let mut builder = Self { rows, words, known: HashMap::new(), full: false };
        let mut every = builder.empty();
        (0..rules).for_each(|rule| every[rule / 64] |= 1 << (rule % 64));
        builder.row(every);
        builder
    }

    /// A row without rules.
    fn empty(&self) -> Vec<u64> {
        vec![0; self.words]
    }

    /// The number of this row.
    fn row(&mut self, words: Vec<u64>) -> u32 {
        if let Some(&number) = self.known.get(&words) {
            return number;
        }
        let rows = &mut self.rows;
        if rows.memory_bytes() >= ROW_BYTES_MAX {
            self.full = true;
            return 0;
        }
        let number = self.known.len() as u32;
        if rows.lines_per_row == 0 {
            rows.words.push(words.first().copied().unwrap_or(0));
        }
        let mut summary = 0;
        for (l, some) in words.chunks(8).enumerate().take(rows.lines_per_row) {
            let mut line = Line::default();
            line.0[..some.len()].copy_from_slice(some);
            summary |= u64::from(some.iter().any(|word| *word != 0)) << l;
            rows.lines.push(line);
        }
        if rows.lines_per_row > LINES_WITHOUT_SUMMARY {
            rows.summaries.push(summary);
        }
        self.known.insert(words, number);
        number
    }

    /// The row of the rules for which `holds`.
    fn row_of(&mut self, rules: &[&Rule], holds: impl Fn(&Rule) -> bool) -> u32 {
        let mut words = self.empty();
        for (bit, _) in rules.iter().enumerate().filter(|(_, rule)| holds(rule)) {
            words[bit / 64] |= 1 << (bit % 64);
        }
        self.row(words)
    }

    /// The steps of a part, given each rule's intervals, or `None` for a rule that does not test the part. `None`
    /// if no rule does.
    fn steps<N: StepNumber>(
        &mut self,
        rules: &[&Rule],
        intervals: impl Fn(&Rule) -> Option<Vec<(N, N)>>,
    ) -> Option<N::Steps> {
        let mut row = self.empty();
        // Where each rule's intervals begin and end.
        let mut borders: Vec<(N, usize, bool)> = Vec::new();
        let mut asked = false;
        for (bit, rule) in rules.iter().enumerate() {
            let Some(spans) = intervals(rule) else {
                row[bit / 64] |= 1 << (bit % 64);
                continue;
            };
            asked = true;
            for (first, last) in spans.into_iter().filter(|(first, last)| first <= last) {
                borders.push((first, bit, true));
                borders.extend(last.successor().map(|end| (end, bit, false)));
            }
        }
        if !asked {
            return None;
        }
        borders.sort_unstable();
        // A rule's intervals may overlap: it is in a row while any of them is open.
        let mut open = vec![0u32; rules.len()];
        let mut steps: Vec<(N, u32)> = Vec::new();
        if borders.first().is_none_or(|b| b.0 > N::ZERO) {
            steps.push((N::ZERO, self.row(row.clone())));
        }
        for group in borders.chunk_by(|a, b| a.0 == b.0) {
            for &(_, bit, begins) in group {
                if begins {
                    open[bit] += 1;
                    row[bit / 64] |= 1 << (bit % 64);
                } else {
                    open[bit] -= 1;
                    row[bit / 64] &= !(u64::from(open[bit] == 0) << (bit % 64));
                }
            }
            let number = self.row(row.clone());
            if steps.last().is_none_or(|last| last.1 != number) {
                steps.push((group[0].0, number));
            }
        }
        Some(N::Steps::build(&steps))
    }
}

impl<A: AclAddress> Table<A> {
    /// Compiles the rules that packets of this family can match. `None` if there would be too many rows.
    pub(super) fn new(rules: &[Rule]) -> Option<Self> {
        let of_family = |nets: &[IpNet]| nets.is_empty() || nets.iter().any(|n| A::span(n).is_some());
        let (places, rules): (Vec<u32>, Vec<&Rule>) = (0..)
            .zip(rules)
            .filter(|(_, rule)| of_family(&rule.sources) && of_family(&rule.destinations))
            .unzip();
        let mut builder = Builder::new(rules.len());
        let b = &mut builder;
        let spans = |nets: &[IpNet]| -> Option<Vec<(A, A)>> {
            (!nets.is_empty()).then(|| nets.iter().filter_map(A::span).collect())
        };
        let asks = |part: fn(&Rule) -> bool| rules.iter().any(|rule| part(rule));
        let table = Self {
            sources: b.steps(&rules, |r| spans(&r.sources)),
            destinations: b.steps(&rules, |r| spans(&r.destinations)),
            first_ports: b.steps(&rules, first_ports),
            destination_ports: b.steps(&rules, |r| {
                let range = |p: &std::ops::RangeInclusive<u16>| (u32::from(*p.start()), u32::from(*p.end()));
                (!r.destination_ports.is_empty()).then(|| r.destination_ports.iter().map(range).collect())
            }),
            protocols: asks(|r| !r.protocols.is_empty()).then(|| {
                byte_rows(|n| b.row_of(&rules, |r| r.protocols.is_empty() || r.protocols.contains(&n)))
            }),
            dscp_fragments: asks(|r| !(r.dscp.is_empty() && r.fragments.is_empty())).then(|| {
                byte_rows(|n| {
                    let (dscp, place) = (n & 63, n >> 6);
                    b.row_of(&rules, |r| {
                        (r.dscp.is_empty() || r.dscp.contains(&dscp))
                            && (r.fragments.is_empty() || r.fragments.iter().any(|f| *f as u8 == place))
                    })
                })
            }),
            tcp_flags: asks(|r| !r.tcp_flags.is_empty()).then(|| {
                let mut rows = Box::new([0; NO_FLAGS + 1]);
                for (n, row) in rows.iter_mut().enumerate() {
                    *row = b.row_of(&rules, |r| {
                        let holds = |f: &super::TcpFlags| n < NO_FLAGS && n as u8 & f.mask == f.value;
                        r.tcp_flags.is_empty() || r.tcp_flags.iter().any(holds)
                    });
                }
                rows
            }),
            asks_ports: asks(|r| !(r.source_ports.is_empty() && r.destination_ports.is_empty())),
            asks_icmp: asks(|r| !r.icmp.is_empty()),
            rules: places,
            rows: Rows::default(),
        };
        (!builder.full).then_some(Self { rows: builder.rows, ..table })
    }

    /// The key of a packet between these addresses.
    #[inline(always)]
    pub(super) fn key(&self, source: A, destination: A, packet: &Packet, l3: &[u8]) -> Key<A> {
        let mut key = Key {
            source,
            destination,
            protocol: packet.protocol,
            dscp_fragment: (Fragment::of(packet) as u8) << 6 | packet.traffic_class >> 2,
            ..Key::default()
        };
        if self.asks_ports
            && let Some((source_port, destination_port)) = ports(packet)
        {
            key.first_port = u32::from(source_port);
            key.destination_port = u32::from(destination_port);
        }
        if self.asks_icmp
            && let Some((kind, code)) = icmp(packet, l3)
        {
            key.first_port = ICMP | u32::from(kind) << 8 | u32::from(code);
        }
        if self.tcp_flags.is_some() {
            key.tcp_flags = tcp_flags(packet, l3).map_or(NO_FLAGS as u16, u16::from);
        }
        key
    }

    /// Finds the index of the first matching rule for each of up to [`LANES`] packets; [`NO_RULE`] if there is
    /// none.
    #[inline(always)]
    pub(super) fn first(&self, keys: &[Key<A>], rules: &mut [u32]) {
        debug_assert!(keys.len() <= LANES && keys.len() <= rules.len());
        if self.rows.lines_per_row == 0 {
            let every = self.rows.words.first().copied().unwrap_or(0);
            let mut lanes = OneWord { keys, words: &self.rows.words, common: [every; LANES] };
            self.visit(&mut lanes);
            for (rule, common) in rules.iter_mut().zip(&lanes.common[..keys.len()]) {
                *rule = self.rule((*common != 0).then(|| common.trailing_zeros() as usize));
            }
        } else {
            let mut lanes = ManyLines { keys, rows: [[0; LANES]; PARTS], parts: 0 };
            self.visit(&mut lanes);
            self.rows.first_common(&lanes.rows[..lanes.parts], keys.len(), |lane, bit| {
                rules[lane] = self.rule(bit);
            });
        }
    }

    #[inline(always)]
    fn rule(&self, bit: Option<usize>) -> u32 {
        bit.and_then(|bit| self.rules.get(bit)).copied().unwrap_or(NO_RULE)
    }

    #[inline(always)]
    fn visit(&self, lanes: &mut impl Lanes<A>) {
        if let Some(steps) = &self.sources {
            lanes.part(|key| steps.value_at(key.source));
        }
        if let Some(steps) = &self.destinations {
            lanes.part(|key| steps.value_at(key.destination));
        }
        if let Some(steps) = &self.first_ports {
            lanes.part(|key| steps.value_at(key.first_port));
        }
        if let Some(steps) = &self.destination_ports {
            lanes.part(|key| steps.value_at(key.destination_port));
        }
        if let Some(rows) = &self.protocols {
            lanes.part(|key| rows[usize::from(key.protocol)]);
        }
        if let Some(rows) = &self.dscp_fragments {
            lanes.part(|key| rows[usize::from(key.dscp_fragment)]);
        }
        if let Some(rows) = &self.tcp_flags {
            lanes.part(|key| rows[usize::from(key.tcp_flags).min(NO_FLAGS)]);
        }
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let addresses = [&self.sources, &self.destinations].into_iter().flatten();
        let ports = [&self.first_ports, &self.destination_ports].into_iter().flatten();
        self.rows.memory_bytes()
            + self.rules.len() * 4
            + addresses.map(|s| s.bytes()).sum::<usize>()
            + ports.map(|s| s.bytes()).sum::<usize>()
    }
}

/// Source ports and ICMP types of a rule, as numbers of one range. A rule with both matches nothing.
fn first_ports(rule: &Rule) -> Option<Vec<(u32, u32)>> {
    match (rule.source_ports.is_empty(), rule.icmp.is_empty()) {
        (true, true) => None,
        (false, false) => Some(Vec::new()),
        (false, true) => {
            Some(rule.source_ports.iter().map(|p| (u32::from(*p.start()), u32::from(*p.end()))).collect())
        }
        (true, false) => {
            let interval = |i: &super::IcmpKind| {
                let kind = ICMP | u32::from(i.kind) << 8;
                i.code.map_or((kind, kind | 255), |code| (kind | u32::from(code), kind | u32::from(code)))
            };
            Some(rule.icmp.iter().map(interval).collect())
        }
    }
}

fn byte_rows(mut row: impl FnMut(u8) -> u32) -> Box<[u32; 256]> {
    let mut rows = Box::new([0; 256]);
    for n in 0..=255u8 {
        rows[usize::from(n)] = row(n);
    }
    rows
}

/// Packets side by side, to which one part after another is applied.
trait Lanes<A> {
    /// Applies a part; `row` gives the row of a packet's part.
    fn part(&mut self, row: impl Fn(&Key<A>) -> u32);
}

/// For rows of one word: keeps the intersection after each part.
struct OneWord<'a, A> {
    keys: &'a [Key<A>],
    words: &'a [u64],
    common: [u64; LANES],
}

impl<A> Lanes<A> for OneWord<'_, A> {
    #[inline(always)]
    fn part(&mut self, row: impl Fn(&Key<A>) -> u32) {
        for (common, key) in self.common.iter_mut().zip(self.keys) {
            *common &= self.words[row(key) as usize];
        }
    }
}

/// For longer rows: keeps the numbers of the rows.
struct ManyLines<'a, A> {
    keys: &'a [Key<A>],
    rows: [[u32; LANES]; PARTS],
    parts: usize,
}

impl<A> Lanes<A> for ManyLines<'_, A> {
    #[inline(always)]
    fn part(&mut self, row: impl Fn(&Key<A>) -> u32) {
        for (number, key) in self.rows[self.parts].iter_mut().zip(self.keys) {
            *number = row(key);
        }
        self.parts += 1;
    }
}

impl Rows {
    /// The first bit that the rows of all parts have in common, for each lane. `parts` has the numbers of rows by
    /// lane.
    ///
    /// It works in rounds: in each, every lane without an answer combines the next line that may hold one, part by
    /// part. Rows are in the second-level cache at best, so the lanes wait for them together.
    #[inline(always)]
    fn first_common(
        &self,
        parts: &[[u32; LANES]],
        lanes: usize,
        mut found: impl FnMut(usize, Option<usize>),
    ) {
        let lines = self.lines_per_row;
        let last = lines.saturating_sub(1) as u32;
        let mut candidates = [(1u64 << lines) - 1; LANES];
        if !self.summaries.is_empty() {
            for rows in parts {
                candidates.iter_mut().zip(rows).for_each(|(all, row)| *all &= self.summaries[*row as usize]);
            }
        }
        let mut waiting = [0u8; LANES];
        waiting.iter_mut().zip(0..).for_each(|(lane, n)| *lane = n);
        let mut left = lanes;
        let mut common = [Line([u64::MAX; 8]); LANES];
        while left > 0 {
            for &lane in &waiting[..left] {
                // Without candidates any line will do: its intersection is empty.
                let line = candidates[usize::from(lane)].trailing_zeros().min(last) as usize;
                common[usize::from(lane)] = self.lines[line];
            }
            for rows in parts {
                for &lane in &waiting[..left] {
                    let lane = usize::from(lane);
                    let line = candidates[lane].trailing_zeros().min(last) as usize;
                    let some = &self.lines[rows[lane] as usize * lines + line];
                    common[lane].0.iter_mut().zip(&some.0).for_each(|(all, word)| *all &= word);
                }
            }
            let now = left;
            left = 0;
            for n in 0..now {
                let lane = usize::from(waiting[n]);
                let line = candidates[lane].trailing_zeros() as usize;
                if let Some(bit) = common[lane].first() {
                    found(lane, Some(line * Line::RULES + bit));
                    continue;
                }
                candidates[lane] &= candidates[lane].wrapping_sub(1);
                if candidates[lane] == 0 {
                    found(lane, None);
                } else {
                    waiting[left] = lane as u8;
                    left += 1;
                }
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        (self.words.len() + self.summaries.len()) * 8 + self.lines.len() * size_of::<Line>()
    }
}
