//! `--engine ebpf`: what the commands do and print, beside netfilter rules and beside programs of other writers.
// matrix: newest

use crate::support::{Run, TempFile, inside, lo_up, path, weir_with};
use std::time::{Duration, Instant};
use weir_ambient::{PodOverrides, Redirect, Request};
use weir_bpf::{
    Anchor, BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP,
    Link, Program, ProgramSpec, attached, pin,
};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_testing::{BpfFs, lacks, mount_for_links};

pub(crate) struct Scene {
    mounted: BpfFs,
    pub(crate) netns: Netns,
    node: Netns,
    request: TempFile,
}

impl Scene {
    /// A pod with `eth0`. Prints the reason and returns `None` if eBPF is not available.
    pub(crate) fn new() -> Option<Self> {
        Self::of(mount_for_links()?)
    }

    fn on_any_kernel() -> Option<Self> {
        Self::of(BpfFs::mount()?)
    }

    fn of(mounted: BpfFs) -> Option<Self> {
        let (netns, node) = (weir_testing::namespace()?, weir_testing::namespace()?);
        lo_up(&netns);
        let routing = Routing::open_in(&netns).unwrap();
        routing.add_veth("eth0", "veth0", &node).unwrap();
        let request = r#"{"config": {"enable_ipv6": true, "redirect_dns": true}}"#;
        Some(Self {
            mounted,
            netns,
            node,
            request: TempFile::new(request),
        })
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Run {
        let bpffs = ("WEIR_BPFFS", self.bpffs());
        weir_with(args, &[&[bpffs], variables].concat())
    }

    /// The value of `WEIR_BPFFS`.
    pub(crate) fn bpffs(&self) -> &str {
        self.mounted.path().to_str().unwrap()
    }

    pub(crate) fn request(&self) -> &str {
        self.request.path()
    }

    pub(crate) fn ambient(&self, verb: &str, more: &[&str]) -> Run {
        let netns = path(&self.netns);
        let mut args = vec![verb, "ambient", "--config", self.request.path()];
        args.extend(["--netns", &netns]);
        args.extend(more);
        self.run(&args)
    }

    /// Runs a command in which bpf(2) fails with this error.
    fn without_bpf(&self, error: &str, args: &[&str]) -> std::process::Output {
        let mut traced = std::process::Command::new("strace");
        traced.args(["-f", "-qq", "-e", "trace=bpf", "-e"]);
        traced.arg(format!("inject=bpf:error={error}"));
        traced.args(["-o", "/dev/null", env!("CARGO_BIN_EXE_weir")]);
        traced.args(args).env("WEIR_BPFFS", self.mounted.path());
        traced.output().expect("strace is needed here")
    }

    fn show(&self) -> String {
        let run = self.run(&["show", "--netns", &path(&self.netns), "--engine", "bpf"]);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    }

    fn links(&self, interface: &str, hook: u32) -> usize {
        let count = || {
            let index = Routing::open().unwrap().link(interface).unwrap().index;
            attached(index, hook).unwrap().len()
        };
        self.netns.run(count).unwrap()
    }
}

/// XDP runs before every other hook of an interface: such a program is listed first, with the ID that `ip link` prints and with its link.
// matrix: every; variants no-netfilter
#[test]
fn a_program_at_the_hook_of_xdp_is_shown() {
    let Some(scene) = Scene::on_any_kernel() else {
        return;
    };
    // r0 = XDP_PASS; exit
    let pass = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let program = Program::load(BPF_PROG_TYPE_XDP, 0, &pass, c"GPL").unwrap();
    let attach = || {
        let index = Routing::open().unwrap().link("eth0").unwrap().index;
        Link::to_interface(&program, index, BPF_XDP, Anchor::Any)
    };
    // XDP links exist since 5.9; bpf(2) itself is older.
    let link = scene.netns.run(attach).unwrap().unwrap();
    let id = program.info().unwrap().id;
    let listed = inside(&scene.netns, "ip", &["link", "show", "eth0"]);
    assert!(listed.contains(&format!("prog/xdp id {id} ")), "{listed}");
    let line = format!(
        "eth0 xdp: (no name), program {id}, tag {}, link {}, of another writer\n",
        listed
            .split(" tag ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap(),
        link.info().unwrap().id
    );
    assert!(scene.show().starts_with(&line), "{line}: {}", scene.show());
}

/// On every kernel, the verdict of `preflight` agrees with the result of `apply`.
// matrix: every; variants no-netfilter
#[test]
fn preflight_judges_as_apply_then_ends() {
    let Some(scene) = Scene::on_any_kernel() else {
        return;
    };
    let judged = scene.run(&["preflight", "--json", "--job", "ebpf"]);
    let applied = scene.ambient("apply", &["--engine", "ebpf"]);
    assert_eq!(
        judged.code == 0,
        applied.code == 0,
        "{judged:?} {applied:?}"
    );
    let report: serde_json::Value = serde_json::from_str(&judged.stdout).expect("JSON");
    let verdict = report["jobs"][0]["verdict"].as_str().expect("a verdict");
    assert_eq!(verdict.starts_with("works"), applied.code == 0, "{report}");
}

#[test]
fn applied_verified_changed_back_to_netfilter_and_cleaned() {
    let Some(scene) = Scene::new() else { return };
    let ebpf = ["--engine", "ebpf"];
    let plan = scene.run(&[
        "plan",
        "ambient",
        "--config",
        scene.request.path(),
        "--engine",
        "ebpf",
    ]);
    assert_eq!(plan.code, 0, "{plan:?}");
    for words in [
        "at ingress of lo",
        "let connections of the node's own processes pass",
        "egress of every other interface",
        "accept_local=1",
        "lookup 100",
    ] {
        assert!(plan.stdout.contains(words), "{words}: {}", plan.stdout);
    }
    let verify = scene.ambient("verify", &ebpf);
    assert_eq!(verify.code, 1, "{verify:?}");
    assert!(verify.stdout.starts_with("drift: "), "{verify:?}");

    // A change from nf_tables to eBPF.
    let applied = scene.ambient("apply", &["--engine", "nft"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let listed = || inside(&scene.netns, "nft", &["list", "ruleset"]);
    assert!(listed().contains("redirect to :15001"), "{}", listed());
    let dry = scene.ambient("apply", &["--engine", "ebpf", "--dry-run"]);
    assert_eq!((dry.code, scene.show()), (0, String::new()), "{dry:?}");
    let applied = scene.ambient("apply", &ebpf);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(listed(), "");
    assert_eq!(scene.ambient("verify", &ebpf).code, 0);
    // Without `--engine`, both commands keep the engine that is in use.
    for verb in ["apply", "verify"] {
        let run = scene.ambient(verb, &[]);
        assert_eq!(run.code, 0, "{run:?}");
    }
    assert_eq!(scene.ambient("apply", &ebpf).stdout, "unchanged\n");
    let shown = scene.show();
    assert_eq!(
        shown
            .lines()
            // A kernel with GRE adds gretap0 and erspan0 to every network namespace.
            .filter(|line| line.starts_with("lo ") || line.starts_with("eth0 "))
            .count(),
        3,
        "{shown}"
    );
    assert!(shown.contains("0 outbound connections captured"), "{shown}");

    // The change back to nf_tables.
    let applied = scene.ambient("apply", &["--engine", "nft"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert!(listed().contains("redirect to :15001"));
    assert_eq!(scene.show(), "");
    assert_eq!(scene.ambient("verify", &["--engine", "nft"]).code, 0);

    scene.ambient("apply", &ebpf);
    let clean = scene.run(&["clean", "--netns", &path(&scene.netns)]);
    assert_eq!(clean.code, 0, "{clean:?}");
    let clean = scene.run(&["clean", "ambient", "--netns", &path(&scene.netns)]);
    assert_eq!(
        (clean.code, clean.stdout.as_str()),
        (0, "unchanged\n"),
        "{clean:?}"
    );
    assert_eq!(scene.show(), "");
    let left = inside(&scene.netns, "ip", &["rule"]) + &inside(&scene.netns, "ip", &["-6", "rule"]);
    assert!(!left.contains("0x111"), "{left}");
    let pods = scene.mounted.path().join("weir/v2");
    assert_eq!(std::fs::read_dir(pods).unwrap().count(), 0);
}

/// As with rules, there is then no route of IPv6, and it is missing as soon as `lo` has IPv6 again.
#[test]
fn a_pod_may_disable_ipv6() {
    let Some(scene) = Scene::new() else { return };
    if !weir_cni::redirection::has_ipv6() {
        return lacks::skip("disable IPv6", "every", "this kernel has none");
    }
    let disable = |value: u8| {
        for name in ["all", "lo"] {
            let key = format!("net.ipv6.conf.{name}.disable_ipv6={value}");
            inside(&scene.netns, "sysctl", &["-qw", &key]);
        }
    };
    let routes = || inside(&scene.netns, "ip", &["-6", "route", "show", "table", "all"]);
    let ebpf = ["--engine", "ebpf"];
    let is_in_sync = || {
        let verify = scene.ambient("verify", &ebpf);
        assert_eq!(verify.code, 0, "{verify:?}");
    };
    disable(1);
    let dry = scene.ambient("apply", &["--engine", "ebpf", "--dry-run"]);
    let applied = scene.ambient("apply", &ebpf);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(applied.stdout, dry.stdout.replace("would ", ""));
    is_in_sync();
    disable(0);
    let verify = scene.ambient("verify", &ebpf);
    assert_eq!(verify.code, 1, "{verify:?}");
    assert!(verify.stdout.contains("route local ::/0"), "{verify:?}");
    let healed = scene.ambient("apply", &ebpf);
    assert_eq!(
        (healed.code, healed.stdout.lines().count()),
        (0, 1),
        "{healed:?}"
    );
    assert!(routes().contains("table 100"), "{}", routes());
    is_in_sync();
    disable(1);
    is_in_sync();
    let clean = scene.run(&["clean", "ambient", "--netns", &path(&scene.netns)]);
    assert_eq!(clean.code, 0, "{clean:?}");
    let rules = inside(&scene.netns, "ip", &["-6", "rule"]);
    assert!(!rules.contains("0x111"), "{rules}");
}

/// `lo` gets IPv6 while the command waits for another writer: it keeps the route that it then adds.
#[test]
fn rules_are_removed_by_the_present_addresses() {
    let Some(scene) = Scene::new() else { return };
    if !weir_cni::redirection::has_ipv6() {
        return lacks::skip("disable IPv6", "every", "this kernel has none");
    }
    let disable = |value: u8| {
        let key = format!("net.ipv6.conf.lo.disable_ipv6={value}");
        inside(&scene.netns, "sysctl", &["-qw", &key]);
    };
    disable(1);
    assert_eq!(scene.ambient("apply", &["--engine", "nft"]).code, 0);
    let folder = scene.mounted.path().join("weir");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::open(&folder).unwrap();
    lock.lock().unwrap();
    let mut waiting = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["apply", "ambient", "--config", scene.request()])
        .args(["--netns", &path(&scene.netns), "--engine", "ebpf"])
        .env("WEIR_BPFFS", scene.bpffs())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    // A thread may have descriptors of its own.
    let tasks = format!("/proc/{}/task", waiting.id());
    let has_opened = || {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        let files = tasks.flat_map(|task| std::fs::read_dir(task.path().join("fd")));
        let mut files = files.flat_map(Iterator::flatten);
        files.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file == folder))
    };
    let (begun, mut seen) = (Instant::now(), 0);
    // Reading it takes less time than waiting.
    while seen < 5 {
        assert!(begun.elapsed() < Duration::from_secs(8), "it does not wait");
        seen = if has_opened() { seen + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(10));
    }
    disable(0);
    lock.unlock().unwrap();
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    let verify = scene.ambient("verify", &["--engine", "ebpf"]);
    assert_eq!(verify.code, 0, "{verify:?}");
}

/// Rules and programs in force at once break inbound connections. For every engine, what weir has of another one is drift.
#[test]
fn both_engines_in_force_are_drift_until_the_next_apply() {
    let Some(scene) = Scene::new() else { return };
    let bpffs = Bpffs::at(scene.mounted.path()).unwrap();
    let text = std::fs::read_to_string(scene.request.path()).unwrap();
    let config = Request::from_json(&text, "a request").unwrap().config;
    let wanted = Redirect::new(config, &PodOverrides::default()).unwrap();
    let own = Netns::current().unwrap();
    // The library keeps rules, as a command that is killed in time.
    let attach = || {
        let pod = Pod::of(&scene.netns, &bpffs).unwrap();
        pod.beside(&own).apply(&wanted).unwrap();
    };
    let has_rules = || {
        let shown = scene.run(&["show", "--netns", &path(&scene.netns), "--engine", "nft"]);
        let legacy = scene.run(&[
            "show",
            "--netns",
            &path(&scene.netns),
            "--engine",
            "xtables",
        ]);
        (shown.stdout + &legacy.stdout).contains("15001")
    };
    let is_good = |engine: &str| {
        let run = scene.ambient("verify", &["--engine", engine]);
        assert_eq!(run.code, 0, "{engine}: {run:?}");
    };
    for (rules, name) in [("nft", "istio-ambient-nat"), ("xtables", "ISTIO_PRERT")] {
        assert_eq!(scene.ambient("apply", &["--engine", rules]).code, 0);
        is_good(rules);
        attach();
        assert!(has_rules() && !scene.show().is_empty());
        for engine in ["auto", "ebpf", rules] {
            let verify = scene.ambient("verify", &["--engine", engine]);
            assert_eq!(verify.code, 1, "{rules} {engine}: {verify:?}");
            let of_programs = "+ unexpected  program weir_";
            let words = if engine == rules { of_programs } else { name };
            let is_named = verify.stdout.contains(words);
            assert!(
                verify.stdout.starts_with("drift: ") && is_named,
                "{rules} {engine}: {verify:?}"
            );
            let verify = scene.ambient("verify", &["--engine", engine, "--json"]);
            let report: serde_json::Value = serde_json::from_str(&verify.stdout).expect("JSON");
            assert_eq!((verify.code, &report["verified"]), (1, &false.into()));
            let differences = report["differences"].as_array().expect("a list");
            assert!(!differences.is_empty(), "{rules} {engine}: {report}");
        }
        assert_eq!(scene.ambient("apply", &["--engine", rules]).code, 0);
        assert_eq!(scene.show(), "");
        is_good(rules);
        attach();
        assert_eq!(scene.ambient("apply", &[]).code, 0);
        assert!(!has_rules());
        is_good("ebpf");
        assert_eq!(scene.ambient("clean", &[]).code, 0);
    }
}

/// Whatever a killed migration leaves, `verify` calls nothing good that the other engine captures, too.
#[test]
fn a_killed_migration_is_not_verified_as_good() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    for milliseconds in [0, 2, 4, 6, 8, 10, 13, 17, 25] {
        for (from, to) in [("ebpf", "nft"), ("nft", "ebpf")] {
            assert_eq!(scene.ambient("apply", &["--engine", from]).code, 0);
            let mut killed = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(["apply", "ambient", "--config", scene.request.path()])
                .args(["--netns", &netns, "--engine", to])
                .env("WEIR_BPFFS", scene.mounted.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(milliseconds));
            let _ = killed.kill();
            killed.wait().unwrap();
            let has_rules = inside(&scene.netns, "nft", &["list", "ruleset"]).contains("15001");
            let has_programs = !scene.show().is_empty();
            for engine in ["auto", "ebpf", "nft"] {
                let verify = scene.ambient("verify", &["--engine", engine]);
                let is_mixed = has_rules && has_programs;
                assert!(!is_mixed || verify.code == 1, "{from} {engine}: {verify:?}");
            }
            let apply = scene.ambient("apply", &["--engine", to]);
            assert_eq!(apply.code, 0, "{apply:?}");
            let verify = scene.ambient("verify", &["--engine", to]);
            assert_eq!(verify.code, 0, "{verify:?}");
        }
    }
}

/// The listener's answers to ztunnel would have ztunnel's mark, and pass uncaptured.
#[test]
fn a_sysctl_that_gives_answers_the_mark_is_a_conflict() {
    let Some(scene) = Scene::new() else { return };
    let set = |value: u8| {
        let key = format!("net.ipv4.tcp_fwmark_accept={value}");
        inside(&scene.netns, "sysctl", &["-qw", &key]);
    };
    assert_eq!(scene.ambient("apply", &["--engine", "ebpf"]).code, 0);
    set(1);
    for (verb, code) in [("apply", 0), ("verify", 1)] {
        let run = scene.ambient(verb, &["--engine", "ebpf"]);
        let is_told = (run.stdout.clone() + &run.stderr).contains("tcp_fwmark_accept");
        assert_eq!((run.code, is_told), (code, true), "{run:?}");
    }
    set(0);
    assert_eq!(scene.ambient("verify", &[]).code, 0);
}

/// The kernel looks up packets that programs send to `lo` in that policy rule.
#[test]
fn a_policy_rule_that_leads_packets_past_the_programs_is_a_conflict() {
    let Some(scene) = Scene::new() else { return };
    let ip = |line: &str| inside(&scene.netns, "ip", &line.split(' ').collect::<Vec<_>>());
    ip("address add 10.99.0.1/24 dev eth0");
    assert_eq!(scene.ambient("apply", &["--engine", "ebpf"]).code, 0);
    assert_eq!(scene.ambient("verify", &[]).code, 0);
    ip("route add blackhole default table 50");
    ip("rule add iif lo lookup 50 priority 50");
    let verify = scene.ambient("verify", &[]);
    assert_eq!(verify.code, 1, "{verify:?}");
    for words in ["conflict: ", "warning: a foreign policy rule", "lookup 50"] {
        assert!(verify.stdout.contains(words), "{words}: {verify:?}");
    }
    let verify = scene.ambient("verify", &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&verify.stdout).expect("JSON");
    assert_eq!((verify.code, &report["verified"]), (1, &false.into()));
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["differences"].as_array().map(Vec::len), Some(0));
}

/// Acceptance checks 3 and 10 of eBPF mode.
// matrix: variants no-netfilter
#[test]
fn check_3_and_10_programs_of_other_writers_stay_and_run() {
    let Some(scene) = Scene::new() else { return };
    // r0 = -1; exit
    let exit = [0x95, 0, 0, 0, 0, 0, 0, 0];
    let next = [[0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], exit];
    let program = Program::load(BPF_PROG_TYPE_SCHED_CLS, 0, &next, c"GPL").unwrap();
    let attach = || {
        let routing = Routing::open().unwrap();
        let index = routing.link("eth0").unwrap().index;
        let link = Link::to_interface(&program, index, BPF_TCX_INGRESS, Anchor::Any).unwrap();
        routing.add_qdisc(&Qdisc::clsact(index)).unwrap();
        let kind = FilterKind::bpf(std::os::fd::AsFd::as_fd(&program), "foreign");
        routing
            .add_filter(&Filter::new(index, TcHandle::EGRESS, 1, kind))
            .unwrap();
        link
    };
    let link = scene.netns.run(attach).unwrap();
    // The other writer pins both its link and its program. A dangling symbolic link in the same folder is ignored.
    let folder = scene.mounted.path().join("other/tc");
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink("/nowhere", folder.join("lost")).unwrap();
    pin(std::os::fd::AsFd::as_fd(&link), &folder.join("link")).unwrap();
    pin(
        std::os::fd::AsFd::as_fd(&program),
        &scene.mounted.path().join("prog"),
    )
    .unwrap();
    let before = scene.show();
    let pinned = |at: &str| format!(", pinned at {}/{at}", scene.mounted.path().display());
    let both = format!(
        "{} and {}/prog",
        pinned("other/tc/link"),
        scene.mounted.path().display()
    );
    for of in [both, pinned("prog")] {
        let line = format!("of another writer{of}\n");
        assert_eq!(before.matches(&line).count(), 1, "{of}: {before}");
    }
    assert!(before.contains("clsact egress pref 1"), "{before}");

    let applied = scene.ambient("apply", &["--engine", "ebpf"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert_eq!(
        (
            scene.links("eth0", BPF_TCX_INGRESS),
            scene.links("eth0", BPF_TCX_EGRESS)
        ),
        (2, 1)
    );
    let shown = scene.show();
    // Weir's program must run first: a program that consumes packets would let them escape the redirection.
    let ours = shown.find("eth0 tcx ingress: weir_i").expect("ours");
    assert!(
        ours < shown.find("eth0 tcx ingress: (no name)").expect("theirs"),
        "{shown}"
    );

    let clean = scene.run(&["clean", "ambient", "--netns", &path(&scene.netns)]);
    assert_eq!(clean.code, 0, "{clean:?}");
    assert_eq!(scene.show(), before);
}

/// Probes pass from the network namespace that the agent's settings name, or from that of the command if they name none.
// matrix: variants no-netfilter
#[test]
fn the_namespace_of_the_node_is_the_own_one_or_as_the_settings_say() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let ambient = |verb: &str, variables: &[(&str, &str)]| {
        let config = ["--config", scene.request.path(), "--netns", &netns];
        let args = [&[verb, "ambient"], &config[..], &["--engine", "ebpf"]].concat();
        scene.run_with(&args, variables)
    };
    let id = |of: &Netns| {
        let routing = Routing::open_in(&scene.netns).unwrap();
        routing.nsid(of).unwrap()
    };
    let (node, own) = (path(&scene.node), Netns::current().unwrap());
    let of_node = [("WEIR_HOST_NETNS", node.as_str())];
    // The node's namespace has an ID because a link leads to it. A command that only compares assigns no ID to its own namespace.
    assert_eq!(ambient("verify", &[]).code, 1);
    assert_eq!((id(&scene.node), id(&own)), (Some(0), None));
    assert_eq!(ambient("apply", &of_node).code, 0);
    assert_eq!(ambient("verify", &of_node).code, 0);
    assert_eq!(id(&own), None);
    let differs = ambient("verify", &[]);
    assert_eq!(differs.code, 1, "{differs:?}");
    let words = "let connections of the node's own processes pass";
    assert!(differs.stdout.contains(words), "{differs:?}");
    assert_eq!(ambient("apply", &[]).code, 0);
    assert_eq!(id(&own), Some(1));
    assert_eq!(ambient("verify", &[]).code, 0);
    let unknown = ambient("apply", &[("WEIR_HOST_NETNS", "/nonexistent")]);
    assert_ne!(unknown.code, 0);
    assert!(unknown.stderr.contains("/nonexistent"), "{unknown:?}");
    assert_eq!(ambient("verify", &[]).code, 0, "nothing was changed");
}

#[test]
fn what_is_missing_is_named_and_nothing_is_changed() {
    let Some(scene) = Scene::new() else { return };
    let folder = weir_testing::TempDir::new();
    let netns = path(&scene.netns);
    let args = [
        "apply",
        "ambient",
        "--config",
        scene.request.path(),
        "--netns",
        &netns,
    ];
    let args = [&args[..], &["--engine", "ebpf"]].concat();
    let run = weir_with(&args, &[("WEIR_BPFFS", folder.path().to_str().unwrap())]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("mount -t bpf bpf"), "{run:?}");
    assert_eq!(scene.show(), "");
    let config = crate::support::config(&serde_json::json!({}));
    let sidecar = [
        "apply",
        "sidecar",
        "--config",
        config.path(),
        "--netns",
        &netns,
        "--engine",
        "ebpf",
    ];
    let run = scene.run(&sidecar);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("auto, nft, xtables"), "{run:?}");
}

/// Programs that are pinned in another bpf file system are neither overlooked nor kept beside the rules of another engine.
#[test]
fn programs_of_a_pod_that_are_pinned_elsewhere_are_named() {
    let Some(scene) = Scene::new() else { return };
    let Some(other) = BpfFs::mount() else { return };
    let applied = scene.ambient("apply", &["--engine", "ebpf"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    let (before, place) = (scene.show(), path(&scene.netns));
    let at = ["--netns", &place];
    let of = ["ambient", "--config", scene.request.path()];
    let elsewhere = ("WEIR_BPFFS", other.path().to_str().unwrap());
    for (verb, more, code) in [
        ("clean", &[][..], 1),
        ("clean", &["ambient"], 1),
        ("clean", &["ambient", "--dry-run"], 1),
        ("verify", &of, 3),
        ("apply", &of, 1),
        ("apply", &[&of[..], &["--engine", "ebpf"]].concat(), 1),
    ] {
        let args = [&[verb], more, &at].concat();
        let run = scene.run_with(&args, &[elsewhere]);
        assert_eq!(run.code, code, "{args:?}: {run:?}");
        for words in ["pinned in another bpf file system", "WEIR_BPFFS"] {
            assert!(run.stderr.contains(words), "{args:?}: {run:?}");
        }
        assert_eq!(scene.show(), before, "{args:?}");
    }
    let cleaned = scene.ambient("clean", &[]);
    assert_eq!((cleaned.code, scene.show().as_str()), (0, ""));
    let clean = [&["clean"][..], &at].concat();
    let run = scene.run_with(&clean, &[elsewhere]);
    assert_eq!(run.code, 0, "{run:?}");
}

/// If weir cannot find out whether programs capture traffic, it neither compares nor writes anything.
#[test]
fn an_engine_is_not_chosen_where_programs_cannot_be_looked_for() {
    let Some(scene) = Scene::new() else { return };
    let (netns, request) = (path(&scene.netns), scene.request.path());
    let below_a_file = format!("{request}/bpf");
    let rules = || inside(&scene.netns, "ip", &["rule"]);
    let before = rules();
    for (verb, code) in [("verify", 3), ("apply", 1)] {
        let args = [verb, "ambient", "--config", request, "--netns", &netns];
        let run = scene.run_with(&args, &[("WEIR_BPFFS", &below_a_file)]);
        assert_eq!(run.code, code, "{verb}: {run:?}");
        for words in [
            &below_a_file,
            "it is unknown whether",
            "--engine",
            "WEIR_BPFFS",
        ] {
            assert!(run.stderr.contains(words), "{verb}: {run:?}");
        }
        assert_eq!((run.stdout.as_str(), rules()), ("", before.clone()));
    }
}

/// bpf(2) fails as it does under a seccomp filter or lockdown, and as in a kernel without it.
///
/// The error names the reason, nothing is changed, and the same command with netfilter works.
#[test]
fn where_bpf_is_forbidden_the_reason_is_named_and_nothing_is_changed() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let rules = || inside(&scene.netns, "ip", &["rule"]);
    let before = rules();
    for (error, words) in [
        ("EPERM", "no seccomp filter or lockdown"),
        ("ENOSYS", "CONFIG_BPF_SYSCALL"),
    ] {
        let request = scene.request.path();
        let args = ["apply", "ambient", "--config", request, "--netns", &netns];
        let out = scene.without_bpf(error, &[&args[..], &["--engine", "ebpf"]].concat());
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{error}: {text}");
        assert!(text.contains(words), "{error}: {text}");
        assert_eq!(
            (rules(), scene.show()),
            (before.clone(), String::new()),
            "{error}"
        );
    }
    let netfilter = scene.ambient("apply", &["--engine", "nft"]);
    assert_eq!(netfilter.code, 0, "{netfilter:?}");
}

/// Rules need no bpf(2). Whether programs capture beside them is unknown then, unless the kernel has none.
#[test]
fn where_bpf_is_forbidden_programs_are_not_taken_for_absent() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let desired = ["--config", scene.request.path(), "--engine", "nft"];
    for (error, is_told) in [("EPERM", true), ("ENOSYS", false)] {
        for (verb, of) in [
            (&["apply", "ambient"][..], &desired[..]),
            (&["verify", "ambient"], &desired),
            (&["clean", "ambient"], &[]),
            (&["clean"], &[]),
        ] {
            let out = scene.without_bpf(error, &[verb, of, &["--netns", &netns]].concat());
            let text = String::from_utf8_lossy(&out.stderr);
            assert_eq!(out.status.code(), Some(0), "{error} {verb:?}: {text}");
            let has = |words: &str| text.contains(words);
            let told = has("it is unknown whether") && has("bpf(2) is not permitted");
            assert_eq!(told, is_told, "{error} {verb:?}: {text}");
        }
        let applied =
            scene.run(&[&["apply", "ambient"], &desired[..], &["--netns", &netns]].concat());
        assert_eq!(applied.code, 0, "{applied:?}");
        let verify = [&["verify", "ambient"], &desired[..], &["--netns", &netns]].concat();
        let out = scene.without_bpf(error, &verify);
        let text = String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            text.contains("no other object of ambient mode"),
            !is_told,
            "{error}: {text}"
        );
        let out = scene.without_bpf(error, &[&verify[..], &["--json"]].concat());
        let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let warnings = report["warnings"].as_array().map(Vec::len);
        assert_eq!(warnings, Some(usize::from(is_told)), "{error}: {report}");
    }
}

/// The name of weir's program does not make a program weir's, if its link is pinned by another writer in the same file system.
#[test]
fn a_foreign_program_with_the_name_of_weirs_is_foreign() {
    let Some(scene) = Scene::new() else { return };
    let apply = || scene.ambient("apply", &["--engine", "ebpf"]);
    assert_eq!(apply().code, 0);
    let shown = scene.show();
    let (_, name) = shown.split_once("eth0 tcx ingress: ").expect("ours");
    let (name, _) = name.split_once(',').expect("a name");
    let next = [
        [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
    ];
    let spec = ProgramSpec {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        attach_type: 0,
        name,
        license: c"GPL",
        instructions: &next,
    };
    let program = Program::load_with_log(&spec).expect("loaded");
    let attach = || {
        let index = Routing::open().unwrap().link("eth0").unwrap().index;
        Link::to_interface(&program, index, BPF_TCX_INGRESS, Anchor::First)
    };
    let link = scene.netns.run(attach).unwrap().unwrap();
    let at = scene.mounted.path().join("foreign");
    pin(std::os::fd::AsFd::as_fd(&link), &at).unwrap();
    for _ in 0..2 {
        let applied = apply();
        assert_eq!(applied.code, 0, "{applied:?}");
        assert_eq!(scene.ambient("verify", &[]).code, 0);
        assert_eq!(scene.links("eth0", BPF_TCX_INGRESS), 2);
        let clean = scene.run(&["clean", "ambient", "--netns", &path(&scene.netns)]);
        assert_eq!(clean.code, 0, "{clean:?}");
        assert_eq!(scene.links("eth0", BPF_TCX_INGRESS), 1);
    }
    assert!(scene.show().contains("of another writer, pinned at"));
}

/// Without pins nothing stores the previous values of sysctls: they are named.
#[test]
fn sysctls_whose_previous_values_are_lost_are_named() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(scene.ambient("apply", &["--engine", "ebpf"]).code, 0);
    std::fs::remove_dir_all(scene.mounted.path().join("weir/v2")).unwrap();
    let clean = || scene.run(&["clean", "ambient", "--netns", &path(&scene.netns)]);
    let cleaned = clean();
    assert_eq!(cleaned.code, 0, "{cleaned:?}");
    let words = "lo.accept_local=1 and net.ipv4.conf.lo.route_localnet=1 are left";
    assert!(cleaned.stderr.contains(words), "{cleaned:?}");
    assert!(!clean().stderr.contains("are left"));
}

/// With another bpf file system it is unknown whether programs redirect, not refuted.
#[test]
fn connections_that_programs_pinned_elsewhere_take_are_not_called_uncaptured() {
    let Some(scene) = Scene::new() else { return };
    let Some(other) = BpfFs::mount() else { return };
    inside(&scene.node, "ip", &["link", "set", "veth0", "up"]);
    for args in [
        &["link", "set", "eth0", "up"][..],
        &["address", "add", "10.9.9.1/24", "dev", "eth0"],
        &["route", "add", "default", "via", "10.9.9.2"],
        &[
            "neigh",
            "add",
            "10.9.9.2",
            "lladdr",
            "02:00:00:00:00:01",
            "dev",
            "eth0",
        ],
    ] {
        inside(&scene.netns, "ip", args);
    }
    assert_eq!(scene.ambient("apply", &["--engine", "ebpf"]).code, 0);
    let netns = path(&scene.netns);
    let args = ["verify", "netns", &netns, "--live", "--outbound-only"];
    let proved = scene.run(&args);
    assert_eq!(proved.code, 0, "{proved:?}");
    let unknown = weir_with(&args, &[("WEIR_BPFFS", other.path().to_str().unwrap())]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(unknown.stderr.contains("WEIR_BPFFS"), "{unknown:?}");
}

/// The namespace that the agent's settings name as the host's is no pod's.
#[test]
fn the_namespace_named_as_the_hosts_is_refused() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let desired = ["--config", scene.request.path(), "--netns", &netns];
    let named = [("WEIR_HOST_NETNS", &*netns)];
    for args in [
        [&["apply", "ambient"][..], &desired].concat(),
        [&["apply", "ambient", "--engine", "ebpf"][..], &desired].concat(),
        vec!["clean", "ambient", "--netns", &netns],
    ] {
        let refused = scene.run_with(&args, &named);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("WEIR_HOST_NETNS"), "{refused:?}");
    }
    assert_eq!(scene.show(), "");
}

/// Acceptance check 5 of eBPF mode: the next process completes whatever a killed process left.
#[test]
fn check_5_killed_at_any_moment_it_is_completed_by_the_next() {
    let Some(scene) = Scene::new() else { return };
    let netns = path(&scene.netns);
    let args = [
        "apply",
        "ambient",
        "--config",
        scene.request.path(),
        "--netns",
        &netns,
    ];
    for milliseconds in [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 25] {
        let mut killed = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .args(["--engine", "ebpf"])
            .env("WEIR_BPFFS", scene.mounted.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        let _ = killed.kill();
        killed.wait().unwrap();
        for verb in ["apply", "verify"] {
            let run = scene.ambient(verb, &["--engine", "ebpf"]);
            assert_eq!(run.code, 0, "after {milliseconds} ms: {run:?}");
        }
        let links = [
            ("lo", BPF_TCX_INGRESS),
            ("eth0", BPF_TCX_INGRESS),
            ("eth0", BPF_TCX_EGRESS),
        ];
        let links = links.map(|(interface, hook)| scene.links(interface, hook));
        assert_eq!(links, [1, 1, 1], "after {milliseconds} ms");
        let clean = scene.run(&["clean", "--netns", &netns]);
        assert_eq!(clean.code, 0, "{clean:?}");
        assert_eq!(scene.show(), "");
    }
}
