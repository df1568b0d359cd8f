//! `-m iprange` (`struct xt_iprange_mtinfo`, `linux/netfilter/xt_iprange.h`): inclusive ranges of addresses.

use super::prelude::*;
use crate::address::Address;
use crate::xtables::raw::*;

const ENDS: Code = Code {
    show: |b, at, family| {
        let [first, last] = [at, at + 16].map(|at| Address(address_at(b, at, family)));
        Some(vec![format!("{first}-{last}")])
    },
    read: |o, b, at, family| {
        let word = o.word(0);
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last) = (o.address_in(first, family)?, o.address_in(last, family)?);
        b.set(at, &union_of(first));
        b.set(at + 16, &union_of(last));
        Ok(())
    },
    ..Code::WORD
};

/// A range, with the bits of the flags that mark it as given and as inverted.
const fn ends(names: &'static [&'static str], at: usize, given: u8, inverted: u8) -> Field {
    field(names, Value::Code(&ENDS), at)
        .set(64, 1, given as u64)
        .not(64, 1, inverted as u64)
}

rows! {
    MATCH "iprange" { revision: 1, size: 68, one_of: &["--src-range", "--dst-range"] } [
        ends(&["--src-range"], 0, IPRANGE_SRC, IPRANGE_SRC_INV),
        ends(&["--dst-range"], 32, IPRANGE_DST, IPRANGE_DST_INV),
    ]
}
