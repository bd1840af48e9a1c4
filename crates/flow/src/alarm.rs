//! Rules for alarms, as configurations give them: which measure of which traffic, by which key, is too much; and what was found.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thalweg_base::IpPrefix;

thalweg_base::words! {
    /// What is compared with a rule's threshold, for each value of its key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Measure {
        Packets => "packets-per-second",
        Bits => "bits-per-second",
        /// Flows that begin.
        Flows => "flows-per-second",
        /// TCP flows that begin, and have sent nothing but SYN at the end of the second.
        HalfOpen => "half-open-per-second",
        /// Different source addresses in the window.
        Sources => "sources",
        /// Different destination addresses in the window.
        Destinations => "destinations",
        /// Different pairs of destination address and port in the window.
        Ports => "ports",
    }
}

impl Measure {
    /// Whether it counts different values in a window, instead of a rate.
    pub fn is_distinct(self) -> bool {
        matches!(self, Self::Sources | Self::Destinations | Self::Ports)
    }
}

/// What is usual for a value of the key: its mean, in which a window counts the less the older it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// This many times the mean is too much.
    pub factor: u32,
    /// The time in which a window's weight falls to a third.
    pub window_s: u32,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmRule {
    pub name: String,
    /// A key of `thalweg flows`, or `all`.
    pub key: String,
    /// In the language of `thalweg flows`; empty for all traffic.
    pub filter: String,
    pub measure: Measure,
    /// An alarm is raised above it.
    pub above: u64,
    /// An active alarm ends below it.
    pub below: u64,
    pub baseline: Option<Baseline>,
    /// The time over which the measure is taken.
    pub window_s: u32,
    /// The measure must be above the threshold for this long.
    pub for_s: u32,
    /// It must be below for this long.
    pub clear_s: u32,
    /// After an alarm ends, another one of the same rule and value is not told for this long.
    pub silence_s: u32,
    /// What a router does about the host; only of rules whose key is [`BLACKHOLE_KEY`].
    pub blackhole: Option<Blackhole>,
}

/// The key of rules that may have a [`Blackhole`].
pub const BLACKHOLE_KEY: &str = "dst";

/// BGP announces the host of an alarm with the community BLACKHOLE (RFC 7999): neighbors discard what is sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blackhole {
    /// How long; as long again if the alarm is active then.
    pub for_s: u32,
    /// Only of hosts in these networks: nobody may announce others' addresses.
    pub within: Vec<IpPrefix>,
    /// The most hosts at once.
    pub most: usize,
}

/// A host that is announced with the community BLACKHOLE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlackholeRoute {
    pub prefix: String,
    /// The rule that found it.
    pub rule: String,
    /// When the route is withdrawn, unless an alarm about it is active then.
    pub until: String,
}

/// What is done about alarms besides telling them. Called by the thread that judges.
pub trait AlarmAction: Send {
    fn take(&mut self, event: &AlarmEvent);

    /// Called several times a second.
    fn turn(&mut self);
}

/// Something that a rule finds too much.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The rule's name.
    pub rule: String,
    /// The rule's key.
    pub key: String,
    /// The key's value.
    pub of: String,
    /// The word of the [`Measure`].
    pub measure: String,
    /// The beginning of the first window above the threshold.
    pub since: String,
    /// The largest value so far.
    pub peak: u64,
}

/// An alarm was raised, or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmEvent {
    /// The end of the window, by the packets' clock.
    pub at: String,
    /// [`RAISED`] or [`ENDED`].
    pub event: String,
    /// In the last window.
    pub value: u64,
    /// The threshold when it was raised.
    pub threshold: u64,
    #[serde(flatten)]
    pub alarm: Alarm,
}

pub const RAISED: &str = "raised";
pub const ENDED: &str = "ended";

impl AlarmEvent {
    /// Whether it was raised, and not ended.
    pub fn is_raised(&self) -> bool {
        self.event == RAISED
    }
}

impl fmt::Display for AlarmEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, event, value, threshold, alarm } = self;
        let Alarm { rule, key, of, measure, since, peak } = alarm;
        match self.is_raised() {
            true => write!(f, "{at} alarm {rule} {event}: {key} {of}: {value} {measure}, above {threshold}"),
            false => {
                write!(f, "{at} alarm {rule} {event}: {key} {of}: since {since}, at most {peak} {measure}")
            }
        }
    }
}

/// What became of a rule's alarms.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmRuleCounters {
    /// The rule's name.
    pub rule: String,
    pub active: usize,
    pub raised: u64,
    pub ended: u64,
}

/// What alarms could not see or tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmCounters {
    /// Windows above a threshold while too many alarms were active.
    pub refused: u64,
    /// Windows that may have been above a threshold, by what their sums lack.
    pub uncertain: u64,
    /// Seconds of a shard that came too late, or were judged before all shards had told them.
    pub late: u64,
    /// Seconds of a shard that found no room in the queue.
    pub lost: u64,
    /// Alarms without their blackhole route: the host was in no network of the rule, or there were too many.
    #[serde(default)]
    pub blackholes_refused: u64,
}

/// What became of events for a web server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookCounters {
    pub accepted: u64,
    /// Not accepted in any try.
    pub given_up: u64,
    /// Without room to wait.
    pub dropped: u64,
    /// Why the last try failed, unless a later one did not.
    pub error: Option<String>,
}

/// Where events are posted to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTarget {
    pub url: String,
    /// Certificates of authorities; by default those of the system.
    pub authorities: Option<PathBuf>,
}

/// Active alarms, and the latest events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmReport {
    pub active: Vec<Alarm>,
    /// The oldest first.
    pub events: Vec<AlarmEvent>,
    /// In the order of the configuration.
    pub rules: Vec<AlarmRuleCounters>,
    pub counters: AlarmCounters,
    /// If events are posted to a web server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookCounters>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blackholes: Vec<BlackholeRoute>,
}

impl AlarmReport {
    /// Alarms that were raised.
    pub fn raised(&self) -> u64 {
        self.rules.iter().map(|rule| rule.raised).sum()
    }

    /// Alarms that are active.
    pub fn active(&self) -> usize {
        self.rules.iter().map(|rule| rule.active).sum()
    }
}
