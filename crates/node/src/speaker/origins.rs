//! Route origin validation in the speaker: the VRPs in force, and what follows when there are others.
//!
//! One thread of the daemon talks to the sources and calls [`Speaker::set_vrps`]. From then on import judges by the new
//! VRPs; routes that are there already are judged again by the shards, in slices (`reimport.rs`). Without a configured
//! source nobody calls it, and no route is ever looked at.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use thalweg_base::IpPrefix;
use thalweg_bgp::attrs::Attrs;
use thalweg_bgp::rpki::{Validator, Validity, VrpTable};
use thalweg_bgp::session::config::KeepRejected;
use thalweg_wire::bgp::Family;

use super::reimport::{Revalidated, Revalidation};
use super::shards::{Kept, ShardOp};
use super::slot::NewImport;
use super::{Speaker, log};
use crate::control::{AnswerError, ByFamily, RpkiSourceView, RpkiView, ValidityView, VrpView};

/// The shortest time between two requests for a neighbor's routes because of VRPs, in milliseconds.
const ASK_INTERVAL_MS: u64 = 60_000;

/// What the speaker knows of the RPKI.
#[derive(Default)]
pub(super) struct Origins {
    /// `None`: no source is configured.
    vrps: Mutex<Option<Arc<VrpTable>>>,
    /// What the daemon last said of its sources, and how many paths have which validity.
    view: Mutex<RpkiView>,
}

impl Origins {
    /// The VRPs in force.
    pub(super) fn vrps(&self) -> Option<Arc<VrpTable>> {
        self.vrps.lock().clone()
    }

    /// Notes how many paths have which validity.
    pub(super) fn set_counts(&self, valid: ByFamily<u64>, not_found: ByFamily<u64>, invalid: ByFamily<u64>) {
        let mut view = self.view.lock();
        (view.valid_paths, view.not_found_paths, view.invalid_paths) = (valid, not_found, invalid);
    }
}

/// Says how valid routes are, for views.
#[derive(Clone, Default)]
pub(crate) struct ViewOrigins {
    vrps: Option<Arc<VrpTable>>,
    own_as: u32,
}

impl ViewOrigins {
    /// The word for the validity of a route; `None` without RPKI.
    pub(super) fn validity(&self, prefix: IpPrefix, attrs: &Attrs) -> Option<Validity> {
        Some(Validator::new(self.vrps.as_deref()?, self.own_as).validity_of(prefix, attrs))
    }
}

impl Speaker {
    /// Puts other VRPs in force, or begins to use any.
    pub fn set_vrps(&self, new: Arc<VrpTable>) {
        let old = self.origins.vrps.lock().replace(new.clone()).unwrap_or_default();
        let changed = old.difference(&new);
        let now = self.last_time();
        let mut neighbors = HashMap::new();
        for slot in self.slots_in_use() {
            let mut state = self.look(&slot);
            let is_up = state.negotiated.is_some();
            let Some(importer) = &mut state.importer else { continue };
            importer.set_vrps(Some(new.clone()));
            let judge = importer.judge().clone();
            if !is_up || changed.is_empty() || !judge.depends_on_validity() {
                continue;
            }
            // Of rejected routes that are not kept nobody knows whether they may come in now.
            if judge.keeps() == KeepRejected::None {
                slot.ask_again.store(true, Ordering::Release);
            }
            let import = Arc::new(NewImport { judge, received_s: now.seconds() });
            // In this order: a shard that sees the new number finds the new import.
            *slot.new_import.lock() = Some(import.clone());
            slot.policy.fetch_add(1, Ordering::AcqRel);
            let epoch = slot.epoch.load(Ordering::Acquire);
            drop(state);
            neighbors.insert(slot.id, Revalidated { slot, epoch, import });
        }
        if !neighbors.is_empty() {
            let revalidation = Arc::new(Revalidation { old, new, changed, neighbors });
            let keeps = |wanted: &dyn Fn(KeepRejected) -> bool| {
                revalidation.neighbors.values().any(|each| wanted(each.import.judge.keeps()))
            };
            if keeps(&|keeps| keeps != KeepRejected::None) {
                self.post_to_shards(&ShardOp::Revalidate(revalidation.clone(), Kept::Yes));
            }
            if keeps(&|keeps| keeps != KeepRejected::All) {
                self.post_to_shards(&ShardOp::Revalidate(revalidation.clone(), Kept::No));
            }
        }
    }

    /// Asks neighbors for their routes whose validity may lead to another result, and whose routes are not kept.
    pub fn ask_for_unkept(&self) {
        let now = self.last_time();
        for slot in self.slots_in_use() {
            let asked = slot.asked_ms.load(Ordering::Relaxed);
            let rests = asked != 0 && now.0 < asked + ASK_INTERVAL_MS;
            if rests || !slot.ask_again.swap(false, Ordering::AcqRel) {
                continue;
            }
            slot.asked_ms.store(now.0.max(1), Ordering::Relaxed);
            {
                let mut state = slot.lock();
                let Some(negotiated) = state.negotiated.clone() else { continue };
                let families = Family::ALL.into_iter().filter(|family| negotiated.family(*family));
                let count = families.filter(|family| state.session.refresh(*family)).count();
                log::asked_for_validity(&state.config.name, count > 0);
                self.drive_alone(&slot, &mut state, now);
            }
            self.write_slot(&slot, now);
        }
    }

    /// Says what `show rpki` answers about the sources.
    pub fn set_rpki_sources(&self, sources: Vec<RpkiSourceView>) {
        self.origins.view.lock().sources = sources;
    }

    /// Says how valid routes are, for views.
    pub(super) fn view_origins(&self) -> ViewOrigins {
        let config = self.config();
        let own_as = config.confederation.as_ref().map_or(config.local_as, |each| each.id);
        ViewOrigins { vrps: self.origins.vrps(), own_as }
    }

    pub(super) fn rpki_view(&self) -> Result<RpkiView, AnswerError> {
        let vrps = self.origins.vrps().ok_or(AnswerError::NoRpki)?;
        let mut view = self.origins.view.lock().clone();
        view.vrps = vrps.counts().map(|count| count as u64).into();
        view.bytes = vrps.bytes() as u64;
        view.revalidated =
            self.slots_in_use().iter().map(|slot| slot.revalidated.load(Ordering::Relaxed)).sum();
        Ok(view)
    }

    /// The VRPs that cover a prefix, and what they make of an origin.
    pub(super) fn validity_view(
        &self,
        prefix: &str,
        origin_as: Option<u32>,
    ) -> Result<ValidityView, AnswerError> {
        let prefix = AnswerError::prefix(prefix)?;
        let vrps = self.origins.vrps().ok_or(AnswerError::NoRpki)?;
        let covering = vrps.covering(prefix).into_iter().map(|vrp| VrpView {
            prefix: vrp.prefix.to_string(),
            max_length: vrp.max_length,
            asn: vrp.asn,
            matches: origin_as
                .map(|origin| origin == vrp.asn && origin != 0 && prefix.length() <= vrp.max_length),
        });
        Ok(ValidityView {
            prefix: prefix.to_string(),
            origin_as,
            validity: origin_as.map(|origin| vrps.validity(prefix, Some(origin)).to_string()),
            vrps: covering.collect(),
        })
    }
}
