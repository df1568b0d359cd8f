//! `-m bpf` (`struct xt_bpf_info_v1`): a classic BPF program of up to 64 instructions of 8 bytes.
//!
//! Pinned programs are not supported: the kernel needs their file descriptor.

use super::prelude::*;

const MAX: u64 = 64;

/// Offset of the program.
const PROGRAM: usize = 8;

/// `LENGTH,CODE JT JF K,...`
const BYTECODE: Code = Code {
    words: 1,
    quote: Quote::Always,
    show: |b, _, _| {
        let count = usize::try_from(b.uint(2, 2).min(MAX)).ok()?;
        let instruction = |n: usize| {
            let at = PROGRAM + 8 * n;
            let (code, k) = (b.uint(at, 2), b.uint(at + 4, 4));
            format!(",{code} {} {} {k}", b.uint(at + 2, 1), b.uint(at + 3, 1))
        };
        let all: String = (0..count).map(instruction).collect();
        Some(vec![format!("{count}{all}")])
    },
    read: |o, b, _, _| {
        let wrong =
            || o.wrong("is no program; give LENGTH,CODE JT JF K,... with up to 64 instructions");
        let mut parts = o.word(0).split(',');
        let count: u64 = parts
            .next()
            .and_then(|n| n.parse().ok())
            .ok_or_else(wrong)?;
        let instructions: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        if count == 0 || count > MAX || u64::try_from(instructions.len()) != Ok(count) {
            return Err(wrong());
        }
        b.put(2, 2, count);
        for (n, instruction) in instructions.into_iter().enumerate() {
            let numbers: Option<Vec<u32>> =
                instruction.split(' ').map(|n| n.parse().ok()).collect();
            let Some([code, jt, jf, k]) = numbers.as_deref() else {
                return Err(wrong());
            };
            let at = PROGRAM + 8 * n;
            for (value, at, width) in [
                (code, at, 2),
                (jt, at + 2, 1),
                (jf, at + 3, 1),
                (k, at + 4, 4),
            ] {
                if width < 4 && value >> (8 * width) != 0 {
                    return Err(wrong());
                }
                b.put(at, width, (*value).into());
            }
        }
        Ok(())
    },
};

rows! {
    MATCH "bpf" { revision: 1, size: 528 } [field(&["--bytecode"], Value::Code(&BYTECODE), 0).is(0, 2, 0).need()]
}
