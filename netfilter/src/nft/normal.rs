//! The canonical form of an expression, independent of what the kernel adds or omits when it lists it.
//!
//! What `nft` sends and what a dump contains differ in attributes with default values. Both are reduced to the
//! shorter form, so that expressions can be compared as values.

use super::expr::Expr;
use super::raw;

/// Removes attributes with default values.
pub(crate) fn normalize(e: &mut Expr) {
    match e {
        // Since 5.6 the kernel lists the operation even if it was not given.
        Expr::Bitwise(b) => drop_if(&mut b.op, raw::NFT_BITWISE_BOOL),
        Expr::Counter(c) => {
            drop_if(&mut c.bytes, 0);
            drop_if(&mut c.packets, 0);
        }
        Expr::Limit(l) => {
            drop_if(&mut l.burst, 0);
            drop_if(&mut l.flags, 0);
        }
        Expr::Log(l) => {
            drop_if(&mut l.flags, 0);
            drop_if(&mut l.snaplen, 0);
            drop_if(&mut l.qthreshold, 0);
            // LOGLEVEL_WARNING, the kernel's default.
            drop_if(&mut l.level, 4);
        }
        Expr::Lookup(l) => {
            drop_if(&mut l.flags, 0);
            l.set_id = None;
        }
        // A dump repeats the first register as the last if there is one value.
        Expr::Redir(r) => same(&r.reg_proto_min, &mut r.reg_proto_max),
        Expr::Masq(m) => {
            same(&m.reg_proto_min, &mut m.reg_proto_max);
            drop_if(&mut m.flags, 0);
        }
        Expr::Nat(n) => {
            same(&n.reg_addr_min, &mut n.reg_addr_max);
            same(&n.reg_proto_min, &mut n.reg_proto_max);
            // Implied by the address registers; the kernel sets it.
            n.flags = n.flags.map(|f| f & !raw::NF_NAT_RANGE_MAP_IPS);
            drop_if(&mut n.flags, 0);
        }
        Expr::Reject(r) if r.kind == Some(raw::NFT_REJECT_TCP_RST) => r.icmp_code = None,
        Expr::Socket(s) => drop_if(&mut s.level, 0),
        _ => {}
    }
}

fn drop_if<T: PartialEq>(field: &mut Option<T>, default: T) {
    if field.as_ref() == Some(&default) {
        *field = None;
    }
}

fn same(min: &Option<u32>, max: &mut Option<u32>) {
    if min == max {
        *max = None;
    }
}
