//! `[nat.subscribers]`: blocks of public ports and limits for each inside address.

use std::ops::RangeInclusive;

use ipnet::{IpNet, Ipv4Net};
use thalweg_dataplane::nat::{BlockAllocation, SubscriberConfig};

use crate::diagnostic::ErrorKind;
use crate::key::{Key, Sub, table};
use crate::reader::{At, Item, Reader};
use crate::section::Section;
use crate::values::{self, ports_text};

pub(crate) static SUBSCRIBERS: Key<Sub> =
    Key::section("subscribers", &TABLE).help("port blocks and limits of each inside address");
table! {
    static TABLE: "nat.subscribers", "[nat.subscribers]";

    static BLOCKS: Key<bool> =
        Key::word("blocks", &[("dynamic", false), ("deterministic", true)]).default(false).help(
            "`\"dynamic\"`: any free block, when needed; `\"deterministic\"`: the n-th inside address has the n-th block \
             (RFC 7422)",
        );
    static INSIDE: Key<()> = Key::raw("inside", "a prefix or a list")
        .otherwise("required with deterministic blocks")
        .example("[\"100.64.0.0/22\"]")
        .help("deterministic blocks for these prefixes, in order; other addresses get none");
    static BLOCK_SIZE: Key<u16> = Key::number("block_size", BLOCK_SIZES)
        .unit("ports")
        .default_of(|| SubscriberConfig::default().block_size)
        .help("ports per block: a power of two");
    static PORTS_MAX: Key<u32> = Key::number("ports_max", 1..=u16::MAX as u64)
        .otherwise("four blocks; deterministic: one")
        .help("limit of public ports of an address, per protocol; dynamic blocks are allocated up to it");
    static SESSIONS_MAX: Key<u32> = Key::number("sessions_max", 1..=3 * u16::MAX as u64)
        .otherwise("three times `ports_max`")
        .help("limit of sessions of an address, all protocols together");
    static HOLD_S: Key<u32> = Key::number("hold_s", 0..=24 * 3600)
        .unit("seconds")
        .default_of(|| SubscriberConfig::default().hold_s)
        .help("time before a dynamic block goes to another address (RFC 6888 REQ-8)");
}

const BLOCK_SIZES: RangeInclusive<u64> =
    SubscriberConfig::BLOCK_SIZE_MIN as u64..=SubscriberConfig::BLOCK_SIZE_MAX as u64;
const BLOCKS_DEFAULT: u32 = 4;
/// By default the number of shards leaves each this many dynamic blocks on each address: a subscriber stays
/// in one shard, and shards fill unevenly.
const BLOCKS_PER_SHARD: u32 = 8;

/// The section, and what the rest of `[nat]` needs to know about it.
pub(crate) struct Read {
    pub(crate) config: SubscriberConfig,
    /// Whole blocks in the port range of each public address.
    pub(crate) blocks: u32,
}

impl Read {
    /// The default number of shards.
    pub(crate) fn shards_default(&self) -> u16 {
        let each = match self.config.allocation {
            BlockAllocation::Dynamic => BLOCKS_PER_SHARD,
            BlockAllocation::Deterministic(_) => 1,
        };
        1 << (self.blocks / each).clamp(1, 64).ilog2()
    }
}

/// Reads `[nat.subscribers]`; `None` if it is missing or unusable because of errors.
pub(crate) fn read(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &At<RangeInclusive<u16>>,
    addresses: usize,
) -> Option<Read> {
    let mut section = nat.section(reader, &SUBSCRIBERS)?;
    let mut config = SubscriberConfig::default();
    let is_deterministic = section.get(reader, &BLOCKS).unwrap_or_default();
    config.block_size = read_block_size(reader, &mut section, config.block_size);
    let size = u32::from(config.block_size);
    let (first, last) = (u32::from(*ports.value.start()), u32::from(*ports.value.end()));
    let blocks = ((last + 1) / size).saturating_sub(first.div_ceil(size));
    if blocks == 0 {
        let message = format!("public ports {} hold no block of {size}", ports_text(&ports.value));
        reader.error(
            ErrorKind::Conflict,
            &ports.span,
            message,
            "a range with a whole block, or smaller blocks",
        );
    }
    let inside = if is_deterministic { section.require(&INSIDE) } else { section.take(&INSIDE) };
    config.allocation = if is_deterministic {
        let networks = inside.map(|item| networks(reader, &item, blocks, addresses));
        BlockAllocation::Deterministic(networks.unwrap_or_default())
    } else {
        if let Some(item) = inside {
            let message = "dynamic blocks go to any subscriber".to_owned();
            reader.error(
                ErrorKind::Conflict,
                &item.span,
                message,
                "`inside` with deterministic blocks alone",
            );
        }
        BlockAllocation::Dynamic
    };
    config.ports_max = if is_deterministic { size } else { BLOCKS_DEFAULT * size };
    section.set(reader, &PORTS_MAX, &mut config.ports_max);
    config.sessions_max = 3 * config.ports_max;
    section.set(reader, &SESSIONS_MAX, &mut config.sessions_max);
    section.set(reader, &HOLD_S, &mut config.hold_s);
    section.finish(reader);
    Some(Read { config, blocks })
}

fn read_block_size(reader: &mut Reader, section: &mut Section<'_>, default: u16) -> u16 {
    let Some(At { value: size, span }) = section.read(reader, &BLOCK_SIZE) else { return default };
    if !size.is_power_of_two() {
        let message = format!("blocks of {size} ports cannot be told apart by bits of a port");
        let expected = format!("a power of two from {} to {}", BLOCK_SIZES.start(), BLOCK_SIZES.end());
        reader.error(ErrorKind::BadValue, &span, message, expected);
        return default;
    }
    size
}

fn networks(reader: &mut Reader, item: &Item<'_>, blocks: u32, addresses: usize) -> Vec<Ipv4Net> {
    let mut networks: Vec<Ipv4Net> = Vec::new();
    for entry in reader.filled_list(item) {
        let Some(at) = reader.parse(&entry, values::prefix) else { continue };
        let IpNet::V4(net) = at.value else {
            let message = format!("{} is not translated", at.value);
            reader.error(ErrorKind::BadValue, &at.span, message, "an IPv4 prefix");
            continue;
        };
        if let Some(other) = networks.iter().find(|other| other.contains(&net) || net.contains(*other)) {
            let message = format!("subscribers {net} overlap {other}");
            reader.error(ErrorKind::Overlap, &at.span, message, "each inside address once");
            continue;
        }
        networks.push(net);
    }
    let wanted: u64 = networks.iter().map(|net| 1u64 << (32 - net.prefix_len())).sum();
    // Without addresses, NAT waits for one from a DHCP client.
    let there = u64::from(blocks) * addresses.max(1) as u64;
    if wanted > there && blocks > 0 {
        let message = format!("{wanted} inside addresses need a block each, and there are {there}");
        let finding = reader.error(ErrorKind::TooMany, &item.span, message, "as many blocks as addresses");
        let needed = wanted.div_ceil(u64::from(blocks));
        finding.help = Some(format!("{needed} public addresses have enough, or smaller blocks"));
    }
    networks
}
