//! The host's part, in a namespace that stands for the host's.

use super::*;
use crate::ambient::keep::tests::{Told, ip};
use std::path::Path;
use weir_core::journal::ambient::Event;
use weir_core::thread::rights;

/// A node with a pod of both families behind a branch ENI, which an agent without IPv6 is told of.
fn node(netns: &Netns, proc: &Path) -> HostRules {
    node_telling(netns, proc, Journal::default())
}

/// The same, with what hears of it.
pub(in crate::ambient) fn node_telling(netns: &Netns, proc: &Path, journal: Journal) -> HostRules {
    for line in [
        "link add eni1 type veth peer name peni1",
        "link set eni1 up",
        "link set peni1 up",
        "route add 10.9.0.2 dev eni1 table 101",
        "rule add iif eni1 lookup 101 priority 10",
        "-6 route add fd09::2 dev eni1 table 101",
        "-6 rule add iif eni1 lookup 101 priority 10",
    ] {
        ip(netns, line);
    }
    let at = proc.join("sys/net/ipv4");
    std::fs::create_dir_all(&at).unwrap();
    std::fs::write(at.join("tcp_early_demux"), "0\n").unwrap();
    agent(netns, proc, journal)
}

fn agent(netns: &Netns, proc: &Path, journal: Journal) -> HostRules {
    HostRules::new(
        Config::default(),
        (true, true),
        Some(netns.path()),
        (proc.to_owned(), "/nonexistent".into()),
        || unreachable!("no pod was captured at the node"),
        journal,
    )
}

#[test]
fn policy_rules_of_a_pod_that_the_next_agent_cannot_look_at_yet_stay() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let routing = Routing::open_in(&netns).unwrap();
    let rules = node(&netns, proc.path());
    let count = || routing.rules().unwrap().len();
    let before = count();
    let addresses = vec!["10.9.0.2".parse().unwrap()];
    rules.put("a", &addresses).unwrap();
    let whole = count();
    assert_eq!(whole, before + 2);
    let next = agent(&netns, proc.path(), Journal::default());
    // Its addresses may not be known yet, either.
    for known in [Vec::new(), addresses] {
        next.expect(BTreeMap::new(), [("a".into(), known)].into());
        next.heal().unwrap();
        assert_eq!(count(), whole, "{:?}", routing.rules());
    }
    next.expect(BTreeMap::new(), BTreeMap::new());
    next.heal().unwrap();
    assert_eq!(count(), before, "{:?}", routing.rules());
}

/// What is told as healed is what another writer has changed.
#[test]
fn what_is_not_desired_any_more_is_removed_without_a_word() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let (journal, told) = Told::journal();
    let rules = node_telling(&netns, proc.path(), journal);
    let addresses = ["10.9.0.2", "10.9.0.3"].map(|a| a.parse().unwrap());
    rules.put("a", &addresses).unwrap();
    rules.heal().unwrap();
    assert_eq!(told.next(), None, "in force");
    let of_a = BTreeMap::from([(addresses[1], Arc::from("a"))]);
    rules.expect(of_a.clone(), BTreeMap::new());
    rules.heal().unwrap();
    // The same is expected again, and now another writer was there.
    rules.expect(of_a, BTreeMap::new());
    let nft = netns.run(|| {
        let mut nft = std::process::Command::new("nft");
        nft.arg("flush set inet istio-ambient-nat istio-inpod-probes-v4");
        nft.status()
    });
    assert!(nft.unwrap().unwrap().success());
    rules.heal().unwrap();
    let healed = told.next().unwrap();
    assert!(healed.contains("add element"), "{healed}");
}

#[test]
fn policy_rules_are_for_families_that_are_captured_and_all_are_removed_at_the_end() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let rules = node(&netns, proc.path());
    let routing = Routing::open_in(&netns).unwrap();
    let count = || routing.rules().unwrap().len();
    let before = count();
    let addresses = ["10.9.0.2", "fd09::2"].map(|a| a.parse().unwrap());
    rules.put("a", &addresses).unwrap();
    assert_eq!(count(), before + 2, "{:?}", routing.rules());
    rules.heal().unwrap();
    assert_eq!(count(), before + 2, "{:?}", routing.rules());
    // Of a pod that an earlier agent knew, and of another program.
    ip(
        &netns,
        "rule add to 10.9.0.3 lookup 102 priority 512 protocol 119",
    );
    ip(&netns, "rule add to 10.9.0.4 lookup 102 priority 512");
    let removed = rules.end().unwrap();
    assert_eq!(count(), before + 1, "{:?}", routing.rules());
    assert!(
        removed.iter().any(|line| line.contains("10.9.0.3")),
        "{removed:?}"
    );
}

/// It was remembered as a node without branch ENIs.
#[test]
fn a_setting_of_the_node_that_cannot_be_read_is_read_again() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let rules = node(&netns, proc.path());
    let count = || Routing::open_in(&netns).unwrap().rules().unwrap().len();
    let before = count();
    let file = proc.path().join("sys/net/ipv4/tcp_early_demux");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let addresses = ["10.9.0.2".parse().unwrap()];
    let why = rules.put("a", &addresses).unwrap_err();
    assert!(why.contains("tcp_early_demux"), "{why}");
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, "0\n").unwrap();
    rules.put("a", &addresses).unwrap();
    assert_eq!(count(), before + 2);
}

struct Failures(std::sync::mpsc::Sender<Option<String>>);

impl weir_core::journal::Sink for Failures {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        if let weir_core::journal::Event::Ambient(Event::Host { failure, .. }) = event {
            let _ = self.0.send(failure.clone());
        }
    }
}

fn run(netns: &Netns, line: &str) -> std::process::Output {
    let mut words = line.split(' ');
    let mut tool = std::process::Command::new(words.next().unwrap());
    tool.args(words);
    netns.run(|| tool.output()).unwrap().unwrap()
}

/// It was shown as in force, and probes were captured.
#[test]
fn a_foreign_rule_that_takes_probes_first_is_told_until_it_goes() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let (failures, told) = std::sync::mpsc::channel();
    let journal = Journal::default();
    journal.add(Failures(failures));
    let rules = agent(&netns, proc.path(), journal);
    let next = || told.try_recv().ok();
    rules.heal().unwrap();
    assert_eq!(next(), Some(None));
    for line in [
        "nft add table ip t",
        "nft add chain ip t c { type nat hook postrouting priority 90 ; }",
        "nft add rule ip t c masquerade",
    ] {
        assert!(run(&netns, line).status.success(), "{line}");
    }
    rules.heal().unwrap();
    let why = next().flatten().unwrap();
    assert!(why.contains("table ip t chain c: masquerade"), "{why}");
    rules.heal_rules().unwrap();
    assert_eq!(next(), None, "it is the same still");
    assert!(run(&netns, "nft delete table ip t").status.success());
    rules.heal().unwrap();
    assert_eq!(next(), Some(None));
    // Commits lead to a search, too, which takes a moment until the next one.
    let after_commit = |line: &str| {
        assert!(run(&netns, line).status.success(), "{line}");
        let until = Instant::now() + std::time::Duration::from_secs(30);
        while Instant::now() < until {
            rules.heal_rules().unwrap();
            if let Some(told) = next() {
                return told;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("nothing was told after {line}");
    };
    for line in [
        "nft add table ip t",
        "nft add chain ip t c { type filter hook output priority -300 ; }",
    ] {
        assert!(run(&netns, line).status.success(), "{line}");
    }
    let why = after_commit("nft add rule ip t c notrack");
    assert!(why.is_some_and(|why| why.contains("table ip t chain c: notrack")));
    assert_eq!(after_commit("nft flush chain ip t c"), None);
}

/// They were shown as in force.
#[test]
fn foreign_rules_that_cannot_be_read_may_take_probes_first() {
    let netns = weir_testing::namespace_or_skip!();
    let host = Host {
        config: Config::default(),
        addresses: BTreeMap::new(),
        users: Some(0..=0),
    };
    let mut state = State::default();
    let unread = netns.run(|| {
        let look = || state.look_ahead(&host, Engine::Nft);
        rights::within("without capabilities", look).unwrap().1
    });
    assert_eq!(unread.unwrap().unwrap(), [""; 0]);
    let ahead = state.ahead.clone().unwrap();
    assert!(ahead.contains("is not known"), "{ahead}");
    let read = netns.run(|| state.look_ahead(&host, Engine::Nft));
    assert_eq!(read.unwrap().unwrap(), [""; 0]);
    assert_eq!(state.ahead, None);
}

/// Root replaced it, and probes of the kubelet were captured.
#[test]
fn the_user_of_a_kubelet_that_one_round_does_not_see_stays() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let rules = agent(&netns, proc.path(), Journal::default());
    let has = |user: &str| {
        rules.heal().unwrap();
        let listed = run(&netns, "nft -n list ruleset").stdout;
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.contains(&format!("meta skuid {user} ")), "{listed}");
    };
    has("0");
    let kubelet = proc.path().join("30");
    std::fs::create_dir(&kubelet).unwrap();
    for (name, text) in [
        ("comm", "kubelet\n"),
        ("cmdline", "/usr/bin/kubelet\0"),
        ("cgroup", "0::/system.slice\n"),
        ("status", "Name:\tkubelet\nUid:\t4711\t4711\t4711\t4711\n"),
    ] {
        std::fs::write(kubelet.join(name), text).unwrap();
    }
    has("4711");
    std::fs::remove_dir_all(&kubelet).unwrap();
    has("4711");
}

/// As at each start of Istio's agent; later only what surely takes probes is put behind.
#[test]
fn foreign_legacy_rules_are_put_behind_when_the_agent_starts() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let insert = |rule: &str| {
        let line = format!("iptables-legacy -w 60 -t nat -I POSTROUTING {rule}");
        run(&netns, &line)
    };
    let legacy = insert("-s 10.3.0.0/16 -j ACCEPT");
    if !legacy.status.success() {
        println!("skipped: {legacy:?}");
        return;
    }
    let start = || {
        let at = Some(netns.path());
        let places = (proc.path().to_owned(), "/nonexistent".into());
        let former = || unreachable!("no pod was captured at the node");
        let journal = Journal::default();
        HostRules::new(
            Config::default(),
            (false, false),
            at,
            places,
            former,
            journal,
        )
    };
    let first = || {
        let listed = run(&netns, "iptables-legacy -w 60 -t nat -S POSTROUTING").stdout;
        let listed = String::from_utf8(listed).unwrap();
        listed.lines().nth(1).unwrap().to_owned()
    };
    let ours = "-A POSTROUTING -j ISTIO_POSTRT";
    let rules = start();
    match rules.heal() {
        Err(why) if why.contains("Extension") || why.contains("not support") => {
            println!("skipped: {why}");
            return;
        }
        healed => _ = healed.unwrap(),
    }
    assert_eq!(first(), ours);
    assert!(insert("-s 10.4.0.0/16 -j MASQUERADE").status.success());
    rules.heal().unwrap();
    assert!(first().contains("10.4.0.0/16"), "{}", first());
    start().heal().unwrap();
    assert_eq!(first(), ours);
    assert!(insert("-p tcp -j MASQUERADE").status.success());
    rules.heal().unwrap();
    assert_eq!(first(), ours);
}

struct Cleaned(std::sync::mpsc::Sender<Result<String, String>>);

impl weir_core::journal::Sink for Cleaned {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        let told = match event {
            weir_core::journal::Event::Ambient(Event::NodeCleaned { what }) => Ok(what.clone()),
            weir_core::journal::Event::Ambient(Event::NodeNotCleaned { why }) => Err(why.clone()),
            _ => return,
        };
        let _ = self.0.send(told);
    }
}

/// No pod was enrolled until the set was gone.
#[test]
fn what_is_left_in_another_form_and_cannot_be_removed_keeps_no_pod_waiting() {
    let netns = weir_testing::namespace_or_skip!();
    let proc = weir_testing::TempDir::new();
    let (cleaned, told) = std::sync::mpsc::channel();
    let journal = Journal::default();
    journal.add(Cleaned(cleaned));
    node(&netns, proc.path()).heal().unwrap();
    // A rule of another writer refers to it.
    let tool = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, rest @ ..] = words.as_slice() else {
            unreachable!()
        };
        let run = || std::process::Command::new(name).args(rest).output();
        let run = netns.run(run).unwrap().unwrap();
        (run.status.success(), format!("{line}: {run:?}"))
    };
    let [set, rule] = [
        "ipset create istio-inpod-probes-v4 hash:ip comment",
        "iptables-legacy -w 60 -A FORWARD -m set --match-set istio-inpod-probes-v4 dst -j ACCEPT",
    ]
    .map(tool);
    if !set.0 || !rule.0 {
        println!("skipped: {set:?} {rule:?}");
        return;
    }
    let next = agent(&netns, proc.path(), journal);
    next.put("a", &["10.9.0.2".parse().unwrap()]).unwrap();
    next.heal().unwrap();
    let why = told.try_recv().unwrap().unwrap_err();
    assert!(why.contains("istio-inpod-probes-v4"), "{why}");
    next.heal().unwrap();
    assert!(told.try_recv().is_err(), "told once");
    let (done, text) = tool("iptables-legacy -w 60 -F FORWARD");
    assert!(done, "{text}");
    next.heal().unwrap();
    let removed = told.try_recv().unwrap().unwrap();
    assert!(removed.contains("istio-inpod-probes-v4"), "{removed}");
}

/// It was dropped until the next round, which may be a minute away.
#[test]
fn what_cannot_be_removed_at_the_node_is_told_and_tried_again() {
    let netns = weir_testing::namespace_or_skip!();
    let dir = weir_testing::TempDir::new();
    let (cleaned, told) = std::sync::mpsc::channel();
    let journal = Journal::default();
    journal.add(Cleaned(cleaned));
    let path = dir.path().join("netns");
    let places = (dir.path().to_owned(), dir.path().join("none"));
    // The network namespace of a proxy is not found at first.
    let is_hidden = std::sync::atomic::AtomicBool::new(true);
    let former = move || match is_hidden.swap(false, std::sync::atomic::Ordering::Relaxed) {
        true => Err("proxy mesh/ztunnel: hidden".to_owned()),
        false => Ok((weir_node_ambient::Config::default(), Vec::new())),
    };
    let at = Some(path.clone());
    let rules = HostRules::new(
        Config::default(),
        (true, false),
        at,
        places,
        former,
        journal,
    );
    let next = || {
        told.recv_timeout(std::time::Duration::from_secs(30))
            .unwrap()
    };
    ip(
        &netns,
        "route add unreachable default table 101 protocol 119",
    );
    rules.all_captured();
    for wanted in ["proxy mesh/ztunnel: hidden", "No such file"] {
        let why = next().unwrap_err();
        assert!(why.contains(wanted), "{why}");
    }
    std::os::unix::fs::symlink(netns.path(), &path).unwrap();
    let what = next().unwrap();
    assert!(what.contains("unreachable"), "{what}");
}
