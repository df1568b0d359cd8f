//! A pod with rules in it, and how a flow is asserted.

use std::net::SocketAddr;

use crate::rights::unmapped;
use serde_json::{Value, json};
use weir_cni::compile::Engine;
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Desired as _, Sandbox};
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Receiver, Stage};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_testing::BpfFs;

pub const FAMILIES: [AddressFamily; 2] = [AddressFamily::V4, AddressFamily::V6];

/// How inbound traffic is captured, and who holds the rules.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub mode: Mode,
    pub engine: Engine,
}

/// Both engines, inbound by redirection.
pub const REDIRECT: [Case; 2] = [
    Case {
        mode: Mode::Redirect,
        engine: Engine::Nft,
    },
    Case {
        mode: Mode::Redirect,
        engine: Engine::Xtables,
    },
];
/// Both engines, inbound by transparent proxying.
pub const TPROXY: [Case; 2] = [
    Case {
        mode: Mode::Tproxy,
        engine: Engine::Nft,
    },
    Case {
        mode: Mode::Tproxy,
        engine: Engine::Xtables,
    },
];
/// All of them.
pub const CASES: [Case; 4] = [REDIRECT[0], REDIRECT[1], TPROXY[0], TPROXY[1]];

/// A lab, or `None` with the reason printed where this user may not build one.
pub fn lab() -> Option<Lab> {
    if let Some(reason) = unmapped([Owner::PROXY.uid, Owner::APPLICATION.uid]) {
        println!("skipped: {reason}");
        return None;
    }
    weir_testing::granted(Lab::create())
}

/// Everything captured, both families, and then what `more` says.
pub fn config(mode: Mode, more: Value) -> Value {
    let mode = match mode {
        Mode::Redirect => "REDIRECT",
        Mode::Tproxy => "TPROXY",
    };
    let mut config = json!({
        "proxy_uid": "1337",
        "proxy_gid": "1337",
        "inbound_interception_mode": mode,
        "inbound_ports_include": "*",
        "inbound_ports_exclude": "15020",
        "outbound_ip_ranges_include": "*",
        "enable_ipv6": true,
    });
    let fields = config.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    config
}

/// Puts the rules for a configuration into a namespace: the one place that knows how.
///
/// As the plugin and `weir apply` do it with this engine named.
pub fn program(netns: &Netns, engine: Engine, config: &Value) {
    program_for(netns, Some(engine), engine, config);
}

/// As they do it with the engine that is `named`, or that they have chosen.
pub fn program_for(netns: &Netns, named: Option<Engine>, engine: Engine, config: &Value) {
    let given: SidecarConfig = serde_json::from_value(config.clone()).expect("a configuration");
    let intent = Intent::parse(&given, &NameFiles::default()).unwrap_or_else(|e| panic!("{e}"));
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    sandbox
        .apply(&intent.compile_for(named, engine))
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Runs a check in a pod of its own for each case.
pub fn each(cases: &[Case], more: Value, check: impl Fn(&Pod<'_>)) {
    for case in cases {
        let Some(lab) = lab() else { return };
        check(&Pod::with(&lab, *case, more.clone()));
    }
}

/// A pod with rules, everybody in place.
pub struct Pod<'a> {
    pub lab: &'a Lab,
    pub case: Case,
    stage: Stage<'a>,
    /// The redirection is by eBPF, with pins here; `case` does not count then.
    ebpf: Option<&'a BpfFs>,
}

impl<'a> Pod<'a> {
    fn with(lab: &'a Lab, case: Case, more: Value) -> Self {
        program(lab.netns(Place::Pod), case.engine, &config(case.mode, more));
        let stage = Stage::open(lab, case.mode).expect("everybody in place");
        Self::on(stage, lab, case)
    }

    /// A pod whose rules and listeners are there already.
    pub fn on(stage: Stage<'a>, lab: &'a Lab, case: Case) -> Self {
        Self {
            lab,
            case,
            stage,
            ebpf: None,
        }
    }

    /// The same for a pod that is redirected by eBPF.
    pub fn by_ebpf(stage: Stage<'a>, lab: &'a Lab, bpffs: &'a BpfFs) -> Self {
        Self {
            ebpf: Some(bpffs),
            ..Self::on(stage, lab, REDIRECT[0])
        }
    }

    /// Applies eBPF once more, as for a new interface. Rules of netfilter match interfaces by name.
    pub fn again(&self, wanted: &weir_ambient::Redirect) {
        if let Some(bpffs) = self.ebpf {
            crate::ebpf::redirect(bpffs, self.lab.netns(Place::Pod), wanted);
        }
    }

    fn way(&self) -> String {
        match self.ebpf.is_some() {
            true => "eBPF".to_owned(),
            false => format!("{:?}", self.case),
        }
    }

    /// An address and port of a place on its `eth0`.
    pub fn at(&self, place: Place, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.address(place, family), port)
    }

    pub fn service(&self, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.service(family), port)
    }

    pub fn outside(&self, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.outside(family), port)
    }

    /// The flow reaches this receiver, which knows where it was meant to go, and
    /// the answer comes back.
    #[track_caller]
    pub fn expect(&self, flow: Flow, by: Receiver) -> Outcome {
        let outcome = self.stage.send(&flow).expect("sent");
        let way = self.way();
        assert_eq!(outcome.by(), Some(by), "{flow}: {outcome}, {way}");
        let Outcome::Received {
            original, answered, ..
        } = &outcome
        else {
            unreachable!()
        };
        assert!(answered, "{flow}: {outcome}, {way}");
        // eBPF translates DNS to ztunnel's address at loopback; ztunnel does not ask which server was meant.
        let is_translated = self.ebpf.is_some() && by == Receiver::ProxyDns;
        if flow.protocol == Protocol::Tcp && !is_translated {
            assert_eq!(*original, flow.to, "{flow}: {outcome}, {way}");
        }
        outcome
    }
}

/// A TCP flow of the application's user.
pub fn tcp(name: &str, from: Place, to: SocketAddr) -> Flow {
    Flow::new(name, Protocol::Tcp, from, to)
}
