//! Counts a flow that several exporters metered once: as the one did that saw most of it.
//!
//! A first pass over the records of the query sums up bytes by flow and by where it was metered: exporter,
//! observation domain, direction. The query itself then keeps, of each flow, the records of the place with the largest
//! sum. A flow whose packets took different ways is counted as far as that one place saw it.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use thalweg_flow::fields::Field;

use super::{Query, scan, tasks};
use crate::dataset::View;
use crate::error::StoreError;
use crate::rows::Rows;

/// The place that counts, of each flow.
#[derive(Debug)]
pub struct Dedup {
    hasher: RandomState,
    places: HashMap<u64, u64, RandomState>,
    /// Records of flows beyond [`Query::keys_max`], which count wherever they were metered.
    pub missed: u64,
}

/// What decides which rows count.
const COLUMNS: [Field; 8] = [
    Field::Src,
    Field::Dst,
    Field::SrcPort,
    Field::DstPort,
    Field::Protocol,
    Field::ExporterName,
    Field::ExporterDomain,
    Field::DirectionWord,
];

impl Query {
    /// The query, with each flow counted once.
    pub fn deduplicated(self, view: &View) -> Result<Self, StoreError> {
        let hasher = RandomState::default();
        let new = || (HashMap::<(u64, u64), u64, RandomState>::default(), 0);
        let (parts, _) = scan(view, &self, tasks(view), new, |(sums, missed), rows| {
            let keys = keys(rows, &hasher)?;
            rows.need(&[Field::Bytes])?;
            rows.need_scale()?;
            let bytes = rows.scaled(rows.block().wide(Field::Bytes)?.into())?;
            let selected = |row: usize| rows.selected.as_ref().is_none_or(|selected| selected[row]);
            let amounts = keys.into_iter().zip(&*bytes).enumerate();
            for (_, (key, bytes)) in amounts.filter(|(row, _)| selected(*row)) {
                let is_full = sums.len() >= self.keys_max;
                match sums.get_mut(&key) {
                    Some(sum) => *sum = sum.saturating_add(*bytes),
                    None if is_full => *missed += 1,
                    None => drop(sums.insert(key, *bytes)),
                }
            }
            Ok(())
        })?;
        let mut all: HashMap<(u64, u64), u64, RandomState> = HashMap::default();
        let mut missed = 0;
        for (sums, beyond) in parts {
            missed += beyond;
            for (key, bytes) in sums {
                let sum = all.entry(key).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        let mut largest: HashMap<u64, (u64, u64), RandomState> = HashMap::default();
        for ((flow, place), bytes) in all {
            let best = largest.entry(flow).or_insert((bytes, place));
            // Of equal sums the place with the lower number counts, whatever the order of visits.
            if bytes > best.0 || bytes == best.0 && place < best.1 {
                *best = (bytes, place);
            }
        }
        let places = largest.into_iter().map(|(flow, (_, place))| (flow, place)).collect();
        Ok(Self { dedup: Some(Arc::new(Dedup { hasher, places, missed })), ..self })
    }
}

impl Dedup {
    /// Whether each row counts.
    pub(super) fn keeps(&self, rows: &mut Rows<'_>) -> Result<Vec<bool>, StoreError> {
        let keys = keys(rows, &self.hasher)?;
        let counts = |(flow, place)| self.places.get(flow).is_none_or(|counts| counts == place);
        Ok(keys.iter().map(|(flow, place)| counts((flow, place))).collect())
    }
}

/// The flow of each row, and the number of the place where it was metered.
fn keys(rows: &mut Rows<'_>, hasher: &RandomState) -> Result<Vec<(u64, u64)>, StoreError> {
    rows.need(&COLUMNS)?;
    let block = rows.block();
    let ends = [Field::Src, Field::Dst].map(|id| {
        let addresses = block.addresses(id)?;
        let hashes: Vec<u64> = addresses.distinct.iter().map(|address| hasher.hash_one(address)).collect();
        Ok::<_, StoreError>((hashes, &addresses.codes))
    });
    let [src, dst] = ends;
    let ((src_hashes, src), (dst_hashes, dst)) = (src?, dst?);
    let (src_ports, dst_ports) = (block.numbers(Field::SrcPort)?, block.numbers(Field::DstPort)?);
    let protocols = block.numbers(Field::Protocol)?;
    let (names, domains) = (block.numbers(Field::ExporterName)?, block.numbers(Field::ExporterDomain)?);
    let ways = block.numbers(Field::DirectionWord)?;
    let key = |row: usize| {
        let hash = |hashes: &[u64], codes: &[u32]| hashes[codes[row] as usize];
        let ends = (hash(&src_hashes, src), hash(&dst_hashes, dst));
        let flow = hasher.hash_one((ends, src_ports[row], dst_ports[row], protocols[row]));
        // Names have fewer than 2^30 numbers, directions three.
        let place = u64::from(names[row]) << 34 | u64::from(domains[row]) << 2 | u64::from(ways[row]);
        (flow, place)
    };
    Ok((0..block.rows).map(key).collect())
}
