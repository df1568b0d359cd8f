//! `-m iprange` (`struct xt_iprange_mtinfo`, `linux/netfilter/xt_iprange.h`): inclusive ranges of addresses.

use super::super::blob::Blob;
use super::super::field::field;
use super::super::row::{Options, Row};
use super::super::value::{Code, Value, address_at, union_of};
use crate::address::Address;
use crate::xtables::XtFamily;
use crate::xtables::raw::*;
use crate::xtables::text::{Complaint, Opt};

const SOURCE: Code = Code {
    show: |b, family| show(b, 0, family),
    read: |o, b, family| read(o, b, 0, family),
    ..Code::WORD
};

const DESTINATION: Code = Code {
    show: |b, family| show(b, 32, family),
    read: |o, b, family| read(o, b, 32, family),
    ..Code::WORD
};

fn show(b: &Blob, at: usize, family: XtFamily) -> Option<Vec<String>> {
    let [first, last] = [at, at + 16].map(|at| Address(address_at(b, at, family)));
    Some(vec![format!("{first}-{last}")])
}

fn read(o: &Opt, b: &mut Blob, at: usize, family: XtFamily) -> Result<(), Complaint> {
    let word = o.word(0);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (o.address_in(first, family)?, o.address_in(last, family)?);
    b.set(at, &union_of(first));
    b.set(at + 16, &union_of(last));
    Ok(())
}

pub(super) const ROWS: &[Row] = &[Row {
    name: "iprange",
    revision: 1,
    size: 68,
    one_of: &["--src-range", "--dst-range"],
    options: Options::Fields(&[
        field(&["--src-range"], Value::Code(&SOURCE), 0)
            .set(64, 1, IPRANGE_SRC as u64)
            .not(64, 1, IPRANGE_SRC_INV as u64),
        field(&["--dst-range"], Value::Code(&DESTINATION), 32)
            .set(64, 1, IPRANGE_DST as u64)
            .not(64, 1, IPRANGE_DST_INV as u64),
    ]),
    ..Row::MATCH
}];
