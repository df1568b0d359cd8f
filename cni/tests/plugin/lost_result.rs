//! An ADD whose result cannot be written: the redirection stays, and everybody who can be told is told.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::api_server::ApiServer;
use crate::common::{TempDir, pods};
use serde_json::{Value, json};
use weir_netlink::Netns;
use weir_testing::tool::output;

fn call(dir: &TempDir, netns: &Netns, verb: &str, stdout: Stdio) -> Output {
    let config = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "weir-cni", "cni_agent_run_dir": dir.path(), "native_nftables": true,
    });
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir-cni"))
        .env_clear()
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", "c1")
        .env("CNI_NETNS", netns.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", "/opt/cni/bin")
        .env(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0",
        )
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config.to_string().as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn the_redirection_of_an_add_whose_result_is_lost_stays() {
    let full = || {
        File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
            .into()
    };
    let closed = || std::io::pipe().unwrap().1.into();
    for stdout in [full as fn() -> Stdio, closed] {
        let netns = weir_testing::namespace_or_skip!();
        for command in [
            "ip link set lo up",
            "ip link add eth0 type veth peer name eth1",
            "ip address add 10.244.0.5/24 dev eth0",
            "ip link set eth0 up",
        ] {
            assert_eq!(output(&netns, command), "");
        }
        let dir = TempDir::new();
        let server = ApiServer::with_pod(pods::sidecar("shop", "web-0"), Value::Null);
        server.write_kubeconfig(&dir);
        let lost = call(&dir, &netns, "ADD", stdout());
        assert_eq!(lost.status.code(), Some(1), "{lost:?}");
        let stderr = String::from_utf8(lost.stderr).unwrap();
        assert!(
            stderr.contains("weir-cni: cannot write the answer to stdout"),
            "{stderr}"
        );
        assert!(stderr.contains("that ADD made stays"), "{stderr}");
        let log = dir.read("istio-cni.log");
        assert!(log.contains("that it made stays"), "{log}");
        let rules = output(&netns, "nft list ruleset");
        assert!(rules.contains("istio-proxy-nat"), "{rules}");
        // The runtime tries again, in the same namespace.
        let added = call(&dir, &netns, "ADD", Stdio::piped());
        assert_eq!(added.status.code(), Some(0), "{added:?}");
        assert_eq!(output(&netns, "nft list ruleset"), rules);
        let deleted = call(&dir, &netns, "DEL", stdout());
        assert_eq!(deleted.status.code(), Some(0), "{deleted:?}");
    }
}
