//! A pod on the running kernel, the output of `weir preflight`, and what the kernel contains.

use crate::rights::unmapped;
use crate::support::{Run, TempFile, config, path, weir};
use serde_json::{Value, json};
use std::net::SocketAddr;
use weir_demo::{Flow, Lab, Mode, Owner, Place, Protocol, Receiver, Stage};
use weir_netfilter::ipset::{self, Existing, Header, SetType};
use weir_netlink::route::{AddressFamily, Routing};
use weir_rules::show;

/// A lab with a configuration for its pod, before any redirection is installed.
pub(crate) struct Scene {
    lab: Lab,
    mode: Mode,
    file: TempFile,
    preflight: Value,
    before: String,
}

/// Prints the reason and returns `None` if this user may not create a lab.
pub(crate) fn scene(mode: Mode) -> Option<Scene> {
    let reason = unmapped([Owner::PROXY.uid, Owner::APPLICATION.uid])
        .or_else(crate::rights::not_first_user_namespace);
    if let Some(reason) = reason {
        println!("skipped: {reason}");
        return None;
    }
    let lab = weir_testing::granted(Lab::create())?;
    let run = weir(&["preflight", "--json"]);
    let preflight = serde_json::from_str(&run.stdout).expect("JSON");
    let before = held(&lab);
    let mut scene = Scene {
        lab,
        mode,
        file: TempFile::new(""),
        preflight,
        before,
    };
    scene.configure(&json!({}));
    Some(scene)
}

/// Everything in the pod that weir could have changed, as text. The nf_tables part is empty on a kernel without them.
fn held(lab: &Lab) -> String {
    let pod = lab.netns(Place::Pod);
    let nft = show::nft(pod).map_or_else(|_| String::new(), |r| r.to_string());
    let mut legacy = show::legacy(pod).map_or_else(|_| String::new(), |r| r.to_string());
    // Reading a legacy table creates it with its built-in chains, so only rules and Istio's chains count.
    legacy = legacy
        .lines()
        .filter(|l| l.starts_with("-A") || l.starts_with(":ISTIO"))
        .collect();
    let routing = Routing::open_in(pod).unwrap();
    let rules = routing.rules().unwrap();
    format!(
        "{nft}\n{legacy}\n{rules:?}\n{:?}",
        routing.routes(133).unwrap()
    )
}

impl Scene {
    /// Writes a configuration that captures everything, with these fields changed.
    pub(crate) fn configure(&mut self, changes: &Value) {
        let mode = match self.mode {
            Mode::Redirect => "REDIRECT",
            Mode::Tproxy => "TPROXY",
        };
        // The pod gets addresses only of families that the kernel has.
        let mut fields =
            json!({ "inbound_interception_mode": mode, "enable_ipv6": self.has_ipv6() });
        let more = changes.as_object().unwrap().clone();
        fields.as_object_mut().unwrap().extend(more);
        self.file = config(&fields);
    }

    pub(crate) fn has_ipv6(&self) -> bool {
        self.lab.families().contains(&AddressFamily::V6)
    }

    pub(crate) fn netns(&self) -> String {
        path(self.lab.netns(Place::Pod))
    }

    /// Runs `weir VERB sidecar` for the pod.
    pub(crate) fn weir(&self, verb: &str, more: &[&str]) -> Run {
        let ns = self.netns();
        let on = [
            verb,
            "sidecar",
            "--config",
            self.file.path(),
            "--netns",
            &ns,
        ];
        weir(&[&on[..], more].concat())
    }

    /// The verdict of preflight for a job.
    pub(crate) fn verdict(&self, job: &str) -> String {
        let jobs = self.preflight["jobs"].as_array().unwrap();
        let found = jobs.iter().find(|j| j["job"] == job).expect("the job");
        found["verdict"].as_str().unwrap().to_owned()
    }

    /// Whether preflight found a feature.
    pub(crate) fn has(&self, area: &str, feature: &str) -> bool {
        let features = self.preflight["features"].as_array().unwrap();
        let found = features
            .iter()
            .find(|f| f["area"] == area && f["feature"] == feature);
        let answer = &found.unwrap_or_else(|| panic!("{area} {feature}"))["answer"];
        assert_ne!(answer, "unknown", "{area} {feature}");
        answer == "have"
    }

    /// Checks that the error names a remedy and that the pod is unchanged.
    #[track_caller]
    pub(crate) fn is_refused(&self, run: &Run) {
        assert_ne!(run.code, 0, "{}", run.stdout);
        let text = run.stderr.trim();
        assert_eq!(text.lines().count(), 1, "{text}");
        // The remedy is a kernel option, a module or the other engine.
        let is_helpful = ["CONFIG_", "module", "--engine"]
            .iter()
            .any(|w| text.contains(w));
        assert!(is_helpful, "{text}");
        println!("{text}");
        assert_eq!(held(&self.lab), self.before);
    }

    /// Traffic of both directions reaches the proxy, and traffic of the proxy itself bypasses it.
    #[track_caller]
    pub(crate) fn captures(&self) {
        for family in self.lab.families() {
            self.captures_family(*family);
        }
    }

    #[track_caller]
    pub(crate) fn captures_ipv4(&self) {
        self.captures_family(AddressFamily::V4);
    }

    #[track_caller]
    fn captures_family(&self, family: AddressFamily) {
        let stage = Stage::open(&self.lab, self.mode).unwrap();
        let service = SocketAddr::new(self.lab.service(family), 80);
        let pod = SocketAddr::new(self.lab.address(Place::Pod, family), 8080);
        let tcp = |name, from, to| Flow::new(name, Protocol::Tcp, from, to);
        for (flow, by) in [
            (tcp("out", Place::Pod, service), Receiver::ProxyOutbound),
            (tcp("in", Place::Client, pod), Receiver::ProxyInbound),
            (
                tcp("proxy", Place::Pod, service).of(Owner::PROXY),
                Receiver::Server,
            ),
        ] {
            let to = flow.to;
            let outcome = stage.send(&flow).unwrap();
            assert_eq!(outcome.by(), Some(by), "{flow}: {outcome}");
            assert_eq!(outcome.original(), Some(to), "{flow}: {outcome}");
        }
    }

    /// Creates a set in the pod as `ipset create s hash:ip` does.
    pub(crate) fn make_set(&self) -> weir_netlink::Result<()> {
        let set = Header::new("s", SetType::HashIp, ipset::SetFamily::Inet);
        let make = || ipset::IpsetEngine::open()?.create(&set, Existing::Refuse);
        self.lab.netns(Place::Pod).run(make)?
    }

    /// `weir clean` restores the pod, and a second run reports that nothing is left.
    #[track_caller]
    pub(crate) fn cleans(&self) {
        let ns = self.netns();
        let clean = weir(&["clean", "--netns", &ns]);
        assert_eq!(clean.code, 0, "{}", clean.stderr);
        assert_eq!(held(&self.lab), self.before);
        assert_eq!(weir(&["clean", "--netns", &ns]).stdout, "unchanged\n");
    }
}
