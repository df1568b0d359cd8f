//! `-j LOG` (`struct xt_log_info`) and `-j NFLOG` (`struct xt_nflog_info`): the packet continues with the next rule.

use super::prelude::*;

/// The names of the levels 0 to 7.
const LEVELS: [&[&str]; 8] = [
    &["emerg", "panic"],
    &["alert"],
    &["crit"],
    &["error", "err"],
    &["warning", "warn"],
    &["notice"],
    &["info"],
    &["debug"],
];

const LEVEL: Code = Code {
    show: |b, _, _| Some(vec![b.uint(0, 1).to_string()]),
    read: |o, b, _, _| {
        let why =
            "is no level; give 0 to 7, or emerg, alert, crit, error, warning, notice, info, debug";
        let named = LEVELS.iter().position(|names| names.contains(&o.word(0)));
        let level = named.map_or_else(|| o.number_in(o.word(0), why), Ok)?;
        if level >= LEVELS.len() {
            return Err(o.wrong(why));
        }
        b.put(0, 1, u64::try_from(level).unwrap_or(0));
        Ok(())
    },
    ..Code::WORD
};

/// `XT_NFLOG_F_COPY_LEN`: the length was given with `--nflog-size`, not with the older `--nflog-range`, which the kernel ignores.
const COPY_LEN: (Place, u64) = (Place { at: 8, width: 2 }, 1);

const RANGE: Code = Code {
    show: |b, _, _| {
        let given = !b.has(COPY_LEN.0, COPY_LEN.1) && b.uint(0, 4) != 0;
        given.then(|| vec![b.uint(0, 4).to_string()])
    },
    read: |o, b, _, _| {
        if b.has(COPY_LEN.0, COPY_LEN.1) {
            return Err(o.wrong("excludes --nflog-size; leave one out"));
        }
        b.put(0, 4, number_of(o, o.word(0), 4)?);
        Ok(())
    },
    ..Code::WORD
};

rows! {
    TARGET "LOG" { size: 32, initial: &[(0, &[4])] } [
        field(&["--log-prefix"], Value::Text(30, Quote::Unsafe), 2).unless(&[0]),
        field(&["--log-level"], Value::Code(&LEVEL), 0).unless(&[4]),
        flag(&["--log-tcp-sequence"], 1, 1, 1),
        flag(&["--log-tcp-options"], 1, 1, 2),
        flag(&["--log-ip-options"], 1, 1, 4),
        flag(&["--log-uid"], 1, 1, 8),
        flag(&["--log-macdecode"], 1, 1, 32),
    ]
    TARGET "NFLOG" { size: 76 } [
        field(&["--nflog-prefix"], Value::Text(64, Quote::Unsafe), 12).unless(&[0]),
        field(&["--nflog-group"], Value::Number(2), 4).unless(&[0; 2]),
        field(&["--nflog-size"], Value::Number(4), 0).set(8, 2, COPY_LEN.1),
        field(&["--nflog-range"], Value::Code(&RANGE), 0),
        field(&["--nflog-threshold"], Value::Number(2), 6).unless(&[0; 2]),
    ]
}
