//! Tables and sets that cannot be read are not absent: one request of each read fails after the other.

use super::*;
use std::env;
use std::path::Path;
use std::process::Command;
use weir_netlink::Netns;

/// The namespace of the host, and the form of the rules in it.
const HOST: &str = "WEIR_TEST_HOST";
const FORM: &str = "WEIR_TEST_FORM";

fn desired() -> Host {
    host(&[("10.0.0.1", "a")])
}

/// What is read is right, or an error. Each on a thread of its own, as strace counts the requests of each thread.
fn read(netns: &Netns, engine: Engine) {
    // The setting would choose the other form.
    let chosen = netns.run(|| choose(engine == Engine::Xtables)).unwrap();
    assert_eq!(chosen.unwrap_or(engine), engine);
    let expected = desired().addresses;
    let found = netns.run(|| addresses(Engine::Nft)).unwrap();
    assert_eq!(found.unwrap_or_else(|_| expected.clone()), expected);
}

#[test]
fn a_form_that_cannot_be_read_is_not_absent() {
    if let Some(path) = env::var_os(HOST) {
        let engine = match env::var(FORM).unwrap().as_str() {
            "nft" => Engine::Nft,
            _ => Engine::Xtables,
        };
        return read(&Netns::open(Path::new(&path)).unwrap(), engine);
    }
    for engine in [Engine::Nft, Engine::Xtables] {
        let netns = weir_testing::namespace_or_skip!();
        let is_there = || match engine {
            Engine::Nft => apply(&desired(), engine).is_ok(),
            Engine::Xtables => has_legacy(&desired()),
        };
        if !netns.run(is_there).unwrap() {
            continue;
        }
        for n in 1.. {
            let out = Command::new("strace")
                .args(["-f", "-qq", "-e", "trace=sendto", "-e"])
                .arg(format!("inject=sendto:error=EIO:when={n}"))
                .args(["-o", "/dev/stderr"])
                .arg(env::current_exe().unwrap())
                .arg("host::tests::unread::a_form_that_cannot_be_read_is_not_absent")
                .args(["--exact", "--nocapture"])
                .env(HOST, netns.path())
                .env(FORM, engine.to_string())
                .output()
                .expect("strace is needed here");
            let told = format!("{engine} {n}: {out:?}");
            assert!(out.status.success() && told.contains("1 passed"), "{told}");
            if !told.contains("(INJECTED)") {
                assert!(n > 3, "nothing was injected: {told}");
                break;
            }
        }
    }
}
