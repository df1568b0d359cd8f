//! Addresses, policy rules and routes that accompany the rules: compared exactly, and never taken from another writer.

use crate::support::{config, inside, path, settle, tproxy, weir};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::Routing;

const MARKED: &str = "fwmark 0x539 lookup 133";

/// `ip ARGS` in the pod.
fn ip(pod: &Netns, args: &str) -> String {
    inside(pod, "ip", &args.split_whitespace().collect::<Vec<_>>())
}

/// `weir VERB sidecar --config FILE --netns POD`.
fn on(verb: &str, file: &str, pod: &Netns) -> crate::support::Run {
    weir(&[verb, "sidecar", "--config", file, "--netns", &path(pod)])
}

/// The complete routing state of the pod.
fn routing(pod: &Netns) -> String {
    let listings = [
        "address",
        "-4 rule",
        "-6 rule",
        "-4 route show table all",
        "-6 route show table all",
    ];
    settle(pod);
    listings.map(|l| ip(pod, l)).concat()
}

/// Adds a link `away` whose peer is down. The kernel updates the state of the carrier some time later.
fn add_link_away(pod: &Netns) {
    ip(pod, "link add away type veth peer name there");
    ip(pod, "link set away up");
    let begun = Instant::now();
    while !ip(pod, "address").contains("NO-CARRIER") {
        assert!(begun.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
}

/// Whether the kernel stores which protocol added an address (since Linux 5.18).
fn keeps_owners(pod: &Netns) -> bool {
    let found = Routing::open_in(pod).unwrap().addresses().unwrap();
    found.iter().any(|a| a.protocol.is_some())
}

#[test]
fn a_foreign_route_in_the_place_of_ours_is_named_and_nothing_is_changed() {
    for (family, foreign, word) in [
        ("-4", "blackhole default table 133", "blackhole 0.0.0.0/0"),
        (
            "-6",
            "unreachable default table 133 metric 7",
            "unreachable ::/0",
        ),
    ] {
        let pod = pod_or_skip!();
        let file = tproxy();
        ip(&pod, &format!("{family} route add {foreign}"));
        let before = routing(&pod);
        let applied = on("apply", file.path(), &pod);
        assert_eq!(applied.code, 1, "{}", applied.stdout);
        let text = &applied.stderr;
        assert!(
            text.contains(word) && text.contains("inbound_tproxy_route_table"),
            "{text}"
        );
        assert!(text.contains("nothing is changed"), "{text}");
        // A dry run refuses what `apply` refuses.
        let with = ["--config", file.path(), "--netns", &path(&pod), "--dry-run"];
        let dry = weir(&[&["apply", "sidecar"][..], &with].concat());
        assert_eq!((dry.code, dry.stdout.as_str()), (1, ""), "{}", dry.stderr);
        assert!(text.starts_with(dry.stderr.trim_end()), "{}", dry.stderr);
        assert_eq!(routing(&pod), before);
        assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 1, "{}", verified.stdout);
        assert!(verified.stdout.contains(word), "{}", verified.stdout);

        ip(&pod, &format!("{family} route delete {foreign}"));
        assert_eq!(on("apply", file.path(), &pod).code, 0);
        assert_eq!(on("verify", file.path(), &pod).code, 0);
        // A foreign route whose metric is not lower than weir's does not conflict.
        if family == "-4" {
            ip(&pod, "route add blackhole default table 133 metric 9");
            assert_eq!(on("verify", file.path(), &pod).code, 0);
        }
    }
}

#[test]
fn a_foreign_rule_before_ours_is_drift() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    ip(&pod, "rule add fwmark 0x539 lookup 254 priority 5");
    let verified = on("verify", file.path(), &pod);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    assert!(
        verified.stdout.contains("lookup 254 priority 5"),
        "{}",
        verified.stdout
    );
    ip(&pod, "rule delete fwmark 0x539 lookup 254 priority 5");
    assert_eq!(on("verify", file.path(), &pod).code, 0);
}

/// A foreign route or rule that takes packets of weir's routing stays, and both `verify` and `apply` name it.
#[test]
fn a_foreign_route_or_rule_that_wins_over_ours_is_named() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    let sync = routing(&pod);
    add_link_away(&pod);
    let quiet = routing(&pod);
    for (setup, add, named) in [
        // More specific than the default route.
        (
            "",
            "-4 route add 10.9.0.0/16 dev away table 133",
            "route 10.9.0.0/16",
        ),
        (
            "",
            "-4 route add blackhole 10.9.8.7 table 133",
            "route blackhole 10.9.8.7/32",
        ),
        (
            "",
            "-6 route add fd00:9::/32 dev away table 133",
            "route fd00:9::/32",
        ),
        // A route for some packets, which the kernel prefers to weir's.
        (
            "",
            "-4 route add default dev away table 133 tos 0x10",
            "route 0.0.0.0/0",
        ),
        // No rule of weir can precede priority 0.
        (
            "",
            "-4 rule add fwmark 0x539 lookup 77 priority 0",
            "rule IPv4 fwmark 0x539 lookup 77",
        ),
    ] {
        if !setup.is_empty() {
            ip(&pod, setup);
        }
        ip(&pod, add);
        let before = routing(&pod);
        for verb in ["verify", "apply"] {
            let run = on(verb, file.path(), &pod);
            assert_eq!(run.code, 1, "{add}: {}", run.stdout);
            let text = run.stdout + &run.stderr;
            assert!(text.contains(named), "{verb}, {add}: {text}");
        }
        assert_eq!(routing(&pod), before, "{add}");
        for command in [add, setup].into_iter().filter(|c| !c.is_empty()) {
            ip(&pod, &command.replace(" add ", " delete "));
        }
        assert_eq!(on("verify", file.path(), &pod).code, 0, "{add}");
    }
    // Routes and rules that take no packets are not mentioned.
    for add in [
        "-4 route add local 10.9.0.0/16 dev lo table 133",
        "-4 rule add lookup 77 priority 5",
        "-4 rule add fwmark 0x53a lookup 254 priority 5",
        "-4 rule add from 10.9.8.7 lookup 254 priority 5",
        "-4 rule add from 10.9.8.7 priority 5 prohibit",
        "-4 rule add not fwmark 0x539 priority 5 prohibit",
    ] {
        ip(&pod, add);
        let run = on("verify", file.path(), &pod);
        assert_eq!(run.code, 0, "{add}: {}", run.stdout);
        ip(&pod, &add.replace(" add ", " delete "));
    }
    assert_eq!(routing(&pod), quiet);
    ip(&pod, "link delete away");
    assert_eq!(routing(&pod), sync);
}

/// If another writer adds a rule after weir did, weir adds its own again in front of it.
#[test]
fn a_foreign_rule_that_wins_over_ours_is_overtaken() {
    let pod = pod_or_skip!();
    let file = tproxy();
    add_link_away(&pod);
    for (setup, add, named) in [
        // A rule with the same selector, and a rule without a selector.
        (
            "",
            "-4 rule add fwmark 0x539 lookup 77 priority 5",
            "rule IPv4 fwmark 0x539 lookup 77 priority 5",
        ),
        (
            "",
            "-6 rule add fwmark 0x39/0xff lookup 77 priority 5",
            "lookup 77 priority 5",
        ),
        (
            "-4 route add default dev away table 77",
            "-4 rule add lookup 77 priority 1",
            "lookup 77 priority 1",
        ),
        // Rules without a mark, and one for all marks but one.
        (
            "",
            "-4 rule add priority 5 prohibit",
            "rule IPv4 prohibit priority 5",
        ),
        (
            "",
            "-4 rule add priority 5 goto 32766",
            "rule IPv4 goto 32766 priority 5",
        ),
        (
            "-4 route add default dev away table 77",
            "-4 rule add not fwmark 7 lookup 77 priority 5",
            "rule IPv4 not fwmark 0x7 lookup 77 priority 5",
        ),
        (
            "-6 route add default dev away table 7700",
            "-6 rule add lookup 7700 priority 5",
            "lookup 7700 priority 5",
        ),
    ] {
        assert_eq!(on("apply", file.path(), &pod).code, 0, "{add}");
        if !setup.is_empty() {
            ip(&pod, setup);
        }
        ip(&pod, add);
        let count = || {
            let rules = ip(&pod, "-4 rule") + &ip(&pod, "-6 rule");
            let of_ours = rules.lines().filter(|l| l.contains(MARKED)).count();
            (of_ours, rules.lines().count())
        };
        let before = count();
        assert_eq!(before.0, 2, "{add}");
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 1, "{add}: {}", verified.stdout);
        assert!(
            verified.stdout.contains(named),
            "{add}: {}",
            verified.stdout
        );
        let applied = on("apply", file.path(), &pod);
        assert_eq!(applied.code, 0, "{add}: {}", applied.stderr);
        // The outdated rule of weir is gone, and the foreign rule stays.
        assert_eq!(count(), before, "{add}");
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 0, "{add}: {}", verified.stdout);
        let after = routing(&pod);
        assert_eq!(on("apply", file.path(), &pod).code, 0, "{add}");
        assert_eq!(routing(&pod), after, "{add}");
        for command in [add, setup].into_iter().filter(|c| !c.is_empty()) {
            ip(&pod, &command.replace(" add ", " delete "));
        }
        assert_eq!(weir(&["clean", "--netns", &path(&pod)]).code, 0, "{add}");
    }
}

/// An equal rule of another writer follows the rule for `main`: weir adds its own before that, and removes only its own.
#[test]
fn a_twin_of_another_writer_without_effect_is_left() {
    let pod = pod_or_skip!();
    let file = tproxy();
    ip(&pod, "-4 route add blackhole 10.9.0.0/16");
    ip(&pod, &format!("-4 rule add {MARKED} priority 40000"));
    let before = ip(&pod, "-4 rule");
    let applied = on("apply", file.path(), &pod);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let verified = on("verify", file.path(), &pod);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    assert_eq!(weir(&["clean", "--netns", &path(&pod)]).code, 0);
    assert_eq!(ip(&pod, "-4 rule"), before);
}

/// Weir uses an object of another writer with the same effect, and leaves it in place.
#[test]
fn what_another_writer_added_is_used_and_left() {
    let pod = pod_or_skip!();
    let file = tproxy();
    for command in [
        "-4 route add local default dev lo table 133",
        "-6 route add local default dev lo table 133",
        "-4 rule add fwmark 0x539 lookup 133 priority 20",
        "-6 rule add fwmark 0x539 lookup 133 priority 20",
    ] {
        ip(&pod, command);
    }
    if keeps_owners(&pod) {
        ip(&pod, "-6 address add ::6/128 dev lo nodad");
    }
    let before = routing(&pod);
    let applied = on("apply", file.path(), &pod);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(!applied.stdout.contains("ip -4 "), "{}", applied.stdout);
    assert_eq!(on("verify", file.path(), &pod).code, 0);
    let cleaned = weir(&["clean", "--netns", &path(&pod)]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert_eq!(routing(&pod), before);
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
}

/// A policy rule of weir beside an equal one of another writer: weir's is deleted, whichever precedes the other.
#[test]
fn clean_deletes_our_policy_rule_and_not_its_twin() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    ip(&pod, &format!("rule add {MARKED} priority 5"));
    assert_eq!(weir(&["clean", "--netns", &path(&pod)]).code, 0);
    let rules = ip(&pod, "rule");
    let left: Vec<&str> = rules.lines().filter(|l| l.contains(MARKED)).collect();
    assert!(
        left.len() == 1 && left[0].starts_with("5:"),
        "ours was to go: {rules}"
    );
}

#[test]
fn routes_of_ours_without_a_rule_are_found_and_removed() {
    let pod = pod_or_skip!();
    let file = config(&json!({}));
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    let before = routing(&pod);
    for command in [
        "-4 route add local default dev lo table 77 proto 119",
        "-6 route add local default dev lo table 70000 proto 119",
    ] {
        ip(&pod, command);
    }
    let verified = on("verify", file.path(), &pod);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    for table in ["table 77", "table 70000"] {
        let is_named = |l: &str| l.contains("unexpected") && l.ends_with(table);
        assert!(
            verified.stdout.lines().any(is_named),
            "{table}: {}",
            verified.stdout
        );
    }
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    assert_eq!(routing(&pod), before);

    ip(&pod, "route add local default dev lo table 77 proto 119");
    let cleaned = weir(&["clean", "--netns", &path(&pod)]);
    assert!(cleaned.stdout.contains("table 77"), "{}", cleaned.stdout);
    assert!(!ip(&pod, "route show table all").contains("table 77"));
}

#[test]
fn damaged_routing_is_found_named_and_healed() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    let before = routing(&pod);
    for (damage, named) in [
        (
            "-4 route delete local default table 133",
            "ip -4 route local default",
        ),
        (
            "-6 route delete local default table 133",
            "ip -6 route local default",
        ),
        ("-4 rule delete fwmark 0x539", "ip -4 rule fwmark"),
        ("-6 rule delete fwmark 0x539", "ip -6 rule fwmark"),
        ("-6 address delete ::6/128 dev lo", "ip -6 address ::6/128"),
    ] {
        ip(&pod, damage);
        let verified = on("verify", file.path(), &pod);
        assert_eq!(verified.code, 1, "{damage}");
        assert!(verified.stdout.contains(named), "{}", verified.stdout);
        let healed = on("apply", file.path(), &pod);
        assert_eq!(healed.code, 0, "{}", healed.stderr);
        assert_eq!(on("verify", file.path(), &pod).code, 0);
        assert_eq!(routing(&pod), before, "{damage}");
    }
}

/// A later configuration disables IPv6.
#[test]
fn nothing_of_ipv6_stays_when_it_is_switched_off() {
    for engine in ["nft", "xtables"] {
        let pod = legacy_pod_or_skip!();
        let mode = json!({ "inbound_interception_mode": "TPROXY" });
        let (both, v4) = (config(&mode), {
            let mut mode = mode.clone();
            mode["enable_ipv6"] = false.into();
            config(&mode)
        });
        let before = ip(&pod, "-6 address show dev lo");
        let on = |verb: &str, file: &str| {
            let ns = path(&pod);
            weir(&[
                verb, "sidecar", "--config", file, "--netns", &ns, "--engine", engine,
            ])
        };
        assert_eq!(on("apply", both.path()).code, 0);
        let verified = on("verify", v4.path());
        assert_eq!(verified.code, 1, "{}", verified.stdout);
        let applied = on("apply", v4.path());
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let verified = on("verify", v4.path());
        assert_eq!(verified.code, 0, "{engine}: {}", verified.stdout);
        assert!(!ip(&pod, "-6 rule").contains("133"));
        assert_eq!(ip(&pod, "-6 route show table all type local default"), "");
        if keeps_owners(&pod) {
            assert_eq!(ip(&pod, "-6 address show dev lo"), before);
        }
        let legacy = inside(&pod, "ip6tables-legacy-save", &[]);
        assert!(!legacy.contains("ISTIO_"), "{legacy}");
        let is_rule = |l: &str| l.starts_with("-A");
        assert!(!legacy.lines().any(is_rule), "{legacy}");
    }
}

/// Returns the lines of `ip monitor` until one contains this word. Repeats `make`, which makes the kernel report it.
fn until(lines: &Receiver<String>, word: &str, make: impl Fn()) -> Vec<String> {
    let (mut seen, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_secs(20) {
        make();
        while let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
            let is_last = line.contains(word);
            seen.push(line);
            if is_last {
                return seen;
            }
        }
    }
    panic!("no {word}: {seen:?}");
}

#[test]
fn clean_deletes_a_route_before_the_rule_that_leads_to_it() {
    let pod = pod_or_skip!();
    let file = tproxy();
    assert_eq!(on("apply", file.path(), &pod).code, 0);
    let mut monitor = Command::new("nsenter")
        .arg(format!("--net={}", path(&pod)))
        .args(["ip", "monitor", "route", "rule"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, lines) = channel();
    let stdout = BufReader::new(monitor.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mark = |table: u32| {
        for verb in ["add", "delete"] {
            ip(
                &pod,
                &format!("route {verb} local 127.9.9.9 dev lo table {table}"),
            );
        }
    };
    until(&lines, "table 9001", || mark(9001));
    let cleaned = weir(&["clean", "--netns", &path(&pod)]);
    let seen = until(&lines, "table 9002", || mark(9002));
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    reader.join().unwrap();
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    let deleted = |what: &str| {
        let is = |l: &String| l.starts_with("Deleted") && l.contains(what);
        let places = seen.iter().enumerate().filter(|(_, l)| is(l));
        places.map(|(n, _)| n).collect::<Vec<_>>()
    };
    let (routes, rules) = (deleted("local default dev lo table 133"), deleted(MARKED));
    assert_eq!((routes.len(), rules.len()), (2, 2), "{seen:?}");
    assert!(routes.iter().max() < rules.iter().min(), "{seen:?}");
}

/// The lines of `ip -details rule` without those of every namespace, with priority and protocol last, as weir prints them.
fn rules_of_ip(pod: &Netns, family: &str) -> Vec<String> {
    let listed = ip(pod, &format!("{family} -details rule"));
    let line = |line: &str| {
        let (priority, words) = line.split_once(":\t").unwrap();
        let words = words.trim_end();
        let words = words.strip_prefix("from all ").unwrap_or(words);
        let words = words.replacen("not from all ", "not ", 1);
        let (words, proto) = words.rsplit_once(" proto ").unwrap();
        let proto = match proto {
            "unspec" => String::new(),
            proto => format!(" proto {proto}"),
        };
        format!("ip {family} rule {words} pref {priority}{proto}")
    };
    let made = listed.lines().filter(|l| !l.ends_with("proto kernel"));
    made.map(line).collect()
}

/// Lists the routes of every table, also if no policy rule refers to it, with every attribute that affects the path of a packet.
#[test]
fn routes_of_every_table_are_shown() {
    let pod = pod_or_skip!();
    for made in [
        "link add d0 type veth peer name d1",
        "link set d1 up",
        "address add 10.0.0.1/24 dev d0",
        "link set d0 up",
        "route add 10.9.0.0/16 via inet6 fe80::9 dev d0",
        "route add 10.8.0.0/16 via 192.0.2.9 dev d0 onlink src 10.0.0.1",
        "route add 10.7.0.0/16 dev d0 mtu 1280",
        "route add 10.6.0.0/16 nexthop via 10.0.0.2 nexthop via 10.0.0.3",
        "route add local 10.5.0.0/16 dev lo",
        "route add 10.4.0.0/16 dev d0 table 77",
    ] {
        ip(&pod, made);
    }
    let mut expected = vec![
        "ip -4 route 10.9.0.0/16 via inet6 fe80::9 dev d0 proto boot",
        "ip -4 route 10.8.0.0/16 via 192.0.2.9 dev d0 src 10.0.0.1 onlink proto boot",
        "ip -4 route 10.7.0.0/16 dev d0 scope link proto boot (and more)",
        "ip -4 route 10.6.0.0/16 proto boot (several next hops)",
        "ip -4 route local 10.5.0.0/16 dev lo scope host table local proto boot",
        "ip -4 route 10.4.0.0/16 dev d0 scope link table 77 proto boot",
    ];
    let from = "-6 route add fd07::/64 from fd06::/64 dev d0";
    let words: Vec<&str> = from.split(' ').collect();
    // This needs CONFIG_IPV6_SUBTREES.
    if weir_testing::tool::tool(&pod, "ip", &words, "").is_ok() {
        expected.push("ip -6 route fd07::/64 from fd06::/64 dev d0 metric 1024 proto boot");
    }
    let shown = weir(&["show", "--netns", &path(&pod), "--engine", "routing"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let lines: Vec<&str> = shown.stdout.lines().collect();
    for line in expected {
        assert!(lines.contains(&line), "{line}: {lines:#?}");
    }
    let of_kernel = |l: &&&str| l.contains(" table local ") && !l.contains("10.5.0.0/16");
    assert_eq!(lines.iter().filter(of_kernel).count(), 0, "{lines:#?}");
}

#[test]
fn policy_rules_are_shown_in_the_words_of_ip() {
    let pod = pod_or_skip!();
    for rule in [
        "-4 rule add from 10.0.0.0/8 to 192.0.2.1 lookup 100 pref 100",
        "-4 rule add not from 10.1.2.3 fwmark 0x1/0xff lookup main pref 101",
        "-4 rule add iif lo oif nowhere0 lookup 102 pref 102",
        "-4 rule add lookup main suppress_prefixlength 0 pref 103",
        "-4 rule add lookup 104 suppress_ifgroup default suppress_prefixlength 24 pref 104",
        "-4 rule add uidrange 1000-1999 ipproto tcp sport 1024-2048 dport 53 lookup 105 pref 105",
        "-4 rule add ipproto 253 tun_id 7 lookup 106 pref 106",
        "-4 rule add from 10.0.0.0/24 blackhole pref 107",
        "-4 rule add from 0.0.0.0/1 goto 999 pref 108",
        "-4 rule add goto 101 pref 99",
        "-4 rule add tos 0x04 lookup 109 realms 3/4 pref 109",
        "-4 rule add l3mdev pref 110",
        "-6 rule add from fd00::/8 to fd01::1 iif lo lookup 100 pref 100",
        "-6 rule add not fwmark 0/0xff lookup 101 suppress_prefixlength 0 pref 101",
        "-6 rule add oif lo dport 1-65534 ipproto ipv6-icmp prohibit pref 102 proto static",
    ] {
        ip(&pod, rule);
    }
    let shown = weir(&["show", "--netns", &path(&pod), "--engine", "routing"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let rules = |family: &str| -> Vec<String> {
        let begin = format!("ip {family} rule ");
        let lines = shown.stdout.lines().filter(|l| l.starts_with(&begin));
        lines.map(str::to_owned).collect()
    };
    for (family, count) in [("-4", 12), ("-6", 3)] {
        let oracle = rules_of_ip(&pod, family);
        assert_eq!(oracle.len(), count, "{oracle:#?}");
        assert_eq!(rules(family), oracle);
    }
}
