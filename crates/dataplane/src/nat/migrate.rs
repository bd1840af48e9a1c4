//! Migrates sessions when the configuration changes.

use super::config::NatConfig;
use super::layout::Layout;
use super::shard::NatShard;
use super::stage::NatStage;
use crate::reverse_path::SourceCheck;
use std::sync::Arc;
use thalweg_base::{Exclusion, Exclusive};

/// The result of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatMigration {
    /// Sessions that continue.
    pub kept: u64,
    /// Sessions that did not fit into the new table.
    pub displaced: u64,
}

impl<E: Exclusion> NatStage<E> {
    /// Changes lifetimes and filters to those of the configuration; its other settings must be as before. Linear in
    /// the sessions if lifetimes differ.
    pub fn set_behavior(&self, config: &NatConfig) {
        for (shards, outside) in self.shards().chunks(self.shards_each()).zip(config.outsides()) {
            shards.iter().for_each(|shard| shard.enter().set_behavior(&outside));
        }
        self.tell_ports(config);
        self.set_one_to_one(config);
    }

    /// Takes over a predecessor's sessions, time and counters. No packet may be in either. The hash seed must be
    /// the same. Linear in the sessions.
    pub fn migrate_from(&self, old: &Self) -> NatMigration {
        let mut shards: Vec<_> = self.shards().iter().map(Exclusive::enter).collect();
        let count = shards.len();
        let mut inherited = NatMigration::default();
        // A shard's time is that of its last packet. All continue from the latest; otherwise lifetimes would
        // change.
        let now_s = old.shards().iter().map(|shard| shard.enter().now_s()).max().unwrap_or(0);
        shards.iter_mut().for_each(|shard| shard.advance_to(now_s));
        let now_ns = old.shards().iter().map(|shard| shard.enter().end_ns()).max().unwrap_or(0);
        for (number, before) in old.shards().iter().enumerate() {
            let mut before = before.enter();
            before.advance_to(now_s);
            // Blocks are assigned anew, with the sessions in them; those that do not fit are logged separately.
            before.log_end_of_blocks(now_ns);
            shards[number % count].succeed(&before);
        }
        for before in old.shards() {
            let before = before.enter();
            for session in before.sessions() {
                let [(_, inside_port), (public, _)] = session.ends();
                let (home, protocol) = (before.home_of(session.inside()), session.protocol());
                let shard = |layout: &Layout| layout.session_shard(protocol, home, inside_port);
                let number = self.number_of(before.layout.vrf, public, shard);
                let taken = shards[number].adopt(session, &before, now_ns);
                inherited.kept += u64::from(taken);
                inherited.displaced += u64::from(!taken);
            }
        }
        self.inherit_help(&mut shards, old);
        for before in old.shards() {
            let before = before.enter();
            for (key, session) in before.all_bare() {
                let (protocol, peer, public) = key;
                let shard = |layout: &Layout| layout.bare_shard(protocol, peer);
                let number = self.number_of(before.layout.vrf, public, shard);
                let taken = shards[number].adopt_bare(key, session, before.layout.vrf);
                inherited.kept += u64::from(taken && session.inside.is_some());
                inherited.displaced += u64::from(!taken && session.inside.is_some());
            }
            // After the sessions, which keep the ports that they shared with the router.
            let (ports, flows) = before.all_own();
            shards.iter_mut().for_each(|shard| shard.adopt_own(&ports, &flows));
        }
        inherited
    }

    /// Sets which sources may create sessions; `None` admits all.
    pub fn set_sources(&self, sources: Option<Arc<SourceCheck>>) {
        for shard in self.shards() {
            shard.enter().set_sources(sources.clone());
        }
    }

    /// A copy of a shard, for trials.
    pub(crate) fn copy_of(&self, shard: u16) -> Option<NatShard> {
        self.shards().get(usize::from(shard)).map(|shard| shard.enter().clone())
    }
}
