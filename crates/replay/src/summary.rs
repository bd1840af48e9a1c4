//! What happened to every packet of a replay: the figures behind its tables and its JSON.
//!
//! One definition, two outputs: `thalweg replay --format json` prints [`ReplaySummary`] as it is, the
//! tables are made from the same fields. The law that ties them together is conservation:
//! `packets_in == packets_out + sum(dropped)`, checked by [`ReplaySummary::is_conserved`].

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// A finished replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplaySummary {
    /// Packets read from the inputs, those that could not be decoded included.
    pub packets_in: u64,
    /// Their bytes on the wire.
    pub bytes_in: u64,
    /// Packets that left through a port.
    pub packets_out: u64,
    /// Their bytes as they left.
    pub bytes_out: u64,
    /// Packets that did not leave, by [reason](thalweg_base::DropReason::name); only reasons that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Wall-clock time from the first packet read to the last one accounted for.
    pub elapsed_s: f64,
    /// `packets_in / elapsed_s`.
    pub packets_per_second: f64,
    /// Processor time of all threads that ran stages; reading and writing files is not in it.
    pub cpu_s: f64,
    /// Execution model.
    pub model: String,
    /// Worker threads.
    pub workers: usize,
    /// Residence time of all packets, nanoseconds: from being taken on by the model to leaving or being
    /// dropped.
    pub latency: Latency,
    /// Per port; every port of the configuration, in its order.
    pub ports: Named<PortSummary>,
    /// Per class; every class of the configuration, in its order.
    pub classes: Named<ClassSummary>,
    /// Per access list what met each rule, in their order, and last what met none.
    pub acls: Named<Vec<AclRuleSummary>>,
    /// Address translation, where configured.
    pub nat: Option<NatSummary>,
    /// What was wrong with the input.
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

/// Values by name, in an order that means something; JSON shows them as an object.
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

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// A distribution of residence times, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Half of the packets stayed at most this long.
    pub latency_ns_p50: u64,
    /// 99 in 100 stayed at most this long.
    pub latency_ns_p99: u64,
    /// The longest stay.
    pub latency_ns_max: u64,
}

/// One port's traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortSummary {
    /// Packets that arrived here.
    pub packets_in: u64,
    /// Bytes that arrived here, on the wire.
    pub bytes_in: u64,
    /// Packets that left here.
    pub packets_out: u64,
    /// Bytes that left here.
    pub bytes_out: u64,
    /// Packets that arrived here and were dropped.
    pub dropped: u64,
}

/// One class's traffic: the packets that were classified, forwarded or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassSummary {
    /// Packets of the class that left through a port.
    pub packets: u64,
    /// Their bytes as they left.
    pub bytes: u64,
    /// Packets of the class that were dropped, for any reason.
    pub dropped: u64,
    /// Packets by the color the policer gave them; absent without a policer.
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

/// What met a rule of an access list, on any port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AclRuleSummary {
    /// The rule's name or number; `default` for packets that met none.
    pub rule: String,
    /// `permit`, `deny` or `reject`.
    pub action: String,
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// What address translation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NatSummary {
    /// Sessions in the table at the end.
    pub sessions: u64,
    /// Sessions made over the whole run.
    pub sessions_created: u64,
    /// Sessions that ended by their timeout.
    pub sessions_expired: u64,
    /// Packets whose source was translated.
    pub translated_out: u64,
    /// Packets whose destination was translated.
    pub translated_in: u64,
    /// Packets from inside to inside through a public address.
    pub hairpinned: u64,
}

/// What was wrong with the input: bad lines of a trace, damaged captures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssues {
    /// All of them; they are no packets and count nowhere else.
    pub total: u64,
    /// How many of each kind.
    pub by_kind: BTreeMap<String, u64>,
    /// The first ten, in input order.
    pub first: Vec<InputIssue>,
    /// Inputs of no use, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub useless: Vec<String>,
}

/// One place in the input that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InputIssue {
    /// File, as named on the command line.
    pub file: String,
    /// Where in it: `line 17, column 6`, `packet 3`, `byte 4711`.
    pub place: String,
    /// Kind, as in [`InputIssues::by_kind`].
    pub kind: String,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Kinds of input issue and reasons for drops that are shown in full; the rest is counted.
pub const INPUT_ISSUES_SHOWN_MAX: usize = 10;
