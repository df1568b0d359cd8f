//! `-m limit` (`struct xt_rateinfo`): a token bucket. A rate is stored as the time between two packets, in 1/10000 second.

use super::prelude::*;

/// Units in descending order: the printed name, the name of which a prefix is parsed, and the seconds.
const UNITS: [(&str, &str, u64); 4] = [
    ("day", "day", 86_400),
    ("hour", "hour", 3_600),
    ("min", "minute", 60),
    ("sec", "second", 1),
];

/// The rate in the largest unit without much loss, chosen as `iptables-save` does, and the seconds of the unit. The period is in
/// 1/`scale` second.
pub(super) fn show_rate(period: u64, scale: u64) -> Option<(String, u64)> {
    let worse = |unit: u64| period > unit || unit.checked_div(period) < unit.checked_rem(period);
    let further = UNITS.iter().skip(1);
    let further = further.take_while(|(.., seconds)| !worse(seconds * scale));
    let (name, _, seconds) = UNITS.get(further.count())?;
    let count = (seconds * scale).checked_div(period)?;
    Some((format!("{count}/{name}"), *seconds))
}

/// Parses `N/UNIT`: the period, which is not 0, and the seconds of the unit.
pub(super) fn read_rate(o: &Opt, scale: u64) -> Option<(u64, u64)> {
    let word = o.word(0);
    let (count, unit) = word.split_once('/').unwrap_or((word, "second"));
    let unit = unit.to_ascii_lowercase();
    let is_it = |long: &str| !unit.is_empty() && long.starts_with(&unit);
    let (.., seconds) = UNITS.iter().find(|(_, long, _)| is_it(long))?;
    let period = (seconds * scale).checked_div(count.parse().ok()?)?;
    (period > 0).then_some((period, *seconds))
}

/// `XT_LIMIT_SCALE`
const SCALE: u64 = 10_000;

const RATE: Code = Code {
    // A period without a rate has an empty text, which cannot be parsed, so such bytes remain an `Unknown`.
    show: |b, _, _| {
        let rate = show_rate(b.uint(0, 4), SCALE);
        Some(vec![rate.map(|(text, _)| text).unwrap_or_default()])
    },
    read: |o, b, _, _| {
        let why = "is no rate; give N/sec, N/min, N/hour or N/day with N up to 10000 a second";
        let (period, _) = read_rate(o, SCALE).ok_or_else(|| o.wrong(why))?;
        b.put(0, 4, period);
        Ok(())
    },
    ..Code::WORD
};

rows! {
    // The defaults: 3/hour, and XT_LIMIT_BURST.
    MATCH "limit" { size: 40, initial: &[(0, &12_000_000u32.to_ne_bytes()), (4, &5u32.to_ne_bytes())], rounded: 0..4 } [
        field(&["--limit"], Value::Code(&RATE), 0),
        field(&["--limit-burst"], Value::Number(4), 4).unless(&5u32.to_ne_bytes()).within(0, 10_000),
    ]
}
