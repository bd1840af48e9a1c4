//! Tables and numbers as people read them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Tables are no wider than this: long cells are wrapped.
const WIDTH: u16 = 100;

/// A table with a header; columns named in `numbers` are aligned to the right.
pub(crate) fn table(
    header: &[&str],
    numbers: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(WIDTH);
    table.set_header(header);
    table.add_rows(rows);
    for index in numbers {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n"))
}

/// 1234567 as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 record`, `1,234 records`.
pub(crate) fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Nanoseconds with a fitting unit and three digits.
pub(crate) fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", three_digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", three_digits(ns as f64 / 1e6)),
        _ => format!("{} s", three_digits(ns as f64 / 1e9)),
    }
}

/// Packets per second with a fitting unit.
pub(crate) fn packet_rate(per_second: f64) -> String {
    match per_second {
        r if r >= 1e6 => format!("{} Mpps", three_digits(r / 1e6)),
        r if r >= 1e3 => format!("{} kpps", three_digits(r / 1e3)),
        r => format!("{} pps", three_digits(r)),
    }
}

/// Bits per second with a fitting unit, without rounding: `2 Mbit/s`, `1500 kbit/s`.
pub(crate) fn bit_rate(bps: u64) -> String {
    exact(bps, &[(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")])
}

/// Bytes with a fitting unit, without rounding.
pub(crate) fn byte_size(bytes: u64) -> String {
    exact(bytes, &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
}

fn exact(n: u64, units: &[(u64, &str)]) -> String {
    let unit = units.iter().find(|(scale, _)| n > 0 && n.is_multiple_of(*scale)).or(units.last());
    unit.map_or_else(|| n.to_string(), |(scale, name)| format!("{} {name}", n / scale))
}

fn three_digits(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

/// A part of a whole in per cent.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [5, 1_500, 25_000_000, 3_000_000_000].map(duration),
            ["5 ns", "1.50 µs", "25.0 ms", "3.00 s"]
        );
        assert_eq!([12.0, 1.5e3, 22e6].map(packet_rate), ["12.0 pps", "1.50 kpps", "22.0 Mpps"]);
        assert_eq!([0, 1_500_000, 2_000_000].map(bit_rate), ["0 bit/s", "1500 kbit/s", "2 Mbit/s"]);
        assert_eq!([0, 1500, 65_536].map(byte_size), ["0 B", "1500 B", "64 KiB"]);
        assert_eq!(share(1, 3), "33.3%");
    }
}
