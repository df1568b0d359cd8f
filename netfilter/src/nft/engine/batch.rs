//! Encodes operations as messages.

use std::collections::HashMap;

use super::{NftOp, TableId, Transaction, UNGUARDED};
use crate::nft::context::Context;
use crate::nft::expr::{Expr, ExprElem};
use crate::nft::model::{Chain, Object, ObjectKind, Policy, Rule, Set, Table};
use crate::nft::wire::{
    ChainAttrs, ElemAttrs, ElemListAttrs, FlowtableAttrs, HookAttrs, ObjAttrs, RuleAttrs, SetAttrs,
    TableAttrs, attrs, device_list,
};
use crate::nft::{linearize, raw, set, userdata};
use weir_netlink::attr::{AttrSet as _, EncodeError};
use weir_netlink::message::{NLM_F_APPEND, NLM_F_CREATE};
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES};
use weir_netlink::{Error, Result};

/// Elements per message. An attribute holds at most 65,535 bytes; the largest element, with a key and a value of 64
/// bytes, names and a comment of 256, takes less than 512.
const ELEMENTS_PER_MESSAGE: usize = 120;

impl Transaction {
    /// Operations that the kernel refuses with `ERESTART` unless its ruleset has this generation
    /// ([`NftEngine::generation`]). The check exists since 4.12; older kernels ignore it.
    ///
    /// [`NftEngine::generation`]: super::NftEngine::generation
    #[must_use]
    pub fn guarded(generation: u32, ops: Vec<NftOp>) -> Self {
        Self {
            generation,
            ops,
            kept: Vec::new(),
        }
    }

    /// The datagram that [`NftEngine::commit`](super::NftEngine::commit) sends, for inspection: all netlink messages from
    /// `NFNL_MSG_BATCH_BEGIN` to `NFNL_MSG_BATCH_END`, with sequence numbers from 0.
    ///
    /// # Errors
    /// A value does not fit its attribute; values are never truncated.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        super::check::fits(self)?;
        let datagram = encode(self).0.datagram(0);
        let fail = |e: EncodeError| Error::malformed("write", "a batch", e.to_string());
        datagram.map_err(fail)
    }
}

/// The batch, and for each of its messages the index of its operation.
pub(super) fn encode(t: &Transaction) -> (Batch, Vec<usize>) {
    let generation = Some(t.generation).filter(|g| *g != UNGUARDED);
    let batch = Batch::new(NFNL_SUBSYS_NFTABLES, generation);
    let mut w = Messages {
        batch,
        origin: Vec::new(),
        op: 0,
        set_id: 0,
        chain_id: 0,
        new_sets: HashMap::new(),
    };
    for (i, op) in t.ops.iter().enumerate() {
        w.op = i;
        w.write(op);
    }
    (w.batch, w.origin)
}

/// Where a rule goes.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// In the chain with this name, before the rule with this handle or at the end.
    In(&'a str, Option<u64>),
    /// At the end of the chain with this id, which belongs to a rule.
    Own(u32),
}

struct Messages {
    batch: Batch,
    origin: Vec<usize>,
    op: usize,
    set_id: u32,
    chain_id: u32,
    /// Ids of the named sets that this batch creates.
    new_sets: HashMap<(TableId, String), u32>,
}

impl Messages {
    fn push<A: weir_netlink::attr::AttrSet>(
        &mut self,
        kind: u16,
        flags: u16,
        id: &TableId,
        attrs: &A,
    ) {
        self.batch.push(kind, flags, id.0.number(), attrs);
        self.origin.push(self.op);
    }

    fn write(&mut self, op: &NftOp) {
        match op {
            NftOp::AddTable(t) => self.table(t),
            NftOp::DeleteTable(id) | NftOp::ReplaceTable(id, _) => {
                let attrs = attrs!(TableAttrs { name: id.1.clone() });
                self.push(raw::NFT_MSG_DELTABLE, 0, id, &attrs);
            }
            NftOp::AddSet(id, s) => {
                self.set_id += 1;
                self.new_sets
                    .insert((id.clone(), s.name.clone()), self.set_id);
                let attrs = s.to_attrs(&id.1, self.set_id);
                self.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, id, &attrs);
                let elements = set::elem_attrs(&s.elements, s.ranges());
                let elements = elements.map(set::with_unread(&s.unread));
                self.elements(
                    raw::NFT_MSG_NEWSETELEM,
                    id,
                    (&s.name, Some(self.set_id)),
                    elements,
                );
            }
            NftOp::DeleteSet(id, name) => {
                let (table, name) = (Some(id.1.clone()), Some(name.clone()));
                let attrs = attrs!(SetAttrs { table, name });
                self.push(raw::NFT_MSG_DELSET, 0, id, &attrs);
            }
            NftOp::AddElements(id, s, elements) => {
                self.change(raw::NFT_MSG_NEWSETELEM, id, s, elements);
            }
            NftOp::AddObject(id, o) => self.object(id, o),
            NftOp::DeleteElements(id, s, elements) => {
                // The kernel finds elements by key; a foreign comment may not fit beside weir's own userdata.
                let mut found = elements.clone();
                found.iter_mut().for_each(|e| e.extra_mut().comment = None);
                self.change(raw::NFT_MSG_DELSETELEM, id, s, &found);
            }
            NftOp::AddChain(id, c) => self.chain(id, c),
            NftOp::SetPolicy(id, name, p) => {
                let (table, name) = (Some(id.1.clone()), Some(name.clone()));
                let policy = Some(policy(*p));
                let attrs = attrs!(ChainAttrs {
                    table,
                    name,
                    policy
                });
                self.push(raw::NFT_MSG_NEWCHAIN, NLM_F_CREATE, id, &attrs);
            }
            NftOp::DeleteChain(id, name) => {
                let (table, name) = (Some(id.1.clone()), Some(name.clone()));
                let attrs = attrs!(ChainAttrs { table, name });
                self.push(raw::NFT_MSG_DELCHAIN, 0, id, &attrs);
            }
            NftOp::AddRule(id, chain, rule, before) => {
                self.rule(id, Place::In(chain, *before), rule);
            }
            NftOp::DeleteRule(id, chain, _, handle) => {
                let attrs = attrs!(RuleAttrs {
                    table: id.1.clone(),
                    chain: chain.clone(),
                    handle: *handle
                });
                self.push(raw::NFT_MSG_DELRULE, 0, id, &attrs);
            }
        }
    }

    fn table(&mut self, t: &Table) {
        let attrs = attrs!(TableAttrs {
            name: t.name.clone(),
            flags: t.flags,
            userdata: userdata::table(t.comment.as_deref(), t.version)
        });
        let id = (t.family, t.name.clone());
        // Without NLM_F_CREATE, as `nft`: the kernel creates a missing table in any case.
        self.push(raw::NFT_MSG_NEWTABLE, 0, &id, &attrs);
    }

    fn object(&mut self, id: &TableId, o: &Object) {
        let (table, name) = (Some(id.1.clone()), Some(o.name.clone()));
        let ObjectKind::Stateful(kind) = o.kind else {
            let attrs = FlowtableAttrs {
                table,
                name,
                uses: None,
                handle: None,
                ..FlowtableAttrs::decode(&o.data).unwrap_or_default()
            };
            return self.push(raw::NFT_MSG_NEWFLOWTABLE, NLM_F_CREATE, id, &attrs);
        };
        let attrs = attrs!(ObjAttrs {
            table,
            name,
            kind,
            data: o.written_data(),
            userdata: userdata::comment(o.comment.as_deref())
        });
        self.push(raw::NFT_MSG_NEWOBJ, NLM_F_CREATE, id, &attrs);
    }

    fn chain(&mut self, id: &TableId, c: &Chain) {
        let base = c.base.as_ref();
        let attrs = ChainAttrs {
            table: Some(id.1.clone()),
            name: Some(c.name.clone()),
            kind: base.map(|b| b.chain_type.as_str().to_owned()),
            flags: c.offload.then_some(raw::NFT_CHAIN_HW_OFFLOAD),
            policy: base.map(|b| policy(b.policy)),
            hook: base.map(|b| HookAttrs {
                hooknum: Some(b.hook.number()),
                priority: Some(b.priority),
                // Several devices use another attribute, in dumps and requests. Since 5.5
                dev: b.devices.first().filter(|_| b.devices.len() == 1).cloned(),
                devs: Some(&b.devices)
                    .filter(|d| d.len() > 1)
                    .map(|d| device_list(d)),
                ..HookAttrs::default()
            }),
            userdata: userdata::comment(c.comment.as_deref()),
            ..ChainAttrs::default()
        };
        self.push(raw::NFT_MSG_NEWCHAIN, NLM_F_CREATE, id, &attrs);
    }

    fn elements(
        &mut self,
        kind: u16,
        id: &TableId,
        (set, set_id): (&str, Option<u32>),
        elements: impl IntoIterator<Item = ElemAttrs>,
    ) {
        let flags = if kind == raw::NFT_MSG_NEWSETELEM {
            NLM_F_CREATE
        } else {
            0
        };
        let mut rest = elements.into_iter().peekable();
        while rest.peek().is_some() {
            let attrs = attrs!(ElemListAttrs {
                table: id.1.clone(),
                set: set.to_owned(),
                set_id,
                elements: rest.by_ref().take(ELEMENTS_PER_MESSAGE).collect::<Vec<_>>()
            });
            self.push(kind, flags, id, &attrs);
        }
    }

    /// Elements of an existing set, without the interval end at 0 that was written when the set was created.
    fn change(&mut self, kind: u16, id: &TableId, s: &Set, elements: &[crate::nft::Element]) {
        let mut attrs = set::elem_attrs(elements, s.ranges()).peekable();
        let _ = attrs.next_if(|a| a.flags == Some(raw::NFT_SET_ELEM_INTERVAL_END));
        let attrs = attrs.map(set::with_unread(&s.unread));
        self.elements(kind, id, (&s.name, None), attrs);
    }

    fn new_set(&self, id: &TableId, name: Option<&str>) -> Option<u32> {
        self.new_sets.get(&(id.clone(), name?.to_owned())).copied()
    }

    /// Writes the chain that belongs to a rule, with its rules. Returns its id in the batch.
    fn own_chain(&mut self, id: &TableId, rules: &[Rule]) -> u32 {
        self.chain_id += 1;
        let own = self.chain_id;
        let attrs = attrs!(ChainAttrs {
            table: id.1.clone(),
            id: own,
            flags: raw::NFT_CHAIN_BINDING
        });
        self.push(raw::NFT_MSG_NEWCHAIN, NLM_F_CREATE, id, &attrs);
        for rule in rules {
            self.rule(id, Place::Own(own), rule);
        }
        own
    }

    fn rule(&mut self, id: &TableId, place: Place<'_>, rule: &Rule) {
        let mut linear = linearize::rule(rule, Context::of(id.0));
        let first = self.set_id;
        for s in linear.sets {
            self.set_id += 1;
            let attrs = s.to_attrs(&id.1, self.set_id);
            self.push(raw::NFT_MSG_NEWSET, NLM_F_CREATE, id, &attrs);
            let name = attrs.name.as_deref().unwrap_or(linearize::ANONYMOUS);
            let set = (name, Some(self.set_id));
            self.elements(raw::NFT_MSG_NEWSETELEM, id, set, s.elements);
        }
        for e in &mut linear.exprs {
            if let Some((name, set_id)) = e.set() {
                // Numbered from 0 in the rule, from 1 in the batch.
                *set_id = match *set_id {
                    Some(n) => Some(n + first + 1),
                    None => self.new_set(id, name.as_deref()),
                };
            }
        }
        if let (Some(rules), Some(Expr::Immediate(last))) = (&rule.chain, linear.exprs.last_mut())
            && let Some(verdict) = last.data.as_mut().and_then(|d| d.verdict.as_mut())
        {
            (verdict.chain, verdict.chain_id) = (None, Some(self.own_chain(id, rules)));
        }
        let (chain, chain_id, before) = match place {
            Place::In(name, before) => (Some(name.to_owned()), None, before),
            Place::Own(own) => (None, Some(own), None),
        };
        let attrs = attrs!(RuleAttrs {
            table: id.1.clone(),
            chain,
            chain_id,
            position: before,
            expressions: linear.exprs.into_iter().map(ExprElem).collect::<Vec<_>>(),
            userdata: userdata::comment(rule.comment.as_deref())
        });
        let append = if before.is_some() { 0 } else { NLM_F_APPEND };
        self.push(raw::NFT_MSG_NEWRULE, NLM_F_CREATE | append, id, &attrs);
    }
}

/// The number of a policy. It is sent even if it is the default, as `nft` does when it restores its own listing.
fn policy(p: Policy) -> u32 {
    match p {
        Policy::Drop => raw::NF_DROP.cast_unsigned(),
        Policy::Accept => raw::NF_ACCEPT.cast_unsigned(),
    }
}
