//! The messages that write the rules, against those of the real `nft`.
//!
//! Each golden case contains the expressions that nft generated from the input of Istio's agent. Unlike listings, expressions show how a
//! match is encoded.
// matrix: needs WEIR_GOLDEN
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_ambient::host::{Host, apply};
use weir_ambient::{Redirect, Request};
use weir_cni::compile::{Engine, Rules};
use weir_cni::redirection::Desired;
use weir_netfilter::nft::expr::{DataAttrs, Expr};
use weir_netfilter::nft::{Chain, NftEngine, Ruleset, raw};
use weir_netlink::Netns;
use weir_testing::namespace_or_skip;

/// The cases of nf_tables. Prints a skip and returns none without the golden cases.
fn cases() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        println!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return Vec::new();
    };
    let files = std::fs::read_dir(root.join("ambient")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "netlink"))
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

fn read(case: &Path, extension: &str) -> String {
    let file = case.with_extension(extension);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The contents of a ruleset: the hooks of its base chains, in order, and the rules of each chain as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Messages {
    hooks: Vec<String>,
    rules: BTreeMap<String, Vec<String>>,
}

/// Parses what nft prints of its messages (`--debug=netlink`).
///
/// A block begins with the family, the table and the chain of a rule; a chain is one line without its name.
fn golden(case: &Path) -> Messages {
    let mut all = Messages::default();
    for block in read(case, "netlink").split("\n\n") {
        let mut rule = Vec::new();
        let mut place = None;
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("inet (null) (null) use 0") {
                Some(hook) => {
                    let hook = hook.trim().strip_suffix(" packets 0 bytes 0");
                    all.hooks.extend(hook.map(str::to_owned));
                }
                None if line.starts_with("  [") => rule.push(line.trim()),
                None => place = Some(line.trim().to_owned()),
            }
        }
        if let Some(place) = place {
            all.rules.entry(place).or_default().push(rule.join("\n"));
        }
    }
    assert!(!all.hooks.is_empty() && !all.rules.is_empty());
    all
}

fn messages(ruleset: &Ruleset) -> Messages {
    let mut all = Messages::default();
    for table in &ruleset.tables {
        for chain in &table.chains {
            all.hooks.extend(hook(chain));
            for rule in &chain.rules {
                let place = format!("{} {} {}", table.family, table.name, chain.name);
                let lines = rule.expressions(table.family);
                let lines: Vec<String> = lines.iter().map(|e| format!("[ {} ]", text(e))).collect();
                all.rules.entry(place).or_default().push(lines.join("\n"));
            }
        }
    }
    all
}

fn hook(chain: &Chain) -> Option<String> {
    let base = chain.base.as_ref()?;
    let kind = base.chain_type.as_str();
    Some(format!(
        "type {kind} hook {} prio {}",
        base.hook, base.priority
    ))
}

/// The bytes of a value as 32-bit numbers in host byte order.
fn value(data: &Option<DataAttrs>) -> String {
    let bytes = data
        .as_ref()
        .and_then(|d| d.value.as_deref())
        .expect("a value");
    let words = bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        format!("{:#010x}", u32::from_ne_bytes(word))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn name(names: &[(u32, &str)], number: Option<u32>) -> String {
    let found = names.iter().find(|(n, _)| Some(*n) == number);
    found.map_or_else(|| format!("{number:?}"), |(_, name)| (*name).to_owned())
}

const META: &[(u32, &str)] = &[
    (raw::NFT_META_MARK, "mark"),
    (raw::NFT_META_IIFNAME, "iifname"),
    (raw::NFT_META_OIFNAME, "oifname"),
    (raw::NFT_META_SKUID, "skuid"),
    (raw::NFT_META_NFPROTO, "nfproto"),
    (raw::NFT_META_L4PROTO, "l4proto"),
];
const CT: &[(u32, &str)] = &[(raw::NFT_CT_MARK, "mark"), (raw::NFT_CT_ZONE, "zone")];
const OPERATORS: &[(u32, &str)] = &[(raw::NFT_CMP_EQ, "eq"), (raw::NFT_CMP_NEQ, "neq")];
const HEADERS: &[(u32, &str)] = &[
    (raw::NFT_PAYLOAD_NETWORK_HEADER, "network"),
    (raw::NFT_PAYLOAD_TRANSPORT_HEADER, "transport"),
];

/// `KIND load KEY => reg N`, or `KIND set KEY with reg N`
fn load_or_set(kind: &str, key: &str, to: Option<u32>, from: Option<u32>) -> String {
    match (to, from) {
        (Some(to), None) => format!("{kind} load {key} => reg {to}"),
        (None, Some(from)) => format!("{kind} set {key} with reg {from}"),
        other => panic!("{kind} {key}: {other:?}"),
    }
}

/// An expression in the notation of libnftnl. Expressions that no rule contains are printed in a form that equals nothing.
fn text(expr: &Expr) -> String {
    let number = |n: Option<u32>| n.expect("a number");
    match expr {
        Expr::Meta(x) => load_or_set("meta", &name(META, x.key), x.dreg, x.sreg),
        Expr::Ct(x) => load_or_set("ct", &name(CT, x.key), x.dreg, x.sreg),
        Expr::Cmp(x) => {
            let operator = name(OPERATORS, x.op);
            format!("cmp {operator} reg {} {}", number(x.sreg), value(&x.data))
        }
        Expr::Payload(x) => format!(
            "payload load {}b @ {} header + {} => reg {}",
            number(x.len),
            name(HEADERS, x.base),
            number(x.offset),
            number(x.dreg)
        ),
        Expr::Bitwise(x) => format!(
            "bitwise reg {} = ( reg {} & {} ) ^ {}",
            number(x.dreg),
            number(x.sreg),
            value(&x.mask),
            value(&x.xor)
        ),
        Expr::Counter(x) => format!(
            "counter pkts {} bytes {}",
            x.packets.unwrap_or(0),
            x.bytes.unwrap_or(0)
        ),
        Expr::Lookup(x) => {
            let set = x.set.as_deref().expect("a set");
            format!("lookup reg {} set {set}", number(x.sreg))
        }
        Expr::Immediate(x) => {
            let mut text = format!("immediate reg {} ", number(x.dreg));
            let verdict = x.data.as_ref().and_then(|data| data.verdict.as_ref());
            match verdict.map(|v| (v.code, v.chain.as_deref())) {
                None => text += &value(&x.data),
                Some((Some(raw::NF_ACCEPT), None)) => text += "accept",
                Some((Some(raw::NFT_RETURN), None)) => text += "return",
                Some((Some(raw::NFT_JUMP), Some(to))) => write!(text, "jump -> {to}").unwrap(),
                Some(other) => panic!("{other:?}"),
            }
            text
        }
        Expr::Redir(x) if x.reg_proto_max.is_none() => format!(
            "redir proto_min reg {} flags {:#x}",
            number(x.reg_proto_min),
            x.flags.unwrap_or(0)
        ),
        Expr::Nat(x) if (x.reg_addr_max, x.reg_proto_min, x.flags) == (None, None, None) => {
            let kinds = [(raw::NFT_NAT_SNAT, "snat"), (raw::NFT_NAT_DNAT, "dnat")];
            let families = [
                (raw::NFPROTO_IPV4.into(), "ip"),
                (raw::NFPROTO_IPV6.into(), "ip6"),
            ];
            let (kind, family) = (name(&kinds, x.kind), name(&families, x.family));
            format!(
                "nat {kind} {family} addr_min reg {}",
                number(x.reg_addr_min)
            )
        }
        other => format!("{other:?}"),
    }
}

/// The rules of the namespace as weir decodes them.
fn read_back(netns: &Netns) -> Messages {
    let snapshot = netns.run(|| NftEngine::open().unwrap().read().unwrap());
    messages(&snapshot.unwrap().ruleset)
}

/// Loads a text with the real `nft`.
fn loaded(netns: &Netns, text: &str) {
    let mut nft = Command::new("nsenter");
    nft.arg(format!("--net={}", netns.path().display()))
        .args(["nft", "-f", "-"])
        .stdin(Stdio::piped());
    let mut child = nft.spawn().expect("nsenter of util-linux");
    let input = child.stdin.take();
    input.unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "nft: {text}");
}

fn is_of_a_pod(case: &Path) -> bool {
    let about: Value = serde_json::from_str(&read(case, "json")).unwrap();
    about["scope"] == "in_pod"
}

// matrix: none: compiles rules, and asks no kernel
#[test]
fn the_messages_for_a_pod_are_those_of_nft() {
    for case in cases().iter().filter(|case| is_of_a_pod(case)) {
        let name = case.display().to_string();
        let request = Request::from_json(&read(case, "json"), &name).unwrap();
        let redirect = Redirect::new(request.config, &request.pod_overrides).unwrap();
        let Rules::Nft(ruleset) = redirect.compile(Engine::Nft).rules else {
            panic!("{name}: other rules");
        };
        assert_eq!(messages(&ruleset), golden(case), "{name}");
    }
}

#[test]
fn the_messages_for_the_host_are_those_of_nft() {
    drop(namespace_or_skip!());
    for case in cases().iter().filter(|case| !is_of_a_pod(case)) {
        let text = read(case, "json");
        let about: Value = serde_json::from_str(&text).unwrap();
        let uid = about["assumptions"]["kubelet_uid"].as_str();
        let host = Host {
            config: Request::from_json(&text, "-").unwrap().config,
            addresses: BTreeMap::new(),
            users: uid
                .map(|uid| uid.parse().unwrap())
                .map(|uid: u32| uid..=uid),
        };
        let netns = Netns::create().unwrap();
        netns.run(|| apply(&host, Engine::Nft)).unwrap().unwrap();
        assert_eq!(read_back(&netns), golden(case), "{}", case.display());
    }
}

/// weir decodes the rules of nft to the expressions that nft has sent.
#[test]
fn rules_that_nft_wrote_are_read_as_its_messages() {
    drop(namespace_or_skip!());
    for case in cases() {
        let netns = Netns::create().unwrap();
        // The rules of the host need their sets, which this transaction does not create.
        let text = match is_of_a_pod(&case) {
            true => read(&case, "golden"),
            false => read(&case, "ruleset"),
        };
        loaded(&netns, &text);
        assert_eq!(read_back(&netns), golden(&case), "{}", case.display());
    }
}
