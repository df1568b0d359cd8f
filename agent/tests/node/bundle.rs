//! `weir preflight --bundle`: its contents, what it leaves out, and when none is written. `tar` and `sha256sum` unpack and check it.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{Node, names};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use weir_netlink::Netns;

/// Every secret contains this word, so that a single search finds all of them.
const PLANTED: &str = "pLaNtEd";

const CONFIG: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {"type": "calico", "policy": {"type": "k8s", "k8s_auth_token": "pLaNtEd\"-1"}, "rate": 12345678901234567890.10},
    {"type": "x", "secrets": ["pLaNtEd-2", {"a": "pLaNtEd-3]"}], "url": "https://user:pLaNtEd-4@etcd:2379/a"},
    {"type": "w", "pwd": "pLaNtEd-18", "pass": "pLaNtEd-19", "psk": "pLaNtEd-20", "env": {"DB_PASS": "pLaNtEd-21"},
     "args": ["--password", "pLaNtEd-22"]},
    {"type": "v", "pLaNtEd-23": 1},
    {"type": "z", "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}}
  ]
}
"#;
const KUBECONFIG: &str =
    "apiVersion: v1\nusers:\n- name: calico\n  user:\n    token: pLaNtEd-5-of-calico\n";

/// A node with a secret in every place that a report reads.
pub(crate) fn node() -> Node {
    let node = Node::new();
    node.write("account/token", "pLaNtEd-6-of-the-account\n");
    node.write("net.d/10-pods.conflist", CONFIG);
    node.write(
        "net.d/20-broken.conf",
        r#"{"type": "x", "token": "pLaNtEd-7", "#,
    );
    node.write("net.d/calico-kubeconfig", KUBECONFIG);
    std::fs::create_dir(node.path("net.d/pods")).unwrap();
    node.write(
        "net.d/pods/1.conf",
        r#"{"type": "y", "password": "pLaNtEd-8"}"#,
    );
    node.write(
        "net.d/4f9d8e7a6b5c4d3e2f1a.conf",
        r#"{"type": "bridge", "bridge": "pLaNtEd-24-of-a-k"}"#,
    );
    let elsewhere = node.path("elsewhere");
    std::fs::write(&elsewhere, "pLaNtEd-9").unwrap();
    std::os::unix::fs::symlink(&elsewhere, node.path("net.d/30-link.conf")).unwrap();
    node
}

/// Log lines that contain secrets by mistake.
fn careless_log(node: &Node) {
    let line = |msg: &str| {
        serde_json::json!({"level": "info", "time": "2026-11-20T21:15:02.000001Z", "msg": msg})
            .to_string()
    };
    let (first, using, last) = (
        line("ADD failed: no answer within 5 s"),
        line("using pLaNtEd-6-of-the-account and pLaNtEd-5-of-calico, psk pLaNtEd-24"),
        line("redirected by nft in net:[4026532947]: 27 changes, verified"),
    );
    let log = format!(
        "{first}\n{using}\npwd=pLaNtEd-16\n{{\"args\":[\"--password\",\"pLaNtEd-17\"]}}\nusing pLaNtEd-6-of-the-account and pLaNtEd-5-of-calico\n\
         Authorization: Bearer pLaNtEd-10\nhttp://a:pLaNtEd-11@proxy:3128\npassword=pLaNtEd-12 proxy-{PLANTED}-13\n\
         -----BEGIN RSA PRIVATE KEY-----\n{PLANTED}\n-----END RSA PRIVATE KEY-----\n\
         {{\"config\":\"{{\\\"token\\\": \\\"pLaNtEd-14\\\"}}\"}}\n{last}\n"
    );
    node.write("run/istio-cni.log", &log);
}

const ENV: [(&str, &str); 4] = [
    ("REPAIR_LABEL_SELECTORS", "a=pLaNtEd-25"),
    ("CNI_NETWORK_CONFIG_FILE", "/x/pLaNtEd-26"),
    ("HTTPS_PROXY", "http://me:proxy-pLaNtEd-13@10.0.0.1:3128"),
    ("CNI_NETWORK_CONFIG", r#"{"anything": "pLaNtEd-15"}"#),
];

pub(crate) fn bundle(node: &Node, further: &[&str]) -> Output {
    let file = node.path("report.tar").display().to_string();
    let args = [&["preflight", "--bundle", &file], further].concat();
    node.run(&args, &ENV)
}

/// Unpacks the report into `unpacked` below the node and checks every checksum.
pub(crate) fn unpack(node: &Node, file: &Path) -> std::path::PathBuf {
    let dir = node.path("unpacked");
    std::fs::create_dir(&dir).unwrap();
    let run = |command: &mut Command| {
        let out = command.output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    run(Command::new("tar").arg("-xf").arg(file).arg("-C").arg(&dir));
    let top = dir.join("weir-bundle");
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&top));
    top
}

pub(crate) fn read(top: &Path, name: &str) -> String {
    std::fs::read_to_string(top.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub(crate) fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn everything_is_in_it_but_secrets() {
    let node = node();
    let mut agent = node.start(&ENV, &["--log_output_level=cni-agent:debug"]);
    agent.wait_ready();
    careless_log(&node);
    let sent = r#"{"level":"info","time":"2026-11-20T21:15:02Z","msg":"psk pLaNtEd-27","DB_PASS":"pLaNtEd-28","if":"eth0"}"#;
    let body = serde_json::json!([sent]).to_string();
    let socket = node.path("run/log.sock");
    let mut stream = UnixStream::connect(socket).unwrap();
    let head = format!(
        "POST /log HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    // The agent answers after it has logged the lines.
    stream.read_to_end(&mut Vec::new()).unwrap();
    let out = bundle(&node, &["--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert_eq!(node.mode("report.tar"), 0o600);
    let bytes = std::fs::read(node.path("report.tar")).unwrap();
    for text in [&bytes, &out.stdout, &out.stderr] {
        let text = String::from_utf8_lossy(text);
        let at = text.find(PLANTED).unwrap_or(text.len());
        assert_eq!(at, text.len(), "{}", &text[at.saturating_sub(200)..at + 20]);
    }
    let top = unpack(&node, &node.path("report.tar"));
    let manifest: Value = serde_json::from_slice(&out.stdout).unwrap();
    let listed = manifest["files"].as_array().unwrap();
    let listed: Vec<&str> = listed.iter().map(|f| f["name"].as_str().unwrap()).collect();
    // A user who may not read the first process's namespace gets the rules of its own namespace as well.
    let host = std::fs::File::open("/proc/1/ns/net").is_ok();
    let listed: Vec<&str> = listed
        .into_iter()
        .filter(|name| host || *name != "rules/own.txt")
        .collect();
    let wanted = [
        "agent/files.txt",
        "agent/log.txt",
        "agent/metrics.txt",
        "agent/settings.json",
        "agent/settings.txt",
        "agent/status.json",
        "cni/listing.txt",
        "cni/net.d/10-pods.conflist",
        "cni/net.d/20-broken.conf",
        "cni/net.d/30-link.conf",
        "cni/net.d/file-3.conf",
        "cni/net.d/pods/1.conf",
        "cni/plugin-log.txt",
        "node/modules.txt",
        "node/versions.txt",
        "preflight.json",
        "preflight.txt",
        "rules/node.txt",
        "rules/pods.txt",
    ];
    assert_eq!(listed, wanted);
    assert_eq!(
        read(&top, "manifest.json"),
        String::from_utf8(out.stdout).unwrap()
    );

    // Only known keys of the configuration, and the entry that the agent added.
    let config = read(&top, "cni/net.d/10-pods.conflist");
    let parsed: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(
        (
            &parsed["plugins"][0]["type"],
            &parsed["plugins"][0]["(left out)"]
        ),
        (&"calico".into(), &"(left out, 2 keys)".into())
    );
    assert_eq!(parsed["plugins"][2]["(left out)"], "(left out, 5 keys)");
    assert!(config.contains("/etc/cni/net.d/calico-kubeconfig") && config.contains("istio-cni"));
    // The manifest lists the files that were truncated.
    let files = manifest["files"].as_array().unwrap();
    let left_out = |name: &str| -> u64 {
        let file = files.iter().find(|f| f["name"] == name).unwrap();
        file["valuesLeftOut"].as_u64().unwrap()
    };
    for (name, least) in [
        ("cni/net.d/10-pods.conflist", 2),
        ("cni/net.d/pods/1.conf", 1),
        ("cni/net.d/file-3.conf", 1),
        ("agent/settings.txt", 1),
        ("cni/plugin-log.txt", 2),
    ] {
        assert!(left_out(name) >= least, "{name}: {}", left_out(name));
    }
    assert_eq!(left_out("node/versions.txt"), 0);
    let broken = read(&top, "cni/net.d/20-broken.conf");
    assert!(broken.contains("it is not a JSON object"), "{broken}");
    assert_eq!(
        read(&top, "cni/net.d/pods/1.conf"),
        "{\n  \"type\": \"y\",\n  \"(left out)\": \"(left out, 1 keys)\"\n}\n"
    );
    let link = read(&top, "cni/net.d/30-link.conf");
    assert!(
        link.starts_with("not available: ") && link.contains("is a link to"),
        "{link}"
    );
    let unnamed = read(&top, "cni/net.d/file-3.conf");
    assert!(
        unnamed.contains("\"bridge\": \"(left out, 17 bytes)\""),
        "{unnamed}"
    );
    let listing = read(&top, "cni/listing.txt");
    assert!(
        !listing.contains("4f9d8e7a6b5c4d3e2f1a") && listing.contains("file-3"),
        "{listing}"
    );
    assert!(
        listing.contains("calico-kubeconfig  (contents are left out"),
        "{listing}"
    );
    let files = read(&top, "agent/files.txt");
    assert!(
        files.contains("istio-cni-kubeconfig  (contents are left out"),
        "{files}"
    );

    // The settings of the running agent: this command does not have that flag.
    let settings = read(&top, "agent/settings.txt");
    assert!(
        settings.starts_with("# those of the running agent\n"),
        "{settings}"
    );
    assert!(
        settings
            .contains("--log_output_level=\"cni-agent:debug\"  (flag --log_output_level; used)")
    );
    assert!(
        settings.contains("CNI_NETWORK_CONFIG=\"(left out)\"  (environment CNI_NETWORK_CONFIG; ")
    );
    let settings: Value = serde_json::from_str(&read(&top, "agent/settings.json")).unwrap();
    assert!(settings["settings"].as_array().unwrap().len() > 50);
    let log = read(&top, "agent/log.txt");
    assert!(
        log.contains("the plugin is installed and in force"),
        "{log}"
    );
    assert!(log.contains("\tcni-plugin\t(left out)\tif=eth0\n"), "{log}");
    let log = read(&top, "cni/plugin-log.txt");
    assert!(
        log.contains("ADD failed: no answer within 5 ") && log.contains(": 27 changes, verified"),
        "{log}"
    );
    assert!(
        log.contains("\"msg\":\"(left out) and (left out)\""),
        "{log}"
    );
    assert!(log.contains("lines of other programs are left out"));

    let rules = match host {
        true => read(&top, "rules/node.txt"),
        false => read(&top, "rules/own.txt"),
    };
    assert!(
        rules.contains("\n# nf_tables") && rules.contains("\n# sets of ipset\n"),
        "{rules}"
    );
    assert!(read(&top, "preflight.txt").contains("\nsidecar "));
    let preflight: Value = serde_json::from_str(&read(&top, "preflight.json")).unwrap();
    assert_eq!(preflight["jobs"].as_array().unwrap().len(), 6);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let versions = read(&top, "node/versions.txt");
    assert!(
        versions.contains(&format!("kernel: {release}")),
        "{versions}"
    );
    assert!(versions.contains(concat!("weir: ", env!("CARGO_PKG_VERSION"))));
    drop(agent);
}

#[test]
fn without_an_agent_it_says_so_and_has_the_rest() {
    let node = node();
    let out = bundle(&node, &[]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let text = String::from_utf8(out.stdout).unwrap();
    for part in [
        "agent/log.txt: no running agent",
        "cni/plugin-log.txt: cannot read",
    ] {
        assert!(text.contains(&format!("not available: {part}")), "{text}");
    }
    let top = unpack(&node, &node.path("report.tar"));
    let log = read(&top, "agent/log.txt");
    assert!(
        log.starts_with("not available: no running agent") && log.contains("agent.sock"),
        "{log}"
    );
    let settings = read(&top, "agent/settings.txt");
    assert!(
        settings.contains("no running agent could be asked"),
        "{settings}"
    );
    assert!(settings.contains("POD_NAMESPACE=\"istio-system\"  (environment POD_NAMESPACE; used)"));
    // A second report replaces the first one completely.
    assert_eq!(bundle(&node, &[]).status.code(), Some(0));
    assert!(!names(&node.root).iter().any(|n| n.contains(".tmp.")));
}

#[test]
fn to_stdout_and_arguments_that_do_not_fit() {
    let node = node();
    let out = node.run(&["preflight", "--bundle", "-"], &ENV);
    assert_eq!(out.status.code(), Some(0));
    assert!(stderr(&out).contains("stdout: "), "{}", stderr(&out));
    std::fs::write(node.path("piped.tar"), &out.stdout).unwrap();
    unpack(&node, &node.path("piped.tar"));
    let link = node.path("link.tar");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    for args in [
        &["--bundle", "-", "--json"][..],
        &["--bundle", "/dev/full"],
        &["--bundle", "/tmp"],
        &["--bundle", link.to_str().unwrap()],
        &["--bundle", "x", "--job", "sidecar"],
        &["--netns", "/proc/self/ns/net"],
        &["--bundle", "x", "--pid", "1", "--netns", "y"],
    ] {
        let out = node.run(&[&["preflight"], args].concat(), &[]);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(
            out.stdout.is_empty() && !stderr(&out).is_empty(),
            "{args:?}"
        );
    }
}

#[test]
fn it_is_written_whole_or_not_at_all() {
    let node = node();
    let file = node.path("nowhere/report.tar").display().to_string();
    let out = node.run(&["preflight", "--bundle", &file], &[]);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains(&file) && stderr(&out).contains("nothing was written"));
    if Netns::create().is_err() {
        println!("skipped, the full file system: nothing can be mounted");
        return;
    }
    // The file system has room for only a part of the report.
    let dir = node.path("full").display().to_string();
    std::fs::create_dir(&dir).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=8k none {dir} && echo old >{dir}/report.tar && {{ {} preflight --bundle \
         {dir}/report.tar; echo \"code $?\"; ls -A {dir}; cat {dir}/report.tar; }}",
        env!("CARGO_BIN_EXE_weir")
    );
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(text, "code 1\nreport.tar\nold\n", "{}", stderr(&out));
    assert!(stderr(&out).contains("No space left"), "{}", stderr(&out));
}

#[test]
fn an_ordinary_user_gets_what_there_is_for_everybody() {
    if Netns::create().is_err() {
        println!("skipped: another user cannot be taken on");
        return;
    }
    let node = node();
    let open = |name: &str, mode| {
        std::fs::set_permissions(node.path(name), PermissionsExt::from_mode(mode)).unwrap();
    };
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    weir_testing::copy_program(weir, &node.path("weir"));
    std::fs::create_dir(node.path("theirs")).unwrap();
    open("theirs", 0o777);
    open("net.d/20-broken.conf", 0o600);
    open("account/token", 0o600);
    let file = node.path("theirs/report.tar").display().to_string();
    let out = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(node.path("weir"))
        .args(["preflight", "--bundle", &file])
        .envs(node.env())
        .output()
        .unwrap();
    if stderr(&out).contains("setpriv") {
        return println!("skipped: {}", stderr(&out));
    }
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert_eq!(node.mode("theirs/report.tar"), 0o600);
    let top = unpack(&node, Path::new(&file));
    for name in ["rules/node.txt", "cni/net.d/20-broken.conf"] {
        let text = read(&top, name);
        assert!(text.starts_with("not available: "), "{name}: {text}");
    }
    assert!(read(&top, "cni/net.d/10-pods.conflist").contains("calico"));
    assert!(read(&top, "preflight.txt").contains("unknown: "));
    // A directory in which only this user may not write is refused, too.
    let refused = node.path("net.d/report.tar").display().to_string();
    let out = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(node.path("weir"))
        .args(["preflight", "--bundle", &refused])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("Permission denied") && !node.exists("net.d/report.tar"));
}
