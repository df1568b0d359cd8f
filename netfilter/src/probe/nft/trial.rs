//! Commits a trial and deletes it.

use super::rows::OUT;
use super::{At, SetTrial, Trial, sets};
use crate::nft::expr::{Expr, ExprElem};
use crate::nft::wire::{ChainAttrs, ElemListAttrs, HookAttrs, RuleAttrs, SetAttrs, TableAttrs};
use crate::nft::{decode, generation, kind, raw};
use crate::probe::Answer;
use weir_netlink::attr::AttrSet;
use weir_netlink::message::{NLM_F_APPEND, NLM_F_CREATE};
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Socket};
use weir_netlink::{Error, ErrorKind, Result};

/// Table and chain of every trial.
const NAME: &str = "weir-trial";
/// `NFTNL_UDATA_TABLE_COMMENT`: type, length, text, NUL.
const COMMENT: &[u8] = b"\x00\x05weir\x00";

fn name() -> Option<String> {
    Some(NAME.to_owned())
}

/// A connection to nf_tables of a throwaway namespace.
pub(super) struct Lab {
    socket: Socket,
}

/// A batch whose messages all have one family.
struct Draft {
    batch: Batch,
    family: u8,
}

impl Draft {
    fn new(family: u8, generation: Option<u32>) -> Self {
        let mut draft = Self::empty(family, generation);
        draft.table(None);
        draft
    }

    fn empty(family: u8, generation: Option<u32>) -> Self {
        Self {
            batch: Batch::new(NFNL_SUBSYS_NFTABLES, generation),
            family,
        }
    }

    fn push<A: AttrSet>(&mut self, kind: u16, flags: u16, attrs: &A) {
        self.batch.push(kind, flags, self.family, attrs);
    }

    fn table(&mut self, userdata: Option<Vec<u8>>) {
        let table = TableAttrs {
            name: name(),
            flags: Some(0),
            userdata,
            ..TableAttrs::default()
        };
        self.push(raw::NFT_MSG_NEWTABLE, NLM_F_CREATE, &table);
    }

    fn chain(&mut self, at: &At, userdata: Option<Vec<u8>>) {
        let hook = HookAttrs {
            hooknum: Some(at.hook),
            priority: Some(at.priority),
            dev: (at.family == raw::NFPROTO_NETDEV).then(|| "lo".to_owned()),
            ..HookAttrs::default()
        };
        let chain = ChainAttrs {
            table: name(),
            name: name(),
            kind: Some(at.kind.to_owned()),
            hook: Some(hook),
            userdata,
            ..ChainAttrs::default()
        };
        self.push(raw::NFT_MSG_NEWCHAIN, NLM_F_CREATE, &chain);
    }

    fn rule(&mut self, exprs: Vec<Expr>) {
        let expressions = Some(exprs.into_iter().map(ExprElem).collect());
        let rule = RuleAttrs {
            table: name(),
            chain: name(),
            expressions,
            ..RuleAttrs::default()
        };
        self.push(raw::NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, &rule);
    }

    fn set(&mut self, trial: SetTrial) {
        let set = SetAttrs {
            table: name(),
            ..trial.set()
        };
        self.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, &set);
        let elements = trial.elements();
        if !elements.is_empty() {
            let list = ElemListAttrs {
                table: name(),
                set: Some(sets::NAME.to_owned()),
                set_id: Some(1),
                elements: Some(elements),
                ..ElemListAttrs::default()
            };
            self.push(raw::NFT_MSG_NEWSETELEM, NLM_F_CREATE, &list);
        }
        if let Some(rule) = trial.rule() {
            self.chain(&OUT, None);
            self.rule(rule);
        }
    }
}

impl Lab {
    /// Opens nf_tables in the network namespace of the calling thread; on failure, returns the answer for every trial.
    pub(super) fn open() -> Result<Self, Answer> {
        let opened = Socket::open().and_then(|socket| {
            let mut lab = Self { socket };
            generation(&mut lab.socket).map(|_| lab)
        });
        opened.map_err(|e| match e.errno() {
            // The kernel has no nfnetlink, or no subsystem with this number.
            Some(libc::EPROTONOSUPPORT | libc::EINVAL) => {
                Answer::Lack("the kernel has no nf_tables".to_owned())
            }
            _ => Answer::Unknown(e.to_string()),
        })
    }

    pub(super) fn try_one(&mut self, trial: &Trial) -> Result<()> {
        match trial {
            Trial::Table(family) => self.commit(Draft::new(*family, None), |_| Ok(())),
            Trial::Chain(at) => {
                let mut draft = Draft::new(at.family, None);
                draft.chain(at, None);
                self.commit(draft, |_| Ok(()))
            }
            Trial::Rule(at, exprs) => {
                let mut draft = Draft::new(at.family, None);
                draft.chain(at, None);
                draft.rule(exprs());
                self.commit(draft, |_| Ok(()))
            }
            Trial::Set(set) => {
                let mut draft = Draft::new(raw::NFPROTO_INET, None);
                draft.set(*set);
                self.commit(draft, |_| Ok(()))
            }
            Trial::TableComment => {
                let mut draft = Draft::empty(raw::NFPROTO_INET, None);
                draft.table(Some(COMMENT.to_vec()));
                self.commit(draft, |lab| {
                    let table = TableAttrs {
                        name: name(),
                        ..TableAttrs::default()
                    };
                    let got: TableAttrs = lab.get(raw::NFT_MSG_GETTABLE, &table)?;
                    kept(got.userdata)
                })
            }
            Trial::ChainComment => {
                let mut draft = Draft::new(raw::NFPROTO_INET, None);
                draft.chain(&OUT, Some(COMMENT.to_vec()));
                self.commit(draft, |lab| {
                    let chain = ChainAttrs {
                        table: name(),
                        name: name(),
                        ..ChainAttrs::default()
                    };
                    let got: ChainAttrs = lab.get(raw::NFT_MSG_GETCHAIN, &chain)?;
                    kept(got.userdata)
                })
            }
            Trial::Generation => {
                let stale = other_than(generation(&mut self.socket)?);
                let draft = Draft::new(raw::NFPROTO_INET, Some(stale));
                match self.commit(draft, |_| Ok(())) {
                    Err(e) if e.is_stale_generation() => Ok(()),
                    Err(e) => Err(e),
                    Ok(()) => Err(ignored("the kernel ignores the generation of a batch")),
                }
            }
        }
    }

    fn get<A: AttrSet>(&mut self, message: u16, attrs: &A) -> Result<A> {
        let what = "what was tried";
        let reply = self
            .socket
            .get(kind(message), raw::NFPROTO_INET, attrs, what)?;
        decode(&reply, what)
    }

    /// Commits a draft, calls `look`, and deletes the table.
    fn commit(&mut self, draft: Draft, look: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let family = draft.family;
        self.send(draft.batch)?;
        let seen = look(self);
        let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, None);
        let table = TableAttrs {
            name: name(),
            ..TableAttrs::default()
        };
        batch.push(raw::NFT_MSG_DELTABLE, 0, family, &table);
        self.send(batch)?;
        seen
    }

    fn send(&mut self, batch: Batch) -> Result<()> {
        let Err(failures) = self.socket.commit(batch)? else {
            return Ok(());
        };
        let first = failures.into_iter().next();
        let Some(failure) = first else {
            return Err(Error::malformed(
                "try",
                "",
                "the kernel refused without a reason",
            ));
        };
        let kind = ErrorKind::Kernel {
            errno: failure.errno,
            extack: failure.extack,
            attribute: failure.attribute,
        };
        Err(Error::new("commit it", "", kind))
    }
}

/// Returns a generation that differs from the ruleset's. It is never 0, which precedes the 1 of a new namespace: the kernel
/// does not compare it (`nf_tables_valid_genid()`, net/netfilter/nf_tables_api.c).
fn other_than(generation: u32) -> u32 {
    match generation.wrapping_sub(1) {
        0 => u32::MAX,
        before => before,
    }
}

fn kept(userdata: Option<Vec<u8>>) -> Result<()> {
    match userdata.as_deref() {
        Some(COMMENT) => Ok(()),
        _ => Err(ignored("the kernel does not keep it")),
    }
}

/// The error for a request that was acknowledged without effect: the kernel ignores unknown attributes.
fn ignored(what: &str) -> Error {
    let kind = ErrorKind::Kernel {
        errno: libc::EOPNOTSUPP,
        extack: Some(what.to_owned()),
        attribute: None,
    };
    Error::new("use it", "", kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netlink::Netns;

    #[test]
    fn a_fresh_namespace_refuses_a_stale_generation() {
        let ns = match Netns::create() {
            Ok(ns) => ns,
            Err(e) => {
                assert!(e.is_permission(), "{e}");
                eprintln!("skipped: {e}");
                return;
            }
        };
        let refused = ns.run(|| {
            let mut lab = Lab::open().expect("nf_tables");
            lab.try_one(&Trial::Generation)
        });
        refused.expect("entered").expect("the kernel looks at it");
    }
}
