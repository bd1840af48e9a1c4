//! What exporters say about themselves in options records: sampling, names of interfaces and applications,
//! start times. The importer needs this to interpret their flow records.

use thalweg_base::{Aged, Name};
use thalweg_wire::application;
use thalweg_wire::netflow::decode::{Field, FieldName, Record, SessionKey, Version};
use thalweg_wire::netflow::element::*;

use crate::InterfaceName;

/// The NetFlow 9 scope that matters here (RFC 3954, 6.1).
const SCOPE_INTERFACE: u16 = 2;

/// The most entries of each kind, over all exporters. The oldest is evicted.
const SAMPLERS_MAX: usize = 65_536;
const INTERFACES_MAX: usize = 65_536;
const APPLICATIONS_MAX: usize = 65_536;
const START_TIMES_MAX: usize = 16_384;

/// The scope of a sampling entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sampler {
    /// The whole domain.
    Domain,
    /// Packets that arrive on an interface.
    Interface(u32),
    /// The sampler's identifier.
    Id(u64),
}

/// The values by which elements describe the sampling ratio.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sampling {
    interval: Option<u64>,
    chosen: Option<u64>,
    skipped: Option<u64>,
    /// Times instead of packet counts, which RFC 5475, 5.1 also allows.
    time_chosen: Option<u64>,
    time_skipped: Option<u64>,
    size: Option<u64>,
    population: Option<u64>,
    probability: Option<f64>,
}

impl Sampling {
    /// Takes a field, if it describes sampling.
    #[inline]
    pub(super) fn take(&mut self, id: u16, field: &Field<'_>) -> bool {
        let place = match id {
            SAMPLING_INTERVAL | SAMPLER_RANDOM_INTERVAL => &mut self.interval,
            SAMPLING_PACKET_INTERVAL => &mut self.chosen,
            SAMPLING_PACKET_SPACE => &mut self.skipped,
            SAMPLING_TIME_INTERVAL => &mut self.time_chosen,
            SAMPLING_TIME_SPACE => &mut self.time_skipped,
            SAMPLING_SIZE => &mut self.size,
            SAMPLING_POPULATION => &mut self.population,
            SAMPLING_PROBABILITY => {
                self.probability = field.float();
                return true;
            }
            // The algorithm does not affect the ratio.
            SAMPLING_ALGORITHM | SAMPLER_MODE | SELECTOR_ALGORITHM => return true,
            _ => return false,
        };
        *place = field.unsigned().or(*place);
        true
    }

    /// The sampling interval: one packet in this many. RFC 5477, 8.2: n of N (`samplingSize`,
    /// `samplingPopulation`), or packets chosen and skipped, or times chosen and skipped.
    /// `samplingPacketInterval` alone says nothing.
    pub(super) fn one_in(&self) -> Option<u32> {
        let ratio = |all: u64, chosen: u64| all.checked_div(chosen);
        let of_population = || ratio(self.population?, self.size?);
        let of_skipped = || ratio(self.chosen?.checked_add(self.skipped?)?, self.chosen?);
        let of_time = || ratio(self.time_chosen?.checked_add(self.time_skipped?)?, self.time_chosen?);
        let of_probability = || {
            let probability = self.probability.filter(|p| *p > 0.0 && *p <= 1.0)?;
            Some((1.0 / probability).round() as u64) // saturates
        };
        let of_parts = of_population().or_else(of_skipped).or_else(of_probability).or_else(of_time);
        let one_in = of_parts.or(self.interval)?;
        u32::try_from(one_in).ok().filter(|one_in| *one_in != 0)
    }
}

/// Everything known about all exporters.
pub(super) struct Context {
    samplers: Aged<(SessionKey, Sampler), u32>,
    interfaces: Aged<(SessionKey, u32), InterfaceName>,
    /// Our application code by the exporter's identifier.
    applications: Aged<(SessionKey, u64), u8>,
    /// Milliseconds since the epoch.
    start_times: Aged<SessionKey, u64>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            samplers: Aged::new(SAMPLERS_MAX, usize::MAX),
            interfaces: Aged::new(INTERFACES_MAX, usize::MAX),
            applications: Aged::new(APPLICATIONS_MAX, usize::MAX),
            start_times: Aged::new(START_TIMES_MAX, usize::MAX),
        }
    }
}

impl Context {
    /// Takes an options record; returns how many older entries it evicted.
    pub(super) fn learn(&mut self, session: SessionKey, record: &Record<'_>) -> u64 {
        let mut sampling = Sampling::default();
        let mut sampler = Sampler::Domain;
        let mut interface = None;
        let mut names = InterfaceName::default();
        let mut application = (None, None);
        let mut gone = 0;
        for field in record.fields() {
            let id = match field.name {
                FieldName::Element(id) => id,
                FieldName::Scope(SCOPE_INTERFACE) => INGRESS_INTERFACE,
                _ => continue,
            };
            if sampling.take(id, &field) {
                continue;
            }
            let number = field.unsigned();
            match id {
                SAMPLER_ID | SELECTOR_ID => sampler = number.map_or(sampler, Sampler::Id),
                INGRESS_INTERFACE | EGRESS_INTERFACE => {
                    interface = interface.or(number.and_then(|number| u32::try_from(number).ok()));
                }
                INTERFACE_NAME => names.name = Name::of(&field.text()),
                INTERFACE_DESCRIPTION => names.description = Name::of(&field.text()),
                APPLICATION_ID => application.0 = number,
                APPLICATION_NAME => application.1 = application::by_name(&field.text()),
                SYSTEM_INIT_TIME_MILLISECONDS => {
                    if let Some(start_ms) = number {
                        gone += self.start_times.insert(session, start_ms, 0);
                    }
                }
                _ => {}
            }
        }
        if let Some(one_in) = sampling.one_in() {
            let sampler = match (sampler, interface) {
                (Sampler::Domain, Some(interface)) => Sampler::Interface(interface),
                _ => sampler,
            };
            gone += self.samplers.insert((session, sampler), one_in, 0);
        }
        if let Some(interface) = interface.filter(|_| names != InterfaceName::default()) {
            gone += self.interfaces.insert((session, interface), names, 0);
        }
        if let (Some(id), Some(application)) = application {
            gone += self.applications.insert((session, id), application.code, 0);
        }
        gone
    }

    pub(super) fn forget(&mut self, exporter: u64) {
        let first = SessionKey { exporter, version: Version::NetFlow5, domain: 0 };
        let last = SessionKey { exporter, version: Version::Ipfix, domain: u32::MAX };
        for key in self.samplers.keys_in((first, Sampler::Domain)..=(last, Sampler::Id(u64::MAX))) {
            self.samplers.remove(&key);
        }
        for key in self.interfaces.keys_in((first, 0)..=(last, u32::MAX)) {
            self.interfaces.remove(&key);
        }
        for key in self.applications.keys_in((first, 0)..=(last, u64::MAX)) {
            self.applications.remove(&key);
        }
        for key in self.start_times.keys_in(first..=last) {
            self.start_times.remove(&key);
        }
    }

    /// The sampling interval of the first of these samplers that was described.
    pub(super) fn sampling(&self, session: SessionKey, samplers: &[Sampler]) -> Option<u32> {
        let described = |session, sampler: &Sampler| self.samplers.get(&(session, *sampler)).copied();
        let own = samplers.iter().find_map(|sampler| described(session, sampler));
        // Only a sampler with a number can be described in another domain.
        own.or_else(|| {
            let whole = whole(session)?;
            let mut numbered = samplers.iter().filter(|sampler| matches!(sampler, Sampler::Id(_)));
            numbered.find_map(|sampler| described(whole, sampler))
        })
    }

    pub(super) fn application(&self, session: SessionKey, id: u64) -> Option<u8> {
        let named = |session| self.applications.get(&(session, id)).copied();
        named(session).or_else(|| named(whole(session)?))
    }

    pub(super) fn start_ms(&self, session: SessionKey) -> Option<u64> {
        let started = |session| self.start_times.get(&session).copied();
        started(session).or_else(|| started(whole(session)?))
    }

    /// What an interface was called last.
    pub(super) fn interface(&self, session: SessionKey, number: u32) -> InterfaceName {
        let named = |session| self.interfaces.get(&(session, number)).copied();
        named(session).or_else(|| named(whole(session)?)).unwrap_or_default()
    }

    pub(super) fn interfaces(&self) -> impl Iterator<Item = (SessionKey, u32, InterfaceName)> {
        self.interfaces.iter().map(|(key, interface)| (key.0, key.1, *interface))
    }
}

/// Domain 0 of IPFIX, in which exporters describe themselves as a whole (RFC 7011, 3.1).
fn whole(session: SessionKey) -> Option<SessionKey> {
    (session.version == Version::Ipfix).then_some(SessionKey { domain: 0, ..session })
}
