//! The real legacy tools as oracle, both ways: we read what they wrote, they list what we wrote.
// matrix: variants no-nftables

use crate::common::{assert_text, tool};
use crate::xtables::*;
use std::collections::BTreeSet;
use weir_netfilter::xtables::{Script, XtFamily};
use weir_netlink::Netns;

fn namespace_with_sets() -> Option<Netns> {
    let ns = namespace()?;
    make_sets(&ns);
    Some(ns)
}

fn both_ways(family: XtFamily, text: &str) {
    let Some(theirs) = namespace_with_sets() else {
        return;
    };
    load(&theirs, family, text, &[]);
    let listing = save(&theirs, family);
    assert_text(&ours(&theirs, family), &listing);
    let shown = ours(&theirs, family);
    assert!(
        !shown.contains("revision") && !shown.contains("[header"),
        "weir cannot decode one of these"
    );

    // The same input to our parser.
    let restored = namespace_with_sets().unwrap();
    restore(&restored, family, text, false);
    assert_text(&save(&restored, family), &listing);
    // And the tool's listing; what is kept is added to.
    let again = namespace_with_sets().unwrap();
    restore(&again, family, &listing, true);
    assert_text(&save(&again, family), &listing);

    let applied = namespace_with_sets().unwrap();
    let desired = read(&theirs).ruleset;
    let first = engine(&applied, |e| e.apply(&desired, &owning(&desired))).unwrap();
    assert!(first.replaced > 0);
    assert_text(&save(&applied, family), &listing);
    let second = engine(&applied, |e| e.apply(&desired, &owning(&desired))).unwrap();
    assert_eq!((second.ops, second.replaced), (vec![], 0));
}

#[test]
fn every_match_and_target_of_ipv4() {
    both_ways(XtFamily::Ip, include_str!("xtables/rules-ip.txt"));
}

#[test]
fn every_match_and_target_of_ipv6() {
    both_ways(XtFamily::Ip6, include_str!("xtables/rules-ip6.txt"));
}

/// Names in other cases, abbreviations, hexadecimal numbers, open ranges, bits of hosts, quotes.
#[test]
fn odd_spellings_of_ipv4() {
    both_ways(XtFamily::Ip, include_str!("xtables/odd-ip.txt"));
}

#[test]
fn odd_spellings_of_ipv6() {
    both_ways(XtFamily::Ip6, include_str!("xtables/odd-ip6.txt"));
}

/// The inversion of what every packet is. iptables 1.8.9 leaves it out of its listing, which then restores a rule for every
/// packet.
#[test]
fn a_condition_that_no_packet_fulfils_is_listed_and_kept() {
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        let rules = [
            "-A FORWARD ! -i + -j ACCEPT",
            "-A FORWARD ! -o + -j ACCEPT",
            "-A FORWARD -p tcp -m tcp ! --sport 0:65535 ! --dport 0:65535 -j ACCEPT",
            "-A FORWARD -p udp -m udp ! --sport 0:65535 ! --dport 0:65535 -j ACCEPT",
        ]
        .map(|rule| format!("{rule}\n"));
        let text = format!("*filter\n{}COMMIT\n", rules.concat());
        let (Some(theirs), Some(ns)) = (namespace(), namespace()) else {
            return;
        };
        load(&theirs, family, &text, &[]);
        let listing = ours(&theirs, family);
        assert!(listing.contains(&rules.concat()), "{listing}");
        restore(&ns, family, &listing, false);
        assert_text(&ours(&ns, family), &listing);
        // As the tool wrote them, they are those of the text.
        let deleted = text.replace("-A ", "-D ");
        restore(&theirs, family, &deleted, true);
        assert!(!ours(&theirs, family).contains("-A "));
    }
}

/// They are kept beside ours, and restored after a mishap.
#[test]
fn the_rules_of_docker() {
    both_ways(XtFamily::Ip, include_str!("xtables/docker.txt"));
}

#[test]
fn the_rules_of_kube_proxy() {
    both_ways(XtFamily::Ip, include_str!("xtables/kube-proxy.txt"));
}

#[test]
fn the_rules_of_calico() {
    both_ways(XtFamily::Ip, include_str!("xtables/calico.txt"));
}

/// What neither takes: half of it, or all, would be dropped.
const REFUSED: &[(XtFamily, &str)] = &[
    (
        XtFamily::Ip,
        "-m connlimit --connlimit-upto 5 --connlimit-above 6",
    ),
    (
        XtFamily::Ip,
        "-m connlimit --connlimit-above 6 --connlimit-saddr --connlimit-daddr",
    ),
    (XtFamily::Ip, "-m recent --rcheck --seconds 0"),
    (XtFamily::Ip, "-m string --hex-string |00 --algo bm"),
    (
        XtFamily::Ip,
        "-m string --string a --hex-string |00| --algo bm",
    ),
    (XtFamily::Ip, "-m ttl --ttl-eq 1 --ttl-gt 3"),
    (XtFamily::Ip, "-p tcp -m ecn --ecn-ip-ect 4"),
    (XtFamily::Ip, "-p dccp -m dccp --dccp-option 0"),
    (XtFamily::Ip, "-m osf --genre x --ttl 3"),
    (
        XtFamily::Ip,
        "-m cluster --cluster-local-node 1 --cluster-total-nodes 33 --cluster-hash-seed 1",
    ),
    (
        XtFamily::Ip,
        "-j HMARK --hmark-tuple src --hmark-mod 0 --hmark-rnd 1",
    ),
    (XtFamily::Ip, "-p tcp --syn -j TCPMSS --set-mss 65516"),
    (XtFamily::Ip6, "-p tcp --syn -j TCPMSS --set-mss 65496"),
    (XtFamily::Ip, "-j DNAT --to-destination 10.0.0.1:80"),
    (XtFamily::Ip, "-p udplite -j DNAT --to-destination :80"),
    (
        XtFamily::Ip6,
        "-p ipv6-icmp -j SNAT --to-source [fd00::1]:80",
    ),
    (XtFamily::Ip, "-p all -j REDIRECT --to-ports 80"),
    (XtFamily::Ip6, "-j MASQUERADE --to-ports 80"),
    (XtFamily::Ip, "-j NFLOG --nflog-size 3 --nflog-range 5"),
    (XtFamily::Ip, "-p tcp -j ECN --ecn-tcp-ece 2"),
    (XtFamily::Ip, "-p tcp -j ECN --ecn-tcp-cwr 17"),
    (XtFamily::Ip, "-p tcp -j ECN --ecn-ip-ect 4"),
    (
        XtFamily::Ip,
        "-p tcp -j ECN --ecn-tcp-remove --ecn-tcp-cwr 1",
    ),
    (XtFamily::Ip, "-j TTL --ttl-inc 0"),
    (XtFamily::Ip, "-j TTL --ttl-inc 1 --ttl-dec 2"),
    (XtFamily::Ip6, "-j HL --hl-dec 0"),
    (XtFamily::Ip, "-j MARK --or-mark 5/6"),
    (XtFamily::Ip, "-j CONNMARK --and-mark 5/6"),
    (
        XtFamily::Ip,
        "-j CONNMARK --save-mark --mask 0xff --nfmask 1",
    ),
    (XtFamily::Ip, "-m multiport --ports 53"),
    (XtFamily::Ip, "! -p tcp -m multiport --ports 53"),
    (XtFamily::Ip, "-p icmp -m multiport --ports 53"),
    (
        XtFamily::Ip6,
        "-j HMARK --hmark-tuple src --hmark-src-prefix 64 --hmark-mod 5 --hmark-rnd 1",
    ),
    (
        XtFamily::Ip,
        "-p tcp -j DNAT --to-destination 10.0.0.1:80/5",
    ),
    (
        XtFamily::Ip,
        "-p tcp -j DNAT --to-destination 10.0.0.1:80-90/0",
    ),
    (XtFamily::Ip, "-p icmp --icmp-type echo"),
    (XtFamily::Ip, "-p tcp --tcp-flags ACK ACK --syn"),
    (XtFamily::Ip, "-j TOS --set-tos 4 --or-tos 8"),
    (
        XtFamily::Ip,
        "-m policy --dir out --pol ipsec --reqid 1 --next --reqid 2",
    ),
    (XtFamily::Ip, "-m policy --dir out --pol ipsec --strict"),
    (
        XtFamily::Ip,
        "-m policy --dir out --pol ipsec --strict --reqid 1 --next",
    ),
    (
        XtFamily::Ip,
        "-m policy --dir out --pol none --strict --reqid 1",
    ),
    (
        XtFamily::Ip,
        "-m policy --dir out --pol ipsec --tunnel-src 10.0.0.1",
    ),
    (
        XtFamily::Ip,
        "-m policy --dir out --pol ipsec ! --mode tunnel --tunnel-dst 10.0.0.1",
    ),
    (XtFamily::Ip, "-m policy --dir out --pol ipsec --proto tcp"),
    (XtFamily::Ip, "-m policy --dir in --dir out --pol ipsec"),
    (XtFamily::Ip, "-m policy --dir out --pol ipsec --pol none"),
    (XtFamily::Ip, "-m socket --transparent=0"),
    (XtFamily::Ip, "--fragments=1"),
    (XtFamily::Ip, "-j LOG --log-prefix \"a\"\"b\""),
    (XtFamily::Ip, "-m string --hex-string |||41| --algo bm"),
    (XtFamily::Ip, "-m conntrack --ctstate NEW,"),
    (XtFamily::Ip, "-m state --state S"),
];

#[test]
fn a_rule_that_the_tool_refuses_is_refused() {
    let Some(ns) = namespace() else { return };
    let mut taken = Vec::new();
    for (family, rule) in REFUSED {
        let text = format!("*mangle\n-A OUTPUT {rule}\nCOMMIT\n");
        let name = match family {
            XtFamily::Ip => "iptables-legacy-restore",
            XtFamily::Ip6 => "ip6tables-legacy-restore",
        };
        let theirs = tool(&ns, name, &["-w", "60"], &text).unwrap_err();
        assert!(
            !theirs.contains("Invalid argument"),
            "the kernel refuses {rule}"
        );
        if Script::parse(*family, &text).is_ok() {
            taken.push(rule);
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn options_of_a_set_without_its_operation_are_refused() {
    let Some(ns) = namespace_with_sets() else {
        return;
    };
    for rule in [
        "--del-set timed src --timeout 5",
        "--del-set timed src --exist",
        "--del-set timed src --map-mark",
        "--map-set timed src",
    ] {
        let text = format!("*mangle\n-A OUTPUT -j SET {rule}\nCOMMIT\n");
        assert!(
            tool(&ns, "iptables-legacy-restore", &["-w", "60"], &text).is_err(),
            "{rule}"
        );
        assert!(Script::parse(XtFamily::Ip, &text).is_err(), "{rule}");
    }
}

/// It would match nothing. A set without addresses is of no family.
#[test]
fn a_set_of_the_other_family_is_refused() {
    let Some(ns) = namespace_with_sets() else {
        return;
    };
    tool(
        &ns,
        "ipset",
        &["create", "ports", "bitmap:port", "range", "1-9"],
        "",
    )
    .unwrap();
    for (family, set, is_taken) in [
        (XtFamily::Ip, "plain", true),
        (XtFamily::Ip, "plain6", false),
        (XtFamily::Ip, "ports", true),
        (XtFamily::Ip6, "plain", false),
        (XtFamily::Ip6, "plain6", true),
        (XtFamily::Ip6, "ports", true),
    ] {
        let text = format!("*filter\n-A INPUT -m set --match-set {set} src\nCOMMIT\n");
        let name = match family {
            XtFamily::Ip => "iptables-legacy-restore",
            XtFamily::Ip6 => "ip6tables-legacy-restore",
        };
        let theirs = tool(&ns, name, &["-w", "60"], &text);
        assert_eq!(theirs.is_ok(), is_taken, "{family} {set}: {theirs:?}");
        let script = Script::parse(family, &text).unwrap();
        let ours = engine(&ns, |e| e.restore(&script, false));
        assert_eq!(ours.is_ok(), is_taken, "{family} {set}: {ours:?}");
    }
}

/// Options that a match or target cannot do without.
#[test]
fn a_rule_that_lacks_options_is_refused_as_by_the_tool() {
    let Some(ns) = namespace_with_sets() else {
        return;
    };
    let mut taken = Vec::new();
    for family in [XtFamily::Ip, XtFamily::Ip6] {
        let names = |text: &str| -> BTreeSet<String> {
            let why = Script::parse(family, &format!("*mangle\n{text}\nCOMMIT\n")).unwrap_err();
            let list = |before| why.reason.rsplit_once(before).map(|(_, list)| list);
            let list = list(" supported are ")
                .or_else(|| list(" supported targets are "))
                .unwrap();
            list.split(", ").map(str::to_owned).collect()
        };
        for (option, names) in [("-m", names("-A A -m ?")), ("-j", names("-A A -j ? --x 1"))] {
            assert!(names.len() > 20, "{names:?}");
            for name in names {
                let protocol = match name.as_str() {
                    "tcp" | "udp" | "udplite" | "sctp" | "dccp" | "ah" | "esp" => &name,
                    "mh" | "icmp" | "icmp6" => "all",
                    _ => "tcp",
                };
                let text = format!("*mangle\n-A OUTPUT -p {protocol} {option} {name}\nCOMMIT\n");
                let program = match family {
                    XtFamily::Ip => "iptables-legacy-restore",
                    XtFamily::Ip6 => "ip6tables-legacy-restore",
                };
                let Err(theirs) = tool(&ns, program, &["-w", "60"], &text) else {
                    continue;
                };
                // The kernel's refusals have the last line; a tool may lack an extension.
                if theirs.contains("line 3 failed") || theirs.contains("Couldn't load") {
                    continue;
                }
                if Script::parse(family, &text).is_ok() {
                    taken.push(text + &theirs);
                }
            }
        }
    }
    assert!(taken.is_empty(), "{}", taken.concat());
}
