//! Names, exit codes and one-line answers of the command.

use crate::support::{TempFile, config, inside, path, tproxy, weir, weir_fed};
use serde_json::{Value, json};
use std::process::Command;
use weir_netlink::Netns;

/// A namespace with a name for `ip netns`, which is deleted with this value.
struct Named(String);

impl Named {
    /// Returns `None` if this user may not create one.
    fn new() -> Option<Self> {
        let name = format!("weir-test-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let made = made.expect("ip is needed as an oracle");
        if !made.status.success() {
            eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        Some(Self(name))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

#[test]
fn a_namespace_has_a_name_as_for_ip_netns() {
    let Some(named) = Named::new() else { return };
    let file = config(&json!({}));
    let by_name = |args: &[&str]| weir(&[args, &["--netns", &named.0]].concat());
    let applied = by_name(&["apply", "sidecar", "--config", file.path()]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let listed = Command::new("ip")
        .args(["netns", "exec", &named.0, "nft", "list", "ruleset"])
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("table inet istio-proxy-nat"), "{listed}");
    assert_eq!(by_name(&["show", "--engine", "nft"]).stdout, listed);
    assert_eq!(by_name(&["clean"]).code, 0);

    let missing = weir(&["show", "--netns", "weir-test-no-such-name"]);
    assert_eq!(missing.code, 2);
    let expected = "/run/netns/weir-test-no-such-name";
    assert!(missing.stderr.contains(expected), "{}", missing.stderr);
    for bad in ["", ".", ".."] {
        let run = weir(&["show", "--netns", bad]);
        assert_eq!(run.code, 2, "{bad:?}");
        assert!(run.stderr.contains("ip netns"), "{}", run.stderr);
    }
}

#[test]
fn an_argument_that_cannot_be_used_is_2() {
    let pod = pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let list = TempFile::new("");
    let dir = format!("{}.d", list.path());
    std::fs::create_dir(&dir).unwrap();
    let conflist = format!("{dir}/n.conflist");
    std::fs::write(
        &conflist,
        r#"{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "weir-no-such-plugin"}]}"#,
    )
    .unwrap();
    let on_pod = ["--conf", &conflist, "--netns", &ns, "--id", "c1"];
    let both_eth0 = ["--networks", "n@eth0", "--net-dir", &dir];
    let added_twice = [&["cni", "add"][..], &on_pod, &both_eth0].concat();
    let deleted_twice = [&["cni", "del"][..], &on_pod, &both_eth0].concat();
    for args in [
        &["show", "--netns", "/nowhere/netns"][..],
        &["clean", "--netns", "/nowhere/netns"],
        &["clean", "--netns", "/proc/self/ns/net"],
        &[
            "apply",
            "sidecar",
            "--config",
            file.path(),
            "--netns",
            "/etc/passwd",
        ],
        &[
            "verify",
            "sidecar",
            "--config",
            file.path(),
            "--netns",
            "/proc/self/ns/mnt",
        ],
        &[
            "verify",
            "sidecar",
            "--config",
            file.path(),
            "--pid",
            "4294967",
        ],
        &[
            "restore",
            "--netns",
            "/nowhere/netns",
            "--format",
            "iptables",
            file.path(),
        ],
        &["restore", "--netns", &ns, "/nowhere/file"],
        &["plan", "sidecar", "--pod", "a", "--address", "10.0.0.2/33"],
        &["plan", "sidecar", "--pod", "a", "--address", "web"],
        &[
            "cni", "add", "--conf", &conflist, "--netns", &ns, "--id", "a/b",
        ],
        &[
            "cni",
            "add",
            "--conf",
            &conflist,
            "--netns",
            &ns,
            "--id",
            "c1",
            "--capability-args",
            "[]",
        ],
        &["cni", "status", "--conf", "/nowhere.conflist"],
        &["cni", "add", "--conf", &conflist, "--id", "c1"],
        &added_twice,
        &deleted_twice,
    ] {
        let run = weir(args);
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (2, ""),
            "{args:?}: {}",
            run.stderr
        );
    }
    let add = weir(&[
        "cni", "add", "--conf", &conflist, "--netns", &ns, "--id", "c1",
    ]);
    // Weir reports the missing namespace without calling the plugin, which does not exist either.
    for verb in ["add", "check"] {
        let nope = "weir-no-such-namespace";
        let run = weir(&[
            "cni", verb, "--conf", &conflist, "--netns", nope, "--id", "c1",
        ]);
        assert_eq!(run.code, 2, "{verb}: {}", run.stderr);
        let shown = weir(&["show", "--netns", nope]);
        assert_eq!((shown.code, &shown.stderr), (2, &run.stderr));
        assert!(
            run.stderr.contains("/run/netns/weir-no-such-namespace"),
            "{}",
            run.stderr
        );
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(add.code, 1, "{}", add.stderr);
    let named = add.stderr.matches("\"weir-no-such-plugin\"").count();
    assert_eq!(named, 1, "{}", add.stderr);
    assert!(add.stderr.contains("install it in one"), "{}", add.stderr);
    // install-cni exits with the same code.
    assert_eq!(weir(&["agent", "--no-such-flag"]).code, 1);
}

#[test]
fn stdin_is_called_stdin() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    for (args, text) in [
        (
            &["plan", "sidecar", "--config", "-"][..],
            "{ \"proxy_port\": ",
        ),
        (&["plan", "sidecar", "--config", "-"], "[]"),
        (&["plan", "sidecar", "--config", "-"], "\u{0}"),
        (&["plan", "sidecar", "--pod", "-"], "kind: Deployment\n"),
        (&["plan", "sidecar", "--pod", "-"], "[]"),
        (&["restore", "--netns", &ns, "-"], "*nat\n"),
    ] {
        let run = weir_fed(args, text.as_bytes());
        assert_eq!(run.code, 2, "{args:?}");
        assert!(
            run.stderr.starts_with("weir: stdin: "),
            "{args:?}: {}",
            run.stderr
        );
    }
    let run = weir_fed(&["plan", "sidecar", "--config", "-"], b"{\"\xff");
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.starts_with("weir: cannot read stdin: "),
        "{}",
        run.stderr
    );
}

#[test]
fn an_empty_namespace_is_one_line() {
    let pod = pod_or_skip!();
    let (ns, file) = (path(&pod), tproxy());
    let verify = ["verify", "sidecar", "--config", file.path(), "--netns", &ns];
    let empty = weir(&verify);
    assert_eq!(empty.code, 1, "{}", empty.stderr);
    assert_eq!(empty.stdout.lines().count(), 1, "{}", empty.stdout);
    assert!(
        empty.stdout.contains("holds no part of the redirection"),
        "{}",
        empty.stdout
    );
    let json = weir(&[&verify[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let count = json["differences"].as_array().unwrap().len();
    assert!(
        empty
            .stdout
            .contains(&format!("({count} objects are missing)")),
        "{}",
        empty.stdout
    );
    // A single object of weir exists, and `verify` counts every other one as a difference.
    inside(&pod, "nft", &["add", "table", "inet", "istio-proxy-nat"]);
    let some = weir(&verify);
    assert!(some.stdout.lines().count() > 10, "{}", some.stdout);
}

#[test]
fn show_has_the_routing_in_the_words_of_ip() {
    let pod = pod_or_skip!();
    let (ns, file) = (path(&pod), tproxy());
    let apply = ["apply", "sidecar", "--config", file.path(), "--netns", &ns];
    let applied = weir(&apply);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    for command in [
        "link add v0 type veth peer name v1",
        "link set v0 up",
        "link set v1 up",
        "-6 address add fd00::2/64 dev v0 nodad",
        "address add 10.1.2.3/24 dev v0",
        "route add default via 10.1.2.1 dev v0",
        "route add 10.9.0.0/16 via 10.1.2.9 table 77 metric 5",
        "rule add fwmark 0x4/0xf lookup 77 pref 100",
        "rule add from 10.1.0.0/16 lookup 77 pref 101",
    ] {
        inside(&pod, "ip", &command.split(' ').collect::<Vec<_>>());
    }
    let shown = weir(&["show", "--netns", &ns]);
    // Without bpf(2), which only the first user namespace permits, programs are unknown.
    let is_first = weir_testing::rights::not_first_user_namespace().is_none();
    let code = if is_first { 0 } else { 3 };
    assert_eq!(shown.code, code, "{}", shown.stderr);
    for line in [
        "ip -4 address 10.1.2.3/24 dev v0",
        "ip -6 address fd00::2/64 dev v0",
        "ip -6 address ::6/128 dev lo",
        "ip -4 rule fwmark 0x4/0xf lookup 77 pref 100",
        "ip -4 rule from 10.1.0.0/16 lookup 77 pref 101",
        "ip -4 route default via 10.1.2.1 dev v0 proto boot",
        "ip -4 route 10.1.2.0/24 dev v0 scope link src 10.1.2.3 proto kernel",
        "ip -4 route 10.9.0.0/16 via 10.1.2.9 dev v0 table 77 metric 5 proto boot",
        "ip -4 route local default dev lo scope host table 133 proto 119",
    ] {
        assert!(
            shown.stdout.lines().any(|l| l == line),
            "{line}\n{}",
            shown.stdout
        );
    }
    for beginning in [
        "ip -4 rule fwmark 0x539 lookup 133 pref ",
        "ip -6 rule fwmark 0x539 lookup 133 pref ",
    ] {
        let found = |l: &str| l.starts_with(beginning) && l.ends_with(" proto 119");
        assert!(
            shown.stdout.lines().any(found),
            "{beginning}\n{}",
            shown.stdout
        );
    }
    // Every namespace has these objects of the kernel.
    for never in ["127.0.0.1/8", "lookup local", "lookup main"] {
        assert!(!shown.stdout.contains(never), "{never}\n{}", shown.stdout);
    }
    let routing = weir(&["show", "--netns", &ns, "--engine", "routing"]);
    assert!(shown.stdout.ends_with(&routing.stdout) && routing.stdout.starts_with("ip -"));
    let json = weir(&["show", "--netns", &ns, "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let ours = |key: &str| {
        let all = json["routing"][key].as_array().unwrap();
        all.iter().filter(|o| o["ours"] == true).count()
    };
    assert_eq!(
        (ours("addresses"), ours("rules"), ours("routes")),
        (1, 2, 2),
        "{json}"
    );
}

#[test]
fn an_unknown_target_is_named_as_that() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    for (rule, code) in [("-A INPUT -j FOO", 1), ("-A INPUT -j FOO --with 1", 2)] {
        let text = TempFile::new(&format!("*filter\n{rule}\nCOMMIT\n"));
        let run = weir(&["restore", "--netns", &ns, "--noflush", text.path()]);
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains("unknown target"), "{}", run.stderr);
        assert!(
            run.stderr.contains("FOO") && run.stderr.contains("REDIRECT"),
            "{}",
            run.stderr
        );
    }
}

const DUAL: &str = "
kind: Pod
metadata:
  name: web
  namespace: shop
  annotations: {sidecar.istio.io/status: '{}'}
spec:
  containers:
  - {name: istio-proxy}
status:
  podIP: fd00::2
  podIPs: [{ip: 'fd00::2'}, {ip: 10.0.0.2}]
";

/// The kernel lists IPv4 addresses first; the plugin looks at the first address to decide about IPv6.
#[test]
fn a_pod_is_planned_as_the_plugin_decides() {
    let pod = TempFile::new(DUAL);
    let plan = weir(&["plan", "sidecar", "--pod", pod.path()]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(!plan.stdout.contains("ip6"), "{}", plan.stdout);
    let given = ["--address", "fd00::2", "--address", "10.0.0.2"];
    let given = weir(&[&["plan", "sidecar", "--pod", pod.path()][..], &given].concat());
    assert_eq!(given.stdout, plan.stdout);
    let netns = pod_or_skip!();
    inside(
        &netns,
        "ip",
        &["address", "add", "fd00::2/128", "dev", "lo"],
    );
    inside(
        &netns,
        "ip",
        &["address", "add", "10.0.0.2/32", "dev", "lo"],
    );
    let applied = weir(&[
        "apply",
        "sidecar",
        "--pod",
        pod.path(),
        "--netns",
        &path(&netns),
    ]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let shown = weir(&["show", "--engine", "nft", "--netns", &path(&netns)]);
    assert_eq!(shown.stdout, plan.stdout);

    let host = DUAL.replace("spec:", "spec:\n  hostNetwork: true");
    let host = TempFile::new(&host);
    let plan = weir(&["plan", "sidecar", "--pod", host.path()]);
    assert_eq!((plan.code, plan.stdout.as_str()), (0, ""));
    assert!(plan.stderr.contains("hostNetwork"), "{}", plan.stderr);
}

/// The addresses in its status identify the default network, whatever the name and the index of the interface.
#[test]
fn a_pod_is_redirected_as_its_status_says() {
    let netns = pod_or_skip!();
    let run = |line: &str| inside(&netns, "ip", &line.split(' ').collect::<Vec<_>>());
    for (link, index, address) in [
        ("net1", 1102, "192.168.7.5/24"),
        ("pod0", 1120, "fd00::2/64"),
    ] {
        run(&format!(
            "link add {link} index {index} type veth peer name at-{link}"
        ));
        run(&format!("address add {address} dev {link}"));
    }
    let ns = path(&netns);
    let of = |status: &str| {
        let pod = TempFile::new(&DUAL.replace("[{ip: 'fd00::2'}, {ip: 10.0.0.2}]", status));
        let run = weir(&["apply", "sidecar", "--pod", pod.path(), "--netns", &ns]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let run = weir(&["verify", "sidecar", "--pod", pod.path(), "--netns", &ns]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        inside(&netns, "nft", &["list", "ruleset"]).contains("::6")
    };
    assert!(of("[{ip: 'fd00::2'}]"));
    let starting = TempFile::new(DUAL.split("\nstatus:").next().unwrap());
    let verify = [
        "verify",
        "sidecar",
        "--pod",
        starting.path(),
        "--netns",
        &ns,
    ];
    assert_eq!(weir(&verify).code, 1, "the lowest index decides");
}

fn is_redirected(netns: &Netns) -> bool {
    inside(netns, "nft", &["list", "ruleset"]).contains("istio-proxy-nat")
}

#[test]
fn run_validation_probes() {
    let pod = pod_or_skip!();
    if let Some(reason) = crate::rights::not_first_user_namespace() {
        eprintln!("skipped: {reason}");
        return;
    }
    let ns = path(&pod);
    let run = |fields: &Value| {
        let file = config(fields);
        weir(&["apply", "sidecar", "--netns", &ns, "--config", file.path()])
    };
    let only = json!({ "run_validation": true, "skip_rule_apply": true, "probe_timeout": "300ms" });
    let unproven = run(&only);
    assert_eq!(unproven.code, 126, "{}", unproven.stderr);
    for words in ["run_validation", "127.0.0.6:15002", "1337:1337", "300ms"] {
        assert!(unproven.stderr.contains(words), "{}", unproven.stderr);
    }
    assert!(!is_redirected(&pod));

    for mode in ["REDIRECT", "TPROXY"] {
        for host_ip in ["10.0.0.2", "fd00::2"] {
            let fields = json!({
                "run_validation": true, "probe_timeout": "20s", "iptables_probe_port": 15999,
                "inbound_interception_mode": mode, "host_ip": host_ip,
            });
            let proven = run(&fields);
            assert_eq!(proven.code, 0, "{mode} {host_ip}: {}", proven.stderr);
        }
    }
    let proven = run(&only);
    assert_eq!(
        (proven.code, proven.stdout.as_str()),
        (0, "unchanged\n"),
        "{}",
        proven.stderr
    );

    // The port is in use, so the probe cannot listen there.
    let taken = pod.run(|| {
        [15001, 15006].map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).unwrap())
    });
    let blocked = run(&only);
    drop(taken);
    assert_eq!(blocked.code, 126, "{}", blocked.stderr);
    assert!(blocked.stderr.contains("listen"), "{}", blocked.stderr);

    let nobody = run(&json!({ "run_validation": true, "proxy_uid": ",", "proxy_gid": "," }));
    assert_eq!(nobody.code, 2, "{}", nobody.stderr);
}

#[test]
fn switches_of_upstream_work_or_say_what_is_done_instead() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    let run = |fields: Value, more: &[&str]| {
        let file = config(&fields);
        let args = [
            "apply",
            "sidecar",
            "--netns",
            &ns,
            "--json",
            "--config",
            file.path(),
        ];
        let run = weir(&[&args[..], more].concat());
        assert_eq!(run.code, 0, "{fields}: {}", run.stderr);
        let json: Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(weir(&["clean", "--netns", &ns]).code, 0);
        (json["engine"].as_str().unwrap().to_owned(), run.stderr)
    };
    let (legacy, said) = run(json!({ "force_iptables_binary": "legacy" }), &[]);
    assert_eq!(said, "");
    let (nft, said) = run(json!({ "native_nftables": true }), &[]);
    assert_eq!(said, "");
    assert_ne!(legacy, nft);
    let (engine, said) = run(json!({ "force_iptables_binary": "nft" }), &[]);
    assert!(
        engine == nft && said.contains("not into those of iptables-nft"),
        "{said}"
    );
    let (engine, said) = run(json!({ "native_nftables": true }), &["--engine", "xtables"]);
    assert!(engine == legacy && said.contains("--engine"), "{said}");
    let (_, said) = run(json!({ "force_apply": true, "reconcile": true }), &[]);
    assert!(
        said.contains("force_apply: ") && !said.contains("reconcile"),
        "{said}"
    );
}
