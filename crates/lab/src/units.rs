//! Quantities as people read them: three significant digits and a prefix.

/// What a number counts, which decides how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A ratio or a small count: `1.95`.
    Plain,
    /// A large count, with a decimal prefix: `20.1 M`.
    Count,
    /// A time, given in nanoseconds: `12.5 µs`.
    Nanoseconds,
    /// A size, with a decimal prefix: `43.2 MB`.
    Bytes,
}

impl Unit {
    /// `value` with three significant digits and its unit; `0` and what is no number as they are.
    pub fn format(self, value: f64) -> String {
        let prefixes: &[(f64, &str)] = match self {
            Unit::Plain => &[(1.0, "")],
            Unit::Count => &[(1.0, ""), (1e3, " k"), (1e6, " M"), (1e9, " G")],
            Unit::Nanoseconds => &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
            Unit::Bytes => &[(1.0, " B"), (1e3, " kB"), (1e6, " MB"), (1e9, " GB")],
        };
        if !value.is_finite() {
            return "–".to_owned();
        }
        // The prefix is chosen for the rounded value: 999,999 is 1.00 M, not 1000 k.
        let magnitude = rounded(value).abs();
        let (factor, name) = prefixes.iter().rev().find(|(f, _)| magnitude >= *f).unwrap_or(&prefixes[0]);
        format!("{}{name}", three_digits(value / factor))
    }

    /// The same without zeros that say nothing, for ticks: `20 M`, `1.5`.
    pub(crate) fn format_tick(self, value: f64) -> String {
        let text = self.format(value);
        let (number, name) = text.split_once(' ').map_or((text.as_str(), ""), |(n, _)| (n, &text[n.len()..]));
        let number =
            if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
        format!("{number}{name}")
    }
}

/// A whole number with its thousands apart: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let step = 10f64.powf(value.abs().log10().floor() - 2.0);
    (value / step).round() * step
}

fn three_digits(value: f64) -> String {
    let value = rounded(value);
    match value.abs() {
        0.0 => "0".to_owned(),
        a if a >= 100.0 => format!("{value:.0}"),
        a if a >= 10.0 => format!("{value:.1}"),
        a if a >= 1.0 => format!("{value:.2}"),
        // Below one: as many places as three digits take, but no more than six.
        a => {
            let places = (2.0 - a.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{value:.places$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(Unit::Plain.format(1.9549), "1.95");
        assert_eq!(Unit::Plain.format(0.0), "0");
        assert_eq!(Unit::Plain.format(0.01234), "0.0123");
        assert_eq!(Unit::Plain.format(123_456.0), "123000");
        assert_eq!(Unit::Plain.format(-2.5), "-2.50");
        assert_eq!(Unit::Plain.format(f64::NAN), "–");
        assert_eq!(Unit::Count.format(20_123_456.0), "20.1 M");
        assert_eq!(Unit::Count.format(999_999.0), "1.00 M");
        assert_eq!(Unit::Count.format(2.5e12), "2500 G");
        assert_eq!(Unit::Nanoseconds.format(12_540.0), "12.5 µs");
        assert_eq!(Unit::Nanoseconds.format(0.5), "0.500 ns");
        assert_eq!(Unit::Bytes.format(43_210_000.0), "43.2 MB");
    }

    #[test]
    fn thousands_stand_apart() {
        let written: Vec<String> = [0, 999, 1000, 123_456, 1_234_567].map(grouped).to_vec();
        assert_eq!(written, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn ticks_lose_their_zeros() {
        assert_eq!(Unit::Count.format_tick(20e6), "20 M");
        assert_eq!(Unit::Count.format_tick(100.0), "100");
        assert_eq!(Unit::Plain.format_tick(1.5), "1.5");
        assert_eq!(Unit::Plain.format_tick(0.0), "0");
        assert_eq!(Unit::Nanoseconds.format_tick(200e3), "200 µs");
    }
}
