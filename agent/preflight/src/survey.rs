//! Probes every feature once.

use super::{bpf, net, process, system};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use weir_netfilter::probe::{Finding, Loading, RunningKernel, ipset, nft, xtables};
use weir_netlink::Netns;

/// Delay before progress is printed, and interval between reports.
const PATIENCE: Duration = Duration::from_secs(1);

/// Result of the probes.
#[derive(Debug)]
pub struct Survey {
    /// `uname -r`
    pub release: String,
    /// Whether the kernel could load modules, as text.
    pub modules: String,
    /// Facts about the process and the machine: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// Why no throwaway namespace could be created.
    pub untried: Option<String>,
    /// Every feature, area by area.
    pub findings: Vec<Finding>,
}

impl Survey {
    /// Returns the finding about a feature.
    #[must_use]
    pub fn find(&self, area: &str, feature: &str) -> Option<&Finding> {
        self.findings
            .iter()
            .find(|f| f.area == area && f.feature == feature)
    }
}

/// Probes the running kernel. `progress` is called every second while it runs, with the area
/// that is being probed.
#[must_use]
pub fn survey(progress: impl Fn(&str) + Sync) -> Survey {
    let stage = Mutex::new("the kernel's modules");
    let at = |name| {
        *stage
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = name
    };
    let (done, waiting) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let waiting = waiting;
            while waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let name = *stage
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                progress(name);
            }
        });
        let survey = ask(&at);
        drop(done);
        survey
    })
}

fn ask(at: &(impl Fn(&'static str) + Sync)) -> Survey {
    let kernel = RunningKernel::read();
    let modules = match &kernel.loading {
        Loading::Never(why) => why.clone(),
        Loading::Possible => {
            "loadable; features whose module is not loaded are not probed".to_owned()
        }
    };
    let (mut findings, untried) = in_throwaway(&kernel, at);
    at("the system");
    findings.extend(system::findings());
    findings.extend(process::findings());
    Survey {
        release: kernel.release.clone(),
        modules,
        facts: process::facts(),
        untried,
        findings,
    }
}

/// Runs the probes that need a network namespace, in a temporary one; also returns why none could be created.
fn in_throwaway(
    kernel: &RunningKernel,
    at: &(impl Fn(&'static str) + Sync),
) -> (Vec<Finding>, Option<String>) {
    let asked = Netns::create().and_then(|netns| {
        netns.run(|| {
            at("nf_tables");
            let mut findings = nft::features(kernel);
            at("legacy tables");
            findings.extend(xtables::features(kernel));
            at("ipset");
            findings.extend(ipset::features(kernel));
            at("links and routes");
            findings.extend(net::features(kernel));
            at("eBPF");
            findings.extend(bpf::features(kernel, Ok(&netns)));
            findings.push(system::writable());
            findings
        })
    });
    let e = match asked {
        Ok(findings) => return (findings, None),
        Err(e) => e,
    };
    let why = format!(
        "cannot create a throwaway namespace for the probes: {e} (as an ordinary user: `unshare --user --net --map-root-user weir preflight`)"
    );
    let mut findings = nft::untried(&why);
    findings.extend(xtables::untried(&why));
    findings.extend(ipset::untried(&why));
    findings.extend(net::untried(&why));
    at("eBPF");
    findings.extend(bpf::features(kernel, Err(&why)));
    findings.push(system::untried(&why));
    (findings, Some(why))
}
