//! The Gregorian calendar.

/// Year, month (1 to 12) and day of the month (1 to 31) of a number of days since 1970-01-01 (Howard Hinnant,
/// "chrono-compatible low-level date algorithms").
#[must_use]
pub fn civil(day: u64) -> (u64, u64, u64) {
    let z = day + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    (year, month, doy - (153 * mp + 2) / 5 + 1)
}
