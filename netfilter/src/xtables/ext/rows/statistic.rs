//! `-m statistic` (`struct xt_statistic_info`): a random share of the packets, or every n-th packet.

use super::prelude::*;

const MODE: Place = Place { at: 0, width: 2 };
const FLAGS: Place = Place { at: 2, width: 2 };
/// The probability in units of 1/2^31, or the value of `--every` minus 1.
const EVERY: usize = 4;
const PACKET: usize = 8;
/// The initial value of the kernel's counter. iptables also writes the probability there.
const COUNT: usize = 12;

/// `XT_STATISTIC_MODE_NTH`, `XT_STATISTIC_INVERT`
const NTH: u64 = 1;
const INVERT: u64 = 1;

/// The probability 1 in units of 1/2^31.
const ONE: f64 = 2_147_483_648.0;

fn show(b: &Blob, _: XtFamily) -> Option<Vec<Shown>> {
    let every = u32::try_from(b.uint(EVERY, 4)).ok()?;
    let (mode, option, word) = match b.uint(MODE.at, MODE.width) {
        0 => {
            let p = format!("{:.11}", f64::from(every) / ONE);
            ("random", "--probability", p)
        }
        NTH => ("nth", "--every", (u64::from(every) + 1).to_string()),
        _ => return None,
    };
    let option = Shown {
        not: b.has(FLAGS, INVERT),
        ..Shown::one(option, word)
    };
    let mut all = vec![Shown::one("--mode", mode), option];
    if mode == "nth" {
        all.push(Shown::one("--packet", b.uint(PACKET, 4)));
    }
    Some(all)
}

fn read(given: &mut Given, b: &mut Blob) -> Result<(), Complaint> {
    let mode = given.need(&["--mode"])?;
    let o = match mode.plain()?.word(0) {
        "random" => {
            let o = given.need(&["--probability"])?;
            let p = o.word(0).parse().ok().filter(|p| (0.0..=1.0).contains(p));
            let p: f64 = p.ok_or_else(|| o.wrong("is no number between 0 and 1"))?;
            // In range: the product is at most 2^31.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let p = (p * ONE).round() as u64;
            b.put(EVERY, 4, p);
            b.put(COUNT, 4, p);
            o
        }
        "nth" => {
            let o = given.need(&["--every"])?;
            let every: u32 = o.number(0)?;
            let packet = given.take(&["--packet"]);
            let packet: u32 = packet.map_or(Ok(0), |o| o.plain()?.number(0))?;
            if packet >= every {
                return Err(o.wrong("must be more than --packet, and at least 1"));
            }
            b.put(MODE.at, MODE.width, NTH);
            b.put(EVERY, 4, u64::from(every - 1));
            b.put(PACKET, 4, packet.into());
            b.put(COUNT, 4, u64::from(every - 1 - packet));
            o
        }
        _ => return Err(mode.wrong("is no mode; give random or nth")),
    };
    if o.not.0 {
        b.or(FLAGS, INVERT);
    }
    Ok(())
}

rows! {
    MATCH "statistic" { size: 24, options: Options::Code { repeated: false, show, read, names: &[
        ("--mode", 1), ("--probability", 1), ("--every", 1), ("--packet", 1),
    ] } }
}
