//! What is run: a command, on a namespace in which something is already.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use weir_cni::compile::{Compiled, Engine, compile};
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::Sandbox;
use weir_netlink::Netns;

use crate::check::foreign::{ADDRESSES, Foreign};
use crate::check::stand_in::{self, Servers};
use crate::check::trace::traced_command;

/// What the command is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `weir-cni` ADD, the pod known to the agent.
    Add,
    /// ADD without an agent: the API server is asked.
    AddByServer,
    /// `weir-cni` DEL of a redirected pod.
    Del,
    /// `weir apply` to a namespace without rules of ours.
    Apply,
    /// `weir apply` of another configuration than the one that is there.
    Update,
    /// `weir apply` where the other engine holds the same redirection.
    Switch,
    /// `weir clean`.
    Clean,
}

/// Redirection of inbound traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Redirect,
    Tproxy,
}

/// A command and what it starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) engine: Engine,
    pub(crate) mode: Mode,
}

/// What all cases share.
pub(crate) struct Lab {
    programs: PathBuf,
    dir: PathBuf,
    foreign: Foreign,
    servers: Servers,
}

/// Where one case happens.
pub(crate) struct Place {
    pub(crate) netns: Netns,
    dir: PathBuf,
}

impl Scenario {
    /// All of them.
    pub(crate) fn all() -> Vec<Self> {
        use Kind::{Add, AddByServer, Apply, Clean, Del, Switch, Update};
        let mut all = Vec::new();
        for kind in [Add, AddByServer, Del, Apply, Update, Switch, Clean] {
            for engine in [Engine::Nft, Engine::Xtables] {
                for mode in [Mode::Redirect, Mode::Tproxy] {
                    all.push(Self { kind, engine, mode });
                }
            }
        }
        // How the pod is read, and that DEL leaves it all to the kernel, has nothing to do with these.
        let one_is_enough = |s: &Self| {
            !matches!(s.kind, AddByServer | Del)
                || (s.engine, s.mode) == (Engine::Nft, Mode::Tproxy)
        };
        all.retain(one_is_enough);
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
        };
        let mode = match self.mode {
            Mode::Redirect => "redirect",
            Mode::Tproxy => "tproxy",
        };
        format!("{kind}-{}-{mode}", self.engine)
    }

    /// Whether the answer is that of a CNI plugin.
    pub(crate) fn is_plugin(self) -> bool {
        matches!(self.kind, Kind::Add | Kind::AddByServer | Kind::Del)
    }

    /// What is there before.
    fn before(self) -> Option<(Engine, String)> {
        match self.kind {
            Kind::Apply | Kind::AddByServer => None,
            // The plugin writes legacy tables where it finds its own.
            Kind::Add if self.engine == Engine::Nft => None,
            Kind::Add | Kind::Update => Some((self.engine, config(self.mode, "15020"))),
            Kind::Clean | Kind::Del => Some((self.engine, config(self.mode, ""))),
            Kind::Switch => Some((other(self.engine), config(self.mode, ""))),
        }
    }
}

fn other(engine: Engine) -> Engine {
    match engine {
        Engine::Nft => Engine::Xtables,
        Engine::Xtables => Engine::Nft,
    }
}

/// A configuration; what is excluded makes two of them differ.
fn config(mode: Mode, excluded: &str) -> String {
    let mode = match mode {
        Mode::Redirect => "REDIRECT",
        Mode::Tproxy => "TPROXY",
    };
    json!({
        "proxy_uid": "1337", "proxy_gid": "1337",
        "inbound_interception_mode": mode,
        "inbound_ports_include": "*", "inbound_ports_exclude": "15090",
        "outbound_ip_ranges_include": "*", "outbound_ports_exclude": excluded,
        "enable_ipv6": true,
    })
    .to_string()
}

fn compiled(config: &str, engine: Engine) -> Result<Compiled, String> {
    let config = SidecarConfig::from_json(config, "here").map_err(|e| e.to_string())?;
    let intent = Intent::parse(&config, &NameFiles::default()).map_err(|e| e.to_string())?;
    Ok(compile(&intent, engine))
}

impl Lab {
    /// # Errors
    /// A program is missing, or this user may not make namespaces.
    pub(crate) fn new(programs: &Path, dir: &Path) -> Result<Self, String> {
        for name in ["weir", "weir-cni"] {
            let path = programs.join(name);
            std::fs::metadata(&path)
                .map_err(|e| format!("{}: {e}; ci/build makes it", path.display()))?;
        }
        let servers = dir.join("servers");
        std::fs::create_dir(&servers).map_err(|e| e.to_string())?;
        for mode in [Mode::Redirect, Mode::Tproxy] {
            std::fs::write(dir.join(format!("{mode:?}.json")), config(mode, ""))
                .map_err(|e| e.to_string())?;
        }
        Ok(Self {
            programs: std::fs::canonicalize(programs).map_err(|e| e.to_string())?,
            dir: dir.to_owned(),
            foreign: Foreign::prepare(dir)?,
            servers: Servers::start(&servers)?,
        })
    }

    /// A namespace as the scenario begins with it, and a directory of its own.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn place(&self, scenario: Scenario, number: usize) -> Result<Place, String> {
        let netns = self.foreign.namespace()?;
        if let Some((engine, config)) = scenario.before() {
            let sandbox = Sandbox::of(netns.try_clone().map_err(|e| e.to_string())?);
            let sandbox = sandbox.map_err(|e| e.to_string())?;
            sandbox
                .apply(&compiled(&config, engine)?)
                .map_err(|e| e.to_string())?;
        }
        let dir = self.dir.join(format!("case-{number}"));
        std::fs::create_dir(&dir).map_err(|e| e.to_string())?;
        let place = Place { netns, dir };
        if scenario.is_plugin() {
            let run = place.dir.join("run");
            std::fs::create_dir(&run).map_err(|e| e.to_string())?;
            self.servers
                .run_dir(&run, scenario.kind != Kind::AddByServer)?;
            let stdin = json!({
                "cniVersion": "1.1.0", "name": "pods", "type": "weir-cni",
                "native_nftables": false, "cni_agent_run_dir": run,
                "pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"],
                "prevResult": {
                    "cniVersion": "1.1.0",
                    "ips": ADDRESSES.map(|address| json!({ "address": address })),
                },
            });
            place.write("stdin", &stdin.to_string())?;
        } else {
            place.write("stdin", "")?;
        }
        Ok(place)
    }

    /// The command there, to be run by [`crate::check::trace::run`].
    ///
    /// # Errors
    /// Its files cannot be opened.
    pub(crate) fn command(&self, scenario: Scenario, place: &Place) -> Result<Command, String> {
        let program = self.programs.join(if scenario.is_plugin() {
            "weir-cni"
        } else {
            "weir"
        });
        let mut command = traced_command(&program)?;
        let netns = place.netns.path();
        let Scenario { kind, engine, mode } = scenario;
        match kind {
            Kind::Add | Kind::AddByServer | Kind::Del => {
                let verb = if kind == Kind::Del { "DEL" } else { "ADD" };
                let pod = format!("web-{mode:?}").to_lowercase();
                let uid = stand_in::pod(&pod)["metadata"]["uid"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                command
                    .env("CNI_COMMAND", verb)
                    .env("CNI_CONTAINERID", &pod);
                command.env("CNI_NETNS", netns).env("CNI_IFNAME", "eth0");
                command.env("CNI_PATH", "/opt/cni/bin");
                let args = format!(
                    "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID={uid}"
                );
                command.env("CNI_ARGS", args);
            }
            Kind::Apply | Kind::Update | Kind::Switch => {
                let file = self.dir.join(format!("{mode:?}.json"));
                command.args(["apply", "sidecar", "--engine", &engine.to_string()]);
                command.arg("--config").arg(file).arg("--netns").arg(netns);
            }
            Kind::Clean => {
                command.arg("clean").arg("--netns").arg(netns);
            }
        }
        let open = |name: &str| File::open(place.dir.join(name)).map_err(|e| e.to_string());
        let create = |name: &str| File::create(place.dir.join(name)).map_err(|e| e.to_string());
        command.stdin(Stdio::from(open("stdin")?));
        command.stdout(Stdio::from(create("stdout")?));
        command.stderr(Stdio::from(create("stderr")?));
        Ok(command)
    }
}

impl Place {
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.dir.join(name), text).map_err(|e| e.to_string())
    }

    /// What the last command printed: stdout and stderr.
    pub(crate) fn printed(&self) -> (String, String) {
        let read = |name: &str| {
            let bytes = std::fs::read(self.dir.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (read("stdout"), read("stderr"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
