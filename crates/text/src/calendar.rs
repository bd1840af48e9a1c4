//! Dates and times: UTC, proleptic Gregorian.
//!
//! Days to dates and back: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms" (`civil_from_days`,
//! `days_from_civil`).

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds of an hour.
pub const HOUR_NS: u64 = 3_600 * SECOND_NS;

/// A time in calendar fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub year: i64,
    /// From 1.
    pub month: u32,
    /// From 1.
    pub day: u32,
    /// From 0.
    pub hour: u32,
    pub minute: u32,
    /// Unix time has no leap seconds.
    pub second: u32,
    /// Nanoseconds of the second.
    pub ns: u32,
}

impl Moment {
    /// Converts nanoseconds since the epoch.
    pub fn of(time_ns: u64) -> Self {
        let seconds = time_ns / SECOND_NS;
        let (days, second) = ((seconds / 86_400) as i64, (seconds % 86_400) as u32);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = (if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 }) as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        Self { year, month, day, hour, minute, second, ns: (time_ns % SECOND_NS) as u32 }
    }

    /// Nanoseconds since the epoch; `None` before it, or if 64 bits do not suffice.
    pub fn to_ns(self) -> Option<u64> {
        let shifted = self.year - i64::from(self.month <= 2);
        let era = shifted.div_euclid(400);
        let year_of_era = shifted.rem_euclid(400);
        let from_march = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = u64::try_from(era * 146_097 + day_of_era - 719_468).ok()?;
        let of_day = u64::from(self.hour) * 3600 + u64::from(self.minute) * 60 + u64::from(self.second);
        let seconds = days.checked_mul(86_400)?.checked_add(of_day)?;
        seconds.checked_mul(SECOND_NS)?.checked_add(self.ns.into())
    }
}

/// `2026-11-22T05:33:11.250Z`, with as many fractional digits as needed (none, 3, 6 or 9).
pub fn format_time(time_ns: u64) -> String {
    let m = Moment::of(time_ns);
    let fraction = match m.ns {
        0 => String::new(),
        ns if ns % 1_000_000 == 0 => format!(".{:03}", ns / 1_000_000),
        ns if ns % 1_000 == 0 => format!(".{:06}", ns / 1_000),
        ns => format!(".{ns:09}"),
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{fraction}Z",
        m.year, m.month, m.day, m.hour, m.minute, m.second
    )
}

/// `2026-11-22T05:33:11.250000000Z`: always the same length, so that times sort as text.
pub fn rfc3339_ns(time_ns: u64) -> [u8; 30] {
    let m = Moment::of(time_ns);
    let mut text = *b"0000-00-00T00:00:00.000000000Z";
    let mut put = |end: usize, mut number: u32| {
        let mut at = end;
        while number > 0 {
            at -= 1;
            text[at] += (number % 10) as u8;
            number /= 10;
        }
    };
    // 64 bits of nanoseconds end in 2554.
    for (end, number) in [(4, m.year as u32), (7, m.month), (10, m.day), (13, m.hour), (16, m.minute)] {
        put(end, number);
    }
    put(19, m.second);
    put(29, m.ns);
    text
}

/// Parses `2026-11-22`, `2026-11-22T05:33`, `2026-11-22 05:33:11`, `2026-11-22 05:33:11.25`, each with or without `Z`,
/// or seconds since the epoch.
pub fn parse_time(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 4 {
        return text.parse::<u64>().ok()?.checked_mul(SECOND_NS);
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (text, fraction) = match text.split_once('.') {
        Some((text, fraction)) => (text, Some(fraction)),
        None => (text, None),
    };
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, ""));
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let (month, day) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let mut parts_of_time = time.split(':');
    let (mut hour, mut minute, mut second) = (0, 0, 0);
    if !time.is_empty() {
        hour = digits(parts_of_time.next()?, 2)?;
        minute = digits(parts_of_time.next()?, 2)?;
        second = parts_of_time.next().map_or(Some(0), |text| digits(text, 2))?;
    }
    if parts.next().is_some() || parts_of_time.next().is_some() && !time.is_empty() {
        return None;
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let moment = Moment { year: year.into(), month, day, hour, minute, second, ns: 0 };
    let time_ns = moment.to_ns()?;
    if Moment::of(time_ns) != moment {
        // A date that does not exist.
        return None;
    }
    let Some(fraction) = fraction else { return Some(time_ns) };
    // Only seconds have a fraction.
    let is_right = text.len() == "2026-11-22T05:30:00".len() && (1..=9).contains(&fraction.len());
    let ns = is_right.then(|| digits(&format!("{fraction:0<9}"), 9))?;
    time_ns.checked_add(ns?.into())
}

fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_there_and_back() {
        assert_eq!(format_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_time(951_782_400 * SECOND_NS + 250_000_000), "2000-02-29T00:00:00.250Z");
        let moment = 1_795_323_600 * SECOND_NS + 123_456_789;
        assert_eq!(parse_time(&format_time(moment)), Some(moment));
        assert_eq!(parse_time("2026-11-22 05:00:00.5"), Some(1_795_323_600 * SECOND_NS + 500_000_000));
        assert_eq!(parse_time("2026-11-22T05.5"), None);
        assert_eq!(parse_time("2026-11-22T05:00:00.1234567890"), None);
        assert_eq!(parse_time("2000-02-29"), Some(951_782_400 * SECOND_NS));
        assert_eq!(parse_time("2026-11-22T05:33:11Z"), Some(1_795_325_591 * SECOND_NS));
        assert_eq!(parse_time("2026-11-22 05:33"), Some(1_795_325_580 * SECOND_NS));
        assert_eq!(parse_time("1795325591"), Some(1_795_325_591 * SECOND_NS));
        for wrong in
            ["", "2026", "2026-02-30", "2026-13-01", "2026-1-1", "2026-11-22T25:00", "2026-11-22T05", "x"]
        {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
        let mut time = 0u64;
        while time < 18_000_000_000 * SECOND_NS {
            assert_eq!(Moment::of(time).to_ns(), Some(time));
            time += 86_399 * 7 * SECOND_NS + 17;
        }
        assert_eq!(Moment::of(u64::MAX).to_ns(), Some(u64::MAX));
    }

    #[test]
    fn times_of_one_length_say_the_same() {
        for time in [0, 7, 951_782_400 * SECOND_NS + 250_000_000, 1_795_325_591_123_456_789, u64::MAX] {
            let text = String::from_utf8(rfc3339_ns(time).to_vec()).expect("digits");
            let m = Moment::of(time);
            let date = format!("{:04}-{:02}-{:02}", m.year, m.month, m.day);
            assert_eq!(text, format!("{date}T{:02}:{:02}:{:02}.{:09}Z", m.hour, m.minute, m.second, m.ns));
        }
    }
}
