//! On a kernel that lacks a feature, weir uses the next best one and reports it, or names what is lacking and changes nothing.
//!
//! These tests do not depend on the kernel version: the output of `weir preflight` determines what must happen afterwards. So every test
//! checks something on every kernel, and most of them check the fallback on a kernel without nf_tables, legacy tables, TPROXY or IPv6.
// matrix: oldest; smoke; variants no-ipv6

mod scene;

use crate::support::weir;
use scene::scene;
use serde_json::json;
use weir_cni::redirection;
use weir_demo::Mode;
use weir_netlink::Netns;

/// The rules of a sidecar with REDIRECT.
const REDIRECT: &str = "sidecar";
const TPROXY: &str = "sidecar-tproxy";

/// Checks what happens if weir chooses the engine.
fn automatic(mode: Mode, job: &str) {
    let Some(scene) = scene(mode) else { return };
    let verdict = scene.verdict(job);
    let applied = scene.weir("apply", &["--engine", "auto", "--json"]);
    println!(
        "{job}: preflight says {verdict}; apply ended with {}",
        applied.code
    );
    if verdict == "does-not-work" {
        return scene.is_refused(&applied);
    }
    assert!(verdict.starts_with("works"), "{job}: {verdict}");
    assert_eq!(applied.code, 0, "{verdict}, and then: {}", applied.stderr);
    // The plugin's STATUS command reports success on a node that can redirect.
    let status = Netns::create().and_then(|ns| ns.run(redirection::probe));
    status.expect("a namespace").expect("ready");
    let report: serde_json::Value = serde_json::from_str(&applied.stdout).unwrap();
    let has_nft = scene.has("nf_tables", "family inet");
    let is_enough = mode == Mode::Redirect || scene.has("nf_tables", "expression tproxy");
    let expected = if has_nft && is_enough {
        "nft"
    } else {
        "xtables"
    };
    assert_eq!(report["engine"], expected, "{report}");
    scene.captures();
    let verified = scene.weir("verify", &["--engine", "auto"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    scene.cleans();
}

// matrix: variants all
#[test]
fn redirection_works_with_whatever_engine_there_is() {
    automatic(Mode::Redirect, REDIRECT);
}

// matrix: variants no-nftables no-tproxy no-nft-tproxy
#[test]
fn transparent_proxying_works_or_what_is_lacking_is_named() {
    automatic(Mode::Tproxy, TPROXY);
}

/// A named engine is used or refused; weir does not fall back to the other one.
fn named(engine: &str, features: &[(&str, &str)]) {
    let Some(scene) = scene(Mode::Redirect) else {
        return;
    };
    // Rules of a family that the kernel lacks are not needed.
    let is_asked = |feature: &str| scene.has_ipv6() || !feature.contains("ip6");
    let lacking: Vec<_> = features
        .iter()
        .filter(|(area, feature)| is_asked(feature) && !scene.has(area, feature))
        .collect();
    let applied = scene.weir("apply", &["--engine", engine]);
    println!(
        "{engine} lacks {lacking:?}; apply ended with {}",
        applied.code
    );
    if lacking.is_empty() {
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        scene.captures();
        scene.cleans();
    } else {
        scene.is_refused(&applied);
    }
}

// matrix: variants no-nftables
#[test]
fn nf_tables_when_named_are_used_or_refused() {
    named(
        "nft",
        &[
            ("nf_tables", "family inet"),
            ("nf_tables", "expression redir"),
        ],
    );
}

// matrix: variants no-xtables no-ip6tables
#[test]
fn legacy_tables_when_named_are_used_or_refused() {
    named(
        "xtables",
        &[
            ("xtables", "table ip nat"),
            ("xtables", "match ip owner"),
            ("xtables", "table ip6 nat"),
        ],
    );
}

/// Rules for IPv4 alone need nothing of IPv6.
// matrix: variants no-xtables no-ip6tables
#[test]
fn legacy_tables_of_ipv4_are_enough_for_ipv4() {
    let Some(mut scene) = scene(Mode::Redirect) else {
        return;
    };
    scene.configure(&json!({ "enable_ipv6": false }));
    let applied = scene.weir("apply", &["--engine", "xtables"]);
    if !scene.has("xtables", "table ip nat") {
        return scene.is_refused(&applied);
    }
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    scene.captures_ipv4();
    scene.cleans();
}

/// `weir show`, `clean` and `verify` work if at least one engine is available.
// matrix: variants no-xtables no-nftables no-ip6tables
#[test]
fn a_pod_without_rules_is_clean_whatever_the_kernel_lacks() {
    let Some(scene) = scene(Mode::Redirect) else {
        return;
    };
    let ns = scene.netns();
    let clean = weir(&["clean", "--netns", &ns]);
    assert_eq!(
        (clean.code, clean.stdout.as_str()),
        (0, "unchanged\n"),
        "{}",
        clean.stderr
    );
    assert_eq!(scene.weir("verify", &[]).code, 1);
}

/// Legacy tables work on a kernel without ipset.
// matrix: variants no-ipset
#[test]
fn sets_are_made_or_what_is_lacking_is_named() {
    let Some(scene) = scene(Mode::Redirect) else {
        return;
    };
    let made = scene.make_set();
    if scene.has("ipset", "hash:ip inet") {
        return made.unwrap();
    }
    let text = made.unwrap_err().to_string();
    println!("{text}");
    assert!(text.contains("CONFIG_IP_SET"), "{text}");
}
