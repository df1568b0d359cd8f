//! `-m connbytes` (`struct xt_connbytes_info`). The match is inverted if the first number is greater than the last.

use super::prelude::*;

fn inverted(b: &Blob) -> bool {
    b.uint(0, 8) > b.uint(8, 8)
}

const COUNT: Code = Code {
    show: |b, _, _| {
        let (mut first, mut last) = (b.uint(0, 8), b.uint(8, 8));
        if inverted(b) {
            (first, last) = (last, first);
        }
        // iptables prints 0:0 as 0, which it parses as every number.
        Some(vec![match last {
            u64::MAX => first.to_string(),
            _ => format!("{first}:{last}"),
        }])
    },
    read: |o, b, _, _| {
        let word = o.word(0);
        let (mut first, mut last) = range_of(o, word, 8)?;
        if !word.contains(':') {
            last = u64::MAX;
        }
        if o.not.0 {
            (first, last) = (last, first);
        }
        b.put(0, 8, first);
        b.put(8, 8, last);
        Ok(())
    },
    ..Code::WORD
};

const MODES: &[(&str, u64)] = &[("packets", 0), ("bytes", 1), ("avgpkt", 2)];
const DIRECTIONS: &[(&str, u64)] = &[("original", 0), ("reply", 1), ("both", 2)];

rows! {
    MATCH "connbytes" { size: 24 } [
        field(&["--connbytes"], Value::Code(&COUNT), 0).invert(Invert::Code(inverted)).need(),
        field(&["--connbytes-mode"], Value::Choice(1, MODES), 16).need(),
        field(&["--connbytes-dir"], Value::Choice(1, DIRECTIONS), 17).need(),
    ]
}
