//! Reads stateful objects and flowtables, which weir never creates, for listings of a whole ruleset.

use super::NftEngine;
use super::dump::decode;
use super::read::find;
use super::snapshot::AnonymousSets;
use crate::nft::expr::Expr;
use crate::nft::model::{Object, ObjectKind, Statement, Table, TableFamily};
use crate::nft::wire::{FlowtableAttrs, ObjAttrs};
use crate::nft::{raw, userdata};
use weir_netlink::Result;
use weir_netlink::Transport;
use weir_netlink::attr::{AttrSet, Writer};

impl<T: Transport> NftEngine<T> {
    /// Adds its objects to every table. A kernel that does not know the request has none.
    pub(super) fn objects(&mut self, tables: &mut [Table]) -> Result<()> {
        let found = self.dump(
            raw::NFT_MSG_GETOBJ,
            TableFamily::Unspec,
            &ObjAttrs::default(),
            "objects",
        );
        for reply in known(found)? {
            let attrs: ObjAttrs = decode(&reply, "objects")?;
            if let Some(t) = find(tables, &reply, attrs.table.as_deref()) {
                t.objects.push(Object {
                    kind: ObjectKind::Stateful(attrs.kind.unwrap_or(0)),
                    name: attrs.name.unwrap_or_default(),
                    comment: userdata::text(attrs.userdata.as_deref(), userdata::COMMENT),
                    data: attrs.data.unwrap_or_default(),
                });
            }
        }
        let found = self.dump(
            raw::NFT_MSG_GETFLOWTABLE,
            TableFamily::Unspec,
            &FlowtableAttrs::default(),
            "flowtables",
        );
        for reply in known(found)? {
            let attrs: FlowtableAttrs = decode(&reply, "flowtables")?;
            if let Some(t) = find(tables, &reply, attrs.table.as_deref()) {
                let mut w = Writer::default();
                attrs.encode(&mut w);
                t.objects.push(Object {
                    kind: ObjectKind::Flowtable,
                    name: attrs.name.unwrap_or_default(),
                    comment: None,
                    data: w.finish().unwrap_or_default(),
                });
            }
        }
        Ok(())
    }
}

/// Adds the anonymous sets of rules that are displayed as opaque expressions to the sets of the table, by the names
/// that the kernel assigned.
pub(super) fn keep_anonymous(tables: &mut [Table], anonymous: &AnonymousSets) {
    if anonymous.is_empty() {
        return;
    }
    for t in tables {
        let rules = t.chains.iter().flat_map(|c| &c.rules);
        let opaque = rules.flat_map(|r| &r.statements).filter_map(|s| match s {
            Statement::Opaque(exprs) => Some(exprs),
            _ => None,
        });
        let exprs: Vec<&Expr> = opaque.flatten().collect();
        let of_table = anonymous.iter().filter(|((family, table, _), _)| {
            (*family, table.as_str()) == (t.family, t.name.as_str())
        });
        let named = of_table.filter(|((.., name), _)| exprs.iter().any(|e| names(e, name)));
        let mut sets: Vec<_> = named.map(|(_, found)| found.set.clone()).collect();
        sets.sort_by(|a, b| a.name.cmp(&b.name));
        t.sets.extend(sets);
    }
}

/// Whether an expression refers to the set.
fn names(e: &Expr, set: &str) -> bool {
    match e {
        Expr::Lookup(l) => l.set.as_deref() == Some(set),
        // The name is NUL-terminated there.
        Expr::Opaque(a) => {
            let name = [set.as_bytes(), &[0]].concat();
            let data = a.data.as_deref().unwrap_or_default();
            data.windows(name.len()).any(|w| w == name)
        }
        _ => false,
    }
}

/// `EINVAL`, or `EOPNOTSUPP` for a family: the kernel is older than the request; objects were added in 4.10,
/// flowtables in 4.16.
fn known<R>(found: Result<Vec<R>>) -> Result<Vec<R>> {
    match found {
        Err(e) if matches!(e.errno(), Some(libc::EOPNOTSUPP)) || e.is_unsupported() => {
            Ok(Vec::new())
        }
        found => found,
    }
}
