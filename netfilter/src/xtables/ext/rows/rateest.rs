//! `-m rateest` (`struct xt_rateest_match_info`) and `-j RATEEST` (`struct xt_rateest_target_info`): named rate estimators.

use super::prelude::*;

/// `XT_RATEEST_MATCH_*`
const FLAGS: Place = Place { at: 32, width: 2 };
const INVERT: u64 = 1;
const ABS: u64 = 2;
const REL: u64 = 4;
const DELTA: u64 = 8;
const BPS: u64 = 16;
const PPS: u64 = 32;

const NAME: usize = 16;
const MODE: usize = 34;
const MODES: [(&str, u64); 3] = [
    ("--rateest-eq", 1),
    ("--rateest-lt", 2),
    ("--rateest-gt", 3),
];

/// The flag, the offset of the rate, and the options: for the first estimator with `--rateest-delta`, for the second with it, and
/// without it.
const RATES: [(u64, usize, [&str; 3]); 2] = [
    (
        BPS,
        36,
        ["--rateest-bps1", "--rateest-bps2", "--rateest-bps"],
    ),
    (
        PPS,
        40,
        ["--rateest-pps1", "--rateest-pps2", "--rateest-pps"],
    ),
];

/// The distance from the rate of the first estimator to that of the second.
const SECOND: usize = 8;

/// Units in bits per second; the structure stores bytes per second.
#[rustfmt::skip]
const UNITS: [(&str, f64); 18] = [
    ("bit", 1.0), ("kibit", 1024.0), ("kbit", 1e3), ("mibit", 1024.0 * 1024.0), ("mbit", 1e6),
    ("gibit", 1024.0 * 1024.0 * 1024.0), ("gbit", 1e9), ("tibit", 1024.0 * 1024.0 * 1024.0 * 1024.0),
    ("tbit", 1e12), ("bps", 8.0), ("kibps", 8.0 * 1024.0), ("kbps", 8e3), ("mibps", 8.0 * 1024.0 * 1024.0),
    ("mbps", 8e6), ("gibps", 8.0 * 1024.0 * 1024.0 * 1024.0), ("gbps", 8e9),
    ("tibps", 8.0 * 1024.0 * 1024.0 * 1024.0 * 1024.0), ("tbps", 8e12),
];

/// Splits the text into a number and a unit in lower case.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.to_ascii_lowercase()))
}

/// Truncates to an integer, as a conversion in C does; `None` if it does not fit into 32 bits.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(value: f64) -> Option<u64> {
    (0.0..=f64::from(u32::MAX))
        .contains(&value)
        .then_some(value as u64)
}

fn rate_text(flag: u64, rate: u64) -> String {
    if flag == PPS {
        return rate.to_string();
    }
    let bits = f64::from(u32::try_from(rate).unwrap_or(u32::MAX)) * 8.0;
    if bits >= 1e9 {
        format!("{:.0}Mbit", bits / 1e6)
    } else if bits >= 1e6 {
        format!("{:.0}Kbit", bits / 1e3)
    } else {
        format!("{bits:.0}bit")
    }
}

fn rate_of(o: &Opt, flag: u64) -> Result<u64, Complaint> {
    let word = o.word(0);
    if flag == PPS {
        return number_of(o, word, 4);
    }
    let rate = number_and_unit(word).and_then(|(number, unit)| {
        let scale = match unit.as_str() {
            "" => 1.0,
            unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
        };
        whole(number * scale / 8.0)
    });
    rate.ok_or_else(|| o.wrong("is no rate; give a number with bit, kbit, mbit, bps, kbps or mbps"))
}

fn show(b: &Blob, _: XtFamily) -> Option<Vec<Shown>> {
    let mode = b.uint(MODE, 2);
    let mode = Shown {
        not: b.has(FLAGS, INVERT),
        ..Shown::new(MODES.iter().find(|(_, n)| *n == mode)?.0, Vec::new())
    };
    let (delta, relative) = (b.has(FLAGS, DELTA), b.has(FLAGS, REL));
    let mut all = Vec::new();
    if delta {
        all.push(Shown::new("--rateest-delta", Vec::new()));
    }
    let first = if relative { "--rateest1" } else { "--rateest" };
    all.push(Shown::one(first, b.text(0, NAME)?));
    for (flag, at, [one, two, only]) in RATES {
        if !b.has(FLAGS, flag) {
            continue;
        }
        if delta {
            all.push(Shown::one(one, rate_text(flag, b.uint(at, 4))));
        }
        all.push(mode.clone());
        let second = rate_text(flag, b.uint(at + SECOND, 4));
        let words = if delta || b.has(FLAGS, ABS) {
            vec![second]
        } else {
            Vec::new()
        };
        all.push(Shown::new(if delta { two } else { only }, words));
    }
    if relative {
        all.push(Shown::one("--rateest2", b.text(NAME, NAME)?));
    }
    Some(all)
}

fn read(given: &mut Given, b: &mut Blob) -> Result<(), Complaint> {
    let name = Value::Text(NAME, Quote::Never);
    let first = given.need(&["--rateest1", "--rateest"])?;
    name.read(first.plain()?, b, 0, given.family)?;
    if let Some(o) = given.take(&["--rateest2"]) {
        name.read(o.plain()?, b, NAME, given.family)?;
        b.or(FLAGS, REL);
    }
    if given.flag("--rateest-delta")? {
        b.or(FLAGS, DELTA);
    }
    for (flag, at, [one, two, only]) in RATES {
        for (names, at) in [([one, one], at), ([two, only], at + SECOND)] {
            if let Some(o) = given.take(&names) {
                b.or(FLAGS, flag);
                if o.has_words() {
                    b.put(at, 4, rate_of(o.plain()?, flag)?);
                }
            }
        }
    }
    for (name, mode) in MODES {
        if let Some(o) = given.take(&[name]) {
            b.put(MODE, 2, mode);
            b.or(FLAGS, if o.not.0 { INVERT } else { 0 });
        }
    }
    if b.uint(MODE, 2) == 0 {
        return Err(given.lacks("--rateest-eq, --rateest-lt or --rateest-gt"));
    }
    if !b.has(FLAGS, REL) {
        b.or(FLAGS, ABS);
    }
    Ok(())
}

/// The interval in microseconds: 250 ms << (number + 2).
fn interval(b: &Blob) -> Option<u64> {
    // The number is signed, from -2 to 3.
    let step = b.uint(16, 1).wrapping_add(2) & 0xff;
    (step <= 5).then(|| 250_000 << step)
}

fn time_text(time: u64) -> String {
    let seconds = f64::from(u32::try_from(time).unwrap_or(u32::MAX));
    if time >= 1_000_000 {
        format!("{:.1}s", seconds / 1e6)
    } else if time >= 1000 {
        format!("{:.1}ms", seconds / 1e3)
    } else {
        format!("{time}us")
    }
}

/// Parses a time, in microseconds.
fn time_of(o: &Opt) -> Result<f64, Complaint> {
    let time = number_and_unit(o.word(0)).and_then(|(number, unit)| match unit.as_str() {
        "" | "us" | "usec" | "usecs" => Some(number),
        "ms" | "msec" | "msecs" => Some(number * 1e3),
        "s" | "sec" | "secs" => Some(number * 1e6),
        _ => None,
    });
    time.ok_or_else(|| o.wrong("is no time; give a number with s, ms or us"))
}

const INTERVAL: Code = Code {
    show: |b, _, _| Some(vec![time_text(interval(b)?)]),
    read: |o, b, _, _| {
        let time = time_of(o)?;
        let step = (0..=5_u8).find(|step| time <= f64::from(250_000_u32 << step));
        let step = step.ok_or_else(|| o.wrong("is longer than 8 seconds; shorten it"))?;
        b.set(16, &[step.wrapping_sub(2)]);
        Ok(())
    },
    ..Code::WORD
};

/// The time constant of the average, as the logarithm of the number of intervals; parsed after the interval.
const EWMA_LOG: Code = Code {
    show: |b, _, _| {
        let log = u32::try_from(b.uint(17, 1)).ok()?;
        let time = interval(b)?.checked_shl(log).filter(|_| log < 32)?;
        Some(vec![time_text(time & 0xffff_ffff)])
    },
    read: |o, b, _, _| {
        let (time, interval) = (time_of(o)?, interval(b).unwrap_or(250_000));
        let interval = f64::from(u32::try_from(interval).unwrap_or(u32::MAX));
        let is_above = |log: &u8| {
            let weight = 1.0 - 0.5_f64.powi(i32::from(*log));
            interval / -weight.ln() > time
        };
        let log = (1..32_u8).find(is_above).unwrap_or(32) - 1;
        if log == 0 || log >= 31 {
            return Err(o.wrong("does not go with the interval; give a multiple of it"));
        }
        b.put(17, 1, log.into());
        Ok(())
    },
    ..Code::WORD
};

rows! {
    MATCH "rateest" { size: 72, options: Options::Code { repeated: false, show, read, names: &[
        ("--rateest1", 1), ("--rateest", 1), ("--rateest2", 1), ("--rateest-delta", 0),
        ("--rateest-bps1", ONE_OR_NONE), ("--rateest-pps1", ONE_OR_NONE), ("--rateest-bps2", ONE_OR_NONE),
        ("--rateest-pps2", ONE_OR_NONE), ("--rateest-bps", ONE_OR_NONE), ("--rateest-pps", ONE_OR_NONE),
        ("--rateest-lt", 0), ("--rateest-gt", 0), ("--rateest-eq", 0),
    ] } }
    TARGET "RATEEST" { size: 32 } [
        field(&["--rateest-name"], Value::Text(NAME, Quote::Never), 0).need(),
        field(&["--rateest-interval"], Value::Code(&INTERVAL), 0).need(),
        field(&["--rateest-ewmalog"], Value::Code(&EWMA_LOG), 0).need(),
    ]
}
