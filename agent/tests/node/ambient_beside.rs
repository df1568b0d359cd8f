//! The agent of ambient mode beside other redirections and routes of other programs: neither its start nor its repairs change them.

use crate::ambient::{ANNOTATION, Scene, is_captured, running, states};
use crate::repair::{IN_PLACE, Sandbox, sidecar};
use crate::support::Agent;
use crate::unasked::OFTEN;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Routes and rules of another program, with a protocol number of its own and without one.
const FOREIGN: [&str; 5] = [
    "route add local 198.51.100.7 dev lo table 100 proto 42",
    "route add local 198.51.100.8 dev lo table 100",
    "-6 route add local 2001:db8::7 dev lo table 100 proto 42",
    "rule add fwmark 0x7 lookup 100 priority 500",
    "-6 rule add to 2001:db8:1::/48 lookup 100 priority 500",
];

fn inside(netns: &Path, program: &str, arguments: &str) -> String {
    let mut run = Command::new("nsenter");
    run.arg(format!("--net={}", netns.display())).arg(program);
    let run = run.args(arguments.split_whitespace()).output().unwrap();
    assert!(run.status.success(), "{program} {arguments}: {run:?}");
    String::from_utf8(run.stdout).unwrap()
}

fn foreign_routes(netns: &Path) {
    inside(netns, "ip", "link set lo up");
    for route in FOREIGN {
        inside(netns, "ip", route);
    }
}

/// Routes and policy rules, without those that the kernel creates.
fn routing(netns: &Path) -> Vec<String> {
    let lists = [
        "rule",
        "-6 rule",
        "route show table all",
        "-6 route show table all",
    ];
    let all = lists.map(|list| inside(netns, "ip", list)).concat();
    let lines = all.lines().filter(|line| !line.contains("kernel"));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// The complete state, without packet counters.
fn state(sandbox: &Sandbox) -> String {
    let netns = sandbox.netns().path();
    let mut text = inside(&netns, "nft", "list ruleset");
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"] {
        text += &inside(&netns, program, "");
    }
    text += &inside(&netns, "ip", "address");
    let lines = text.lines().filter(|line| !line.starts_with(['#', ':']));
    let lines = lines.map(|line| {
        let words = line.split(' ');
        let words = words.filter(|word| word.parse::<u64>().is_err());
        words.collect::<Vec<_>>().join(" ")
    });
    let lines: Vec<String> = lines.chain(routing(&netns)).collect();
    lines.join("\n")
}

/// A pod with a sidecar in TPROXY mode that an earlier agent once annotated as a pod of ambient mode.
fn with_sidecar(name: &str, address: &str) -> Value {
    let mut pod = sidecar(name, address);
    pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = "TPROXY".into();
    pod["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    pod
}

impl Scene {
    fn redirect(&self, name: &str, sandbox: &Sandbox, engine: &str) {
        let manifest = with_sidecar(name, &sandbox.address).to_string();
        self.node.write("sidecar.json", &manifest);
        let manifest = self.node.path("sidecar.json").display().to_string();
        let netns = sandbox.netns().path().display().to_string();
        let arguments = [
            "apply", "sidecar", "--engine", engine, "--pod", &manifest, "--netns", &netns,
        ];
        let done = self.node.run(&arguments, &[]);
        assert!(done.status.success(), "{done:?}");
    }

    /// Whether the pod no longer has the annotation of ambient mode: the agent has examined it.
    fn has_left(&self, name: &str) -> bool {
        self.annotation(name) == Value::Null
    }
}

fn verified(agent: &Agent) -> Value {
    let facts = agent.facts();
    facts["pods"][0]["verifiedAt"].clone()
}

#[test]
fn a_sidecar_and_routes_of_others_are_left_alone() {
    for engine in ["nft", "xtables"] {
        let (Some(side), Some(web)) = (Sandbox::of("side"), Sandbox::of("web")) else {
            return;
        };
        let scene = Scene::new();
        let host = scene.host.path();
        for netns in [&side.netns().path(), &web.netns().path(), &host] {
            foreign_routes(netns);
        }
        scene.redirect("side", &side, engine);
        let (at_host, at_side, at_web) =
            (routing(&host), state(&side), routing(&web.netns().path()));
        assert!(at_side.contains("fwmark 0x539 lookup 133"), "{at_side}");
        scene.server.put(with_sidecar("side", &side.address));
        scene.put("web", &web);
        let mut agent = scene.start(&[]);
        let _ztunnel = scene.ztunnel();
        agent.until("enrolled", || states(&agent, "enrolled") == 1);
        agent.until("the other one was looked at", || scene.has_left("side"));
        assert!(is_captured(&web), "{engine}");
        assert_eq!(state(&side), at_side, "{engine}: {}", agent.log());
        let now = routing(&web.netns().path());
        for line in &at_web {
            assert!(now.contains(line), "{engine}: {line}: {now:#?}");
        }
        assert_eq!(routing(&host), at_host, "{engine}");
        // The pod leaves ambient mode.
        let mut pod = running("web", &web.address);
        pod["metadata"]["labels"] = json!({ crate::ambient::MODE: "none" });
        scene.server.put(pod);
        agent.until("it has left", || !web.rules().contains("istio"));
        agent.until("so has its routing", || {
            routing(&web.netns().path()) == at_web
        });
        assert!(agent.terminate().success(), "{}", agent.log());
        assert_eq!(state(&side), at_side, "{engine}");
        assert_eq!(routing(&host), at_host, "{engine}");
    }
}

/// A single agent serves both modes; a repair for one mode does not touch the objects of the other.
#[test]
fn an_agent_of_both_keeps_both() {
    let (Some(side), Some(web)) = (Sandbox::of("side"), Sandbox::of("web")) else {
        return;
    };
    let scene = Scene::new();
    foreign_routes(&side.netns().path());
    foreign_routes(&web.netns().path());
    scene.server.put(with_sidecar("side", &side.address));
    scene.put("web", &web);
    let settings = [("REPAIR_NODE_NAME", "node1"), IN_PLACE, OFTEN];
    let _ztunnel = scene.ztunnel();
    let both =
        |agent: &Agent| states(agent, "enrolled") == 1 && agent.metric("weir_pods_verified") == 1;
    let agent = scene.start(&settings);
    agent.until("both are redirected", || {
        both(&agent) && scene.has_left("side")
    });
    let (at_side, at_web) = (state(&side), state(&web));
    assert!(at_side.contains("tproxy") && is_captured(&web), "{at_side}");
    drop(agent);

    scene.server.put(with_sidecar("side", &side.address));
    let agent = scene.start(&settings);
    agent.until("both again", || both(&agent) && scene.has_left("side"));
    for _ in 0..2 {
        let before = verified(&agent);
        agent.until("another round", || verified(&agent) != before);
    }
    assert_eq!(state(&side), at_side, "{}", agent.log());
    assert_eq!(state(&web), at_web, "{}", agent.log());
}
