//! Mutates inputs.

use crate::Random;
use std::ops::Range;

/// The largest mutated input, in bytes. The largest input of a corpus has some ten thousand; larger ones only take time.
const LONGEST: usize = 256 * 1024;
/// Numbers at the limits of lengths and counts.
const EDGES: [u32; 14] = [
    0,
    1,
    3,
    4,
    5,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX,
];

/// Changes an input one to eight times, also with parts of `others`.
pub fn mutate(random: &mut Random, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=random.below(8) {
        once(random, input, others);
    }
    input.truncate(LONGEST);
}

fn once(random: &mut Random, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = random.below(input.len());
    match random.below(10) {
        0 | 1 => {
            let bit = 1 << random.below(8);
            change(input, at, |b| b ^ bit);
        }
        2 => {
            let byte = random.byte();
            change(input, at, |_| byte);
        }
        3 => input.truncate(at),
        4 => {
            let part = part(random, input);
            drop(input.drain(part));
        }
        5 => {
            let part = part(random, input);
            let copy = input.get(part).unwrap_or_default().to_vec();
            input.splice(at..at, copy);
        }
        6 | 7 => number(random, input, at),
        _ => splice(random, input, others),
    }
}

fn change(input: &mut [u8], at: usize, f: impl Fn(u8) -> u8) {
    if let Some(byte) = input.get_mut(at) {
        *byte = f(*byte);
    }
}

/// A range of the input, which is usually short.
fn part(random: &mut Random, input: &[u8]) -> Range<usize> {
    let start = random.below(input.len());
    let most = 1 << random.below(14);
    let end = start.saturating_add(random.below(most)).min(input.len());
    start.min(end)..end
}

/// Changes two or four bytes that may be a length, a count or an offset: aligned as in netlink, in either byte order, to one of
/// [`EDGES`] or to a slightly larger or smaller number.
fn number(random: &mut Random, input: &mut [u8], at: usize) {
    let width = if random.below(2) == 0 { 2 } else { 4 };
    let at = at / width * width;
    let Some(slot) = input.get_mut(at..at.saturating_add(width)) else {
        return;
    };
    let big = random.below(2) == 0;
    let before = slot.iter().enumerate().fold(0u32, |sum, (n, b)| {
        let place = if big { width - 1 - n } else { n };
        sum | u32::from(*b) << (8 * place)
    });
    let step = u32::try_from(random.below(9)).unwrap_or(0);
    let after = match random.below(3) {
        0 => before.wrapping_add(step),
        1 => before.wrapping_sub(step),
        _ => random.of(&EDGES).copied().unwrap_or(0),
    };
    for (n, byte) in slot.iter_mut().enumerate() {
        let place = if big { width - 1 - n } else { n };
        *byte = after.to_le_bytes().get(place).copied().unwrap_or(0);
    }
}

/// Inserts a part of another input, or overwrites bytes with it.
fn splice(random: &mut Random, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    let Some(other) = random.of(others) else {
        return;
    };
    let taken = part(random, other);
    let taken = other.get(taken).unwrap_or_default();
    let at = random.below(input.len());
    let over = if random.below(2) == 0 { 0 } else { taken.len() };
    let end = at.saturating_add(over).min(input.len());
    input.splice(at..end, taken.iter().copied());
}
