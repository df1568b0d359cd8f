//! The start of an agent on a full node: each pod has a namespace with a process, and half of the pods have rules.

use std::process::{Child, Command, Stdio};

use weir_netlink::Netns;
use weir_netlink::route::Routing;

use crate::agent::{Agent, PODS, address, answer, cpu, directories, uid};
use crate::report::{Goal, Report};
use crate::run::Scratch;
use crate::setup::{Setup, entered};
use crate::stats::Ratio;
use weir_testing::api_server::ApiServer;
use weir_testing::groups::Group;

/// The goal for the processor time from the start until all pods are verified, in microseconds.
const START: f64 = 2e6;

pub(crate) fn run(setup: &Setup, scratch: &Scratch, report: &mut Report) -> Result<(), String> {
    let server = ApiServer::scripted(answer);
    let root = scratch.path().join("running");
    directories(&root, &["without"])?;
    let without = root.join("without");
    server.write_kubeconfig(&without);
    let half = PODS / 2;
    let pods: Result<Vec<Pod>, String> = (0..half).map(Pod::start).collect();
    let pods = pods?;
    for (n, pod) in pods.iter().enumerate() {
        setup.add(&pod.path, &format!("web-{n}"), &without).run()?;
    }
    let agent = Agent::start_with(setup, &root, &server, &[("REPAIR_REPAIR_PODS", "true")])?;
    agent.wait()?;
    agent.wait_for(&format!("weir_pods_verified {half}\n"))?;
    let spent = cpu(agent.pid())?;
    Report::heading(&format!(
        "An agent starts where {PODS} pods run, {half} of them with rules"
    ));
    report.arm(
        "cpu until all rules are read and found right",
        "us",
        &[spent],
    );
    report.goal(
        "found right at start / 2 s",
        Ratio::of_one(spent / START),
        Goal::AtMost(1.0),
    );
    Ok(())
}

/// A namespace with its own address and a process in a pod's control group; all end on drop.
pub(crate) struct Pod {
    _netns: Netns,
    pub(crate) path: String,
    process: Child,
    _group: Group,
}

impl Pod {
    fn start(n: usize) -> Result<Self, String> {
        Self::start_named(&format!("web-{n}"), n)
    }

    /// Starts the pod with the address of this number.
    pub(crate) fn start_named(name: &str, n: usize) -> Result<Self, String> {
        let make = || {
            let netns = Netns::create()?;
            let routing = Routing::open_in(&netns)?;
            let lo = routing.link("lo")?.index;
            let address = format!("{}/24", address(n)).parse().expect("an address");
            routing.add_address(lo, address)?;
            Ok(netns)
        };
        let netns = make().map_err(|e: weir_netlink::Error| e.to_string())?;
        let path = netns.path().display().to_string();
        let call = entered(&path, &["sleep", "infinity"]);
        let process = Command::new(&call.arguments[0])
            .args(&call.arguments[1..])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| e.to_string())?;
        let group = Group::of_pod(&uid(name));
        let group = group.ok_or("no control group can be made for a pod")?;
        group.take(process.id());
        Ok(Self {
            _netns: netns,
            path,
            process,
            _group: group,
        })
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
