//! The scenarios: commands, and the state before them.

use serde_json::json;
use weir_ambient::{Redirect, Request};
use weir_cni::compile::{Compiled, Engine, compile};
use weir_cni::config::NameFiles;
use weir_cni::redirection::Desired;
use weir_rules::SidecarConfig;

use crate::check::fault::Other;

/// The operation of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `weir-cni` ADD, with the pod from the agent.
    Add,
    /// ADD without an agent: the pod is read from the API server.
    AddByServer,
    /// `weir-cni` DEL of a redirected pod.
    Del,
    /// `weir apply` in a namespace without our rules.
    Apply,
    /// `weir apply` with a configuration that differs from the present one.
    Update,
    /// `weir apply` while the other engine has the same redirection; for eBPF, while this engine has it.
    Switch,
    /// `weir clean`.
    Clean,
    /// `weir restore` of legacy tables.
    RestoreTables,
    /// `weir restore` of sets.
    RestoreSets,
}

/// The redirection: inbound traffic to a sidecar, or ambient mode in the pod by rules, by eBPF, or at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Redirect,
    Tproxy,
    Ambient,
    Ebpf,
    Node,
}

impl Mode {
    pub(crate) const IN_PODS: [Self; 3] = [Self::Redirect, Self::Tproxy, Self::Ambient];

    /// Its name in the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Redirect | Self::Tproxy => "sidecar",
            Self::Ambient | Self::Ebpf => "ambient",
            Self::Node => "node-ambient",
        }
    }
}

/// A command and its initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) engine: Engine,
    pub(crate) mode: Mode,
}

impl Scenario {
    /// Returns all scenarios.
    pub(crate) fn all() -> Vec<Self> {
        use Kind::{Add, AddByServer, Apply, Clean, Del, Switch, Update};
        let mut all = Vec::new();
        for kind in [Add, AddByServer, Del, Apply, Update, Switch, Clean] {
            for engine in [Engine::Nft, Engine::Xtables] {
                for mode in Mode::IN_PODS {
                    all.push(Self { kind, engine, mode });
                }
            }
        }
        // One scenario each suffices: neither the way in which the pod is read nor DEL, which leaves the removal to the kernel,
        // depends on engine and mode.
        let one_is_enough = |s: &Self| match (s.kind, s.mode) {
            (Add, Mode::Ambient) | (AddByServer, _) => s.engine == Engine::Nft,
            (Del, _) => (s.engine, s.mode) == (Engine::Nft, Mode::Tproxy),
            _ => true,
        };
        all.retain(one_is_enough);
        all.retain(|s| s.kind != AddByServer || s.mode == Mode::Tproxy);
        let restore = |kind| Self {
            kind,
            engine: Engine::Xtables,
            mode: Mode::Redirect,
        };
        all.extend([Kind::RestoreTables, Kind::RestoreSets].map(restore));
        for engine in [Engine::Nft, Engine::Xtables] {
            let mode = Mode::Node;
            all.extend([Apply, Clean].map(|kind| Self { kind, engine, mode }));
        }
        for (kind, engine) in [
            (Apply, Engine::Nft),
            (Switch, Engine::Nft),
            (Switch, Engine::Xtables),
            (Clean, Engine::Nft),
        ] {
            let mode = Mode::Ebpf;
            all.push(Self { kind, engine, mode });
        }
        all
    }

    pub(crate) fn name(self) -> String {
        let kind = match self.kind {
            Kind::Add => "add",
            Kind::AddByServer => "add-by-server",
            Kind::Del => "del",
            Kind::Apply => "apply",
            Kind::Update => "update",
            Kind::Switch => "switch",
            Kind::Clean => "clean",
            Kind::RestoreTables => return "restore-tables".to_owned(),
            Kind::RestoreSets => return "restore-sets".to_owned(),
        };
        let mode = format!("{:?}", self.mode).to_lowercase();
        match (self.kind, self.mode) {
            (Kind::Apply | Kind::Clean, Mode::Ebpf) => format!("{kind}-{mode}"),
            _ => format!("{kind}-{}-{mode}", self.engine),
        }
    }

    /// Whether it is `weir-cni` for a pod in ambient mode, which the agent enrols: the plugin itself changes nothing.
    pub(crate) fn is_handed_over(self) -> bool {
        (self.kind, self.mode) == (Kind::Add, Mode::Ambient)
    }

    /// Whether a redirection exists afterwards.
    pub(crate) fn redirects(self) -> bool {
        use Kind::{Add, AddByServer, Apply, Switch, Update};
        matches!(self.kind, Add | AddByServer | Apply | Update | Switch) && !self.is_handed_over()
    }

    /// Whether the output is that of a CNI plugin.
    pub(crate) fn is_plugin(self) -> bool {
        matches!(self.kind, Kind::Add | Kind::AddByServer | Kind::Del)
    }

    /// The redirection that exists before.
    pub(crate) fn before(self) -> Result<Option<Compiled>, String> {
        let (engine, is_other) = match self.kind {
            // `Lab::place` sets these up.
            _ if self.mode == Mode::Node => return Ok(None),
            Kind::Clean if self.mode == Mode::Ebpf => return Ok(None),
            Kind::Apply | Kind::AddByServer | Kind::RestoreTables | Kind::RestoreSets => {
                return Ok(None);
            }
            // The plugin uses legacy tables if it finds its own rules there.
            Kind::Add if self.engine == Engine::Nft => return Ok(None),
            Kind::Add | Kind::Update => (self.engine, true),
            Kind::Clean | Kind::Del => (self.engine, false),
            Kind::Switch if self.mode == Mode::Ebpf => (self.engine, false),
            Kind::Switch => (other(self.engine), false),
        };
        compiled(self.mode, is_other, engine).map(Some)
    }

    /// The scenario that removes the redirection.
    pub(crate) fn cleaner(self) -> Option<Self> {
        let kind = Kind::Clean;
        self.redirects().then_some(Self { kind, ..self })
    }

    /// The actions of another writer that are possible with this scenario.
    pub(crate) fn others(self) -> &'static [Other] {
        match self.kind {
            // If it finds no rules of its own, the plugin uses the other engine.
            Kind::Add if self.engine == Engine::Xtables => &[Other::Adds, Other::Applies],
            _ if matches!(self.mode, Mode::Node | Mode::Ebpf) => &[Other::Adds],
            _ if self.redirects() => &Other::ALL,
            Kind::Clean => &Other::ALL,
            // Creating a set that exists already fails.
            Kind::RestoreTables => &[Other::Adds, Other::Flushes],
            _ => &[Other::Adds],
        }
    }

    /// Another redirection of the same kind.
    pub(crate) fn other(self) -> Result<Compiled, String> {
        compiled(self.mode, true, self.engine)
    }
}

fn other(engine: Engine) -> Engine {
    match engine {
        Engine::Nft => Engine::Xtables,
        Engine::Xtables => Engine::Nft,
    }
}

/// The configuration, or another that differs from it.
pub(crate) fn config(mode: Mode, is_other: bool) -> String {
    let mode = match mode {
        Mode::Redirect => "REDIRECT",
        Mode::Tproxy => "TPROXY",
        Mode::Ambient | Mode::Ebpf | Mode::Node => {
            let config = json!({ "enable_ipv6": true, "redirect_dns": !is_other });
            return json!({ "config": config }).to_string();
        }
    };
    json!({
        "proxy_uid": "1337", "proxy_gid": "1337",
        "inbound_interception_mode": mode,
        "inbound_ports_include": "*", "inbound_ports_exclude": "15090",
        "outbound_ip_ranges_include": "*",
        "outbound_ports_exclude": if is_other { "15020" } else { "" },
        "enable_ipv6": true,
    })
    .to_string()
}

fn compiled(mode: Mode, is_other: bool, engine: Engine) -> Result<Compiled, String> {
    let config = config(mode, is_other);
    if matches!(mode, Mode::Ambient | Mode::Ebpf) {
        return Ok(redirect(&config)?.compile(engine));
    }
    let config = SidecarConfig::from_json(&config, "here").map_err(|e| e.to_string())?;
    let intent = config
        .intent(&NameFiles::default())
        .map_err(|e| e.to_string())?;
    Ok(compile(&intent, engine))
}

pub(crate) fn redirect(config: &str) -> Result<Redirect, String> {
    let request = Request::from_json(config, "here").map_err(|e| e.to_string())?;
    Redirect::new(request.config, &request.pod_overrides).map_err(|e| e.to_string())
}
