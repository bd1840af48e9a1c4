//! Blackhole routes: BGP announces the host of an alarm with the community BLACKHOLE (RFC 7999), so that neighbors
//! discard what is sent to it.
//!
//! A route stays for the rule's time, and as long again while an alarm about the host is active: traffic that
//! neighbors discard raises no alarm, so an end of the alarm says nothing. Bounded: only hosts in the rule's networks,
//! only so many at once. Everything that is refused is counted and told.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use thalweg_base::IpPrefix;
use thalweg_flow::alarm::{AlarmAction, AlarmEvent, AlarmRule, BLACKHOLE_KEY, Blackhole, BlackholeRoute};
use thalweg_node::speaker::Speaker;
use thalweg_ports::live::wall_ns;
use thalweg_store::Notify;
use thalweg_text::calendar::{SECOND_NS, format_time};

/// What is announced, and what was refused, for readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    pub(crate) routes: Vec<BlackholeRoute>,
    pub(crate) refused: u64,
}

pub(crate) type SharedAnnounced = Arc<Mutex<Announced>>;

/// Announces and withdraws.
pub(crate) struct Blackholes {
    rules: Vec<(String, Blackhole)>,
    speaker: Arc<OnceLock<Arc<Speaker>>>,
    notify: Notify,
    active: BTreeMap<IpPrefix, Active>,
    shared: SharedAnnounced,
}

struct Active {
    /// The rule that found the host first; its time counts.
    rule: String,
    for_s: u32,
    until: Instant,
    until_wall_ns: u64,
    /// Rules whose alarm about the host is active.
    alarms: BTreeSet<String>,
    /// BGP may begin later than alarms.
    is_announced: bool,
}

impl Blackholes {
    /// `None` if no rule has a blackhole.
    pub(crate) fn new(
        rules: &[AlarmRule],
        speaker: &Arc<OnceLock<Arc<Speaker>>>,
        notify: &Notify,
        shared: &SharedAnnounced,
    ) -> Option<Self> {
        let rules = rules.iter().filter_map(|rule| Some((rule.name.clone(), rule.blackhole.clone()?)));
        let rules: Vec<_> = rules.collect();
        (!rules.is_empty()).then(|| Self {
            rules,
            speaker: Arc::clone(speaker),
            notify: notify.clone(),
            active: BTreeMap::new(),
            shared: Arc::clone(shared),
        })
    }

    fn begin(&mut self, event: &AlarmEvent, now: Instant, wall_ns: u64) {
        let alarm = &event.alarm;
        let Some((name, rule)) = self.rules.iter().find(|(name, _)| *name == alarm.rule) else { return };
        let Ok(address) = alarm.of.parse::<IpAddr>() else { return };
        let host = IpPrefix::host(address);
        if let Some(active) = self.active.get_mut(&host) {
            active.alarms.insert(name.clone());
            return;
        }
        let of_rule = self.active.values().filter(|active| active.rule == *name).count();
        let refused = if !rule.within.iter().any(|network| network.contains(address)) {
            "it is in no network of `blackhole_within`".to_owned()
        } else if of_rule >= rule.most {
            format!("there are {of_rule} already (`blackhole_most`)")
        } else {
            self.notify.warn(&format!("alarm {name}: {host} becomes a blackhole for {} s", rule.for_s));
            let time = Duration::from_secs(rule.for_s.into());
            let active = Active {
                rule: name.clone(),
                for_s: rule.for_s,
                until: now + time,
                until_wall_ns: wall_ns.saturating_add(u64::from(rule.for_s) * SECOND_NS),
                alarms: BTreeSet::from([name.clone()]),
                is_announced: false,
            };
            self.active.insert(host, active);
            self.publish();
            return;
        };
        self.notify.warn(&format!("alarm {name}: {host} does not become a blackhole: {refused}"));
        self.shared.lock().refused += 1;
    }

    fn step(&mut self, now: Instant, wall_ns: u64) {
        let mut over = Vec::new();
        let mut changed = false;
        for (host, active) in self.active.iter_mut().filter(|(_, active)| active.until <= now) {
            changed = true;
            if active.alarms.is_empty() {
                over.push(*host);
            } else {
                active.until = now + Duration::from_secs(active.for_s.into());
                active.until_wall_ns = wall_ns.saturating_add(u64::from(active.for_s) * SECOND_NS);
            }
        }
        for host in &over {
            self.active.remove(host);
            self.notify.info(&format!("{host} is no blackhole any more"));
        }
        if let Some(speaker) = self.speaker.get() {
            let mut new = Vec::new();
            for (host, active) in self.active.iter_mut().filter(|(_, active)| !active.is_announced) {
                active.is_announced = true;
                new.push(*host);
            }
            if !(new.is_empty() && over.is_empty()) {
                speaker.change_blackholes(&new, &over);
            }
        }
        if changed {
            self.publish();
        }
    }

    fn publish(&self) {
        let routes = self.active.iter().map(|(host, active)| BlackholeRoute {
            prefix: host.to_string(),
            rule: active.rule.clone(),
            until: format_time(active.until_wall_ns / SECOND_NS * SECOND_NS),
        });
        self.shared.lock().routes = routes.collect();
    }
}

impl AlarmAction for Blackholes {
    fn take(&mut self, event: &AlarmEvent) {
        if event.alarm.key != BLACKHOLE_KEY {
            return;
        }
        if event.is_raised() {
            return self.begin(event, Instant::now(), wall_ns());
        }
        if let Ok(address) = event.alarm.of.parse::<IpAddr>()
            && let Some(active) = self.active.get_mut(&IpPrefix::host(address))
        {
            active.alarms.remove(&event.alarm.rule);
        }
    }

    fn turn(&mut self) {
        self.step(Instant::now(), wall_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_flow::alarm::{Alarm, ENDED, Measure, RAISED};

    fn event(rule: &str, of: &str, event: &str) -> AlarmEvent {
        let text = |text: &str| text.to_owned();
        let alarm = Alarm {
            rule: text(rule),
            key: text("dst"),
            of: text(of),
            measure: text(Measure::Packets.name()),
            since: String::new(),
            peak: 9,
        };
        AlarmEvent { at: String::new(), event: text(event), value: 9, threshold: 5, alarm }
    }

    fn rule(name: &str, most: usize) -> AlarmRule {
        AlarmRule {
            name: name.to_owned(),
            key: BLACKHOLE_KEY.to_owned(),
            filter: String::new(),
            measure: Measure::Packets,
            above: 5,
            below: 3,
            baseline: None,
            window_s: 1,
            for_s: 1,
            clear_s: 1,
            silence_s: 0,
            blackhole: Some(Blackhole {
                for_s: 60,
                within: vec!["203.0.113.0/24".parse().expect("a prefix")],
                most,
            }),
        }
    }

    #[test]
    fn a_route_ends_with_its_time_unless_its_alarm_goes_on() {
        let shared = SharedAnnounced::default();
        let rules = [rule("flood", 2), AlarmRule { blackhole: None, ..rule("told", 2) }];
        let mut blackholes = Blackholes::new(&rules, &Arc::default(), &Notify::default(), &shared)
            .expect("one rule has a blackhole");
        let shown = |blackholes: &mut Blackholes, now| {
            blackholes.step(now, 0);
            let announced = shared.lock();
            announced.routes.iter().map(|route| route.prefix.clone()).collect::<Vec<_>>()
        };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        for (of, seconds) in [("203.0.113.1", 0), ("203.0.113.2", 10), ("203.0.113.3", 20), ("192.0.2.1", 20)]
        {
            blackholes.begin(&event("flood", of, RAISED), after(seconds), 0);
        }
        blackholes.begin(&event("told", "203.0.113.9", RAISED), after(20), 0);
        // The third found no room, the fourth is somebody else's.
        assert_eq!(shown(&mut blackholes, after(21)), ["203.0.113.1/32", "203.0.113.2/32"]);
        assert_eq!(shared.lock().refused, 2);
        blackholes.take(&event("flood", "203.0.113.1", ENDED));
        assert_eq!(shown(&mut blackholes, after(59)).len(), 2);
        assert_eq!(shown(&mut blackholes, after(60)), ["203.0.113.2/32"]);
        // The second's alarm goes on, so it stays for as long again.
        assert_eq!(shown(&mut blackholes, after(75)), ["203.0.113.2/32"]);
        blackholes.take(&event("flood", "203.0.113.2", ENDED));
        assert_eq!(shown(&mut blackholes, after(134)), ["203.0.113.2/32"]);
        assert!(shown(&mut blackholes, after(135)).is_empty());
        assert!(Blackholes::new(&rules[1..], &Arc::default(), &Notify::default(), &shared).is_none());
    }
}
