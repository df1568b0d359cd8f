//! Foreign rules before those of the host.

use super::*;

fn run(line: &str) {
    let mut words = line.split(' ');
    let mut tool = std::process::Command::new(words.next().unwrap());
    let done = tool.args(words).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

/// Those of kube-proxy and of network plugins come before ours, too, and are for other packets.
#[test]
fn legacy_rules_that_take_probes_first_are_found_and_put_behind() {
    let netns = weir_testing::namespace_or_skip!();
    let host = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
    let tool = |rule: &str| run(&format!("iptables-legacy -w 60 -t nat {rule}"));
    let steps = || {
        if !has_legacy(&host) {
            return;
        }
        let look = || ahead(&host, Engine::Xtables).unwrap();
        assert_eq!(look(), Ahead::default());
        for rule in [
            "-N SVC",
            "-I POSTROUTING -m comment --comment x -j SVC",
            "-A SVC -m mark ! --mark 0x4000/0x4000 -j RETURN",
            "-A SVC -j MARK --xor-mark 0x4000",
            "-A SVC -j MASQUERADE",
            "-I POSTROUTING ! -s 10.0.0.0/8 -d 10.0.0.0/8 -j MASQUERADE",
            "-I POSTROUTING -d 10.1.0.0/16 -j MASQUERADE",
            "-I POSTROUTING -p udp -j MASQUERADE",
        ] {
            tool(rule);
        }
        let behind = Ahead {
            is_behind: true,
            ..Ahead::default()
        };
        assert_eq!(look(), behind);
        for (rule, takes) in [
            ("POSTROUTING -p tcp -j MASQUERADE", "POSTROUTING"),
            ("POSTROUTING -d 10.0.0.0/24 -j ACCEPT", "POSTROUTING"),
            ("POSTROUTING -d 10.0.0.1 -j RETURN", "POSTROUTING"),
            ("POSTROUTING -p tcp -m tcp -j TAKES", "TAKES"),
        ] {
            if takes == "TAKES" {
                tool("-N TAKES");
                tool("-A TAKES -j SNAT --to-source 10.9.9.9");
            }
            tool(&format!("-I {rule}"));
            let found = look();
            let [line] = found.takes.as_slice() else {
                panic!("{rule}: {found:?}");
            };
            assert!(line.contains(&format!("-t nat -A {takes}")), "{line}");
            assert!(!to_front(&host).unwrap().is_empty());
            assert_eq!(look(), Ahead::default(), "{rule}");
            assert_eq!(apply(&host, Engine::Xtables).unwrap(), Vec::<String>::new());
            tool(&format!("-D {rule}"));
        }
    };
    netns.run(steps).unwrap();
}

#[test]
fn chains_of_nf_tables_that_take_probes_first_are_found() {
    let netns = weir_testing::namespace_or_skip!();
    let host = host(&[("10.0.0.1", "a"), ("10.0.0.3", "c"), ("fd00::1", "a")]);
    let steps = || {
        apply(&host, Engine::Nft).unwrap();
        let look = || ahead(&host, Engine::Nft).unwrap().takes;
        run("nft add table ip t");
        let chain = "{ type nat hook postrouting priority 90 ; }";
        run(&format!("nft add chain ip t first {chain}"));
        run("nft add chain ip t to");
        run("nft add set ip t pods { type ipv4_addr ; flags interval ; }");
        run("nft add element ip t pods { 10.0.0.0/30 }");
        run("nft add chain ip t raw { type filter hook output priority -300 ; }");
        run("nft add chain ip t late { type filter hook output priority -150 ; }");
        assert_eq!(look(), Vec::<String>::new());
        for (rules, takes) in [
            (
                &["first meta mark and 0x4000 == 0 return", "first masquerade"][..],
                false,
            ),
            (&["first ip saddr 10.0.0.0/8 masquerade"], false),
            (&["first udp dport 53 masquerade"], false),
            (&["first accept", "first masquerade"], false),
            (&["to return", "to masquerade", "first jump to"], false),
            (&["first counter masquerade"], true),
            (&["first meta l4proto tcp masquerade"], true),
            (
                &["to snat to 10.9.9.9", "first meta l4proto tcp jump to"],
                true,
            ),
            (
                &["first ip daddr 10.0.0.1 meta l4proto tcp snat to 10.9.9.9"],
                true,
            ),
            (&["first ip daddr 10.0.0.0/24 masquerade"], true),
            (&["first ip daddr { 10.0.0.1, 10.0.0.7 } masquerade"], true),
            (&["first ip daddr != 10.9.0.0/16 masquerade"], true),
            (&["first ip daddr @pods masquerade"], true),
            (
                &["first ip daddr 10.0.0.3 return", "first masquerade"],
                true,
            ),
            (&["first ip daddr 10.0.0.2 masquerade"], false),
            (
                &["first ip daddr 10.0.0.0/31 tcp dport 80 masquerade"],
                false,
            ),
            (&["first ip daddr 10.0.0.1 udp dport 53 masquerade"], false),
            (
                &[
                    "first ip daddr 10.0.0.1 return",
                    "first ip daddr 10.0.0.1 masquerade",
                ],
                false,
            ),
            (
                &[
                    "to ip daddr 10.0.0.3 masquerade",
                    "first ip daddr 10.0.0.1 jump to",
                ],
                false,
            ),
            (&["raw ip daddr 10.0.0.1 notrack"], true),
            (&["raw meta l4proto tcp notrack"], true),
            (&["raw udp dport 53 notrack"], false),
            (&["raw ip daddr 10.0.0.2 notrack"], false),
            (&["raw accept", "raw notrack"], false),
            (&["late notrack"], false),
        ] {
            for rule in rules {
                run(&format!("nft add rule ip t {rule}"));
            }
            let found = look();
            assert_eq!(found.len(), usize::from(takes), "{rules:?}: {found:?}");
            for chain in ["first", "to", "raw", "late"] {
                run(&format!("nft flush chain ip t {chain}"));
            }
        }
        // Behind ours.
        run("nft delete chain ip t first");
        run(&format!(
            "nft add chain ip t later {}",
            chain.replace("90", "110")
        ));
        run("nft add rule ip t later masquerade");
        assert_eq!(look(), Vec::<String>::new());
    };
    netns.run(steps).unwrap();
}

/// Without connection tracking nothing is translated, whichever engine has the host rules.
#[test]
fn foreign_rules_that_exempt_probes_from_tracking_are_found() {
    let netns = weir_testing::namespace_or_skip!();
    let host = host(&[("10.0.0.1", "a"), ("fd00::1", "a")]);
    let tool = |tool: &str, rule: &str| {
        let line = format!("{tool} -w 60 -t raw -A {rule}");
        let mut words = line.split(' ');
        let mut tool = std::process::Command::new(words.next().unwrap());
        tool.args(words).output().unwrap().status.success()
    };
    let steps = || {
        let look = || ahead(&host, Engine::Nft).unwrap().takes;
        for (name, rule, takes) in [
            (
                "iptables-nft",
                "OUTPUT -p tcp -d 10.0.0.2 -j CT --notrack",
                false,
            ),
            (
                "iptables-nft",
                "OUTPUT -p tcp -d 10.0.0.1 -j CT --notrack",
                true,
            ),
            ("iptables-legacy", "OUTPUT -p udp -j CT --notrack", false),
            (
                "iptables-legacy",
                "OUTPUT -d 10.0.0.1 -j CT --notrack",
                true,
            ),
            ("ip6tables-legacy", "OUTPUT -p tcp -j CT --notrack", true),
        ] {
            if !tool(name, rule) {
                println!("skipped: {name} {rule}");
                continue;
            }
            let found = look();
            assert_eq!(found.len(), usize::from(takes), "{rule}: {found:?}");
            run(&format!("{name} -w 60 -t raw -F OUTPUT"));
        }
    };
    netns.run(steps).unwrap();
}
