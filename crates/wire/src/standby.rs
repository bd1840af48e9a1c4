//! Messages by which a router keeps another one up to date about its NAT sessions and its firewall's states: a format of
//! our own, one message to a UDP datagram.
//!
//! ```text
//! byte  0        4              12               20         28     29
//!      +--------+--------------+----------------+----------+------+---------+- - - - -
//!      | "TWS1" | sender's run | receiver's run | sequence | kind | message | 32-byte tag
//!      +--------+--------------+----------------+----------+------+---------+- - - - -
//! ```
//!
//! The tag authenticates everything before it; who has the key makes and checks it. A shard's entries are in *parts* by
//! the lowest bits of the hash of their keys.

use std::net::IpAddr;

use crate::Malformed;

/// The first bytes: the format and its version.
const MAGIC: [u8; 4] = *b"TWS1";
const HEADER_BYTES: usize = 28;
/// The length of a tag.
pub const TAG_BYTES: usize = 32;
/// The longest datagram with its tag: it fits a frame of 1500 bytes with an IPv6 header.
pub const DATAGRAM_BYTES_MAX: usize = 1440;
/// The room for entries or numbers in a message.
pub const LIST_BYTES_MAX: usize = 1344;
/// The most bits by which parts are told apart.
pub const PART_BITS_MAX: u8 = 20;

/// What precedes every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandbyHeader {
    /// A number that tells the sender's runs apart.
    pub from: u64,
    /// The run of the receiver, as its sender knows it; 0 if it does not.
    pub to: u64,
    /// Counts the datagrams of a run.
    pub sequence: u64,
}

impl StandbyHeader {
    /// Encodes a datagram without its tag.
    pub fn encode(&self, message: &Message) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DATAGRAM_BYTES_MAX);
        bytes.extend_from_slice(&MAGIC);
        for number in [self.from, self.to, self.sequence] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        message.encode(&mut bytes);
        bytes
    }

    /// Decodes a datagram without its tag.
    pub fn decode(datagram: &[u8]) -> Result<(Self, Message), Malformed> {
        let mut bytes = Bytes(datagram);
        if bytes.take()? != MAGIC {
            return Err(Malformed::Kind);
        }
        let header = Self { from: bytes.u64()?, to: bytes.u64()?, sequence: bytes.u64()? };
        debug_assert_eq!(datagram.len() - bytes.0.len(), HEADER_BYTES);
        Ok((header, Message::decode(&mut bytes)?))
    }
}

/// The table that an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// NAT's sessions.
    Sessions,
    /// The firewall's states.
    States,
}

impl Table {
    pub const ALL: [Self; 2] = [Self::Sessions, Self::States];
}

/// A shard of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    pub table: Table,
    pub shard: u16,
}

/// The entries of a shard whose hashes end in these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    pub of: ShardId,
    /// The number of bits, at most [`PART_BITS_MAX`].
    pub bits: u8,
    /// Their value.
    pub number: u32,
}

/// NAT's session. States and protocols are the numbers of their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionEntry {
    pub protocol: u8,
    pub state: u8,
    /// It may carry several TCP connections.
    pub is_several: bool,
    /// The number of the inside host's VRF.
    pub vrf: u8,
    pub inside: (IpAddr, u16),
    pub public: (u32, u16),
    /// Destination of its first packet, or zeros.
    pub remote: (u32, u16),
}

/// The firewall's state of a connection. Phases are the numbers of their owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateEntry {
    pub protocol: u8,
    pub phase: u8,
    pub is_ipv6: bool,
    /// ICMP echo: the second end asks.
    pub second_asks: bool,
    /// The second end began the connection.
    pub second_began: bool,
    pub zones: (u8, u8),
    pub rule: u16,
    pub ports: [u16; 2],
    /// The numbers of the ends' VRFs. Ends of IPv6 have none.
    pub vrfs: [u8; 2],
    /// IPv4 in the lowest 32 bits.
    pub addresses: [u128; 2],
}

/// One entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    Session(SessionEntry),
    State(StateEntry),
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// It is gone.
    pub is_end: bool,
    pub entry: Entry,
}

/// What a router says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// It forwards, and its entries count.
    pub is_active: bool,
    /// It has everything of the other router.
    pub is_level: bool,
    /// Digests of what must be the same on both routers, and of what should be.
    pub placement: u64,
    pub rules: u64,
    /// Digest of the numbers and names of the VRFs that entries name; 0 if they name none. It is sent only if it is not.
    pub vrfs: u64,
    /// The number of its last whole walk over its tables, and of that walk's messages.
    pub walk: u32,
    pub walk_messages: u32,
    /// Parts that it knows to lack.
    pub behind: u32,
    /// Its entries: sessions, states.
    pub entries: [u64; 2],
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Hello(Hello),
    /// What happened in a shard, in order.
    Changes {
        of: ShardId,
        changes: Vec<Change>,
    },
    /// Digests of consecutive parts of a shard.
    Digests {
        walk: u32,
        first: Part,
        digests: Vec<u64>,
    },
    /// The parts of a shard that the sender wants.
    Want {
        of: ShardId,
        bits: u8,
        numbers: Vec<u32>,
    },
    /// A part has these entries and no others.
    Whole {
        part: Part,
        entries: Vec<Entry>,
    },
}

/// The bytes of an entry in a list.
pub fn entry_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Session(session) => {
            16 + if session.inside.0.is_ipv6() { 16 } else { 4 } + usize::from(session.vrf != 0)
        }
        Entry::State(state) => {
            11 + 2 * if state.is_ipv6 { 16 } else { 4 } + if state.vrfs == [0; 2] { 0 } else { 2 }
        }
    }
}

/// The bytes of a change in a list.
pub fn change_bytes(change: &Change) -> usize {
    1 + entry_bytes(&change.entry)
}

const HELLO: u8 = 1;
const CHANGES: u8 = 2;
const DIGESTS: u8 = 3;
const WANT: u8 = 4;
const WHOLE: u8 = 5;

const SEVERAL: u8 = 0x80;
const IPV6_INSIDE: u8 = 0x40;
/// The number of a VRF follows. Sessions of the main table have none, as before there were others.
const IN_VRF: u8 = 0x20;
/// The same of a state: the numbers of both ends' VRFs follow.
const IN_VRFS: u8 = 8;
const IPV6: u8 = 1;
const SECOND_ASKS: u8 = 2;
const SECOND_BEGAN: u8 = 4;

impl Message {
    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                bytes.extend([HELLO, u8::from(hello.is_active), u8::from(hello.is_level)]);
                let [sessions, states] = hello.entries;
                for number in [hello.placement, hello.rules, sessions, states] {
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
                for number in [hello.walk, hello.walk_messages, hello.behind] {
                    bytes.extend_from_slice(&number.to_be_bytes());
                }
                if hello.vrfs != 0 {
                    bytes.extend_from_slice(&hello.vrfs.to_be_bytes());
                }
            }
            Self::Changes { of, changes } => {
                bytes.push(CHANGES);
                of.encode(bytes);
                for change in changes {
                    bytes.push(u8::from(change.is_end));
                    change.entry.encode(bytes);
                }
            }
            Self::Digests { walk, first, digests } => {
                bytes.push(DIGESTS);
                first.encode(bytes);
                bytes.extend_from_slice(&walk.to_be_bytes());
                digests.iter().for_each(|digest| bytes.extend_from_slice(&digest.to_be_bytes()));
            }
            Self::Want { of, bits, numbers } => {
                bytes.push(WANT);
                Part { of: *of, bits: *bits, number: 0 }.encode(bytes);
                numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
            }
            Self::Whole { part, entries } => {
                bytes.push(WHOLE);
                part.encode(bytes);
                entries.iter().for_each(|entry| entry.encode(bytes));
            }
        }
    }

    fn decode(bytes: &mut Bytes<'_>) -> Result<Self, Malformed> {
        match bytes.u8()? {
            HELLO => {
                let [is_active, is_level] = [bytes.flag()?, bytes.flag()?];
                let [placement, rules] = [bytes.u64()?, bytes.u64()?];
                let entries = [bytes.u64()?, bytes.u64()?];
                let [walk, walk_messages, behind] = [bytes.u32()?, bytes.u32()?, bytes.u32()?];
                let vrfs = if bytes.0.is_empty() { 0 } else { nonzero(bytes.u64()?)? };
                bytes.is_at_end()?;
                Ok(Self::Hello(Hello {
                    is_active,
                    is_level,
                    placement,
                    rules,
                    vrfs,
                    walk,
                    walk_messages,
                    behind,
                    entries,
                }))
            }
            CHANGES => {
                let of = ShardId::decode(bytes)?;
                let changes = bytes.list(|bytes| {
                    Ok(Change { is_end: bytes.flag()?, entry: Entry::decode(bytes, of.table)? })
                })?;
                Ok(Self::Changes { of, changes })
            }
            DIGESTS => {
                let (first, walk) = (Part::decode(bytes)?, bytes.u32()?);
                Ok(Self::Digests { walk, first, digests: bytes.list(Bytes::u64)? })
            }
            WANT => {
                let Part { of, bits, .. } = Part::decode(bytes)?;
                Ok(Self::Want { of, bits, numbers: bytes.list(Bytes::u32)? })
            }
            WHOLE => {
                let part = Part::decode(bytes)?;
                let entries = bytes.list(|bytes| Entry::decode(bytes, part.of.table))?;
                Ok(Self::Whole { part, entries })
            }
            _ => Err(Malformed::Kind),
        }
    }
}

impl ShardId {
    fn encode(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.table == Table::States));
        bytes.extend_from_slice(&self.shard.to_be_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Result<Self, Malformed> {
        let table = if bytes.flag()? { Table::States } else { Table::Sessions };
        Ok(Self { table, shard: bytes.u16()? })
    }
}

impl Part {
    fn encode(self, bytes: &mut Vec<u8>) {
        self.of.encode(bytes);
        bytes.push(self.bits);
        bytes.extend_from_slice(&self.number.to_be_bytes());
    }

    fn decode(bytes: &mut Bytes<'_>) -> Result<Self, Malformed> {
        let part = Self { of: ShardId::decode(bytes)?, bits: bytes.u8()?, number: bytes.u32()? };
        let is_sound = part.bits <= PART_BITS_MAX && part.number >> part.bits == 0;
        is_sound.then_some(part).ok_or(Malformed::Length)
    }
}

impl Entry {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let begins = bytes.len();
        let mark = |is_set: bool, mark: u8| if is_set { mark } else { 0 };
        match self {
            Self::Session(session) => {
                let (inside, port) = session.inside;
                let marks = mark(session.is_several, SEVERAL)
                    | mark(inside.is_ipv6(), IPV6_INSIDE)
                    | mark(session.vrf != 0, IN_VRF);
                bytes.extend([session.protocol, session.state | marks]);
                match inside {
                    IpAddr::V4(inside) => bytes.extend_from_slice(&inside.octets()),
                    IpAddr::V6(inside) => bytes.extend_from_slice(&inside.octets()),
                }
                bytes.extend_from_slice(&port.to_be_bytes());
                for (address, port) in [session.public, session.remote] {
                    bytes.extend_from_slice(&address.to_be_bytes());
                    bytes.extend_from_slice(&port.to_be_bytes());
                }
                bytes.extend(Some(session.vrf).filter(|vrf| *vrf != 0));
            }
            Self::State(state) => {
                let (from, to) = state.zones;
                let marks = mark(state.is_ipv6, IPV6)
                    | mark(state.second_asks, SECOND_ASKS)
                    | mark(state.second_began, SECOND_BEGAN)
                    | mark(state.vrfs != [0; 2], IN_VRFS);
                bytes.extend([state.protocol, state.phase, marks, from, to]);
                bytes.extend_from_slice(&state.rule.to_be_bytes());
                state.ports.iter().for_each(|port| bytes.extend_from_slice(&port.to_be_bytes()));
                for address in state.addresses {
                    let whole = address.to_be_bytes();
                    bytes.extend_from_slice(if state.is_ipv6 { &whole } else { &whole[12..] });
                }
                bytes.extend(Some(state.vrfs).filter(|vrfs| *vrfs != [0; 2]).into_iter().flatten());
            }
        }
        debug_assert_eq!(bytes.len() - begins, entry_bytes(self));
    }

    fn decode(bytes: &mut Bytes<'_>, table: Table) -> Result<Self, Malformed> {
        let [protocol, kind] = bytes.take()?;
        if table == Table::Sessions {
            let inside = match kind & IPV6_INSIDE {
                0 => IpAddr::from(bytes.take::<4>()?),
                _ => IpAddr::from(bytes.take::<16>()?),
            };
            let inside = (inside, bytes.u16()?);
            let mut end = || Ok::<_, Malformed>((bytes.u32()?, bytes.u16()?));
            let (public, remote) = (end()?, end()?);
            let vrf = if kind & IN_VRF == 0 { 0 } else { nonzero(bytes.u8()?)? };
            let (state, is_several) = (kind & !(SEVERAL | IPV6_INSIDE | IN_VRF), kind & SEVERAL != 0);
            let session = SessionEntry { protocol, state, is_several, vrf, inside, public, remote };
            return Ok(Self::Session(session));
        }
        let [marks, from, to] = bytes.take()?;
        if marks & !(IPV6 | SECOND_ASKS | SECOND_BEGAN | IN_VRFS) != 0
            || marks & IPV6 != 0 && marks & IN_VRFS != 0
        {
            return Err(Malformed::Kind);
        }
        let [is_ipv6, second_asks, second_began, is_in_vrfs] =
            [IPV6, SECOND_ASKS, SECOND_BEGAN, IN_VRFS].map(|mark| marks & mark != 0);
        let (rule, ports) = (bytes.u16()?, [bytes.u16()?, bytes.u16()?]);
        let mut address = || match is_ipv6 {
            true => bytes.take().map(u128::from_be_bytes),
            false => bytes.u32().map(u128::from),
        };
        let addresses = [address()?, address()?];
        let vrfs = if is_in_vrfs { nonzero(bytes.take()?)? } else { [0; 2] };
        Ok(Self::State(StateEntry {
            protocol,
            phase: kind,
            is_ipv6,
            second_asks,
            second_began,
            zones: (from, to),
            rule,
            ports,
            vrfs,
            addresses,
        }))
    }
}

/// A number that would have been left out if it were 0.
fn nonzero<N: Default + PartialEq>(number: N) -> Result<N, Malformed> {
    if number == N::default() { Err(Malformed::Kind) } else { Ok(number) }
}

/// The bytes that were not read yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.take().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }

    /// 0 or 1.
    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            byte @ 0..=1 => Ok(byte == 1),
            _ => Err(Malformed::Kind),
        }
    }

    /// Everything up to the end, one after another.
    fn list<T>(&mut self, each: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(each(self)?);
        }
        Ok(all)
    }

    fn is_at_end(&self) -> Result<(), Malformed> {
        self.0.is_empty().then_some(()).ok_or(Malformed::Length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn entry(table: Table) -> impl Strategy<Value = Entry> {
        let end = || any::<(u32, u16)>();
        let kind = (any::<u8>(), 0..32u8, any::<bool>(), prop_oneof![Just(0), any::<u8>()]);
        let session = (kind, any::<(IpAddr, u16)>(), end(), end());
        let session = session.prop_map(|((protocol, state, is_several, vrf), inside, public, remote)| {
            Entry::Session(SessionEntry { protocol, state, is_several, vrf, inside, public, remote })
        });
        let state = any::<(u8, u8, [bool; 3], (u8, u8), u16, [u16; 2], [u128; 2])>();
        let vrfs = prop_oneof![Just([0; 2]), any::<[u8; 2]>()];
        let state =
            (state, vrfs).prop_map(|((protocol, phase, marks, zones, rule, ports, addresses), vrfs)| {
                let [is_ipv6, second_asks, second_began] = marks;
                let vrfs = if is_ipv6 { [0; 2] } else { vrfs };
                let addresses =
                    addresses.map(|address| if is_ipv6 { address } else { address & 0xffff_ffff });
                Entry::State(StateEntry {
                    protocol,
                    phase,
                    is_ipv6,
                    second_asks,
                    second_began,
                    zones,
                    rule,
                    ports,
                    vrfs,
                    addresses,
                })
            });
        match table {
            Table::Sessions => session.boxed(),
            Table::States => state.boxed(),
        }
    }

    fn part() -> impl Strategy<Value = Part> {
        (any::<bool>(), any::<u16>(), 0..=PART_BITS_MAX, any::<u32>()).prop_map(
            |(states, shard, bits, number)| {
                let table = if states { Table::States } else { Table::Sessions };
                Part { of: ShardId { table, shard }, bits, number: number & ((1 << bits) - 1) }
            },
        )
    }

    fn message() -> impl Strategy<Value = Message> {
        let rest =
            (any::<(bool, bool, u64, u64, u32, u32, u32, [u64; 2])>(), prop_oneof![Just(0), any::<u64>()]);
        let hello = rest.prop_map(|(fields, vrfs)| {
            let (is_active, is_level, placement, rules, walk, walk_messages, behind, entries) = fields;
            Message::Hello(Hello {
                is_active,
                is_level,
                placement,
                rules,
                vrfs,
                walk,
                walk_messages,
                behind,
                entries,
            })
        });
        let changes = part().prop_flat_map(|Part { of, .. }| {
            vec((any::<bool>(), entry(of.table)), 0..20).prop_map(move |changes| {
                let change = |(is_end, entry)| Change { is_end, entry };
                Message::Changes { of, changes: changes.into_iter().map(change).collect() }
            })
        });
        let digests = (any::<u32>(), part(), vec(any::<u64>(), 0..150))
            .prop_map(|(walk, first, digests)| Message::Digests { walk, first, digests });
        let want = (part(), vec(any::<u32>(), 0..150))
            .prop_map(|(Part { of, bits, .. }, numbers)| Message::Want { of, bits, numbers });
        let whole = part().prop_flat_map(|part| {
            vec(entry(part.of.table), 0..20).prop_map(move |entries| Message::Whole { part, entries })
        });
        prop_oneof![hello, changes, digests, want, whole]
    }

    fn change(entry: Entry) -> Message {
        let table = if matches!(entry, Entry::Session(_)) { Table::Sessions } else { Table::States };
        let of = ShardId { table, shard: 0 };
        Message::Changes { of, changes: vec![Change { is_end: false, entry }] }
    }

    fn state(vrfs: [u8; 2], is_ipv6: bool) -> Entry {
        Entry::State(StateEntry {
            protocol: 6,
            phase: 1,
            is_ipv6,
            second_asks: false,
            second_began: false,
            zones: (1, 2),
            rule: 0,
            ports: [1, 2],
            vrfs,
            addresses: [1, 2],
        })
    }

    /// A router without VRFs sends what it sent before there were any: others of earlier versions read it.
    #[test]
    fn vrfs_take_bytes_only_where_there_are_some() {
        let encoded = |message: &Message| {
            StandbyHeader { from: 1, to: 2, sequence: 3 }.encode(message).len() - HEADER_BYTES
        };
        let hello = |vrfs: u64| Message::Hello(Hello { vrfs, ..Hello::default() });
        assert_eq!((encoded(&hello(0)), encoded(&hello(1))), (47, 55));
        let session = |vrf: u8| {
            let end = (0, 0);
            let inside = (IpAddr::from([10, 0, 0, 7]), 1);
            let entry = SessionEntry {
                protocol: 6,
                state: 1,
                is_several: false,
                vrf,
                inside,
                public: end,
                remote: end,
            };
            change(Entry::Session(entry))
        };
        assert_eq!((encoded(&session(0)), encoded(&session(1))), (25, 26));
        let state = |vrfs: [u8; 2]| change(state(vrfs, false));
        assert_eq!([[0, 0], [0, 1], [1, 0]].map(|vrfs| encoded(&state(vrfs))), [24, 26, 26]);
    }

    /// No entry of one VRF has a second form, and none of IPv6 is in one.
    #[test]
    fn states_of_vrfs_have_one_form() {
        let bytes = StandbyHeader { from: 1, to: 2, sequence: 3 }.encode(&change(state([1, 2], false)));
        let decoded = |at_end: usize, byte: u8| {
            let mut bytes = bytes.clone();
            let at = bytes.len() - at_end;
            bytes[at] = byte;
            StandbyHeader::decode(&bytes).map(|(_, message)| message)
        };
        assert_eq!(decoded(1, 0), Ok(change(state([1, 0], false))));
        assert_eq!(decoded(2, 0), Ok(change(state([0, 2], false))));
        let cut = [&bytes[..bytes.len() - 2], &[0, 0]].concat();
        assert_eq!(StandbyHeader::decode(&cut).map(|(_, message)| message), Err(Malformed::Kind));
        let mut of_ipv6 = StandbyHeader { from: 1, to: 2, sequence: 3 }.encode(&change(state([0; 2], true)));
        let marks = HEADER_BYTES + 1 + 3 + 1 + 2;
        assert_eq!(of_ipv6[marks], IPV6);
        of_ipv6[marks] |= IN_VRFS;
        of_ipv6.extend([1, 1]);
        assert_eq!(StandbyHeader::decode(&of_ipv6).map(|(_, message)| message), Err(Malformed::Kind));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message(), from: u64, to: u64, sequence: u64) {
            let header = StandbyHeader { from, to, sequence };
            let bytes = header.encode(&message);
            prop_assert!(bytes.len() + TAG_BYTES <= DATAGRAM_BYTES_MAX);
            prop_assert_eq!(StandbyHeader::decode(&bytes), Ok((header, message)));
            // No shorter datagram means the same.
            let short = StandbyHeader::decode(&bytes[..bytes.len() - 1]);
            prop_assert_ne!(short.map(|(_, message)| message), StandbyHeader::decode(&bytes).map(|(_, message)| message));
        }

        #[test]
        fn any_bytes_are_refused_or_mean_themselves(message in message(), at: prop::sample::Index, byte: u8) {
            let mut bytes = StandbyHeader { from: 1, to: 2, sequence: 3 }.encode(&message);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if let Ok((header, message)) = StandbyHeader::decode(&bytes) {
                // Only the number of a wanted part's message is not kept.
                if !matches!(message, Message::Want { .. }) {
                    prop_assert_eq!(header.encode(&message), bytes);
                }
            }
        }
    }
}
