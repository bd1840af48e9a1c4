//! Formats numbers for people, in one style for the whole program.
//!
//! | quantity | format | example |
//! |---|---|---|
//! | counts, such as packets or routes | whole, commas between thousands | `1,234,567` |
//! | amounts of bytes | three digits, decimal prefixes: traffic and rates are decimal, so memory is too | `43.2 MB` |
//! | configured sizes of buffers and bursts | exact, in bytes | `65,536 B` |
//! | measured rates | three digits, decimal prefixes | `1.24 Gbit/s`, `22.0 kpps` |
//! | configured rates | exact, the largest prefix that needs at most three decimals | `1.5 Mbit/s` |
//! | measured times | three digits | `12.5 µs` |
//! | ages and uptimes | the two largest units | `3d 4h`, `2m 05s` |
//! | parts of a whole | one decimal | `5.6%` |
//!
//! JSON uses none of this: it has plain numbers in the unit that the field's name gives.

/// The kind of a number, which decides its format.
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
    /// Packets in a second: `22.0 kpps`.
    PacketRate,
    /// Bits in a second: `1.24 Gbit/s`.
    BitRate,
}

impl Unit {
    /// `value` with three significant digits and its unit; 0 and non-finite values as they are.
    pub fn format(self, value: f64) -> String {
        let prefixes: &[(f64, &str)] = match self {
            Unit::Plain => &[(1.0, "")],
            Unit::Count => &[(1.0, ""), (1e3, " k"), (1e6, " M"), (1e9, " G")],
            Unit::Nanoseconds => &[(1.0, " ns"), (1e3, " µs"), (1e6, " ms"), (1e9, " s")],
            Unit::Bytes => &[(1.0, " B"), (1e3, " kB"), (1e6, " MB"), (1e9, " GB"), (1e12, " TB")],
            Unit::PacketRate => &[(1.0, " pps"), (1e3, " kpps"), (1e6, " Mpps"), (1e9, " Gpps")],
            Unit::BitRate => {
                &[(1.0, " bit/s"), (1e3, " kbit/s"), (1e6, " Mbit/s"), (1e9, " Gbit/s"), (1e12, " Tbit/s")]
            }
        };
        if !value.is_finite() {
            return "–".to_owned();
        }
        // The prefix is chosen for the rounded value: 999,999 is 1.00 M, not 1000 k.
        let magnitude = rounded(value).abs();
        let (factor, name) = prefixes.iter().rev().find(|(f, _)| magnitude >= *f).unwrap_or(&prefixes[0]);
        format!("{}{name}", three_digits(value / factor))
    }

    /// [`Self::format`] without trailing zeros, for ticks: `20 M`, `1.5`.
    pub fn format_tick(self, value: f64) -> String {
        let text = self.format(value);
        let (number, name) = text.split_once(' ').map_or((text.as_str(), ""), |(n, _)| (n, &text[n.len()..]));
        let number =
            if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
        format!("{number}{name}")
    }
}

/// A whole number with thousands separators: `1,234,567`.
pub fn count(number: u64) -> String {
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

/// A count with its noun: `1 route`, `1,826 sessions`. The noun's plural must end in `s`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// An amount of bytes: `999 B`, `43.2 MB`.
pub fn bytes(number: u64) -> String {
    small_or(number, "B", Unit::Bytes)
}

/// A configured size, exact: `65,536 B`.
pub fn exact_bytes(number: u64) -> String {
    format!("{} B", count(number))
}

/// A measured time: `5 ns`, `12.5 µs`.
pub fn duration(ns: u64) -> String {
    small_or(ns, "ns", Unit::Nanoseconds)
}

/// A measured rate of packets: `22.0 kpps`.
pub fn packet_rate(per_second: f64) -> String {
    Unit::PacketRate.format(per_second)
}

/// A measured rate of bits: `1.24 Gbit/s`.
pub fn bit_rate(per_second: f64) -> String {
    Unit::BitRate.format(per_second)
}

/// A configured rate, exact: `1.5 Mbit/s`.
pub fn exact_bit_rate(bps: u64) -> String {
    let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")];
    let unit = units.iter().find(|(scale, _)| bps >= *scale && bps.is_multiple_of(scale / 1_000));
    let Some((scale, name)) = unit else { return format!("{} bit/s", count(bps)) };
    let thousandths = format!("{:03}", bps % scale / (scale / 1_000));
    let decimals = thousandths.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    format!("{}{point}{decimals} {name}", count(bps / scale))
}

/// An age or uptime, its two largest units: `12s`, `2m 05s`, `4h 07m`, `3d 4h`.
pub fn age(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes:02}m"),
        _ => format!("{}d {hours}h", count(days)),
    }
}

/// A part of a whole in percent; `-` if the whole is 0.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// Below the first prefix, whole numbers have no decimals.
fn small_or(number: u64, name: &str, unit: Unit) -> String {
    if number < 1000 { format!("{number} {name}") } else { unit.format(number as f64) }
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
        // Below one: as many decimals as three digits need, but at most six.
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
    fn every_kind_of_number_has_its_form() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 1826].map(|n| counted(n, "route")), ["0 routes", "1 route", "1,826 routes"]);
        assert_eq!([0, 999, 65_536, 4_300_000_000].map(bytes), ["0 B", "999 B", "65.5 kB", "4.30 GB"]);
        assert_eq!(exact_bytes(65_536), "65,536 B");
        assert_eq!(
            [5, 1_500, 25_000_000, 3_000_000_000].map(duration),
            ["5 ns", "1.50 µs", "25.0 ms", "3.00 s"]
        );
        assert_eq!(
            [0.0, 12.0, 1.5e3, 22e6].map(packet_rate),
            ["0 pps", "12.0 pps", "1.50 kpps", "22.0 Mpps"]
        );
        assert_eq!(bit_rate(1.236e9), "1.24 Gbit/s");
        assert_eq!(
            [0, 999, 1_500_000, 2_000_000, 1_234_567, 10_000_000_000].map(exact_bit_rate),
            ["0 bit/s", "999 bit/s", "1.5 Mbit/s", "2 Mbit/s", "1,234.567 kbit/s", "10 Gbit/s"]
        );
        assert_eq!([0, 59, 125, 14_820, 273_600].map(age), ["0s", "59s", "2m 05s", "4h 07m", "3d 4h"]);
        assert_eq!((share(1, 3), share(1, 0)), ("33.3%".to_owned(), "-".to_owned()));
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
