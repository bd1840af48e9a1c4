//! Positions of values along an axis, and positions of ticks.

use super::svg::text_width;
use thalweg_text::units::Unit;

/// How values are mapped to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences have equal distances. The axis includes zero.
    Linear,
    /// Equal ratios have equal distances. Values that are not positive cannot be shown and are left out.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What the values are, with their unit if the ticks do not show it.
    pub label: String,
    /// The format of ticks.
    pub unit: Unit,
    pub scale: Scale,
    /// Ticks at the values of the data instead of round ones, for worker counts and sizes. Such an axis does not
    /// include zero.
    pub ticks_at_data: bool,
    /// Ticks at these values, with these labels, instead of round ones, for times. Such an axis ends at the
    /// outermost values.
    pub named_ticks: Vec<(f64, String)>,
    /// The format of a mark's value, if it differs from that of ticks.
    pub name: Option<fn(f64) -> String>,
    /// Values below zero count as those above: they are another direction's.
    pub mirrored: bool,
}

impl Axis {
    /// An axis with round ticks.
    pub fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Self {
        Self {
            label: label.into(),
            unit,
            scale,
            ticks_at_data: false,
            named_ticks: Vec::new(),
            name: None,
            mirrored: false,
        }
    }

    /// An axis with ticks at the data's values.
    pub fn at_data(label: impl Into<String>, unit: Unit, scale: Scale) -> Self {
        Self { ticks_at_data: true, ..Self::new(label, unit, scale) }
    }

    /// An axis of times, given as numbers: `ticks` are the labeled ones, and `name` formats any of them.
    pub fn of_times(label: impl Into<String>, ticks: Vec<(f64, String)>, name: fn(f64) -> String) -> Self {
        let plain = Self::new(label, Unit::Plain, Scale::Linear);
        Self { named_ticks: ticks, name: Some(name), ..plain }
    }

    /// A value along this axis as text.
    pub(super) fn value(&self, value: f64) -> String {
        self.unit.format(if self.mirrored { value.abs() } else { value })
    }

    /// The value of a mark as text.
    pub(super) fn place_name(&self, value: f64) -> String {
        self.name.map_or_else(|| self.unit.format_tick(value), |name| name(value))
    }
}

/// An axis fitted to its values.
#[derive(Debug)]
pub(super) struct Fitted {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<(f64, String)>,
}

impl Fitted {
    /// Fits `axis` to the values to show; `None` if none of them can be shown.
    pub(super) fn to(axis: &Axis, values: impl Iterator<Item = f64>) -> Option<Fitted> {
        let mut values: Vec<f64> =
            values.filter(|v| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let (&min, &max) = (values.first()?, values.last()?);
        let scale = axis.scale;
        let said = |tick: f64| if axis.mirrored { tick.abs() } else { tick };
        let labeled = |ticks: Vec<f64>| {
            ticks.into_iter().map(|tick| (tick, axis.unit.format_tick(said(tick)))).collect()
        };
        if axis.name.is_some() {
            let (low, high) = if max > min { (min, max) } else { (min - 0.5, max + 0.5) };
            let inside = |(tick, _): &&(f64, String)| (low..=high).contains(tick);
            let ticks = axis.named_ticks.iter().filter(inside).cloned().collect();
            return Some(Fitted { scale, low, high, ticks });
        }
        if axis.ticks_at_data {
            let (low, high) = padded(scale, min, max);
            return Some(Fitted { scale, low, high, ticks: labeled(values) });
        }
        let (low, high, ticks) = match scale {
            Scale::Linear => linear(min.min(0.0), max.max(0.0)),
            Scale::Log => logarithmic(min, max),
        };
        Some(Fitted { scale, low, high, ticks: labeled(ticks) })
    }

    /// The position of `value` from 0 (low end) to 1; 0 for values that cannot be shown.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Whether `value` can be shown.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }

    pub(super) fn low(&self) -> f64 {
        self.low
    }

    /// Ticks with labels. Leaves out ticks whose labels would overlap the one before on an axis of `length`
    /// pixels.
    pub(super) fn ticks(&self, length: f64) -> Vec<(f64, String)> {
        let mut kept: Vec<(f64, String)> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for (tick, label) in &self.ticks {
            let (center, half) = (self.place(*tick) * length, text_width(label) / 2.0);
            if center - half > end + 4.0 {
                end = center + half;
                kept.push((*tick, label.clone()));
            }
        }
        kept
    }

    /// All ticks, for a vertical axis.
    pub(super) fn stacked_ticks(&self) -> Vec<(f64, String)> {
        self.ticks.clone()
    }
}

/// The axis's limits, with space on both sides of the outermost values.
fn padded(scale: Scale, min: f64, max: f64) -> (f64, f64) {
    match scale {
        Scale::Linear => {
            let pad = if max > min { (max - min) * 0.08 } else { 0.5 };
            (min - pad, max + pad)
        }
        Scale::Log => {
            let pad = if max > min { (max / min).powf(0.08) } else { 1.5 };
            (min / pad, max * pad)
        }
    }
}

/// Round limits and ticks with steps of 1, 2 or 5 times a power of ten, about five of them.
fn linear(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let high = if high > low { high } else { low + 1.0 };
    let rough = (high - low) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = power * [1.0, 2.0, 5.0].into_iter().find(|s| s * power >= rough * 0.999).unwrap_or(10.0);
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    // At most a dozen; the step was chosen for five.
    let ticks: Vec<f64> =
        (0..=((last - first) as usize).min(12)).map(|i| (first + i as f64) * step).collect();
    (first * step, last * step, ticks)
}

/// Limits and ticks at 1, 2 or 5 times a power of ten; only at powers if there are many.
fn logarithmic(min: f64, max: f64) -> (f64, f64, Vec<f64>) {
    let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let candidates: Vec<f64> =
        (first..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e))).collect();
    let low = candidates.iter().copied().rfind(|c| *c <= min * 1.000_001).unwrap_or(min);
    let mut high = candidates.iter().copied().find(|c| *c >= max * 0.999_999).unwrap_or(max);
    if high <= low {
        high = low * 10.0;
    }
    let inside = |tick: &f64| *tick >= low * 0.999 && *tick <= high * 1.001;
    let all: Vec<f64> = candidates.into_iter().filter(inside).collect();
    let decades = (first..=last).map(|e| 10f64.powi(e)).filter(inside).collect::<Vec<_>>();
    let ticks = if all.len() <= 8 || decades.len() < 3 { all } else { decades };
    (low, high, ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fitted(scale: Scale, values: &[f64]) -> Fitted {
        Fitted::to(&Axis::new("x", Unit::Plain, scale), values.iter().copied()).unwrap()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_ticks() {
        let axis = fitted(Scale::Linear, &[3.0, 19.0]);
        assert_eq!((axis.low, axis.high), (0.0, 20.0));
        let ticks: Vec<f64> = axis.ticks.iter().map(|(tick, _)| *tick).collect();
        assert_eq!(ticks, [0.0, 5.0, 10.0, 15.0, 20.0]);
        let axis = fitted(Scale::Linear, &[-0.4, 0.7]);
        assert_eq!((axis.low, axis.high), (-0.5, 1.0));
        assert_eq!(fitted(Scale::Linear, &[0.0]).high, 1.0);
    }

    #[test]
    fn logarithmic_axes_end_at_round_values() {
        let axis = fitted(Scale::Log, &[130.0, 45_000.0]);
        assert_eq!((axis.low, axis.high), (100.0, 50_000.0));
        let labels: Vec<String> = axis.stacked_ticks().into_iter().map(|t| t.1).collect();
        assert!(labels.contains(&"1000".to_owned()), "{labels:?}");
        assert!((axis.place(1000.0) - 10f64.log10() / 500f64.log10()).abs() < 1e-9);
        assert_eq!(axis.place(-5.0), 0.0);
        assert!(!axis.shows(0.0) && axis.shows(7.0));
        let one = fitted(Scale::Log, &[100.0]);
        assert!(one.high > one.low);
    }

    #[test]
    fn ticks_at_data_drop_those_that_would_touch() {
        let axis = Axis::at_data("workers", Unit::Plain, Scale::Linear);
        let axis = Fitted::to(&axis, [1.0, 2.0, 3.0, 100.0].into_iter()).unwrap();
        let labels: Vec<String> = axis.ticks(300.0).into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["1", "100"]);
    }

    #[test]
    fn times_have_their_own_ticks_and_no_zero() {
        let ticks = vec![(990.0, "before".to_owned()), (1020.0, "05:17".to_owned())];
        let axis = Axis::of_times("time", ticks, |value| format!("at {value}"));
        let fitted = Fitted::to(&axis, [1000.0, 1040.0].into_iter()).unwrap();
        assert_eq!((fitted.low, fitted.high), (1000.0, 1040.0));
        assert_eq!(fitted.ticks(300.0), [(1020.0, "05:17".to_owned())]);
        assert_eq!((fitted.place(1020.0), axis.place_name(1020.0)), (0.5, "at 1020".to_owned()));
    }

    #[test]
    fn nothing_to_show_is_no_axis() {
        let axis = Axis::new("x", Unit::Plain, Scale::Log);
        assert!(Fitted::to(&axis, [0.0, -1.0, f64::NAN].into_iter()).is_none());
    }

    proptest! {
        #[test]
        fn every_value_has_its_place_in_order(
            mut values in prop::collection::vec(1e-6f64..1e12, 1..20), log: bool, at_data: bool,
        ) {
            let scale = if log { Scale::Log } else { Scale::Linear };
            let axis = Axis { ticks_at_data: at_data, ..Axis::new("x", Unit::Count, scale) };
            let fitted = Fitted::to(&axis, values.iter().copied()).unwrap();
            values.sort_unstable_by(f64::total_cmp);
            prop_assert!(fitted.low <= values[0] && values[values.len() - 1] <= fitted.high * 1.000_002);
            let places: Vec<f64> = values.iter().map(|v| fitted.place(*v)).collect();
            prop_assert!(places.is_sorted() && places.iter().all(|p| (0.0..=1.0).contains(p)));
            prop_assert!(!fitted.ticks.is_empty() && fitted.ticks.len() <= 24);
        }
    }
}
