//! Policers: the single rate and the two rate three color markers of RFC 2697 and RFC 2698.
//!
//! A class's policer is one piece of state for the whole router and must see packets in order of arrival, so this
//! stage is `Ordered`. Time is the packets' own arrival clock and never goes back.
//!
//! Buckets count in units of one bit times one nanosecond (a byte is 8 * 10^9 of them), so that a rate in bits per
//! second times a time in nanoseconds is exact: no drift, no rounding, the same on every run. With 64 bits that
//! allows bursts up to 2 GiB; gaps that are longer than a full bucket saturate.

mod migrate;

use thalweg_base::{Batch, Chunk, DropReason};
use thalweg_wire::checksum::ChecksumDelta;

/// Units of a byte in a bucket.
const BYTE: u64 = 8_000_000_000;
/// The largest burst a bucket can hold, in bytes.
pub const BURST_BYTES_MAX: u64 = u64::MAX / BYTE / 2;

/// The marker's verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green,
    /// Above it, within the excess.
    Yellow,
    /// Above both.
    Red,
}

/// A marker with its rates (bits per second) and bursts (bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// RFC 2697: one rate, a committed and an excess burst.
    SingleRate {
        /// Committed information rate.
        cir_bps: u64,
        /// Committed burst size.
        cbs_bytes: u64,
        /// Excess burst size.
        ebs_bytes: u64,
    },
    /// RFC 2698: a committed and a peak rate, each with its burst.
    TwoRate {
        /// Committed information rate.
        cir_bps: u64,
        /// Committed burst size.
        cbs_bytes: u64,
        /// Peak information rate.
        pir_bps: u64,
        /// Peak burst size.
        pbs_bytes: u64,
    },
}

/// What happens to a packet of a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorAction {
    Pass,
    /// It passes with this code point.
    Remark(u8),
    /// It is dropped as `policed`.
    Drop,
}

/// A class's policer as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicerConfig {
    pub marker: Marker,
    /// Whether the packet's incoming color counts (its AF drop precedence, RFC 2597).
    pub color_aware: bool,
    pub yellow: ColorAction,
    pub red: ColorAction,
}

/// Packets by color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColorCounts {
    pub green: u64,
    pub yellow: u64,
    pub red: u64,
}

/// One policer: its buckets and the time at which they were last filled.
#[derive(Clone, Debug)]
pub struct Policer {
    config: PolicerConfig,
    committed: u64,
    /// Excess (RFC 2697) or peak (RFC 2698) bucket.
    other: u64,
    filled_at_ns: Option<u64>,
    counts: ColorCounts,
}

impl Policer {
    /// A policer with full buckets.
    pub fn new(config: PolicerConfig) -> Self {
        let (committed_bytes, other_bytes) = match config.marker {
            Marker::SingleRate { cbs_bytes, ebs_bytes, .. } => (cbs_bytes, ebs_bytes),
            Marker::TwoRate { cbs_bytes, pbs_bytes, .. } => (cbs_bytes, pbs_bytes),
        };
        Self {
            config,
            committed: units(committed_bytes),
            other: units(other_bytes),
            filled_at_ns: None,
            counts: ColorCounts::default(),
        }
    }

    /// Packets by color so far.
    pub fn counts(&self) -> ColorCounts {
        self.counts
    }

    /// Marks a packet of `bytes` that arrived at `now_ns` with color `incoming`.
    pub fn mark(&mut self, now_ns: u64, bytes: u32, incoming: Color) -> Color {
        self.fill(now_ns);
        let incoming = if self.config.color_aware { incoming } else { Color::Green };
        let need = units(u64::from(bytes));
        let color = match self.config.marker {
            Marker::SingleRate { .. } => self.mark_single_rate(need, incoming),
            Marker::TwoRate { .. } => self.mark_two_rate(need, incoming),
        };
        match color {
            Color::Green => self.counts.green += 1,
            Color::Yellow => self.counts.yellow += 1,
            Color::Red => self.counts.red += 1,
        }
        color
    }

    /// Fills the buckets. RFC 2697 section 3: tokens go to the committed bucket first and spill into the excess
    /// bucket; RFC 2698 section 3: each bucket fills at its own rate.
    fn fill(&mut self, now_ns: u64) {
        let Some(before) = self.filled_at_ns else {
            self.filled_at_ns = Some(now_ns);
            return;
        };
        let elapsed = now_ns.saturating_sub(before);
        if elapsed == 0 {
            return;
        }
        self.filled_at_ns = Some(now_ns);
        match self.config.marker {
            Marker::SingleRate { cir_bps, cbs_bytes, ebs_bytes } => {
                let filled = self.committed.saturating_add(cir_bps.saturating_mul(elapsed));
                self.committed = filled.min(units(cbs_bytes));
                self.other = self.other.saturating_add(filled - self.committed).min(units(ebs_bytes));
            }
            Marker::TwoRate { cir_bps, cbs_bytes, pir_bps, pbs_bytes } => {
                let add = |level: u64, rate: u64, cap: u64| {
                    level.saturating_add(rate.saturating_mul(elapsed)).min(units(cap))
                };
                self.committed = add(self.committed, cir_bps, cbs_bytes);
                self.other = add(self.other, pir_bps, pbs_bytes);
            }
        }
    }

    fn mark_single_rate(&mut self, need: u64, incoming: Color) -> Color {
        if incoming == Color::Green && self.committed >= need {
            self.committed -= need;
            Color::Green
        } else if incoming <= Color::Yellow && self.other >= need {
            self.other -= need;
            Color::Yellow
        } else {
            Color::Red
        }
    }

    fn mark_two_rate(&mut self, need: u64, incoming: Color) -> Color {
        if incoming == Color::Red || self.other < need {
            Color::Red
        } else if incoming == Color::Yellow || self.committed < need {
            self.other -= need;
            Color::Yellow
        } else {
            self.committed -= need;
            self.other -= need;
            Color::Green
        }
    }
}

fn units(bytes: u64) -> u64 {
    bytes.min(BURST_BYTES_MAX) * BYTE
}

/// The color of a code point: AF drop precedence 2 is yellow, 3 is red (RFC 2597 6).
pub fn color_of_dscp(dscp: u8) -> Color {
    let assured = matches!(dscp >> 3, 1..=4) && dscp & 1 == 0;
    match (assured, dscp & 6) {
        (true, 4) => Color::Yellow,
        (true, 6) => Color::Red,
        _ => Color::Green,
    }
}

/// The policers of all classes.
#[derive(Clone, Debug)]
pub struct Police {
    by_class: Vec<Option<Policer>>,
    clock_ns: u64,
}

impl Police {
    /// Takes one entry for each class.
    pub fn new(configs: &[Option<PolicerConfig>]) -> Self {
        Self { by_class: configs.iter().map(|c| c.map(Policer::new)).collect(), clock_ns: 0 }
    }

    /// Whether no class has a policer, so that the stage can be left out.
    pub fn is_idle(&self) -> bool {
        self.by_class.iter().all(Option::is_none)
    }

    /// Packets by color of each class that has a policer.
    pub fn counts(&self) -> Vec<Option<ColorCounts>> {
        self.by_class.iter().map(|p| p.as_ref().map(Policer::counts)).collect()
    }

    /// Marks all live packets of a chunk that has not been scheduled yet.
    pub fn process(&mut self, chunk: &mut Chunk) {
        let (mut batch, _) = chunk.whole();
        self.process_batch(&mut batch);
    }

    fn process_batch(&mut self, batch: &mut Batch<'_>) {
        for i in 0..batch.len() {
            let packet = &batch.packets()[i];
            self.clock_ns = self.clock_ns.max(packet.arrival_ns);
            if !packet.is_alive() {
                continue;
            }
            let Some(policer) = self.by_class.get_mut(usize::from(packet.class)).and_then(Option::as_mut)
            else {
                continue;
            };
            let incoming = color_of_dscp(packet.traffic_class >> 2);
            let action = match policer.mark(self.clock_ns, packet.ip_len, incoming) {
                Color::Green => ColorAction::Pass,
                Color::Yellow => policer.config.yellow,
                Color::Red => policer.config.red,
            };
            match action {
                ColorAction::Pass => {}
                ColorAction::Remark(dscp) => remark(batch, i, dscp),
                ColorAction::Drop => batch.packets_mut()[i].drop_for(DropReason::Policed),
            }
        }
    }
}

/// Rewrites the code point, keeps the ECN bits, and updates the IPv4 checksum (RFC 1624).
fn remark(batch: &mut Batch<'_>, i: usize, dscp: u8) {
    let (packet, l3) = batch.packet_and_l3(i);
    let new = dscp << 2 | packet.traffic_class & 3;
    packet.traffic_class = new;
    if packet.is_ipv6() {
        if let Some(start) = l3.first_chunk_mut::<2>() {
            start[0] = start[0] & 0xf0 | new >> 4;
            start[1] = start[1] & 0x0f | new << 4;
        }
    } else if let Some(header) = l3.first_chunk_mut::<20>() {
        let mut delta = ChecksumDelta::default();
        delta.replace_u16(u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[0], new]));
        header[1] = new;
        let sum = delta.apply(u16::from_be_bytes([header[10], header[11]]));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
