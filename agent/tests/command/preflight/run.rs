//! Exit codes and JSON of `weir preflight`, also without rights and on a kernel that could load modules.
// matrix: newest

use crate::support::{weir, weir_with};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_netlink::Netns;
use weir_testing::{BpfFs, copy_program};

/// A copy of the program that every user may execute.
struct Public(PathBuf);

impl Public {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        copy_program(Path::new(env!("CARGO_BIN_EXE_weir")), &dir);
        Self(dir)
    }
    fn weir(&self) -> String {
        self.0.join("weir").display().to_string()
    }
}

impl Drop for Public {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NOBODY: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

fn command(words: &[&str]) -> Output {
    Command::new(words[0]).args(&words[1..]).output().unwrap()
}

fn report(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn verdict(report: &Value, job: &str) -> String {
    let jobs = report["jobs"].as_array().unwrap();
    let found = jobs.iter().find(|j| j["job"] == job).expect("the job");
    found["verdict"].as_str().unwrap().to_owned()
}

fn is_root() -> bool {
    Netns::create().is_ok()
}

#[test]
fn root_gets_an_answer_to_everything_and_the_jobs_that_were_asked_for() {
    if !is_root() {
        println!("skipped: a network namespace cannot be made");
        return;
    }
    let run = weir(&[
        "preflight",
        "--json",
        "--job",
        "sidecar",
        "--job",
        "ambient",
    ]);
    // On a slow machine weir reports what it waits for.
    let complaints = run.stderr.lines().filter(|l| !l.contains("still probing"));
    assert_eq!(
        (run.code, complaints.count()),
        (0, 0),
        "{}\n{}",
        run.stdout,
        run.stderr
    );
    let report: Value = serde_json::from_str(&run.stdout).unwrap();
    let jobs: Vec<_> = report["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|j| &j["job"])
        .collect();
    assert_eq!(jobs, ["sidecar", "ambient"]);
    for feature in report["features"].as_array().unwrap() {
        let answer = feature["answer"].as_str().unwrap();
        assert!(["have", "lack", "unknown"].contains(&answer));
        if answer != "have" && !["process", "system"].contains(&feature["area"].as_str().unwrap()) {
            assert!(
                feature["options"][0]
                    .as_str()
                    .unwrap()
                    .starts_with("CONFIG_"),
                "{feature}"
            );
            assert_ne!(feature["detail"], "", "{feature}");
            assert_ne!(feature["instead"], "", "{feature}");
        }
    }
    let run = weir(&["preflight"]);
    for job in [
        "sidecar ",
        "sidecar-tproxy ",
        "ambient ",
        "node-ambient ",
        "ebpf ",
        "node-ebpf ",
    ] {
        assert!(run.stdout.lines().any(|l| l.starts_with(job)), "{job}");
    }
    assert!(!run.stdout.contains('\x1b'), "no colours in a pipe");
    // The verdicts come first, in terms of what weir does; the rest follows the details.
    let lines: Vec<&str> = run.stdout.lines().collect();
    let sentence = lines[0].contains("here: sidecar, sidecar-tproxy, ambient");
    assert!(sentence && !lines[0].contains("ebpf"), "{}", run.stdout);
    assert!(lines[1].starts_with("sidecar ") && lines[2].starts_with("sidecar-tproxy "));
    let at = |beginning: &str| lines.iter().position(|l| l.starts_with(beginning)).unwrap();
    assert!(at("kernel ") < at("Jobs that only a setting") && at("NF_TABLES") < at("ebpf "));
}

/// Without bpf(2) the default settings lose nothing.
#[test]
fn what_only_a_setting_chooses_spoils_no_verdict() {
    if !is_root() {
        println!("skipped: nothing can be mounted");
        return;
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = format!("mount --bind /dev/null /proc/filesystems && exec {weir} preflight");
    let run = |more: &str| {
        command(&[
            "unshare",
            "--mount",
            "sh",
            "-c",
            &format!("{script} {more}"),
        ])
    };
    let out = run("");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert!(text.contains("\nebpf            does not work"), "{text}");
    assert_eq!(run("--job ebpf").status.code(), Some(1));
    let out = report(&run("--json"));
    let jobs = out["jobs"].as_array().unwrap().iter();
    let default: Vec<_> = jobs
        .filter(|j| j["byDefault"] == true)
        .map(|j| &j["job"])
        .collect();
    assert_eq!(default, ["sidecar", "sidecar-tproxy", "ambient"]);
}

// matrix: host: about messages during a slow run, which any kernel can be
#[test]
fn a_slow_run_says_what_it_waits_for() {
    if !is_root() {
        println!("skipped: a network namespace cannot be made");
        return;
    }
    // Every socket() call is delayed.
    let slow = "inject=socket:delay_enter=700000";
    let weir = env!("CARGO_BIN_EXE_weir");
    let out = command(&[
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        slow,
        weir,
        "preflight",
    ]);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(stderr.contains("weir: still probing "), "{stderr}");
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn arguments_that_cannot_be_used_are_exit_code_2() {
    let run = weir(&["preflight", "--job", "nothing"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("node-ambient"), "{}", run.stderr);
}

#[test]
fn nobody_is_told_what_could_not_be_told_and_why() {
    if !is_root() {
        println!("skipped: another user cannot be taken on");
        return;
    }
    if let Some(reason) = crate::rights::unmapped([65_534]) {
        println!("skipped: {reason}");
        return;
    }
    let public = Public::new("nobody");
    let weir = public.weir();
    let out = command(&[&NOBODY[..], &[&weir, "preflight", "--json"]].concat());
    assert_eq!(
        out.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let report = report(&out);
    assert_eq!(verdict(&report, "sidecar"), "unknown");
    assert_eq!(report["jobs"][0]["missingCapabilities"][0], "NET_ADMIN");
    let features = report["features"].as_array().unwrap();
    for area in ["nf_tables", "xtables", "ipset", "net", "ebpf"] {
        let mut of_area = features.iter().filter(|f| f["area"] == area).peekable();
        assert!(of_area.peek().is_some(), "{area}");
        assert!(of_area.all(|f| f["answer"] == "unknown"), "{area}");
    }
    let out = command(&[&NOBODY[..], &[&weir, "preflight"]].concat());
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.contains("unknown [1]") && text.contains("run as root"),
        "{text}"
    );
    // In a user namespace of its own the same user gets the answers that the namespace permits.
    let own = [
        "unshare",
        "--user",
        "--map-root-user",
        &weir,
        "preflight",
        "--json",
        "--job",
        "sidecar",
    ];
    let out = command(&[&NOBODY[..], &own].concat());
    if out.status.code() == Some(1) && out.stdout.is_empty() {
        println!("skipped: {}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn a_job_that_does_not_work_is_exit_code_1() {
    if !is_root() {
        println!("skipped: nothing can be mounted");
        return;
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    let script =
        format!("mount --bind /dev/null /proc/filesystems && exec {weir} preflight --json");
    let run = |job: &str| {
        command(&[
            "unshare",
            "--mount",
            "sh",
            "-c",
            &format!("{script} --job {job}"),
        ])
    };
    let out = run("ebpf");
    assert_eq!(
        out.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let report = report(&out);
    assert_eq!(verdict(&report, "ebpf"), "does-not-work");
    let why = report["jobs"][0]["reasons"][0].as_str().unwrap();
    assert!(why.contains("bpffs"), "{why}");
    assert_eq!(run("sidecar").status.code(), Some(0));
}

/// A bpf file system that is mounted elsewhere does not help the commands and the agent.
#[test]
fn the_bpf_file_system_is_looked_for_where_programs_would_be_pinned() {
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    let asked = |place: &Path| {
        let place = place.to_str().unwrap();
        let run = weir_with(
            &["preflight", "--job", "node-ebpf", "--json"],
            &[("WEIR_BPFFS", place)],
        );
        let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
        let features = report["features"].as_array().unwrap();
        let found = features.iter().find(|f| f["feature"] == "bpffs").unwrap();
        (found["answer"].clone(), verdict(&report, "node-ebpf"))
    };
    assert_eq!(asked(mounted.path()).0, "have");
    let (answer, verdict) = asked(&std::env::temp_dir());
    assert_eq!(answer, "lack");
    assert_ne!(verdict, "works");
}

#[test]
fn what_could_load_a_module_is_not_even_asked() {
    if !is_root() {
        println!("skipped: nothing can be mounted");
        return;
    }
    let weir = env!("CARGO_BIN_EXE_weir");
    let trace = std::env::temp_dir().join(format!("weir-preflight-{}.trace", std::process::id()));
    // The files show a kernel with modules, none of which is loaded.
    let script = format!(
        "mount -t tmpfs none /proc/sys/kernel && mount -t tmpfs none /sys/module \
         && echo 6.1.0-modular > /proc/sys/kernel/osrelease \
         && echo /sbin/modprobe > /proc/sys/kernel/modprobe \
         && {{ [ ! -e /proc/modules ] || mount --bind /dev/null /proc/modules; }} \
         && exec strace -f -qq -e trace=socket,getsockopt,bpf -o {} {weir} preflight --json",
        trace.display()
    );
    let out = command(&["unshare", "--mount", "sh", "-c", &script]);
    let calls = std::fs::read_to_string(&trace);
    let _ = std::fs::remove_file(&trace);
    let report = report(&out);
    assert_eq!(
        out.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(verdict(&report, "sidecar"), "unknown");
    let features = report["features"].as_array().unwrap();
    let of = |area: &str, name: &str| {
        let found = features
            .iter()
            .find(|f| f["area"] == area && f["feature"] == name);
        found.expect("the feature").clone()
    };
    for (area, name) in [
        ("nf_tables", "expression tproxy"),
        ("nf_tables", "family inet"),
        ("xtables", "target ip TPROXY"),
        ("xtables", "table ip6 nat"),
        ("ipset", "hash:ip inet"),
        ("net", "link veth"),
        ("net", "link macvlan"),
        ("net", "qdisc clsact"),
        ("ebpf", "attach cls_bpf"),
    ] {
        let feature = of(area, name);
        assert_eq!(feature["answer"], "unknown", "{feature}");
        assert!(
            feature["detail"].as_str().unwrap().contains("modprobe -a"),
            "{feature}"
        );
    }
    // These features are built into the kernel.
    match crate::rights::not_first_user_namespace() {
        Some(reason) => println!("skipped, the eBPF part: {reason}"),
        None => assert_eq!(of("ebpf", "program sched_cls")["answer"], "have"),
    }
    assert_eq!(of("net", "policy routing ip")["answer"], "have");
    let calls = calls.expect("strace");
    assert!(calls.contains("NETLINK_ROUTE"), "{calls}");
    for loads in ["NETLINK_NETFILTER", "IPPROTO_RAW", "AF_INET6"] {
        assert!(!calls.contains(loads), "{loads}: {calls}");
    }
}
