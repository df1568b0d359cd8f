//! `weir plan|apply|verify|clean node-ambient` beside objects of other writers with the same numbers.
// matrix: every

use crate::support::{Run, TempFile, path, weir, weir_with};
use serde_json::Value;
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, PolicyRule, Route, Routing};
use weir_node_ambient::Config;

#[test]
fn collisions_are_shown_first_and_refused_without_force() {
    let netns = pod_or_skip!();
    let routing = Routing::open_in(&netns).unwrap();
    // A network plugin could use the same mark and table.
    let foreign = PolicyRule::mark(AddressFamily::V4, 0x200, 7).at(9);
    routing.add_rule(&foreign).unwrap();
    let lo = routing.link("lo").unwrap().index;
    let route = Route::unicast("192.0.2.0/24".parse().unwrap(), None, Some(lo));
    let route = Route {
        table: 101,
        ..route
    };
    routing.add_route(&route).unwrap();
    let state = || {
        let rules = routing.rules().unwrap();
        let routes = [100, 101, 102].map(|table| routing.routes(table).unwrap());
        format!("{rules:?} {routes:?}")
    };
    let before = state();

    let (config, place) = (TempFile::new("{}"), path(&netns));
    let run = |verb: &str, more: &[&str]| -> Run {
        let mut args = vec![verb, "node-ambient", "--config", config.path()];
        args.extend(["--host-netns", &place]);
        args.extend(more);
        weir(&args)
    };
    let plan = run("plan", &["--json"]);
    if plan.stderr.contains("not supported") {
        println!("skipped: {}", plan.stderr);
        return;
    }
    assert_eq!(plan.code, 0, "{plan:?}");
    let shown: Value = serde_json::from_str(&plan.stdout).unwrap();
    let collisions = shown["collisions"].as_array().unwrap();
    assert_eq!(collisions.len(), 2, "{collisions:?}");
    for words in [["0x200", "marks"], ["table 101", "routing"]] {
        let has = |c: &&Value| words.iter().all(|word| c.as_str().unwrap().contains(word));
        assert_eq!(
            collisions.iter().filter(has).count(),
            1,
            "{words:?} {collisions:?}"
        );
    }

    let refused = run("apply", &[]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    assert_eq!(state(), before);

    let forced = run("apply", &["--force"]);
    assert_eq!(forced.code, 0, "{forced:?}");
    assert_ne!(state(), before);
    // The foreign route takes packets of pods to that network.
    let verified = run("verify", &[]);
    assert_eq!(verified.code, 1, "{verified:?}");
    let line = "192.0.2.0/24 dev #1 table 101";
    assert!(verified.stdout.contains(line), "{verified:?}");
    routing.del_route(&route).unwrap();
    let verified = run("verify", &[]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.contains("collision: "), "{verified:?}");
    routing.add_route(&route).unwrap();
    let cleaned = run("clean", &[]);
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    assert_eq!(state(), before);
}

// matrix: newest
#[test]
fn programs_instead_of_rules() {
    let netns = pod_or_skip!();
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    let bpffs = mounted.path().to_str().unwrap();
    let run = |verb: &str, config: &TempFile, more: &[&str]| -> Run {
        let place = path(&netns);
        let mut args = vec![verb, "node-ambient", "--config", config.path()];
        args.extend(["--host-netns", &place]);
        args.extend(more);
        weir_with(&args, &[("WEIR_BPFFS", bpffs)])
    };
    let config = TempFile::new(r#"{"host_addresses": ["192.0.2.7"], "dns_capture": true}"#);
    let plan = run("plan", &config, &["--engine", "ebpf"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    let line = "node: except address 192.0.2.7 of the node";
    assert!(plan.stdout.contains(line), "{plan:?}");
    assert_eq!(run("verify", &config, &["--engine", "ebpf"]).code, 1);
    let applied = run("apply", &config, &["--engine", "ebpf", "--json"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let shown: Value = serde_json::from_str(&applied.stdout).unwrap();
    assert_eq!(
        (&shown["engine"], &shown["capturing"]),
        (&"ebpf".into(), &true.into())
    );
    let verified = run("verify", &config, &["--engine", "ebpf"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.contains("nothing differs"), "{verified:?}");
    // `auto` compares with the engine in use, and keeps it.
    for (verb, is_so) in [("verify", "nothing differs"), ("apply", "")] {
        let same = run(verb, &config, &["--engine", "auto"]);
        assert_eq!(same.code, 0, "{same:?}");
        assert!(same.stdout.contains(is_so), "{same:?}");
    }
    let folders = || std::fs::read_dir(mounted.path().join("weir/v2")).unwrap();
    assert_eq!(folders().count(), 1);
    // After the change to rules, the maps of the programs are removed.
    let applied = run("apply", &config, &["--engine", "nft"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(folders().count(), 0);
    let plan = run("plan", &config, &["--engine", "ebpf"]);
    assert!(plan.stdout.contains("remove rules and routing"), "{plan:?}");
    assert_eq!(run("apply", &config, &["--engine", "ebpf"]).code, 0);
    assert_eq!(run("verify", &config, &["--engine", "ebpf"]).code, 0);
    assert_eq!(run("clean", &config, &[]).code, 0);
    assert_eq!(folders().count(), 0);
}

/// A killed change of the engine leaves both.
// matrix: newest
#[test]
fn programs_beside_rules_are_a_difference() {
    let netns = pod_or_skip!();
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    let text = r#"{"host_addresses": ["192.0.2.7"], "dns_capture": true}"#;
    let config = TempFile::new(text);
    let run = |verb: &str, more: &[&str]| -> Run {
        let place = path(&netns);
        let args = [verb, "node-ambient", "--config", config.path()];
        let args = [&args[..], &["--host-netns", &place], more].concat();
        weir_with(&args, &[("WEIR_BPFFS", mounted.path().to_str().unwrap())])
    };
    assert_eq!(run("apply", &["--engine", "ebpf"]).code, 0);
    // The library keeps the programs.
    let known = Config::from_json(text, "a node").unwrap();
    weir_node_ambient::apply(&known, &netns, Some(Engine::Nft), false).unwrap();
    for engine in ["ebpf", "auto"] {
        let verified = run("verify", &["--engine", engine]);
        assert_eq!(verified.code, 1, "{verified:?}");
        assert!(verified.stdout.contains("remove rules"), "{verified:?}");
    }
    let verified = run("verify", &["--engine", "nft"]);
    assert_eq!(verified.code, 1, "{verified:?}");
    assert!(verified.stdout.contains("detach programs"), "{verified:?}");
    let verified = run("verify", &["--engine", "nft", "--json"]);
    let shown: Value = serde_json::from_str(&verified.stdout).unwrap();
    assert_eq!(
        (verified.code, &shown["replaces_programs"], &shown["host"]),
        (
            1,
            &true.into(),
            &["detach programs that capture instead"].into()
        )
    );
    let applied = run("apply", &["--engine", "nft"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let verified = run("verify", &["--engine", "nft"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    assert!(verified.stdout.contains("nothing differs"), "{verified:?}");
    assert_eq!(run("clean", &[]).code, 0);
}

/// The configuration of a node with a proxy in the namespace `proxy`, with a link to it.
pub(crate) fn with_proxy(netns: &Netns, proxy: &Netns) -> TempFile {
    let node = Routing::open_in(netns).unwrap();
    let inner = Routing::open_in(proxy).unwrap();
    node.add_veth("v2", "eth0", proxy).unwrap();
    for (routing, name, last) in [(&node, "v2", 1), (&inner, "eth0", 10)] {
        let index = routing.link(name).unwrap().index;
        routing.set_up(index).unwrap();
        let net = ipnet::IpNet::new([10, 1, 2, last].into(), 24).unwrap();
        routing.add_address(index, net).unwrap();
    }
    TempFile::new(&format!(
        r#"{{"proxies": [{{"uid": "zt", "netns": "{}", "addresses": ["10.1.2.10"], "created": 1}}]}}"#,
        path(proxy)
    ))
}

/// The proxy's namespace is cleaned after the node's, because the first `clean` had no configuration or was killed.
// matrix: newest
#[test]
fn the_proxys_namespace_is_cleaned_after_the_nodes() {
    let (netns, proxy) = (pod_or_skip!(), pod_or_skip!());
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    let config = with_proxy(&netns, &proxy);
    let forwarding = "/proc/sys/net/ipv4/conf/eth0/forwarding";
    proxy
        .run(|| std::fs::write(forwarding, "1"))
        .unwrap()
        .unwrap();
    let read = || std::fs::read_to_string(forwarding).unwrap();
    let forwards = || proxy.run(read).unwrap().trim().to_owned();
    let place = path(&netns);
    let bpffs = mounted.path().to_str().unwrap();
    let run = |verb: &str, more: &[&str]| {
        let args = [&[verb, "node-ambient", "--host-netns", &place], more].concat();
        let run = weir_with(&args, &[("WEIR_BPFFS", bpffs)]);
        assert_eq!(run.code, 0, "{verb}: {run:?}");
        run.stdout
    };
    let known = ["--config", config.path()];
    run("apply", &["--config", config.path(), "--engine", "ebpf"]);
    assert_eq!(forwards(), "0");
    run("clean", &[]);
    assert_eq!(forwards(), "0", "nothing was said of the proxy");
    let cleaned = run("clean", &known);
    assert!(cleaned.contains("detach"), "{cleaned}");
    assert_eq!(forwards(), "1");
    let folders = std::fs::read_dir(mounted.path().join("weir/v2")).unwrap();
    assert_eq!(folders.count(), 0);
    assert_eq!(run("clean", &known), "nothing to remove\n");
}

/// bpf(2) fails as it does under a seccomp filter or lockdown, and as in a kernel without it; or no bpf file system is mounted.
///
/// The error names the reason, nothing is changed, and the same command with rules works.
// matrix: newest
#[test]
fn what_programs_lack_is_named_and_nothing_is_changed() {
    let netns = pod_or_skip!();
    let Some(mounted) = weir_testing::BpfFs::mount() else {
        return;
    };
    let (config, place) = (TempFile::new("{}"), path(&netns));
    let args = ["node-ambient", "--config", config.path(), "--host-netns"];
    let args = [&args[..], &[&place, "--engine"]].concat();
    let apply = |engine, bpffs: &std::path::Path| {
        let all = [&["apply"], &args[..], &[engine]].concat();
        weir_with(&all, &[("WEIR_BPFFS", bpffs.to_str().unwrap())])
    };
    let routing = Routing::open_in(&netns).unwrap();
    let state = || {
        let shown = weir(&["show", "--netns", &place, "--engine", "all"]);
        format!("{shown:?} {:?}", routing.rules().unwrap())
    };
    let before = state();
    for (error, words) in [
        ("EPERM", "no seccomp filter or lockdown"),
        ("ENOSYS", "CONFIG_BPF_SYSCALL"),
    ] {
        let out = std::process::Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=bpf", "-e"])
            .arg(format!("inject=bpf:error={error}"))
            .args(["-o", "/dev/null", env!("CARGO_BIN_EXE_weir"), "apply"])
            .args(&args)
            .arg("ebpf")
            .env("WEIR_BPFFS", mounted.path())
            .output()
            .expect("strace is needed here");
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{error}: {text}");
        assert!(text.contains(words), "{error}: {text}");
        assert_eq!(state(), before, "{error}");
    }
    let folder = weir_testing::TempDir::new();
    let run = apply("ebpf", folder.path());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("mount -t bpf bpf"), "{run:?}");
    assert_eq!(state(), before);
    for engine in ["ebpf", "auto"] {
        let run = apply(engine, mounted.path());
        assert_eq!(run.code, 0, "{engine}: {run:?}");
    }
}

/// `clean` removes rules without a bpf file system. A path that cannot be read does not count as the absence of one.
// matrix: newest
#[test]
fn clean_removes_rules_although_programs_cannot_be_looked_for() {
    let netns = pod_or_skip!();
    let (config, place) = (TempFile::new("{}"), path(&netns));
    let run = |verb: &str, bpffs: &str| -> Run {
        let args = [verb, "node-ambient", "--host-netns", &place, "--config"];
        weir_with(
            &[&args[..], &[config.path()]].concat(),
            &[("WEIR_BPFFS", bpffs)],
        )
    };
    let applied = run("apply", "/nonexistent");
    if applied.stderr.contains("not supported") {
        println!("skipped: {}", applied.stderr);
        return;
    }
    assert_eq!(applied.code, 0, "{applied:?}");
    let below_a_file = format!("{}/bpf", config.path());
    let cleaned = run("clean", &below_a_file);
    assert_eq!(cleaned.code, 1, "{cleaned:?}");
    assert!(cleaned.stderr.contains(&below_a_file), "{cleaned:?}");
    let cleaned = run("clean", "/nonexistent");
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    assert!(cleaned.stdout.contains("nothing to remove"), "{cleaned:?}");
}

/// Without `--engine` weir first finds out whether programs capture traffic; if it cannot, it neither compares nor writes anything.
// matrix: newest
#[test]
fn an_engine_is_not_chosen_where_programs_cannot_be_looked_for() {
    let netns = pod_or_skip!();
    let (config, place) = (TempFile::new("{}"), path(&netns));
    let below_a_file = format!("{}/bpf", config.path());
    let run = |verb: &str, more: &[&str]| -> Run {
        let args = [verb, "node-ambient", "--host-netns", &place, "--config"];
        let args = [&args[..], &[config.path()], more].concat();
        weir_with(&args, &[("WEIR_BPFFS", &below_a_file)])
    };
    let rules = || Routing::open_in(&netns).unwrap().rules().unwrap();
    let before = rules();
    for (verb, code) in [("plan", 1), ("verify", 3), ("apply", 1)] {
        let refused = run(verb, &[]);
        assert_eq!(refused.code, code, "{verb}: {refused:?}");
        for words in [
            &below_a_file,
            "it is unknown whether",
            "--engine",
            "WEIR_BPFFS",
        ] {
            assert!(refused.stderr.contains(words), "{verb}: {refused:?}");
        }
        assert_eq!((refused.stdout.as_str(), rules()), ("", before.clone()));
    }
    // The sysctls that programs may have left changed are unknown, too.
    assert_eq!(run("apply", &["--engine", "nft"]).code, 1);
    assert_eq!(rules(), before);
    let planned = run("plan", &["--engine", "nft"]);
    assert!(planned.code == 0 || planned.stderr.contains("not supported"));
    assert_eq!(run("verify", &["--engine", "nft"]).code, 3);
}

/// Each engine changes sysctls that the previous engine had changed: `clean` restores the values from before both.
// matrix: newest
#[test]
fn sysctls_get_back_what_they_were_before_the_engine_changed() {
    for engines in [
        ["ebpf", "nft"],
        ["nft", "ebpf"],
        ["ebpf", "xtables"],
        ["xtables", "ebpf"],
    ] {
        let (netns, proxy) = (pod_or_skip!(), pod_or_skip!());
        let Some(mounted) = weir_testing::BpfFs::mount() else {
            return;
        };
        let config = with_proxy(&netns, &proxy);
        let conf = "/proc/sys/net/ipv4/conf";
        let all = |netns: &Netns, links: [&str; 3]| {
            let keys = ["rp_filter", "src_valid_mark", "accept_local", "forwarding"];
            let read = || {
                let read = |link, key| std::fs::read_to_string(format!("{conf}/{link}/{key}"));
                links.map(|link| keys.map(|key| read(link, key).unwrap()))
            };
            netns.run(read).unwrap()
        };
        let state = || {
            let at_proxy = all(&proxy, ["all", "default", "eth0"]);
            (all(&netns, ["all", "default", "v2"]), at_proxy)
        };
        let set = |netns: &Netns, key: &str| {
            let write = || std::fs::write(format!("{conf}/{key}"), "1").unwrap();
            netns.run(write).unwrap();
        };
        for key in ["all/rp_filter", "default/rp_filter"] {
            set(&netns, key);
        }
        for key in [
            "all/src_valid_mark",
            "eth0/src_valid_mark",
            "eth0/forwarding",
        ] {
            set(&proxy, key);
        }
        let before = state();
        let place = path(&netns);
        let run = |verb: &str, more: &[&str]| -> Run {
            let args = [verb, "node-ambient", "--host-netns", &place, "--config"];
            let args = [&args[..], &[config.path()], more].concat();
            weir_with(&args, &[("WEIR_BPFFS", mounted.path().to_str().unwrap())])
        };
        for engine in engines {
            let applied = run("apply", &["--engine", engine]);
            if applied.stderr.contains("not supported") {
                println!("skipped: {}", applied.stderr);
                return;
            }
            assert_eq!(applied.code, 0, "{engines:?}: {applied:?}");
            let verified = run("verify", &["--engine", engine]);
            assert_eq!(verified.code, 0, "{engines:?}: {verified:?}");
            assert_ne!(state(), before, "{engines:?}");
        }
        let cleaned = run("clean", &[]);
        assert_eq!(cleaned.code, 0, "{engines:?}: {cleaned:?}");
        assert_eq!(state(), before, "{engines:?}");
    }
}

/// Programs that are pinned in another bpf file system are neither overlooked nor kept beside the rules of another engine.
// matrix: newest
#[test]
fn programs_that_are_pinned_elsewhere_are_named() {
    let (netns, proxy) = (pod_or_skip!(), pod_or_skip!());
    let (Some(first), Some(second)) = (weir_testing::BpfFs::mount(), weir_testing::BpfFs::mount())
    else {
        return;
    };
    let config = with_proxy(&netns, &proxy);
    let (place, inside) = (path(&netns), path(&proxy));
    let known = ["--config", config.path()];
    let run = |verb: &str, bpffs: &std::path::Path, more: &[&str]| -> Run {
        let args = [&[verb, "node-ambient", "--host-netns", &place], more].concat();
        weir_with(&args, &[("WEIR_BPFFS", bpffs.to_str().unwrap())])
    };
    let by_programs = [&known[..], &["--engine", "ebpf"]].concat();
    let applied = run("apply", first.path(), &by_programs);
    assert_eq!(applied.code, 0, "{applied:?}");
    let show = |netns: &str, bpffs: &std::path::Path| {
        let args = ["show", "--netns", netns, "--engine", "all"];
        weir_with(&args, &[("WEIR_BPFFS", bpffs.to_str().unwrap())]).stdout
    };
    // Without packet counters, and without the link-local addresses that the kernel adds.
    let is_ours = |line: &&str| line.contains(" weir_") || line.contains("proto 119");
    let state = || {
        let shown = [&place, &inside].map(|netns| show(netns, first.path()));
        let lines = shown.iter().flat_map(|shown| shown.lines());
        lines.filter(is_ours).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = state();
    let has = |words: &str| before.iter().any(|line| line.contains(words));
    assert!(
        has("it gives redirected") && has(" table 100") && has("proto 119"),
        "{before:?}"
    );
    assert!(!has("elsewhere"), "{before:?}");
    // The node's own programs show the other pins, and so do those in the proxy's namespace.
    for netns in [&place, &inside] {
        let shown = show(netns, second.path());
        assert!(shown.contains(", of weir, pinned elsewhere"), "{shown}");
    }

    let missing = std::path::Path::new("/nonexistent");
    let folder = weir_testing::TempDir::new();
    for bpffs in [second.path(), folder.path(), missing] {
        for (verb, more, code) in [
            ("clean", &[][..], 1),
            ("clean", &known, 1),
            ("verify", &known, 3),
            ("verify", &by_programs, 3),
            ("apply", &known, 1),
            ("apply", &by_programs, 1),
        ] {
            let run = run(verb, bpffs, more);
            assert_eq!(run.code, code, "{verb} {more:?}: {run:?}");
            for words in [
                "WEIR_BPFFS",
                bpffs.to_str().unwrap(),
                "another bpf file system",
            ] {
                assert!(run.stderr.contains(words), "{verb} {more:?}: {run:?}");
            }
            assert_eq!(state(), before, "{verb} {more:?}");
        }
    }
    // The kernel may have added a link-local address of the node since: then that is the only difference.
    let mut verified = run("verify", first.path(), &by_programs);
    if verified.code == 1 {
        assert!(verified.stdout.contains("fe80::"), "{verified:?}");
        assert_eq!(run("apply", first.path(), &by_programs).code, 0);
        verified = run("verify", first.path(), &by_programs);
    }
    assert_eq!(verified.code, 0, "{verified:?}");
    // `clean` without a proxy in the configuration cleans the node's namespace alone.
    assert_eq!(run("clean", first.path(), &[]).code, 0);
    assert_eq!(run("clean", second.path(), &known).code, 1);
    assert_eq!(run("clean", first.path(), &known).code, 0);
    let cleaned = run("clean", second.path(), &known);
    assert_eq!(cleaned.stdout, "nothing to remove\n", "{cleaned:?}");
}

/// The error names the path and the remedy.
// matrix: newest
#[test]
fn a_bpf_file_system_that_is_not_there_is_told_with_its_variable() {
    let netns = pod_or_skip!();
    let (config, place) = (TempFile::new("{}"), path(&netns));
    let args = [
        "node-ambient",
        "--config",
        config.path(),
        "--host-netns",
        &place,
    ];
    let plan = [&["plan"], &args[..], &["--engine", "ebpf"]].concat();
    let missing = weir_with(&plan, &[("WEIR_BPFFS", "/nonexistent")]);
    assert_eq!(missing.code, 1, "{missing:?}");
    for words in ["/nonexistent", "WEIR_BPFFS", "mount -t bpf bpf"] {
        assert!(missing.stderr.contains(words), "{words}: {missing:?}");
    }
    // An empty variable counts as unset.
    let [empty, unset] = [&[("WEIR_BPFFS", "")][..], &[]].map(|all| weir_with(&plan, all));
    assert_eq!((empty.code, empty.stderr), (unset.code, unset.stderr));
}

// matrix: newest
#[test]
fn where_no_namespace_can_be_entered_nothing_is_in_doubt() {
    let netns = pod_or_skip!();
    let place = path(&netns);
    let out = std::process::Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=setns", "-e"])
        .args(["inject=setns:error=EPERM", "-o", "/dev/null"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(["clean", "node-ambient", "--host-netns", &place])
        .output()
        .expect("strace is needed here");
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(
        text.contains("EPERM") && !text.contains("unknown whether"),
        "{text}"
    );
}
