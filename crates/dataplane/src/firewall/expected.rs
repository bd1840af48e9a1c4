//! Connections that others have announced, as helpers found them (see [`crate::helpers`]).
//!
//! What announces one and what it announces are in two shards, so there is one list for all. It changes only while a
//! chunk crosses, when no other is in the firewall; shards read it when a connection begins that their table does not
//! know, and it is a load and a comparison while nothing is expected. An entry is not used up: its end may begin several
//! connections until its time is over, so the answer does not depend on which of them came first.

use super::flow::{FlowKey, IPV6};
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thalweg_base::Expected;

/// Expected connections; more are counted and forgotten.
const MAX: usize = 4096;

/// The list, in order, with the last second of each.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    list: ArcSwap<Vec<(Expected, u32)>>,
    /// How many were announced, and how many found no room.
    announced: AtomicU64,
    refused: AtomicU64,
    /// Messages that could not be read, of packets that NAT does not translate.
    unread: AtomicU64,
}

impl Expectations {
    /// Adds what was announced in this second. No packet may be in a shard.
    pub(crate) fn add(&self, announced: &[Expected], now_s: u32) {
        if announced.is_empty() {
            return;
        }
        let mut list = Vec::clone(&self.list.load());
        list.retain(|(_, expires_s)| *expires_s >= now_s);
        for expected in announced {
            let expires_s = now_s.saturating_add(expected.lifetime_s);
            let key = Expected { lifetime_s: 0, ..*expected };
            match list.binary_search_by_key(&key, |(key, _)| *key) {
                Ok(at) => list[at].1 = list[at].1.max(expires_s),
                Err(at) if list.len() < MAX => list.insert(at, (key, expires_s)),
                Err(_) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
            self.announced.fetch_add(1, Ordering::Relaxed);
        }
        self.list.store(Arc::new(list));
    }

    /// Counts messages that could not be read, and endpoints that were not their sender's.
    pub(crate) fn count(&self, unread: u64, refused: u64) {
        self.unread.fetch_add(unread, Ordering::Relaxed);
        self.refused.fetch_add(refused, Ordering::Relaxed);
    }

    /// Whether a connection of this key is expected that begins at the end `from`.
    pub(crate) fn has(&self, key: &FlowKey, from: usize, now_s: u32) -> bool {
        let list = self.list.load();
        if list.is_empty() {
            return false;
        }
        let (to, source) = (1 - from, key.addresses[from]);
        let wanted = (key.protocol, key.marks & IPV6 != 0, (key.addresses[to], key.ports[to]));
        let of = |expected: &Expected| (expected.protocol, expected.is_ipv6, expected.to);
        let first = list.partition_point(|(expected, _)| of(expected) < wanted);
        list[first..].iter().take_while(|(expected, _)| of(expected) == wanted).any(
            |(expected, expires_s)| *expires_s >= now_s && expected.from.is_none_or(|from| from == source),
        )
    }

    /// Announced, refused and unread.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.announced, &self.refused, &self.unread].map(|count| count.load(Ordering::Relaxed))
    }

    /// Takes over a predecessor's list and counts.
    pub(crate) fn take_over(&self, old: &Self) {
        self.list.store(old.list.load_full());
        let [announced, refused, unread] = old.counts();
        self.announced.fetch_add(announced, Ordering::Relaxed);
        self.count(unread, refused);
    }
}
