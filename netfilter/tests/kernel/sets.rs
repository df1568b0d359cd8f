//! Sets at their limits: at the ends of their type, with adjacent ranges, with every property of an element, and large ones.
// matrix: smoke

use crate::common;
use crate::common::{apply, both_ways, list, load, read, tool};
use crate::fits_or_skip;
use weir_netfilter::nft::{
    Chain, CmpOp, Data, DataType, Element, ElementKey, L4Proto, NftEngine, Rule, Ruleset, Set,
    Table, TableFamily, TypeOf, Verdict,
};
use weir_testing::namespace_or_skip;

#[test]
fn corners() {
    both_ways(include_str!("listing/corners.nft"));
}

fn with(set: Set, rules: Vec<Rule>) -> Ruleset {
    let mut table = Table::new(TableFamily::Inet, "x");
    table.sets.push(set);
    table.chains.push(Chain {
        rules,
        ..Chain::regular("c")
    });
    Ruleset {
        tables: vec![table],
    }
}

fn address(n: u32) -> Data {
    Data::be32(0x0a00_0000 + n)
}

/// Every second address, so that none are adjacent.
fn single(count: u32) -> Set {
    let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
    set.elements = (0..count).map(|n| Element::value(address(2 * n))).collect();
    set
}

/// Ranges of three with a gap of one.
fn ranges(count: u32) -> Set {
    let mut set = Set::new("s", DataType::IPV4_ADDR, 4);
    set.interval = true;
    let range = |n: u32| ElementKey::range(address(4 * n), address(4 * n + 2));
    set.elements = (0..count).map(|n| Element::new(range(n))).collect();
    set
}

/// More elements than the 64 KiB of an attribute can hold, but less than the usual `net.core.wmem_max`.
const COUNT: u32 = 6_000;

#[test]
fn more_elements_than_one_message_holds() {
    let _probe = namespace_or_skip!();
    for (name, all, few) in [
        ("single", single(COUNT), single(5)),
        ("ranges", ranges(COUNT), ranges(5)),
    ] {
        let ns = namespace_or_skip!();
        let large = with(all, vec![]);
        fits_or_skip!(&ns, &large);
        apply(&ns, &large).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(read(&ns).ruleset == large, "{name}");
        assert!(apply(&ns, &large).unwrap().ops.is_empty(), "{name}");
        let listed = list(&ns);
        let marks = if name == "single" { "." } else { "-" };
        let per_element = if name == "single" { 3 } else { 1 };
        assert_eq!(
            listed.matches(marks).count(),
            COUNT as usize * per_element,
            "{name}"
        );
        // Most elements are deleted, without replacing the set.
        let small = with(few, vec![]);
        let ops = apply(&ns, &small).unwrap().ops;
        assert_eq!(ops.len(), 1, "{name}: {ops:?}");
        assert!(read(&ns).ruleset == small, "{name}");
        // They are added again.
        assert_eq!(apply(&ns, &large).unwrap().ops.len(), 1, "{name}");
        assert!(read(&ns).ruleset == large, "{name}");
    }
}

#[test]
fn a_rule_with_more_elements_than_one_message_holds() {
    let ns = namespace_or_skip!();
    let ports: Vec<u16> = (0..6000).map(|n| n * 10).collect();
    let rule = Rule::builder()
        .dports(L4Proto::Tcp, CmpOp::Neq, &ports)
        .verdict(Verdict::Drop);
    let ruleset = with(single(0), vec![rule]);
    fits_or_skip!(&ns, &ruleset);
    apply(&ns, &ruleset).unwrap();
    assert!(read(&ns).ruleset == ruleset);
    assert!(apply(&ns, &ruleset).unwrap().ops.is_empty());
    assert_eq!(list(&ns).matches(", ").count(), 5999);
}

#[test]
fn elements_with_everything_split_too() {
    let ns = namespace_or_skip!();
    let mut set = single(1500);
    set.timeouts = true;
    for e in &mut set.elements {
        e.extra_mut().comment = Some("c".repeat(127));
        e.extra_mut().timeout = Some(std::time::Duration::from_secs(86_400));
    }
    let ruleset = with(set, vec![]);
    fits_or_skip!(&ns, &ruleset);
    apply(&ns, &ruleset).unwrap();
    assert!(apply(&ns, &ruleset).unwrap().ops.is_empty());
}

#[test]
fn a_rule_that_no_message_holds_is_an_error() {
    let ns = namespace_or_skip!();
    let long = (0..3000)
        .fold(Rule::builder(), |b, n| b.mark(CmpOp::Neq, n))
        .build();
    let error = apply(&ns, &with(single(0), vec![long]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("65535"), "{error}");
    assert_eq!(read(&ns).ruleset, Ruleset::default());
}

/// One element changes in a set of adjacent ranges.
#[test]
fn ranges_are_cut_out_and_put_back() {
    let ns = namespace_or_skip!();
    let ports = |list: &[(u16, u16)]| {
        let mut set = Set::new("s", DataType::INET_SERVICE, 2);
        set.interval = true;
        let key = |a: u16, b: u16| match a == b {
            true => ElementKey::Value(Data::be16(a)),
            false => ElementKey::range(Data::be16(a), Data::be16(b)),
        };
        set.elements = list
            .iter()
            .map(|(a, b)| Element::new(key(*a, *b)))
            .collect();
        with(set, vec![])
    };
    let steps: &[&[(u16, u16)]] = &[
        &[(0, 5), (6, 9), (10, 10), (11, 20), (65_535, 65_535)],
        &[(0, 5), (10, 10), (11, 20), (65_535, 65_535)],
        &[(0, 5), (6, 9), (10, 10), (11, 20), (65_000, 65_535)],
        &[(1, 5), (6, 9), (12, 20)],
        &[(0, 65_535)],
        &[],
        &[(65_535, 65_535)],
        &[(0, 0)],
        &[(0, 0), (1, 1), (2, 65_535)],
        &[(1, 1), (2, 65_535)],
        &[(2, 65_535)],
        &[(0, 1)],
    ];
    for (i, step) in steps.iter().enumerate() {
        let desired = ports(step);
        apply(&ns, &desired).unwrap_or_else(|e| panic!("step {i}: {e}"));
        assert_eq!(read(&ns).ruleset, desired, "step {i}");
        assert_eq!(read(&ns).ruleset.to_string(), list(&ns), "step {i}");
    }
}

fn many_rules(count: u32) -> Ruleset {
    let rule = |n| {
        Rule::builder()
            .mark(CmpOp::Eq, n)
            .counter()
            .verdict(Verdict::Accept)
    };
    with(single(0), (0..count).map(rule).collect())
}

/// The test below starts this one in a user namespace of its own.
#[test]
fn batches_larger_than_the_buffer() {
    let ns = namespace_or_skip!();
    // With CAP_NET_ADMIN in the initial user namespace there is no limit to exceed.
    let counts: &[u32] = match common::too_large(1 << 28) {
        Some(_) => &[500, 5_000, 48_000],
        None => &[5_000],
    };
    for count in counts.iter().copied() {
        let ruleset = many_rules(count);
        let owned = common::owned_of(&ruleset);
        let mut engine = ns.run(|| NftEngine::open().unwrap()).unwrap();
        let bytes = engine
            .drift(&ruleset, &owned)
            .unwrap()
            .to_bytes()
            .unwrap()
            .len();
        let outcome = engine.apply(&ruleset, &owned);
        // The engine reserves more than it needs, so only the limit decides.
        let limit = common::too_large(bytes);
        match outcome {
            Ok(_) => {
                assert_eq!(limit, None, "{count} rules");
                let held = read(&ns).ruleset;
                assert_eq!(held.tables[0].chains[0].rules.len(), count as usize);
            }
            Err(e) => {
                let text = e.to_string();
                assert!(limit.is_some(), "{count} rules, {bytes} bytes: {text}");
                assert!(
                    text.contains("EMSGSIZE") && text.contains("wmem_max"),
                    "{text}"
                );
                assert_eq!(e.errno(), Some(90));
            }
        }
        eprintln!("{count} rules, {bytes} bytes: refused {}", limit.is_some());
        apply(&ns, &Ruleset::default()).unwrap();
        engine.apply(&Ruleset::default(), &owned).unwrap();
        // Larger batches would prove nothing more, and take minutes on an emulated processor.
        if limit.is_some() {
            break;
        }
    }
}

#[test]
fn the_same_without_privileges() {
    let ns = namespace_or_skip!();
    let test = std::env::current_exe().unwrap();
    let script = "exec \"$0\" --exact sets::batches_larger_than_the_buffer --nocapture 2>&1";
    let arguments = [
        "--user",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        script,
        test.to_str().unwrap(),
    ];
    match tool(&ns, "unshare", &arguments, "") {
        Ok(text) => assert!(text.contains("1 passed"), "{text}"),
        Err(e) if e.contains("unshare failed") => {
            eprintln!("skipped: no user namespaces here: {e}")
        }
        Err(e) => panic!("{e}"),
    }
}

/// Properties of a set that follow from the selector rather than the type: the byte order of a number, and its length.
// matrix: host: nft has no `typeof` for some of the selectors before 1.0
#[test]
fn selectors_of_sets() {
    both_ways(include_str!("listing/typeof.nft"));
}

/// Numbers and symbols in ranges, in comparisons and in sets, and the number of elements of each type per line.
// matrix: host: ranges in concatenations, and types that are younger than the oldest kernels
#[test]
fn numbers_are_listed_as_nft_lists_them() {
    both_ways(include_str!("listing/numbers.nft"));
}

/// Values with a name, values that are listed as bytes, as a prefix or as a code, and the matches that stay before a keyword.
// matrix: host: chunks of SCTP, options that are removed, and bases that are younger than the oldest kernels
#[test]
fn words_are_those_of_nft() {
    both_ways(include_str!("listing/wording.nft"));
}

/// The family and the protocol of a connection determine the names of the fields after them. nft 1.0.6 uses the same names, but takes the
/// match of the connection for one that the field implies and omits it.
// matrix: host: nft has no such dependencies in some older versions
#[test]
fn a_protocol_of_the_connection_names_fields() {
    let rules = [
        ("inet", "ct l3proto ipv4 ip saddr 1.2.3.4 accept"),
        ("inet", "ct l3proto ipv6 ip6 daddr fe80::1"),
        (
            "inet",
            "ct l3proto ipv4 meta mark set ip saddr map { 1.2.3.4 : 0x00000001 }",
        ),
        ("inet", "ct l3proto ipv4 ct protocol tcp tcp dport 22"),
        (
            "inet",
            "ct l3proto != ipv4 meta nfproto ipv4 ip daddr { 1.2.3.4, 5.6.7.8 }",
        ),
        ("ip", "ct protocol icmp icmp type echo-request"),
        ("ip6", "ct protocol udp udp sport 53"),
        ("ip", "ct protocol != tcp th dport 22"),
    ];
    for (family, rule) in rules {
        let text = |rule| format!("table {family} t {{ chain c {{ {rule}; }}; }}\n");
        let (first, second) = (namespace_or_skip!(), namespace_or_skip!());
        load(&first, &text(rule));
        let shown = read(&first).ruleset.to_string();
        let shown_rule = shown.lines().find(|l| l.contains("ct ")).unwrap().trim();
        // Only `ip saddr` implies `meta nfproto`.
        assert_eq!(shown_rule, rule.replace("meta nfproto ipv4 ", ""));
        load(&second, &shown);
        assert_eq!(read(&second).ruleset, read(&first).ruleset, "{rule}");
    }
}

/// A map without `typeof` whose userdata of another program records network byte order, and an unknown selector.
#[test]
fn a_byte_order_without_a_selector() {
    let ns = namespace_or_skip!();
    let mut set = Set::new("s", DataType::MARK, 4);
    let noted = TypeOf {
        key: Some(vec![0, 4, 99, 0, 0, 0]),
        key_order: Some(2),
        ..TypeOf::default()
    };
    set.type_of = Some(Box::new(noted));
    set.elements = vec![Element::value(Data::be32(5))];
    let ruleset = with(set, Vec::new());
    apply(&ns, &ruleset).unwrap();
    let found = read(&ns).ruleset;
    assert_eq!(found, ruleset);
    let text = found.to_string();
    for part in ["type mark\n", "{ 0x00000005 }"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The rules of kube-proxy for a service with affinity and NodePort, after the example in its documentation.
#[test]
fn rules_of_kube_proxy() {
    both_ways(include_str!("listing/kube-proxy.nft"));
}

/// The rules of firewalld, with the conntrack helper for its service ftp.
// matrix: host: uses fib and more, whose modules are not in every kernel of the archive
#[test]
fn rules_of_firewalld() {
    both_ways(include_str!("listing/firewalld.nft"));
}

/// Ranges in the fields of a concatenation, and maps that belong to a rule, are written as they were read.
#[test]
fn ranges_of_fields_and_maps_of_rules() {
    both_ways(
        "table ip t {
            set nets { type ipv4_addr . inet_service; flags interval
                elements = { 1.2.3.4 . 22, 1.2.3.5 . 80-90, 10.0.0.0/8 . 5 }\n}
            map to { type ipv4_addr . inet_service : ipv4_addr . inet_service
                elements = { 1.2.3.4 . 22 : 5.6.7.8 . 80 }\n}
            map seen { type ipv4_addr : mark; flags dynamic,timeout; timeout 1h\n}
            chain c { type nat hook prerouting priority -100
                ip saddr . tcp dport @nets counter
                tcp dport vmap { 22 : accept, 80-90 : drop }
                update @seen { ip saddr timeout 1m : 0x00000005 }
                dnat ip to ip saddr . tcp dport map @to
                dnat to numgen inc mod 2 map { 0 : 1.2.3.4, 1 : 1.2.3.5 }
            }\n}\n",
    );
}

/// The catch-all element in every kind of set, also deleted and added again.
// matrix: host: since 5.13
#[test]
fn catch_all_elements() {
    both_ways(include_str!("listing/catch-all.nft"));
    let ns = namespace_or_skip!();
    let other = || Element::value(Data::from([].as_slice()));
    for (interval, first) in [
        (false, Element::value(Data::be16(80))),
        (
            true,
            Element::new(ElementKey::range(Data::be16(80), Data::be16(90))),
        ),
    ] {
        let mut set = Set::new("s", DataType::INET_SERVICE, 2);
        set.interval = interval;
        for elements in [
            vec![first.clone(), other()],
            vec![first.clone()],
            vec![first, other()],
        ] {
            set.elements = elements;
            let desired = with(set.clone(), vec![]);
            apply(&ns, &desired).unwrap();
            assert_eq!(read(&ns).ruleset, desired);
        }
    }
}

/// Statements of elements affect which packets a set of a rule matches.
// matrix: host: since 5.7
#[test]
fn statements_in_sets_of_rules() {
    both_ways(
        "table ip t {
            chain c {
                ip saddr { 1.1.1.1 counter, 2.2.2.2 } drop
                ip saddr { 1.1.1.1 limit rate 5/second, 2.2.2.2 } drop
                tcp dport { 80 limit rate 5/second comment \"x\", 90-95 } accept
            }\n}\n",
    );
}

/// Constants that rules add to sets have the types of the set.
// matrix: host: named types that old programs do not have
#[test]
fn constants_that_rules_add_to_sets() {
    both_ways(
        "table ip t {
            set pairs { type ipv4_addr . inet_service; flags dynamic,timeout; timeout 1h\n}
            set marks { type mark . ipv4_addr; flags dynamic\n}
            map hosts { type inet_service : ipv4_addr; flags dynamic\n}
            set codes { type icmpx_code; elements = { no-route, 9 }\n}
            chain c {
                update @pairs { ip saddr . 80 timeout 5s }
                add @marks { 0x00000005 . 10.0.0.1 }
                add @marks { meta mark . 10.0.0.1 }
                add @hosts { tcp dport : 10.0.0.2 }
                ip saddr . tcp dport @pairs accept
            }\n}\n",
    );
}
