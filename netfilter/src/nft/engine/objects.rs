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
        let (message, all_of) = (raw::NFT_MSG_GETOBJ, ObjAttrs::default());
        known(
            self.each(message, TableFamily::Unspec, &all_of, "objects", |reply| {
                let attrs: ObjAttrs = decode(&reply, "objects")?;
                let table = find(tables, &reply, attrs.table.as_deref());
                Ok(table.map(|t| {
                    t.objects.push(Object {
                        kind: ObjectKind::Stateful(attrs.kind.unwrap_or(0)),
                        name: attrs.name.unwrap_or_default(),
                        comment: userdata::text(attrs.userdata.as_deref(), userdata::COMMENT),
                        data: attrs.data.unwrap_or_default(),
                    });
                    size_of::<Object>()
                }))
            }),
        )?;
        let (message, all_of) = (raw::NFT_MSG_GETFLOWTABLE, FlowtableAttrs::default());
        known(self.each(
            message,
            TableFamily::Unspec,
            &all_of,
            "flowtables",
            |reply| {
                let attrs: FlowtableAttrs = decode(&reply, "flowtables")?;
                let table = find(tables, &reply, attrs.table.as_deref());
                Ok(table.map(|t| {
                    let mut w = Writer::default();
                    attrs.encode(&mut w);
                    t.objects.push(Object {
                        kind: ObjectKind::Flowtable,
                        name: attrs.name.unwrap_or_default(),
                        comment: None,
                        data: w.finish().unwrap_or_default(),
                    });
                    size_of::<Object>()
                }))
            },
        ))?;
        Ok(())
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
