//! `-m time` (`struct xt_time_info`): dates in seconds since 1970, times of day in seconds, days as bits.

use super::prelude::*;
use crate::calendar::civil;

const DAY: u64 = 24 * 60 * 60;

/// `XT_TIME_ALL_MONTHDAYS` and `XT_TIME_ALL_WEEKDAYS`
const MONTHDAYS: u64 = 0xffff_fffe;
const WEEKDAYS: u64 = 0xfe;

const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// The reverse of [`civil`]: days since 1970. A day beyond the end of a month belongs to the next month, as in `mktime(3)`.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, yoe) = (year / 400, year % 400);
    let mp = if month > 2 { month - 3 } else { month + 9 };
    let doy = (153 * mp + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
}

fn clock(seconds: u64) -> String {
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// `H:M[:S]`
fn seconds(text: &str) -> Option<u64> {
    let parts: Option<Vec<u64>> = text.split(':').map(|part| part.parse().ok()).collect();
    let (h, m, s) = match parts?.as_slice() {
        [h] => (*h, 0, 0),
        [h, m] => (*h, *m, 0),
        [h, m, s] => (*h, *m, *s),
        _ => return None,
    };
    (h < 24 && m < 60 && s < 60).then_some(h * 3600 + m * 60 + s)
}

/// `YYYY[-MM[-DD[Thh[:mm[:ss]]]]]` in UTC
fn date(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T').unwrap_or((text, "0"));
    let parts: Option<Vec<u64>> = date.split('-').map(|part| part.parse().ok()).collect();
    let (year, month, day) = match parts?.as_slice() {
        [year] => (*year, 1, 1),
        [year, month] => (*year, *month, 1),
        [year, month, day] => (*year, *month, *day),
        _ => return None,
    };
    let fits =
        (1970..=2038).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let all = fits.then(|| days(year, month, day) * DAY)? + seconds(time)?;
    u32::try_from(all).ok().map(u64::from)
}

const DATE: Code = Code {
    show: |b, at, _| {
        let date = Some(b.uint(at, 4)).filter(|date| *date != 0)?;
        let (year, month, day) = civil(date / DAY);
        let time = clock(date % DAY);
        Some(vec![format!("{year:04}-{month:02}-{day:02}T{time}")])
    },
    read: |o, b, at, _| {
        let why = "is no date; give YYYY-MM-DDThh:mm:ss up to 2038";
        b.put(at, 4, date(o.word(0)).ok_or_else(|| o.wrong(why))?);
        Ok(())
    },
    ..Code::WORD
};

const TIME: Code = Code {
    // Both times are printed unless they are the whole day.
    show: |b, at, _| {
        let is_all = (b.uint(8, 4), b.uint(12, 4)) == (0, DAY - 1);
        (!is_all).then(|| vec![clock(b.uint(at, 4))])
    },
    read: |o, b, at, _| {
        let time = seconds(o.word(0)).filter(|_| o.word(0).contains(':'));
        let why = "is no time of the day; give hh:mm:ss";
        b.put(at, 4, time.ok_or_else(|| o.wrong(why))?);
        Ok(())
    },
    ..Code::WORD
};

/// Parses a list of days to bits; if inverted, to the bits of all other days.
fn read_days(o: &Opt, all: u64, day: impl Fn(&str) -> Option<u32>) -> Result<u64, Complaint> {
    let add = |bits: u64, word: &str| {
        let day = day(word).filter(|day| *day > 0 && all & (1 << day) != 0);
        Ok(bits
            | 1 << day.ok_or_else(|| o.wrong("is no list of days; give numbers, or Mon to Sun"))?)
    };
    let bits = o.word(0).split(',').try_fold(0, add)?;
    Ok(if o.not.0 { bits ^ all } else { bits })
}

const MONTH: Code = Code {
    show: |b, _, _| {
        let bits = Some(b.uint(16, 4)).filter(|bits| *bits != MONTHDAYS)?;
        let set = (1..32).filter(|n| bits & (1 << n) != 0);
        Some(vec![
            set.map(|n: u32| n.to_string())
                .collect::<Vec<_>>()
                .join(","),
        ])
    },
    read: |o, b, _, _| {
        let bits = read_days(o, MONTHDAYS, |word| {
            word.parse().ok().filter(|day| *day < 32 && word.len() < 3)
        })?;
        b.put(16, 4, bits);
        Ok(())
    },
    ..Code::WORD
};

const WEEK: Code = Code {
    show: |b, _, _| {
        let bits = Some(b.uint(20, 1)).filter(|bits| *bits != WEEKDAYS)?;
        let set = NAMES
            .iter()
            .enumerate()
            .filter(|(n, _)| bits & (2 << n) != 0);
        Some(vec![
            set.map(|(_, name)| *name).collect::<Vec<_>>().join(","),
        ])
    },
    read: |o, b, _, _| {
        // iptables compares only the first two letters.
        let day = |word: &str| {
            let named = NAMES
                .iter()
                .position(|name| word.len() >= 2 && name.get(..2) == word.get(..2));
            let named = named.and_then(|n| u32::try_from(n + 1).ok());
            named.or_else(|| word.parse().ok().filter(|day| *day < 8))
        };
        let bits = read_days(o, WEEKDAYS, day)?;
        b.put(20, 1, bits);
        Ok(())
    },
    ..Code::WORD
};

/// `! DAYS` is stored as the list of the other days, which is printed without `!`.
const OTHERS: Invert = Invert::Code(|_| false);

rows! {
    MATCH "time" { size: 22, initial: &[
        (4, &0x7fff_ffff_u32.to_ne_bytes()), (12, &86_399_u32.to_ne_bytes()),
        (16, &0xffff_fffe_u32.to_ne_bytes()), (20, &[0xfe]),
    ] } [
        field(&["--timestart"], Value::Code(&TIME), 8),
        field(&["--timestop"], Value::Code(&TIME), 12),
        field(&["--monthdays"], Value::Code(&MONTH), 16).invert(OTHERS),
        field(&["--weekdays"], Value::Code(&WEEK), 20).invert(OTHERS),
        field(&["--datestart"], Value::Code(&DATE), 0),
        field(&["--datestop"], Value::Code(&DATE), 4),
        flag(&["--kerneltz", "--localtz"], 21, 1, 1),
        flag(&["--contiguous"], 21, 1, 2),
        field(&["--utc"], Value::Nothing, 21).when(When::Never),
    ]
}
