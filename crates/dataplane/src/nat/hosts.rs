//! Each inside address's use of one shard: its sessions, and how many it created in the current second. Used only
//! when a session is created or ends.
//!
//! A count-min sketch (Cormode and Muthukrishnan, 2005) instead of a table of addresses, so that memory is fixed
//! and a flood of forged addresses fills nothing: an address has a cell in each of two rows, and its count is the
//! smaller one. A count is never too small; it is too large only if other addresses share both cells, which differ
//! from shard to shard.
//!
//! Sessions of an address spread over all shards by their ports. A shard's limit is therefore its share of the
//! whole limit plus two standard deviations of a random spread: an address that spreads randomly is first refused
//! near its limit, one that does not is limited in fewer shards.

use super::config::{HostLimits, NatConfig};
use super::endpoint::Inside;
use super::layout::Layout;

/// The fewest and the most cells of a row; powers of two.
const CELLS_MIN: usize = 64;
const CELLS_MAX: usize = 4096;

/// The use by an address, in one row.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    sessions: u32,
    /// Sessions created in second `second` (modulo 2^16).
    second: u16,
    made: u16,
}

/// Why an address gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostRefusal {
    /// It has reached its limit of sessions.
    Sessions,
    /// It has reached its limit of new sessions in this second.
    Rate,
}

/// What one address may have.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// In this shard.
    sessions_max: u32,
    new_per_second: u16,
    /// The limit of sessions in all shards together.
    in_all: u32,
}

/// The addresses of one shard; without cells if there is no limit.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    rows: [Box<[Cell]>; 2],
    /// By pool.
    limits: Box<[Limit]>,
    /// Makes the cells of an address differ from shard to shard.
    salt: u64,
}

impl Hosts {
    /// One shard without sessions.
    pub(crate) fn new(layout: &Layout, shard: u16, config: &NatConfig) -> Self {
        let rest = config.default_group();
        let limit = |limits: &HostLimits| {
            // A subscriber with blocks belongs to one shard, and has its own limit of sessions.
            let (sessions, shards) = match layout.blocks {
                Some(_) => (None, 1),
                None => (limits.sessions_max, layout.shards()),
            };
            Limit {
                sessions_max: sessions.map_or(u32::MAX, |limit| share(limit, shards)),
                new_per_second: limits
                    .new_per_second
                    .map_or(u16::MAX, |limit| share(limit, shards).min(65_535) as u16),
                in_all: sessions.unwrap_or(u32::MAX),
            }
        };
        let limits: Box<[Limit]> =
            std::iter::once(&rest).chain(&config.groups).map(|group| limit(&group.limits)).collect();
        let is_free = |limit: &Limit| (limit.sessions_max, limit.new_per_second) == (u32::MAX, u16::MAX);
        let cells = match limits.iter().all(is_free) {
            true => 0,
            false => {
                (config.sessions_per_shard() as usize / 2).next_power_of_two().clamp(CELLS_MIN, CELLS_MAX)
            }
        };
        let row = || vec![Cell::default(); cells].into_boxed_slice();
        Self { rows: [row(), row()], limits, salt: u64::from(shard) << 40 | 1 << 56 }
    }

    /// The limit of the sessions of a pool's address in all shards together.
    pub(crate) fn limit(&self, pool: usize) -> u32 {
        self.limits[pool].in_all
    }

    /// Whether an address, of this pool, may have another session in this second.
    pub(crate) fn admit(
        &self,
        layout: &Layout,
        (inside, pool): (Inside, usize),
        now_s: u32,
    ) -> Result<(), HostRefusal> {
        let limit = &self.limits[pool];
        let Some([a, b]) = self.cells(layout, inside) else { return Ok(()) };
        let (a, b) = (&self.rows[0][a], &self.rows[1][b]);
        if a.sessions.min(b.sessions) >= limit.sessions_max {
            return Err(HostRefusal::Sessions);
        }
        let made = |cell: &Cell| if cell.second == now_s as u16 { cell.made } else { 0 };
        if made(a).min(made(b)) >= limit.new_per_second { Err(HostRefusal::Rate) } else { Ok(()) }
    }

    /// Counts a session that an address created in this second.
    pub(crate) fn made(&mut self, layout: &Layout, inside: Inside, now_s: u32) {
        self.each(layout, inside, |cell| {
            let made = if cell.second == now_s as u16 { cell.made } else { 0 };
            (cell.second, cell.made) = (now_s as u16, made.saturating_add(1));
            cell.sessions = cell.sessions.saturating_add(1);
        });
    }

    /// Counts a session that an address created earlier.
    pub(crate) fn has_another(&mut self, layout: &Layout, inside: Inside) {
        self.each(layout, inside, |cell| cell.sessions = cell.sessions.saturating_add(1));
    }

    /// A session of an address ended.
    pub(crate) fn ended(&mut self, layout: &Layout, inside: Inside) {
        self.each(layout, inside, |cell| cell.sessions = cell.sessions.saturating_sub(1));
    }

    fn each(&mut self, layout: &Layout, inside: Inside, change: impl Fn(&mut Cell)) {
        if let Some(places) = self.cells(layout, inside) {
            self.rows.iter_mut().zip(places).for_each(|(row, place)| change(&mut row[place]));
        }
    }

    /// The cells of an address in both rows.
    fn cells(&self, layout: &Layout, inside: Inside) -> Option<[usize; 2]> {
        let mask = self.rows[0].len().checked_sub(1)?;
        let hash = layout.hash(inside.word() | self.salt);
        Some([hash as usize & mask, (hash >> 32) as usize & mask])
    }
}

/// The part of an address's limit in one of `shards` shards.
fn share(limit: u32, shards: u32) -> u32 {
    if shards == 1 {
        return limit;
    }
    let mean = limit.div_ceil(shards);
    mean.saturating_add(2 * mean.isqrt() + 2).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nat::HostLimits;
    use crate::nat::testing::config;

    fn host(address: u32) -> Inside {
        Inside { vrf: 0, address }
    }

    fn hosts(shards: u16, limits: HostLimits) -> (Layout, Hosts) {
        let config = crate::nat::NatConfig { shards, hosts: limits, ..config(1) };
        let layout = Layout::new(&config);
        let hosts = Hosts::new(&layout, 0, &config);
        (layout, hosts)
    }

    #[test]
    fn a_host_has_its_limit_and_no_more_and_others_have_theirs() {
        let limits =
            HostLimits { sessions_max: Some(100), new_per_second: Some(60), ..HostLimits::default() };
        let (layout, mut hosts) = hosts(1, limits);
        for n in 0..60 {
            assert_eq!(hosts.admit(&layout, (host(7), 0), 5), Ok(()), "{n}");
            hosts.made(&layout, host(7), 5);
        }
        assert_eq!(hosts.admit(&layout, (host(7), 0), 5), Err(HostRefusal::Rate));
        for n in 0..40 {
            assert_eq!(hosts.admit(&layout, (host(7), 0), 6), Ok(()), "{n}");
            hosts.made(&layout, host(7), 6);
        }
        assert_eq!(hosts.admit(&layout, (host(7), 0), 7), Err(HostRefusal::Sessions));
        let others =
            (1000..2000).filter(|address| hosts.admit(&layout, (host(*address), 0), 6).is_ok()).count();
        assert_eq!(others, 1000, "nobody shares both cells of one address");
        let of_vrf = |vrf| Inside { vrf, ..host(7) };
        assert!(
            (1..64).all(|vrf| hosts.admit(&layout, (of_vrf(vrf), 0), 6).is_ok()),
            "nor its address elsewhere"
        );
        hosts.ended(&layout, host(7));
        assert_eq!(hosts.admit(&layout, (host(7), 0), 7), Ok(()));
    }

    #[test]
    fn without_limits_nothing_is_counted() {
        let (layout, mut hosts) = hosts(4, HostLimits::default());
        for _ in 0..100_000 {
            hosts.made(&layout, host(7), 0);
        }
        assert_eq!(hosts.admit(&layout, (host(7), 0), 0), Ok(()));
    }

    #[test]
    fn shares_leave_room_for_chance() {
        assert_eq!((share(4096, 1), share(4096, 64), share(64, 64)), (4096, 82, 5));
        assert_eq!(share(3, 64), 3, "never more than the limit");
    }
}
