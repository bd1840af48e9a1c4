//! Prometheus' text format 0.0.4, and OpenMetrics 1.0.0, which differs in the names of counters and in its end.

use std::fmt::Write;

/// The content type of the text format.
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The content type of OpenMetrics.
pub(crate) const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A text being written.
pub(crate) struct Exposition {
    is_open: bool,
    text: String,
}

/// A family of samples: one name, one meaning.
pub(crate) struct Family<'e> {
    text: &'e mut String,
    name: String,
}

impl Exposition {
    pub(crate) fn new(is_open: bool) -> Self {
        Self { is_open, text: String::new() }
    }

    /// A counter; `_total` is added to its name.
    pub(crate) fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        let sample = format!("thalweg_{name}_total");
        let family = if self.is_open { format!("thalweg_{name}") } else { sample.clone() };
        self.begin(&family, "counter", help);
        Family { text: &mut self.text, name: sample }
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        let name = format!("thalweg_{name}");
        self.begin(&name, "gauge", help);
        Family { text: &mut self.text, name }
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str) -> Family<'_> {
        let name = format!("thalweg_{name}");
        self.begin(&name, "histogram", help);
        Family { text: &mut self.text, name }
    }

    fn begin(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub(crate) fn finish(mut self) -> String {
        if self.is_open {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

impl Family<'_> {
    /// A sample with these labels.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Sample) {
        self.line("", labels, &value.shown());
    }

    /// A histogram: how many values are within each bound, all of them, their sum.
    pub(crate) fn buckets(
        &mut self,
        labels: &[(&str, &str)],
        within: impl Iterator<Item = (f64, u64)>,
        (count, sum): (u64, f64),
    ) {
        let mut with_bound = |bound: &str, number: u64| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
            self.line("_bucket", &labels, &number.shown());
        };
        within.for_each(|(bound, number)| with_bound(&bound.shown(), number));
        with_bound("+Inf", count);
        self.line("_sum", labels, &sum.shown());
        self.line("_count", labels, &count.shown());
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], value: &str) {
        self.text.push_str(&self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            let _ = write!(self.text, "{separator}{name}=\"{}\"", escaped(value));
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

/// A value of a sample.
pub(crate) trait Sample {
    /// As a number in the text.
    fn shown(&self) -> String;
}

impl Sample for u64 {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Sample for bool {
    fn shown(&self) -> String {
        u8::from(*self).to_string()
    }
}

impl Sample for f64 {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

/// A label's value: descriptions come from outside.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(is_open: bool) -> String {
        let mut text = Exposition::new(is_open);
        let mut packets = text.counter("packets", "Packets.");
        packets.sample(&[("port", "a\"\\\n")], 7u64);
        packets.sample(&[], 0u64);
        text.gauge("up", "Up.").sample(&[], true);
        text.histogram("wait_seconds", "Waits.").buckets(
            &[("a", "b")],
            [(1e-6, 1), (1.0, 2)].into_iter(),
            (3, 4.5),
        );
        text.finish()
    }

    #[test]
    fn both_formats_are_as_their_specifications_say() {
        let samples = "# HELP thalweg_up Up.\n# TYPE thalweg_up gauge\nthalweg_up 1\n\
                       # HELP thalweg_wait_seconds Waits.\n# TYPE thalweg_wait_seconds histogram\n\
                       thalweg_wait_seconds_bucket{a=\"b\",le=\"1e-6\"} 1\nthalweg_wait_seconds_bucket{a=\"b\",le=\"1.0\"} 2\n\
                       thalweg_wait_seconds_bucket{a=\"b\",le=\"+Inf\"} 3\nthalweg_wait_seconds_sum{a=\"b\"} 4.5\n\
                       thalweg_wait_seconds_count{a=\"b\"} 3\n";
        let counter = "thalweg_packets_total{port=\"a\\\"\\\\\\n\"} 7\nthalweg_packets_total 0\n";
        let plain = "# HELP thalweg_packets_total Packets.\n# TYPE thalweg_packets_total counter\n";
        assert_eq!(text(false), format!("{plain}{counter}{samples}"));
        let open = "# HELP thalweg_packets Packets.\n# TYPE thalweg_packets counter\n";
        assert_eq!(text(true), format!("{open}{counter}{samples}# EOF\n"));
    }
}
