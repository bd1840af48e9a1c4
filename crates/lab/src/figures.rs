//! How tables and reports write numbers.

use thalweg_text::units::Unit;

use crate::stats::Summary;

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A ratio: how many times another value.
pub(crate) fn times(ratio: f64) -> String {
    format!("{ratio:.2}")
}

pub(crate) fn ns(value: f64) -> String {
    Unit::Nanoseconds.format(value)
}

pub(crate) fn seconds(s: f64) -> String {
    ns(s * 1e9)
}

/// A dash stands for what was not measured.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// The smallest and the largest measurement.
pub(crate) fn range(summary: &Summary, format: impl Fn(f64) -> String) -> String {
    format!("{} to {}", format(summary.min), format(summary.max))
}
