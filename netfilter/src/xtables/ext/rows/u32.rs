//! `-m u32` (`struct xt_u32`): up to 11 tests of 180 bytes. Each loads a number from the packet in up to 11 steps and compares it with
//! up to 11 ranges.
//!
//! ```text
//! test  steps (number, operator: 8 each) | ranges (first, last: 8 each) | counts of steps and ranges (1 each)
//! ```

use super::prelude::*;

const TEST: usize = 180;
const RANGES: usize = 88;
const STEP_COUNT: usize = 176;
const RANGE_COUNT: usize = 177;
const TEST_COUNT: usize = 1980;
const MAX: usize = 11;

/// `XT_U32_*`, the operators between two numbers.
const OPERATORS: [(&str, u64); 4] = [("&", 0), ("<<", 1), (">>", 2), ("@", 3)];

const TESTS: Code = Code {
    words: 1,
    quote: Quote::Always,
    show: |b, _, _| {
        let count = usize::try_from(b.uint(TEST_COUNT, 1)).ok()?.min(MAX);
        let tests: Option<Vec<String>> = (0..count).map(|n| show_test(b, TEST * n)).collect();
        Some(vec![tests?.join("&&")])
    },
    read: |o, b, _, _| {
        let text: String = o
            .word(0)
            .chars()
            .filter(|c| !c.is_ascii_whitespace())
            .collect();
        let mut count = 0;
        for test in text.split("&&") {
            if count == MAX {
                return Err(o.wrong("has more than 11 tests; use several matches"));
            }
            read_test(o, b, TEST * count, test)?;
            count += 1;
        }
        b.put(TEST_COUNT, 1, u64::try_from(count).unwrap_or(0));
        Ok(())
    },
};

fn show_test(b: &Blob, test: usize) -> Option<String> {
    let count = |at: usize| usize::try_from(b.uint(test + at, 1)).unwrap_or(0).min(MAX);
    let mut text = String::new();
    for at in (0..count(STEP_COUNT)).map(|n| test + 8 * n) {
        if at != test {
            let operator = b.uint(at + 4, 1);
            text += OPERATORS.iter().find(|(_, n)| *n == operator)?.0;
        }
        text += &format!("{:#x}", b.uint(at, 4));
    }
    for n in 0..count(RANGE_COUNT) {
        let at = test + RANGES + 8 * n;
        let (first, last) = (b.uint(at, 4), b.uint(at + 4, 4));
        text += if n == 0 { "=" } else { "," };
        text += &format!("{first:#x}");
        if first != last {
            text += &format!(":{last:#x}");
        }
    }
    Some(text)
}

fn read_test(o: &Opt, b: &mut Blob, test: usize, text: &str) -> Result<(), Complaint> {
    let too_long = || o.wrong("has more than 11 numbers on a side of =; use several matches");
    let (steps, ranges) = text
        .split_once('=')
        .ok_or_else(|| o.wrong("is no test; give START&MASK=FIRST:LAST, and && between tests"))?;
    let (mut rest, mut operator, mut count) = (steps, 0, 0);
    loop {
        let end = rest.find(['&', '<', '>', '@']).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if count == MAX {
            return Err(too_long());
        }
        let at = test + 8 * count;
        b.put(at, 4, number_of(o, number, 4)?);
        b.put(at + 4, 1, operator);
        count += 1;
        let next = OPERATORS
            .iter()
            .find_map(|(text, n)| Some((*n, after.strip_prefix(text)?)));
        match next {
            Some(next) => (operator, rest) = next,
            None if after.is_empty() => break,
            None => return Err(o.wrong("has an unknown operator; give &, <<, >> or @")),
        }
    }
    b.put(test + STEP_COUNT, 1, u64::try_from(count).unwrap_or(0));
    count = 0;
    for range in ranges.split(',') {
        if count == MAX {
            return Err(too_long());
        }
        let (first, last) = range.split_once(':').unwrap_or((range, range));
        let at = test + RANGES + 8 * count;
        b.put(at, 4, number_of(o, first, 4)?);
        b.put(at + 4, 4, number_of(o, last, 4)?);
        count += 1;
    }
    b.put(test + RANGE_COUNT, 1, u64::try_from(count).unwrap_or(0));
    Ok(())
}

rows! {
    MATCH "u32" { size: 1984 } [field(&["--u32"], Value::Code(&TESTS), 0).not(1981, 1, 1).need()]
}
