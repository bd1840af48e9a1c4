//! Times and sizes with units: `30d`, `20GB`. Command lines use them too.

/// Parses a time with a unit to seconds.
pub fn seconds(text: &str) -> Result<u64, &'static str> {
    let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)];
    let expected = "a time with a unit, such as \"30s\", \"15m\", \"1h\", \"7d\" or \"2w\"";
    scaled(text, &units).filter(|seconds| *seconds > 0).ok_or(expected)
}

/// Parses bytes: a number, or a number with a decimal unit.
pub fn bytes(text: &str) -> Result<u64, &'static str> {
    let units = [("", 1), ("k", 1_000), ("M", 1_000_000), ("G", 1_000_000_000), ("T", 1_000_000_000_000)];
    let number = text.strip_suffix('B').unwrap_or(text);
    scaled(number, &units).ok_or("a number of bytes, such as \"500MB\" or \"20GB\"")
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_known_and_nonsense_is_refused() {
        assert_eq!((seconds("30d"), seconds("2w")), (Ok(2_592_000), Ok(1_209_600)));
        assert_eq!(
            (bytes("20GB"), bytes("500M"), bytes("7"), bytes("7B")),
            (Ok(20_000_000_000), Ok(500_000_000), Ok(7), Ok(7))
        );
        for text in ["", "d", "30", "0s", "-1d", "1.5h", "99999999999999999999s", "18446744073709551615w"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["", "GB", "-1", "1.5GB", "20 GB", "20Gi", "99999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
