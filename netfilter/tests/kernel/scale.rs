//! The time of a plan is proportional to the number of rules, not to its square.
// matrix: none: about the time of plans, with no namespace, no rule and no kernel

use weir_netfilter::{nft, xtables};

/// The CPU time of this thread in nanoseconds, which other processes do not affect.
fn spent() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// A plan of four times the rules takes as long as four plans; with quadratic time it would take four times as long.
///
/// The kernel counts CPU time in ticks of some milliseconds, so each side takes many of them. The sides take turns, so that a
/// processor that is slow for a while, as by others in its caches, slows down both.
fn is_linear(name: &str, plan: impl Fn(u16)) {
    let time = |n, times| {
        let begun = spent();
        (0..times).for_each(|_| plan(n));
        spent() - begun
    };
    // The first run fills caches and pages.
    plan(16_000);
    let (mut some, mut more) = (0, 0);
    for _ in 0..8 {
        some += time(4000, 4);
        more += time(16_000, 1);
    }
    assert!(
        more < some * 5 / 2,
        "{name}: {some} ns for 32 plans, then {more} ns for 8 plans with four times the rules each"
    );
}

fn nft_rules(n: u16) -> nft::Ruleset {
    let mut chain = nft::Chain::regular("all");
    let port = |p| nft::Rule::builder().dport(nft::L4Proto::Tcp, nft::CmpOp::Eq, p..=p);
    chain.rules = (1..=n)
        .map(|p| port(p).verdict(nft::Verdict::Return))
        .collect();
    let mut table = nft::Table::new(nft::TableFamily::Inet, "t");
    table.chains.push(chain);
    nft::Ruleset {
        tables: vec![table],
    }
}

#[test]
fn rules_of_nf_tables() {
    let owned = [(nft::TableFamily::Inet, "t".to_owned())];
    is_linear("new table", |n| {
        let made = nft::plan(&nft_rules(n), &nft::Snapshot::default(), &owned);
        assert_eq!(made.ops.len(), usize::from(n) + 2);
    });
    is_linear("empty chain", |n| {
        let mut observed = nft::Snapshot::default();
        observed.ruleset = nft_rules(0);
        let made = nft::plan(&nft_rules(n), &observed, &owned);
        assert_eq!(made.ops.len(), usize::from(n));
    });
}

#[test]
fn legacy_rules() {
    let ours = xtables::Ownership {
        prefix: "ISTIO_".to_owned(),
        ..xtables::Ownership::default()
    };
    is_linear("legacy chain", |n| {
        let mut chain = xtables::Chain::user("ISTIO_ALL");
        let port = |p: u16| xtables::Rule::builder().tcp_dport(p.into());
        chain.rules = (1..=n)
            .map(|p| port(p).target(xtables::Target::Return))
            .collect();
        let table = xtables::Table {
            chains: vec![chain],
            ..xtables::Table::new(xtables::XtFamily::Ip, "nat")
        };
        let desired = xtables::Ruleset {
            tables: vec![table],
        };
        let made = xtables::plan(&desired, &xtables::Snapshot::default(), &ours).unwrap();
        assert!(made.ops.len() >= usize::from(n));
    });
}

/// kube-proxy declares several chains for each service.
#[test]
fn chains_of_a_script() {
    is_linear("script", |n| {
        let mut text = String::from("*nat\n");
        (0..n).for_each(|c| text += &format!(":C{c} - [0:0]\n-A C{c} -j RETURN\n"));
        // The same script deletes the chains of removed services.
        (0..n / 2).for_each(|c| text += &format!("-F C{c}\n"));
        (0..n / 2).for_each(|c| text += &format!("-X C{c}\n"));
        text += "COMMIT\n";
        let script = xtables::Script::parse(xtables::XtFamily::Ip, &text).unwrap();
        let made = xtables::plan_restore(&script, &xtables::Snapshot::default(), false).unwrap();
        assert!(made.ops.len() > usize::from(n));
    });
}
