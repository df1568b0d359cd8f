//! The rules of the host, by which probes reach pods of ambient mode, and other programs that remove or replace them.

use crate::ambient::{Scene, states};
use std::time::{Duration, Instant};

/// The interval between two comparisons of the host's rules.
const ROUND: Duration = Duration::from_secs(30);

// matrix: every; variants no-xtables no-ipset no-ipv6
#[test]
fn rules_of_the_host_that_another_program_deletes_come_back_at_once_and_are_counted() {
    let Some((sandbox, scene)) = Scene::of("probed") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[]);
    let whole = scene.probed();
    let healed = || agent.metric("weir_ambient_host_healed_total{purpose=\"probes\"}");
    let begun = Instant::now();
    for change in [
        "flush ruleset".to_owned(),
        "flush chain inet istio-ambient-nat postrouting".to_owned(),
        format!(
            "delete element inet istio-ambient-nat istio-inpod-probes-v4 {{ {} }}",
            sandbox.address
        ),
    ] {
        let before = healed();
        agent.until(&format!("{change} is healed"), || {
            // A repair is not counted if the agent was about to write the rules in any case, as in its first moments.
            if scene.probed() == whole && healed() == before {
                scene.tool(&format!("nft {change}"));
            }
            healed() > before && scene.probed() == whole
        });
    }
    // If only the periodic comparison repaired the rules, two more intervals would pass between the first repair and the third.
    assert!(begun.elapsed() < 2 * ROUND, "{:?}", begun.elapsed());
    agent.until("logged", || {
        let log = agent.log();
        log.contains("ambient_host_healed") || log.contains("were not as they should be")
    });
    let before = healed();
    // Changes to foreign tables cause no repair.
    scene.tool("nft add table inet x");
    agent.until("still enrolled", || states(&agent, "enrolled") == 1);
    assert_eq!(healed(), before);
}

/// The agent repairs the rules each time, but probes fail until then.
#[test]
fn rules_of_the_host_that_are_removed_again_and_again_are_not_shown_as_in_force() {
    let Some((_sandbox, scene)) = Scene::of("contended") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[("WEIR_VERIFY_INTERVAL", "1")]);
    let whole = scene.probed();
    let ready = || agent.metric("weir_ambient_host_ready");
    agent.until("in force", || ready() == 1);
    let flush = || scene.tool("nft flush ruleset");
    agent.until("told", || {
        flush();
        ready() == 0
    });
    let why = "another program changes the rules again and again";
    agent.until("shown", || {
        let reason = agent.facts()["ambient"]["host"]["reason"].to_string();
        let (status, missing) = agent.probe("/readyz");
        reason.contains(why) && status == 503 && missing.contains(why)
    });
    // The rules are in force now, but may be removed again. The agent still repairs them, without a message each time.
    for _ in 0..4 {
        flush();
        agent.until("repaired", || scene.probed() == whole);
    }
    assert_eq!(ready(), 0, "{}", agent.log());
}

// matrix: every; variants no-nftables
#[test]
fn legacy_rules_and_sets_of_the_host_come_back_in_seconds() {
    let Some((_sandbox, scene)) = Scene::of("probed") else {
        return;
    };
    let tool = |words: &str| scene.tool(words);
    // The existing set determines the engine.
    tool("ipset create istio-inpod-probes-v4 hash:ip comment");
    let (agent, _ztunnel) = scene.enrolled(1, &[("NATIVE_NFTABLES", "false")]);
    let state = || {
        let sets = tool("ipset save istio-inpod-probes-v4");
        (tool("iptables-legacy -t nat -S"), sets)
    };
    let whole = state();
    assert!(
        whole.0.contains("ISTIO_POSTRT") && whole.1.contains("uid-probed"),
        "{whole:?}"
    );
    let healed = || agent.metric("weir_ambient_host_healed_total{purpose=\"probes\"}");
    let begun = Instant::now();
    // Each change is repeated: after its repair it looks as it did before the repair.
    let (rules, set) = (
        "iptables-legacy -t nat -F",
        "ipset flush istio-inpod-probes-v4",
    );
    for change in [rules, rules, set, set] {
        let before = healed();
        agent.until(&format!("{change} is healed"), || {
            // A repair is not counted if the agent was about to write the rules in any case, as in its first moments.
            if state() == whole && healed() == before {
                tool(change);
            }
            healed() > before && state() == whole
        });
    }
    // If only the periodic comparison repaired one of the changes, an interval would pass between two repairs.
    assert!(begun.elapsed() < ROUND, "{:?}", begun.elapsed());
}

#[test]
fn what_istios_agent_wrote_at_the_host_by_iptables_nft_is_replaced() {
    let Some((_sandbox, scene)) = Scene::of("taken-over") else {
        return;
    };
    let tool = |words: &str| scene.tool(words);
    for words in [
        "ipset create istio-inpod-probes-v4 hash:ip comment",
        "iptables-nft -t nat -N ISTIO_POSTRT",
        "iptables-nft -t nat -A ISTIO_POSTRT -p tcp -m owner --socket-exists -m set \
         --match-set istio-inpod-probes-v4 dst -j SNAT --to-source 169.254.7.127",
        "iptables-nft -t nat -I POSTROUTING 1 -j ISTIO_POSTRT",
        "iptables-nft -t nat -A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE",
    ] {
        tool(words);
    }
    let (agent, _ztunnel) = scene.enrolled(1, &[("NATIVE_NFTABLES", "false")]);
    agent.until("replaced", || {
        let rules = tool("iptables-nft -t nat -S");
        !rules.contains("ISTIO_POSTRT") && rules.contains("10.1.0.0/16")
    });
    agent.until("the sets are gone", || tool("ipset list -n").is_empty());
    assert!(scene.probed().contains("uid-taken-over"));
}
