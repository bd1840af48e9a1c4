//! The summary of a replay: what happened to every packet.
//!
//! `thalweg replay --format json` prints [`ReplaySummary`] as it is; tables are made from the same fields.
//! The figures must satisfy conservation: `packets_in == packets_out + sum(dropped)`, checked by
//! [`ReplaySummary::is_conserved`].

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplaySummary {
    /// Packets read from the inputs, including undecodable ones.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets that left through a port.
    pub packets_out: u64,
    /// Their bytes as sent.
    pub bytes_out: u64,
    /// Packets that did not leave, by [reason](thalweg_base::DropReason::name); only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Wall-clock time from the first packet read to the last one accounted for.
    pub elapsed_s: f64,
    /// `packets_in / elapsed_s`.
    pub packets_per_second: f64,
    /// Processor time of all threads that ran stages: without that of reading only if the input was preloaded.
    pub cpu_s: f64,
    pub model: String,
    pub workers: usize,
    /// Residence time of all packets in nanoseconds, from entering the model until they left or were dropped.
    pub latency: Latency,
    /// All ports of the configuration, in order.
    pub ports: Named<PortSummary>,
    /// All classes of the configuration, in order.
    pub classes: Named<ClassSummary>,
    /// For each access list, the matches of its rules in order, and last those of the default.
    pub acls: Named<Vec<AclRuleSummary>>,
    /// `None` if NAT is not configured.
    pub nat: Option<NatSummary>,
    pub input_issues: InputIssues,
    /// Files written, in port order.
    pub outputs: Vec<String>,
}

impl ReplaySummary {
    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every packet is accounted for exactly once.
    pub fn is_conserved(&self) -> bool {
        self.packets_in == self.packets_out + self.dropped_total()
    }
}

/// Values by name, in a meaningful order; an object in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}

impl<T> Named<T> {
    /// The value with this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A distribution of residence times, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// The median.
    pub latency_ns_p50: u64,
    /// The 99th percentile.
    pub latency_ns_p99: u64,
    /// The maximum.
    pub latency_ns_max: u64,
}

/// The traffic of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortSummary {
    /// Packets that arrived here.
    pub packets_in: u64,
    /// On the wire.
    pub bytes_in: u64,
    /// Packets that left here.
    pub packets_out: u64,
    pub bytes_out: u64,
    /// Packets that arrived here and were dropped.
    pub dropped: u64,
}

/// The traffic of a class: all classified packets, forwarded or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassSummary {
    /// Packets of the class that left through a port.
    pub packets: u64,
    /// Their bytes as sent.
    pub bytes: u64,
    /// Packets of the class that were dropped, for any reason.
    pub dropped: u64,
    /// By the policer's color; `None` without a policer.
    pub colors: Option<Colors>,
    /// Residence time of the packets that left.
    #[serde(flatten)]
    pub latency: Latency,
}

/// Packets by the color a policer gave them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Colors {
    /// Within the committed rate.
    pub green: u64,
    /// Within the peak rate or the excess burst.
    pub yellow: u64,
    /// Beyond both.
    pub red: u64,
}

/// The packets that matched a rule of an access list, on any port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AclRuleSummary {
    /// The rule's name or number; `default` for packets that matched none.
    pub rule: String,
    /// `permit`, `deny` or `reject`.
    pub action: String,
    pub packets: u64,
    /// From the IP header on.
    pub bytes: u64,
}

/// The counters of NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NatSummary {
    /// Sessions in the table at the end.
    pub sessions: u64,
    /// Sessions created during the run.
    pub sessions_created: u64,
    /// Sessions that ended by timeout.
    pub sessions_expired: u64,
    /// Packets whose source was translated.
    pub translated_out: u64,
    /// Packets whose destination was translated.
    pub translated_in: u64,
    /// Packets from inside to inside through a public address.
    pub hairpinned: u64,
}

/// The issues of the input: malformed lines of a trace, damaged captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssues {
    /// All issues; they count as no packets.
    pub total: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// The first ten, in input order.
    pub first: Vec<InputIssue>,
    /// Useless inputs, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub useless: Vec<String>,
    /// Inputs whose rest could not be read, each with the place and the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
}

/// An issue of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssue {
    /// As named on the command line.
    pub file: String,
    /// The position: `line 17, column 6`, `packet 3`, `byte 4711`.
    pub place: String,
    /// As in [`InputIssues::by_kind`].
    pub kind: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// The most issues and drop reasons that are shown in full; the rest is counted.
pub const INPUT_ISSUES_SHOWN_MAX: usize = 10;
