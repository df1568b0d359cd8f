//! Another program removes the rules of pods of ambient mode: once, without a pause, and while no agent runs.

use crate::ambient::{ANNOTATION, SELDOM, Scene, is_captured, running, states};
use crate::repair::{Sandbox, events};
use crate::support::Agent;
use nix::sys::signal::Signal;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_cni::compile::{Engine, Rules};
use weir_cni::redirection::Desired;
use weir_netfilter::nft::{NftEngine, NftOp, TableFamily, Transaction, UNGUARDED};
use weir_testing::Ends;

/// The name of the thread that removes the rules without a pause, as the kernel reports it.
const HOSTILE: &str = "hostile";

fn healed(agent: &Agent, cause: &str) -> u64 {
    agent.metric(&format!("weir_ambient_healed_total{{cause=\"{cause}\"}}"))
}

/// Runs `nft` in the network namespace and returns its PID: `nsenter` executes it in the same process.
fn nft(sandbox: &Sandbox, words: &str) -> u32 {
    let mut nft = Command::new("nsenter");
    nft.arg(format!("--net={}", sandbox.netns().path().display()));
    let mut nft = nft.arg("nft").args(words.split(' ')).spawn().unwrap();
    let pid = nft.id();
    assert!(nft.wait().unwrap().success(), "{words}");
    pid
}

/// The messages of the Kubernetes events with this reason.
fn messages(scene: &Scene, reason: &str) -> Vec<String> {
    let all = events(&scene.server, reason).into_iter();
    all.map(|event| event.body["message"].to_string()).collect()
}

#[test]
fn a_flush_is_healed_within_a_second_and_the_event_names_the_process() {
    let Some((sandbox, scene)) = Scene::of("flushed") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[SELDOM]);
    // The comparison after the agent's own commit may find a change before the kernel has reported which process made it, and a busy
    // machine delays everything: one of several flushes must be named, and one must be healed in time. A sixth repair would be paused.
    let (mut names, mut took) = (Vec::new(), Vec::new());
    for n in 1..=5 {
        let begun = Instant::now();
        names.push(format!("process {} (nft)", nft(&sandbox, "flush ruleset")));
        agent.until("healed", || healed(&agent, "missing") == n);
        took.push(begun.elapsed());
        assert!(is_captured(&sandbox));
        agent.until("enrolled again", || states(&agent, "enrolled") == 1);
    }
    assert!(
        took.iter().any(|took| *took < Duration::from_secs(1)),
        "{took:?}: {}",
        agent.log()
    );
    // In another PID namespace than the first the kernel reports another number.
    let is_first = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let is_first = is_first.to_string_lossy() == "pid:[4026531836]";
    let is_named = |message: &String| match is_first {
        true => names.iter().any(|name| message.contains(name)),
        false => message.contains("(nft)"),
    };
    agent.until("the event", || {
        messages(&scene, "RedirectionRepaired").iter().any(is_named)
    });
}

/// Removes the tables as soon as they appear.
fn removes(stop: &AtomicBool) {
    // The agent takes commits by threads with the present name, that of weir's own, for its own.
    std::fs::write("/proc/thread-self/comm", HOSTILE).unwrap();
    let mut engine = NftEngine::open().unwrap();
    while !stop.load(Ordering::Relaxed) {
        for table in weir_ambient::TABLES {
            let id = (TableFamily::Inet, table.to_owned());
            let change = Transaction::guarded(UNGUARDED, vec![NftOp::DeleteTable(id)]);
            // It fails while there is no such table.
            _ = engine.commit(&change);
        }
    }
}

/// The rules are gone again before the agent has read back what it wrote, unless that program is interrupted just then.
// matrix: host: the other program never pauses, and a guest has one emulated processor
#[test]
fn rules_that_are_removed_without_a_pause_are_counted_and_the_program_is_named() {
    let Some((sandbox, scene)) = Scene::of("stormy") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[SELDOM]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Ends(&stop);
        scope.spawn(|| sandbox.netns().run(|| removes(&stop)).unwrap());
        let name = format!("({HOSTILE})");
        agent.until("counted", || healed(&agent, "missing") >= 1);
        agent.until("logged", || {
            let log = agent.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains("was not captured") && line.contains(&name))
        });
        agent.until("the event", || {
            let reasons = ["RedirectionRepaired", "RedirectionNotRepaired"];
            let mut all = reasons.iter().flat_map(|reason| messages(&scene, reason));
            all.any(|message| message.contains(&name))
        });
        drop(ends);
    });
    agent.until("captured again", || {
        is_captured(&sandbox) && states(&agent, "enrolled") == 1
    });
}

/// A table with an owner (`NFT_TABLE_F_OWNER`, since 5.12) can be changed by no other process.
#[test]
fn a_repair_that_fails_is_counted_and_the_program_is_named() {
    let Some((sandbox, scene)) = Scene::of("occupied") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[SELDOM]);
    let mut nft = Command::new("nsenter");
    nft.arg(format!("--net={}", sandbox.netns().path().display()));
    let nft = nft.args(["nft", "-i"]).stdin(Stdio::piped());
    let mut nft = nft.stdout(Stdio::null()).spawn().unwrap();
    let mut lines = nft.stdin.take().unwrap();
    // The agent must not repair in between.
    let line =
        "delete table inet istio-ambient-nat; add table inet istio-ambient-nat { flags owner; }\n";
    lines.write_all(line.as_bytes()).unwrap();
    agent.until("failed", || states(&agent, "failed") == 1);
    let (name, failed) = ("(nft)", "the repair failed");
    agent.until("logged", || {
        let log = agent.log();
        let mut lines = log.lines();
        lines.any(|line| line.contains(name) && line.contains(failed))
    });
    agent.until("the event", || {
        let all = messages(&scene, "RedirectionNotRepaired");
        all.iter().any(|m| m.contains(name) && m.contains(failed))
    });
    // The comparison after the agent's own commit may have found the change before the kernel has reported which process made it.
    let counted = healed(&agent, "changed");
    assert!((1..=2).contains(&counted), "{}", agent.log());
    // Further attempts find no further change.
    let attempts = || agent.metric("nodeagent_reconcile_events_total{type=\"update\"}");
    let before = attempts();
    agent.until("tried again", || attempts() > before + 1);
    assert_eq!(healed(&agent, "changed"), counted, "{}", agent.log());
    // With its owner the table goes.
    drop(lines);
    assert!(nft.wait().unwrap().success());
    agent.until("captured again", || {
        is_captured(&sandbox) && states(&agent, "enrolled") == 1
    });
    // It is the same loss.
    agent.until("the repair", || {
        !messages(&scene, "RedirectionRepaired").is_empty()
    });
    let all = healed(&agent, "changed") + healed(&agent, "missing");
    assert_eq!(all, counted, "{}", agent.log());
}

/// Enrols the pod, and kills the agent.
fn enrolled(scene: &Scene, settings: &[(&str, &str)]) {
    let mut agent = scene.start(settings);
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    agent.signal(Signal::SIGKILL);
    agent.ended();
}

/// The next agent counts what it finds, however much was removed.
#[test]
fn rules_that_are_removed_while_no_agent_runs_are_reported_by_the_next_agent() {
    let Some((sandbox, scene)) = Scene::of("meanwhile") else {
        return;
    };
    let _ztunnel = scene.ztunnel();
    let ip = |words: &str| sandbox.tool("ip", &words.split(' ').collect::<Vec<_>>());
    let everything = || {
        nft(&sandbox, "flush ruleset");
        for family in ["-4", "-6"] {
            ip(&format!("{family} rule del priority 32764"));
            ip(&format!("{family} route flush table 100"));
        }
    };
    let insert = "insert rule inet istio-ambient-nat istio-output accept";
    let losses: [(&str, &dyn Fn()); 4] = [
        ("missing", &|| _ = nft(&sandbox, "flush ruleset")),
        ("missing", &everything),
        ("missing", &|| {
            _ = nft(&sandbox, "flush chain inet istio-ambient-nat istio-output")
        }),
        ("changed", &|| _ = nft(&sandbox, insert)),
    ];
    for (n, (cause, lose)) in losses.into_iter().enumerate() {
        enrolled(&scene, &[SELDOM]);
        lose();
        let agent = scene.start(&[SELDOM]);
        agent.until("healed", || states(&agent, "enrolled") == 1);
        assert!(is_captured(&sandbox));
        assert_eq!(healed(&agent, cause), 1, "{n}: {}", agent.log());
        agent.until("the event", || {
            messages(&scene, "RedirectionRepaired").len() == n + 1
        });
        assert!(messages(&scene, "RedirectionRepaired")[n].contains("while no agent"));
        agent.says("was not captured as it should be");
    }
}

/// Neither a new setting, nor rules of an older version, nor another sandbox is a change by another program.
#[test]
fn what_changes_while_no_agent_runs_and_is_no_drift() {
    let Some((sandbox, scene)) = Scene::of("upgraded") else {
        return;
    };
    let _ztunnel = scene.ztunnel();
    let next = |what: &str, settings: &[(&str, &str)]| {
        let agent = scene.start(settings);
        agent.until(what, || states(&agent, "enrolled") == 1);
        let all = (healed(&agent, "missing"), healed(&agent, "changed"));
        assert_eq!(all, (0, 0), "{what}: {}", agent.log());
    };
    enrolled(
        &scene,
        &[("AMBIENT_DNS_CAPTURE", "false"), ("AMBIENT_IPV6", "false")],
    );
    assert!(!sandbox.rules().contains("15053"));
    next("a setting is on", &[]);
    assert!(sandbox.rules().contains("15053"));
    next("it is off again", &[("AMBIENT_DNS_CAPTURE", "false")]);
    assert!(!sandbox.rules().contains("15053"));
    // Rules of an older version.
    let config = Config {
        enable_ipv6: true,
        ..Config::default()
    };
    let redirect = Redirect::new(config, &PodOverrides::default()).unwrap();
    let Rules::Nft(mut rules) = redirect.compile(Engine::Nft).rules else {
        panic!("rules of nf_tables");
    };
    for table in &mut rules.tables {
        table.version = Some(1);
        table
            .chains
            .iter_mut()
            .for_each(|chain| _ = chain.rules.pop());
    }
    let owned = weir_ambient::TABLES.map(|name| (TableFamily::Inet, name.to_owned()));
    let write = || NftEngine::open()?.apply(&rules, &owned).map(drop);
    sandbox.netns().run(write).unwrap().unwrap();
    next("an upgrade", &[]);
    // As after a reboot of the node: another sandbox of the same pod, which the plugin did not hand over.
    drop(sandbox);
    let Some(sandbox) = Sandbox::of("upgraded") else {
        return;
    };
    let mut moved = running("upgraded", &sandbox.address);
    moved["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    scene.server.put(moved);
    next("another sandbox", &[]);
    assert!(is_captured(&sandbox));
}
