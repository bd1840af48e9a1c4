//! `[nat.subscribers]`: blocks of public ports and limits for each inside address.
//!
//! ```toml
//! [nat.subscribers]
//! blocks = "dynamic"               # or "deterministic": the n-th inside address has the n-th block (RFC 7422)
//! inside = ["100.64.0.0/22"]       # whose blocks are deterministic, in order; required there
//! block_size = 512                 # ports of a block: a power of two from 16 to 16384; default 512
//! ports_max = 2048                 # public ports of each protocol; default: four blocks, deterministic: one
//! sessions_max = 6144              # sessions of all protocols; default: three times ports_max
//! hold_s = 120                     # before a dynamic block goes to another (RFC 6888 REQ-8)
//! ```

use ipnet::{IpNet, Ipv4Net};

use crate::diagnostic::ErrorKind;
use crate::reader::{At, Reader, Section};
use crate::types::{BlockAllocation, PortRange, SubscriberConfig};
use crate::values;

const BLOCKS_DEFAULT: u32 = 4;
const HOLD_MAX_S: u64 = 24 * 3600;
/// Shards that dynamic blocks are shared out to have at least so many of each address, unless told otherwise: a
/// subscriber keeps to one shard, and shards fill unevenly.
const BLOCKS_PER_SHARD: u32 = 8;

/// What was read, and what the rest of `[nat]` has to know of it.
pub(crate) struct Read {
    pub(crate) config: SubscriberConfig,
    /// Whole blocks in the port range of each public address.
    pub(crate) blocks: u32,
}

impl Read {
    /// Shards if nobody says how many.
    pub(crate) fn shards_default(&self) -> u16 {
        let each = match self.config.allocation {
            BlockAllocation::Dynamic => BLOCKS_PER_SHARD,
            BlockAllocation::Deterministic(_) => 1,
        };
        1 << (self.blocks / each).clamp(1, 64).ilog2()
    }
}

/// Reads `[nat.subscribers]`; `None` if it is not there or has no use because of mistakes.
pub(crate) fn read(
    reader: &mut Reader,
    nat: &mut Section<'_>,
    ports: &At<PortRange>,
    addresses: usize,
) -> Option<Read> {
    let item = nat.take("subscribers")?;
    let mut section = reader.section(&item, "[nat.subscribers]".to_owned())?;
    let words = [("dynamic", false), ("deterministic", true)];
    let is_deterministic =
        section.take("blocks").and_then(|item| reader.word(&item, &words)).unwrap_or(false);
    let defaults = SubscriberConfig::default();
    let block_size = read_block_size(reader, &mut section, defaults.block_size);
    let size = u32::from(block_size);
    let blocks = ((u32::from(ports.value.last) + 1) / size)
        .saturating_sub(u32::from(ports.value.first).div_ceil(size));
    if blocks == 0 {
        let message = format!("public ports {} hold no block of {block_size}", ports.value);
        reader.error(
            ErrorKind::Conflict,
            &ports.span,
            message,
            "a range with a whole block, or smaller blocks",
        );
    }
    let allocation = if is_deterministic {
        BlockAllocation::Deterministic(read_networks(reader, &mut section, blocks, addresses))
    } else {
        if let Some(item) = section.take("inside") {
            let message = "dynamic blocks are for whoever comes".to_owned();
            reader.error(
                ErrorKind::Conflict,
                &item.span,
                message,
                "`inside` with deterministic blocks alone",
            );
        }
        BlockAllocation::Dynamic
    };
    let few = if is_deterministic { size } else { BLOCKS_DEFAULT * size };
    let mut number = |key: &'static str, range, unit: &str, default: u32| {
        let item = section.take(key)?;
        let value = reader.integer(&item, range, unit).map_or(default, |value| value as u32);
        Some(value)
    };
    let ports_max = number("ports_max", 1..=u64::from(u16::MAX), "", few).unwrap_or(few);
    let sessions_max = number("sessions_max", 1..=3 * u64::from(u16::MAX), "", 3 * ports_max);
    let hold_s = number("hold_s", 0..=HOLD_MAX_S, "seconds", defaults.hold_s).unwrap_or(defaults.hold_s);
    section.finish(reader);
    let sessions_max = sessions_max.unwrap_or(3 * ports_max);
    Some(Read {
        config: SubscriberConfig { allocation, block_size, ports_max, sessions_max, hold_s },
        blocks,
    })
}

fn read_block_size(reader: &mut Reader, section: &mut Section<'_>, default: u16) -> u16 {
    let sizes = u64::from(SubscriberConfig::BLOCK_SIZE_MIN)..=u64::from(SubscriberConfig::BLOCK_SIZE_MAX);
    let Some(item) = section.take("block_size") else { return default };
    let Some(size) = reader.integer(&item, sizes.clone(), "ports") else { return default };
    if !size.is_power_of_two() {
        let message = format!("blocks of {size} ports cannot be told apart by bits of a port");
        let expected = format!("a power of two from {} to {}", sizes.start(), sizes.end());
        reader.error(ErrorKind::BadValue, &item.span, message, expected);
        return default;
    }
    size as u16
}

fn read_networks(
    reader: &mut Reader,
    section: &mut Section<'_>,
    blocks: u32,
    addresses: usize,
) -> Vec<Ipv4Net> {
    let mut networks: Vec<Ipv4Net> = Vec::new();
    let Some(item) = section.require("inside", "[\"100.64.0.0/22\"]") else { return networks };
    for entry in reader.filled_list(&item) {
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
    // Without addresses NAT waits for the one that a DHCP client gets.
    let there = u64::from(blocks) * addresses.max(1) as u64;
    if wanted > there && blocks > 0 {
        let message = format!("{wanted} inside addresses need a block each, and there are {there}");
        let finding = reader.error(ErrorKind::TooMany, &item.span, message, "as many blocks as addresses");
        let needed = wanted.div_ceil(u64::from(blocks));
        finding.help = Some(format!("{needed} public addresses have enough, or smaller blocks"));
    }
    networks
}
