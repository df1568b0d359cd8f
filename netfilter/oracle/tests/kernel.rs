//! Batches that libnftnl builds and libmnl sends: the kernel accepts them, and weir decodes their meaning.
//!
//! weir neither encodes nor sends these bytes, so an error that weir makes alike in encoding and decoding is found. Each rule is
//! also compared as `weir apply` does: there must be no difference, or the first apply would replace the rules of another program.
// Makes clippy treat helper functions as tests, which clippy.toml exempts from some lints.
#![cfg(test)]

mod common;

use common::{REG_1, cmp, ct, ifname, immediate, mask, meta, payload, set_ct, set_meta, verdict};
use nftnl::set::Set as CSet;
use nftnl::{Batch, Chain as CChain, FinalizedBatch, MsgType, ProtoFamily, Rule as CRule, Table};
use nftnl_sys::*;
use std::ffi::CString;
use std::net::Ipv4Addr;
use weir_netfilter::nft::{
    self, Chain, ChainType, CmpOp, Data, DataType, Element, ElementKey, Hook, L4Proto, Match,
    MetaKey, NftEngine, Operand, PayloadBase, Rule, Ruleset, Selector, Set, SetData, Statement,
    TableFamily, TableId, Verdict, raw,
};
use weir_netfilter_oracle::Expr as C;

/// The base chain of a rule.
#[derive(Clone, Copy)]
enum At {
    Filter,
    Nat,
    Prerouting,
}

struct Case {
    says: &'static str,
    at: At,
    rule: Rule,
    exprs: Vec<C>,
}

impl Case {
    fn has_set(&self) -> bool {
        self.says.contains('@')
    }
}

fn id() -> TableId {
    (TableFamily::Inet, "x".to_owned())
}

fn base(at: At) -> Chain {
    let (chain_type, hook, priority) = match at {
        At::Filter => (ChainType::Filter, Hook::Output, 0),
        At::Nat => (ChainType::Nat, Hook::Output, -100),
        At::Prerouting => (ChainType::Filter, Hook::Prerouting, -150),
    };
    Chain::base("c", chain_type, hook, priority)
}

fn theirs(at: At, table: &Table) -> CChain<'_> {
    let mut chain = CChain::new(c"c", table);
    let (chain_type, hook, priority) = match at {
        At::Filter => (nftnl::ChainType::Filter, nftnl::Hook::Out, 0),
        At::Nat => (nftnl::ChainType::Nat, nftnl::Hook::Out, -100),
        At::Prerouting => (nftnl::ChainType::Filter, nftnl::Hook::PreRouting, -150),
    };
    chain.set_hook(hook, priority);
    chain.set_type(chain_type);
    chain.set_policy(nftnl::Policy::Accept);
    chain
}

/// Sends the batch with libmnl and waits for every acknowledgement.
fn send(batch: &FinalizedBatch) -> std::io::Result<()> {
    let socket = mnl::Socket::new(mnl::Bus::Netfilter)?;
    socket.send_all(batch)?;
    let mut buffer = vec![0; nftnl::nft_nlmsg_maxsize() as usize];
    let mut expected = batch.sequence_numbers();
    while !expected.is_empty() {
        for message in socket.recv(&mut buffer)? {
            let sequence = expected.next().unwrap_or(0);
            mnl::cb_run(message?, sequence, socket.portid())?;
        }
    }
    Ok(())
}

fn cases() -> Vec<Case> {
    let of_tcp = || vec![meta(raw::NFT_META_L4PROTO), cmp(raw::NFT_CMP_EQ, &[6])];
    let of_ipv4 = || vec![meta(raw::NFT_META_NFPROTO), cmp(raw::NFT_CMP_EQ, &[2])];
    let dport = || payload(raw::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
    let daddr = |len| payload(raw::NFT_PAYLOAD_NETWORK_HEADER, 16, len);
    let is = |bytes: &[u8]| cmp(raw::NFT_CMP_EQ, bytes);
    let to_chain = |number: i32, name| verdict(number).text(NFTNL_EXPR_IMM_CHAIN, name);
    let new = |says, at, rule, exprs: Vec<Vec<C>>| Case {
        says,
        at,
        rule,
        exprs: exprs.into_iter().flatten().collect(),
    };
    vec![
        new(
            "tcp dport 80 redirect to :15001",
            At::Nat,
            Rule::builder()
                .dport(L4Proto::Tcp, CmpOp::Eq, 80..=80)
                .redirect(15001)
                .build(),
            vec![
                of_tcp(),
                vec![
                    dport(),
                    is(&80u16.to_be_bytes()),
                    immediate(&15001u16.to_be_bytes()),
                    C::new(c"redir")
                        .u32(NFTNL_EXPR_REDIR_REG_PROTO_MIN, REG_1)
                        .u32(NFTNL_EXPR_REDIR_FLAGS, raw::NF_NAT_RANGE_PROTO_SPECIFIED),
                ],
            ],
        ),
        new(
            "ip daddr 10.0.0.0/9 counter return",
            At::Filter,
            Rule::builder()
                .daddr(CmpOp::Eq, "10.0.0.0/9".parse().unwrap())
                .counter()
                .verdict(Verdict::Return),
            vec![
                of_ipv4(),
                vec![
                    daddr(4),
                    mask(&[255, 128, 0, 0]),
                    is(&[10, 0, 0, 0]),
                    C::new(c"counter"),
                    verdict(raw::NFT_RETURN),
                ],
            ],
        ),
        new(
            "ip daddr 10.0.0.0/8 drop",
            At::Filter,
            Rule::builder()
                .daddr(CmpOp::Eq, "10.0.0.0/8".parse().unwrap())
                .verdict(Verdict::Drop),
            vec![of_ipv4(), vec![daddr(1), is(&[10]), verdict(raw::NF_DROP)]],
        ),
        new(
            "oifname != lo meta skuid 1337 accept",
            At::Filter,
            Rule::builder()
                .oifname(CmpOp::Neq, "lo")
                .skuid(CmpOp::Eq, 1337..=1337)
                .verdict(Verdict::Accept),
            vec![vec![
                meta(raw::NFT_META_OIFNAME),
                cmp(raw::NFT_CMP_NEQ, &ifname("lo")),
                meta(raw::NFT_META_SKUID),
                is(&1337u32.to_ne_bytes()),
                verdict(raw::NF_ACCEPT),
            ]],
        ),
        new(
            "meta mark 0x01020304 jump d",
            At::Filter,
            Rule::builder().mark(CmpOp::Eq, 0x0102_0304).jump("d"),
            vec![vec![
                meta(raw::NFT_META_MARK),
                is(&0x0102_0304u32.to_ne_bytes()),
                to_chain(raw::NFT_JUMP, c"d"),
            ]],
        ),
        new(
            "ct state established,related meta mark set ct mark",
            At::Prerouting,
            Rule::builder().ct_state(6).set_mark_from_ct().build(),
            vec![vec![
                ct(raw::NFT_CT_STATE),
                mask(&6u32.to_ne_bytes()),
                cmp(raw::NFT_CMP_NEQ, &0u32.to_ne_bytes()),
                ct(raw::NFT_CT_MARK),
                set_meta(raw::NFT_META_MARK),
            ]],
        ),
        new(
            "meta mark set 0x0539",
            At::Prerouting,
            Rule::builder().set_mark(0x539).build(),
            vec![vec![
                immediate(&0x539u32.to_ne_bytes()),
                set_meta(raw::NFT_META_MARK),
            ]],
        ),
        new(
            "ct mark set meta mark",
            At::Prerouting,
            Rule::builder().set_ct_mark_from_mark().build(),
            vec![vec![meta(raw::NFT_META_MARK), set_ct(raw::NFT_CT_MARK)]],
        ),
        new(
            "tcp dport 8080 tproxy ip to :15006 accept",
            At::Prerouting,
            Rule::builder()
                .dport(L4Proto::Tcp, CmpOp::Eq, 8080..=8080)
                .tproxy(TableFamily::Ip, 15006)
                .verdict(Verdict::Accept),
            vec![
                of_tcp(),
                vec![
                    dport(),
                    is(&8080u16.to_be_bytes()),
                    immediate(&15006u16.to_be_bytes()),
                    C::new(c"tproxy")
                        .u32(NFTNL_EXPR_TPROXY_FAMILY, raw::NFPROTO_IPV4.into())
                        .u32(NFTNL_EXPR_TPROXY_REG_PORT, REG_1),
                    verdict(raw::NF_ACCEPT),
                ],
            ],
        ),
        new(
            "ip daddr @s notrack",
            At::Prerouting,
            Rule {
                statements: vec![
                    Statement::Match(Match {
                        selector: Selector::Meta(MetaKey::Nfproto),
                        mask: None,
                        op: CmpOp::Eq,
                        operand: Operand::Value(Data::u8(2)),
                    }),
                    Statement::Match(Match {
                        selector: Selector::Payload {
                            base: PayloadBase::Network,
                            offset: 16,
                            len: 4,
                        },
                        mask: None,
                        op: CmpOp::Eq,
                        operand: Operand::Named {
                            set: "s".to_owned(),
                            turned: false,
                        },
                    }),
                    Statement::Notrack,
                ],
                ..Rule::default()
            },
            vec![
                of_ipv4(),
                vec![
                    daddr(4),
                    C::new(c"lookup")
                        .u32(NFTNL_EXPR_LOOKUP_SREG, REG_1)
                        .text(NFTNL_EXPR_LOOKUP_SET, c"s"),
                    C::new(c"notrack"),
                ],
            ],
        ),
    ]
}

const MEMBERS: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 0, 0, 1),
    Ipv4Addr::new(10, 0, 0, 2),
    Ipv4Addr::new(192, 0, 2, 255),
];

/// The table of libnftnl: a set if the rule uses one, a chain as the target of jumps, and a base chain with this rule.
fn batch(case: &Case) -> FinalizedBatch {
    let table = Table::new(c"x", ProtoFamily::Inet);
    let mut batch = Batch::new();
    batch.add(&table, MsgType::Add);
    if case.has_set() {
        let mut set = CSet::<Ipv4Addr>::new_named(c"s", 1, &table, ProtoFamily::Inet);
        for address in &MEMBERS {
            set.add(address);
        }
        batch.add(&set, MsgType::Add);
        batch.add_iter(set.elems_iter(), MsgType::Add);
    }
    batch.add(&CChain::new(c"d", &table), MsgType::Add);
    let chain = theirs(case.at, &table);
    batch.add(&chain, MsgType::Add);
    let mut rule = CRule::new(&chain);
    for expr in &case.exprs {
        rule.add_expr(expr);
    }
    rule.set_comment(CString::new(case.says).unwrap()).unwrap();
    batch.add(&rule, MsgType::Add);
    batch.finalize()
}

/// The same table as values of weir.
fn desired(case: &Case) -> Ruleset {
    let element = |a: &Ipv4Addr| Element::new(ElementKey::Value(Data::addr((*a).into())));
    let mut table = nft::Table::new(TableFamily::Inet, "x");
    let set = Set {
        memory: false,
        value_ranges: false,
        name: "s".to_owned(),
        key_type: DataType::IPV4_ADDR,
        key_len: 4,
        data: SetData::None,
        interval: false,
        constant: false,
        dynamic: false,
        timeouts: false,
        timeout: None,
        gc_interval: None,
        size: None,
        auto_merge: false,
        comment: None,
        type_of: None,
        elements: MEMBERS.iter().map(element).collect(),
        unread: Vec::new(),
    };
    table.sets.extend(case.has_set().then_some(set));
    let mut chain = base(case.at);
    chain.rules.push(Rule {
        comment: Some(case.says.to_owned()),
        ..case.rule.clone()
    });
    table.chains = vec![Chain::regular("d"), chain];
    Ruleset {
        tables: vec![table],
    }
}

#[test]
fn what_libnftnl_and_libmnl_write_is_read_as_it_is_meant() {
    let ns = weir_testing::namespace_or_skip!();
    for case in cases() {
        let says = case.says;
        let (read, drift, gone) = ns
            .run(|| {
                send(&batch(&case)).unwrap_or_else(|e| panic!("{says}: {e}"));
                let mut engine = NftEngine::open().unwrap();
                let read = engine.read_tables(&[id()]).unwrap().ruleset;
                let drift = engine.drift(&desired(&case), &[id()]).unwrap().ops;
                // weir takes ownership of the table of another program, and deletes it as a whole.
                let gone = engine.apply(&Ruleset::default(), &[id()]).unwrap().ops;
                (read, drift, gone)
            })
            .unwrap();
        assert_eq!(read, desired(&case), "{says}");
        match case.has_set() {
            false => assert_eq!(drift, Vec::new(), "{says}"),
            // The crate does not write byte orders to the userdata of a set; weir does, because nft lists sets wrongly without them.
            true => assert!(
                drift[0].to_string().contains("a set has attribute 13"),
                "{says}: {drift:?}"
            ),
        }
        assert_eq!(gone, [nft::NftOp::DeleteTable(id())], "{says}");
    }
}
