//! Reads stateful objects and flowtables: for a whole ruleset, and if some are desired.

use super::NftEngine;
use super::dump::decode;
use super::read::find;
use crate::nft::model::{Object, ObjectKind, Table, TableFamily};
use crate::nft::wire::{FlowtableAttrs, ObjAttrs};
use crate::nft::{raw, userdata};
use weir_netlink::attr::{AttrSet, Writer};
use weir_netlink::{Result, Transport};

impl<T: Transport> NftEngine<T> {
    /// Adds the objects to their tables. A kernel that does not know the request has no objects.
    pub(super) fn objects(&mut self, tables: &mut [Table]) -> Result<()> {
        let message = raw::NFT_MSG_GETOBJ;
        self.listed_in(tables, message, "objects", |attrs: ObjAttrs| {
            let object = Object {
                kind: ObjectKind::Stateful(attrs.kind.unwrap_or(0)),
                name: attrs.name.unwrap_or_default(),
                comment: userdata::text(attrs.userdata.as_deref(), userdata::COMMENT),
                data: attrs.data.unwrap_or_default(),
            };
            (attrs.table, object)
        })?;
        let message = raw::NFT_MSG_GETFLOWTABLE;
        self.listed_in(tables, message, "flowtables", |attrs: FlowtableAttrs| {
            let mut w = Writer::default();
            attrs.encode(&mut w);
            let object = Object {
                kind: ObjectKind::Flowtable,
                name: attrs.name.unwrap_or_default(),
                comment: None,
                data: w.finish().unwrap_or_default(),
            };
            (attrs.table, object)
        })
    }

    /// Adds the objects of one kind; `object` returns one with the name of its table.
    fn listed_in<A: AttrSet + Default>(
        &mut self,
        tables: &mut [Table],
        message: u16,
        what: &str,
        object: impl Fn(A) -> (Option<String>, Object),
    ) -> Result<()> {
        let all = A::default();
        known(
            self.each(message, TableFamily::Unspec, &all, what, |reply| {
                let (table, object) = object(decode(&reply, what)?);
                let table = find(tables, &reply, table.as_deref());
                Ok(table.map(|t| {
                    t.objects.push(object);
                    size_of::<Object>()
                }))
            }),
        )
    }
}

/// Ignores the errors of a kernel that is older than the request: `EINVAL`, or `EOPNOTSUPP` for a family. Objects were added in
/// 4.10, flowtables in 4.16.
fn known(listed: Result<()>) -> Result<()> {
    match listed {
        Err(e) if matches!(e.errno(), Some(libc::EOPNOTSUPP)) || e.is_unsupported() => Ok(()),
        listed => listed,
    }
}
