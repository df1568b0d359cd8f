//! Dumps of one kind of object. The total size of the answers is bounded.

use super::NftEngine;
use crate::features::given_by;
use crate::nft::model::TableFamily;
use weir_netlink::attr::{AttrSet, DecodeError, Str};
use weir_netlink::nfnetlink::{NFNL_SUBSYS_NFTABLES, Reply, message_type};
use weir_netlink::{Error, Result, Transport};

pub(crate) fn kind(message: u16) -> u16 {
    message_type(NFNL_SUBSYS_NFTABLES, message)
}

pub(crate) fn decode<A: AttrSet>(reply: &Reply, what: &str) -> Result<A> {
    reply
        .decode()
        .map_err(|e: DecodeError| Error::malformed("read", what, e))
}

impl<T: Transport> NftEngine<T> {
    pub(super) fn dump<A: AttrSet>(
        &mut self,
        message: u16,
        family: TableFamily,
        attrs: &A,
        what: &str,
    ) -> Result<Vec<Reply>> {
        let mut replies = Vec::new();
        self.each(message, family, attrs, what, |reply| {
            replies.push(reply);
            Ok(None)
        })?;
        Ok(replies)
    }

    /// As [`NftEngine::dump`], for long lists: each answer is freed before the next one is read. `f` returns how much more
    /// memory its values take, in bytes, which counts as well; `None`: the answer is about a table whose content is not read.
    pub(super) fn each<A: AttrSet>(
        &mut self,
        message: u16,
        family: TableFamily,
        attrs: &A,
        what: &str,
        mut f: impl FnMut(Reply) -> Result<Option<usize>>,
    ) -> Result<()> {
        let (limit, mut of_others) = (self.read_limit, self.of_others);
        let (limit_of_tables, mut of_tables) = (self.limit_of_tables, self.of_tables);
        let is_full = &mut self.is_full;
        let kind = kind(message);
        let bounded = |reply: Reply| {
            let size = reply.attrs.len();
            let beyond = |held: usize, limit| {
                let is_beyond = held.saturating_add(size) > limit;
                is_beyond.then(|| too_large(what, &reply, limit))
            };
            let (own, other) = (beyond(of_tables, limit_of_tables), beyond(of_others, limit));
            match (f(reply)?, own, other) {
                (Some(_), Some(error), _) => {
                    *is_full = true;
                    return Err(error);
                }
                (None, _, Some(error)) => return Err(error),
                (Some(more), ..) => {
                    of_tables = of_tables.saturating_add(size).saturating_add(more);
                }
                (None, ..) => of_others = of_others.saturating_add(size),
            }
            Ok(())
        };
        let listed = self
            .socket
            .dump_each(kind, family.number(), attrs, what, bounded);
        (self.of_others, self.of_tables) = (of_others, of_tables);
        match listed {
            // The ruleset changed during the dump, in an owned table or another one: the list may be incomplete.
            Err(e) if e.errno() == Some(libc::EINTR) => {
                self.torn = true;
                Ok(())
            }
            listed => listed.map_err(no_nf_tables),
        }
    }
}

weir_netlink::attributes! {
    /// The attribute that all objects of a table have in common.
    struct Belonging {
        table: Str = NFTA_RULE_TABLE 1,
    }
}

/// The dump exceeds the limit of bytes.
fn too_large(what: &str, reply: &Reply, limit: usize) -> Error {
    // Every kind of object has its table in the same attribute.
    let attrs = Belonging::decode(&reply.attrs).unwrap_or_default();
    let table = attrs.table.unwrap_or_default();
    let reason = format!(
        "the ruleset takes more than {limit} bytes, and no more are read at once; the limit was reached in table {} {table}: \
         delete what makes it so large",
        TableFamily::from(reply.header.family)
    );
    Error::refused("read", what, reason)
}

/// Replaces the errnos of a kernel without nf_tables: nfnetlink does not know the subsystem (`EINVAL`), or without
/// nfnetlink there is no socket (`EPROTONOSUPPORT`).
pub(super) fn no_nf_tables(e: Error) -> Error {
    match e.errno() {
        Some(libc::EINVAL | libc::EPROTONOSUPPORT) => Error::unsupported(
            "use",
            "nf_tables",
            format!("this kernel has no nf_tables: {}", given_by("nf_tables")),
        ),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_nfnetlink_has_no_nf_tables() {
        for errno in [libc::EPROTONOSUPPORT, libc::EINVAL] {
            let error = no_nf_tables(Error::kernel("open", "NETLINK_NETFILTER", errno));
            assert!(error.is_unsupported(), "{error}");
        }
        let error = no_nf_tables(Error::kernel("open", "NETLINK_NETFILTER", libc::EMFILE));
        assert_eq!(error.errno(), Some(libc::EMFILE));
    }
}
