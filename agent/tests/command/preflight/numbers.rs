//! Compares the numbers of `linux/bpf.h` with the system's header.
// matrix: none: asks a C compiler about the system's headers, and no kernel

use std::process::Command;
use weir_preflight::bpf::{ROWS, Trial};

/// Features and the C names of their numbers. `BPF_NETFILTER` and `BPF_TCX_INGRESS` are newer than the headers of 6.1 and therefore absent.
const NAMES: &[(&str, &[&str])] = &[
    ("program sched_cls", &["BPF_PROG_TYPE_SCHED_CLS", "0"]),
    (
        "program sk_lookup",
        &["BPF_PROG_TYPE_SK_LOOKUP", "BPF_SK_LOOKUP"],
    ),
    (
        "program sock_ops",
        &["BPF_PROG_TYPE_SOCK_OPS", "BPF_CGROUP_SOCK_OPS"],
    ),
    (
        "program cgroup connect4",
        &["BPF_PROG_TYPE_CGROUP_SOCK_ADDR", "BPF_CGROUP_INET4_CONNECT"],
    ),
    (
        "program cgroup connect6",
        &["BPF_PROG_TYPE_CGROUP_SOCK_ADDR", "BPF_CGROUP_INET6_CONNECT"],
    ),
    (
        "program cgroup sendmsg4",
        &["BPF_PROG_TYPE_CGROUP_SOCK_ADDR", "BPF_CGROUP_UDP4_SENDMSG"],
    ),
    (
        "program cgroup recvmsg4",
        &["BPF_PROG_TYPE_CGROUP_SOCK_ADDR", "BPF_CGROUP_UDP4_RECVMSG"],
    ),
    (
        "program cgroup getpeername4",
        &[
            "BPF_PROG_TYPE_CGROUP_SOCK_ADDR",
            "BPF_CGROUP_INET4_GETPEERNAME",
        ],
    ),
    (
        "program cgroup getsockopt",
        &["BPF_PROG_TYPE_CGROUP_SOCKOPT", "BPF_CGROUP_GETSOCKOPT"],
    ),
    ("helper redirect", &["BPF_FUNC_redirect"]),
    ("helper redirect_peer", &["BPF_FUNC_redirect_peer"]),
    ("helper skc_lookup_tcp", &["BPF_FUNC_skc_lookup_tcp"]),
    ("helper sk_assign", &["BPF_FUNC_sk_assign"]),
    ("map hash", &["BPF_MAP_TYPE_HASH"]),
    ("map lpm_trie", &["BPF_MAP_TYPE_LPM_TRIE"]),
    ("map sockmap", &["BPF_MAP_TYPE_SOCKMAP"]),
    ("map ringbuf", &["BPF_MAP_TYPE_RINGBUF"]),
];

fn ours(feature: &str) -> Vec<u32> {
    let row = ROWS.iter().find(|r| r.feature == feature).expect(feature);
    match row.probe {
        Trial::Program(kind, attach) => vec![kind, attach],
        Trial::Helper(n) | Trial::Map(n, ..) => vec![n],
        other => panic!("{feature} has no numbers: {other:?}"),
    }
}

#[test]
fn numbers_are_those_of_the_header() {
    let prints: String = NAMES
        .iter()
        .flat_map(|(_, names)| names.iter())
        .map(|name| format!("printf(\"%d\\n\", (int)({name}));"))
        .collect();
    let program =
        format!("#include <linux/bpf.h>\n#include <stdio.h>\nint main(void) {{ {prints} }}");
    let dir = std::env::temp_dir().join(format!("weir-bpf-numbers-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("n.c"), program).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .arg(dir.join("n"))
        .arg(dir.join("n.c"))
        .output();
    let printed = match built {
        Ok(built) if built.status.success() => Command::new(dir.join("n")).output().ok(),
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(e) => {
            println!("skipped: no C compiler: {e}");
            None
        }
    };
    let _ = std::fs::remove_dir_all(&dir);
    let Some(printed) = printed else { return };
    let mut printed = std::str::from_utf8(&printed.stdout).unwrap().lines();
    for (feature, names) in NAMES {
        let theirs: Vec<u32> = names
            .iter()
            .map(|_| printed.next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(ours(feature), theirs, "{feature}");
    }
}
