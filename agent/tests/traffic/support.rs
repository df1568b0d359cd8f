//! A pod with rules in it, and assertions about flows.

use std::net::SocketAddr;

use crate::rights::unmapped;
use serde_json::{Value, json};
use weir_cni::compile::Engine;
use weir_cni::config::NameFiles;
use weir_cni::redirection::{Desired as _, Sandbox};
use weir_demo::{Flow, Lab, Mode, Outcome, Owner, Place, Protocol, Receiver, Stage};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_rules::SidecarConfig;
use weir_testing::BpfFs;

pub const FAMILIES: [AddressFamily; 2] = [AddressFamily::V4, AddressFamily::V6];

/// The mode of inbound capture, and the engine that has the rules.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub mode: Mode,
    pub engine: Engine,
}

/// Both engines, with inbound capture by REDIRECT.
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
/// Both engines, with inbound capture by TPROXY.
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
/// All four cases.
pub const CASES: [Case; 4] = [REDIRECT[0], REDIRECT[1], TPROXY[0], TPROXY[1]];

/// Creates a lab. Prints the reason and returns `None` if this user may not build one.
pub fn lab() -> Option<Lab> {
    if let Some(reason) = unmapped([Owner::PROXY.uid, Owner::APPLICATION.uid]) {
        println!("skipped: {reason}");
        return None;
    }
    weir_testing::granted(Lab::create())
}

/// A configuration that captures everything in both families, changed by the fields of `more`.
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

/// Writes the rules for a configuration into a namespace, as the plugin and `weir apply` do if this engine is named.
pub fn program(netns: &Netns, engine: Engine, config: &Value) {
    program_for(netns, Some(engine), engine, config);
}

/// Like [`program`], with the engine that is `named` or automatically chosen.
pub fn program_for(netns: &Netns, named: Option<Engine>, engine: Engine, config: &Value) {
    let given: SidecarConfig = serde_json::from_value(config.clone()).expect("a configuration");
    let intent = given
        .intent(&NameFiles::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let sandbox = Sandbox::of(netns.try_clone().expect("a descriptor")).expect("a pod");
    sandbox
        .apply(&intent.compile_for(named, engine))
        .unwrap_or_else(|e| panic!("{e}"));
}

/// Runs a check in a new pod for each case.
pub fn each(cases: &[Case], more: Value, check: impl Fn(&Pod<'_>)) {
    for case in cases {
        let Some(lab) = lab() else { return };
        check(&Pod::with(&lab, *case, more.clone()));
    }
}

/// A pod with rules and with all listeners.
pub struct Pod<'a> {
    pub lab: &'a Lab,
    pub case: Case,
    stage: Stage<'a>,
    /// If present, the redirection is by eBPF with pins in this file system, and `case` is ignored.
    ebpf: Option<&'a BpfFs>,
}

impl<'a> Pod<'a> {
    fn with(lab: &'a Lab, case: Case, more: Value) -> Self {
        program(lab.netns(Place::Pod), case.engine, &config(case.mode, more));
        let stage = Stage::open(lab, case.mode).expect("everybody in place");
        Self::on(stage, lab, case)
    }

    /// A pod that has its rules and listeners already.
    pub fn on(stage: Stage<'a>, lab: &'a Lab, case: Case) -> Self {
        Self {
            lab,
            case,
            stage,
            ebpf: None,
        }
    }

    /// Like [`Pod::on`], for a pod that is redirected by eBPF.
    pub fn by_ebpf(stage: Stage<'a>, lab: &'a Lab, bpffs: &'a BpfFs) -> Self {
        Self {
            ebpf: Some(bpffs),
            ..Self::on(stage, lab, REDIRECT[0])
        }
    }

    /// Applies the redirection by eBPF again, as for a new interface. Netfilter rules match interfaces by name and need no change.
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

    /// An address of a place on its `eth0`, with a port.
    pub fn at(&self, place: Place, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.address(place, family), port)
    }

    pub fn service(&self, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.service(family), port)
    }

    pub fn outside(&self, family: AddressFamily, port: u16) -> SocketAddr {
        SocketAddr::new(self.lab.outside(family), port)
    }

    /// The flow must reach this receiver, which must learn the original destination, and the answer must arrive.
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
        // eBPF rewrites DNS queries to ztunnel's address on loopback; ztunnel does not look up their original destination.
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
