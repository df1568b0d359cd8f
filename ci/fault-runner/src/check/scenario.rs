//! What is run: a command, on a namespace in which something is already.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use weir_ambient::{Redirect, Request};
use weir_cni::compile::{Compiled, Engine, compile};
use weir_cni::config::{Intent, NameFiles, SidecarConfig};
use weir_cni::redirection::{Desired, SIDECAR, Sandbox};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_testing::BpfFs;

use crate::check::fault::Other;
use crate::check::foreign::{ADDRESSES, Foreign, flush};
use crate::check::node::Neighbours;
use crate::check::stand_in::{self, Servers};
use crate::check::state::State;
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
    /// `weir apply` where the other engine holds the same redirection; to eBPF from this engine.
    Switch,
    /// `weir clean`.
    Clean,
    /// `weir restore` of legacy tables.
    RestoreTables,
    /// `weir restore` of sets.
    RestoreSets,
}

/// Redirection of inbound traffic to a sidecar, or ambient mode: in the pod by rules or by eBPF, or at the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Redirect,
    Tproxy,
    Ambient,
    Ebpf,
    Node,
}

impl Mode {
    const IN_PODS: [Self; 3] = [Self::Redirect, Self::Tproxy, Self::Ambient];

    /// What the command calls it.
    fn word(self) -> &'static str {
        match self {
            Self::Redirect | Self::Tproxy => "sidecar",
            Self::Ambient | Self::Ebpf => "ambient",
            Self::Node => "node-ambient",
        }
    }
}

/// Built-in chains get nothing: a second run has to come to the same.
const TABLES: &str = "*nat
:RESTORED - [0:0]
-A RESTORED -p tcp --dport 80 -j RETURN
-A RESTORED -p tcp --dport 81 -j RETURN
COMMIT
*mangle
:RESTORED - [0:0]
-A RESTORED -j ACCEPT
COMMIT
*filter
:RESTORED - [0:0]
-A RESTORED -j DROP
COMMIT
";

const SETS: &str = "create restored hash:ip family inet -exist
add restored 10.0.0.1 -exist
add restored 10.0.0.2 -exist
";

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
    /// What it is connected with, if it is a node.
    pub(crate) neighbours: Option<Neighbours>,
    /// Where programs are pinned, if it is about these.
    pub(crate) bpffs: Option<BpfFs>,
    dir: PathBuf,
}

impl Scenario {
    /// All of them.
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
        // How the pod is read, and that DEL leaves it all to the kernel, has nothing to do with these.
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

    /// `weir-cni` of a pod of ambient mode, which the agent enrolls: the plugin itself changes nothing.
    pub(crate) fn is_handed_over(self) -> bool {
        (self.kind, self.mode) == (Kind::Add, Mode::Ambient)
    }

    /// Whether there is a redirection afterwards.
    pub(crate) fn redirects(self) -> bool {
        use Kind::{Add, AddByServer, Apply, Switch, Update};
        matches!(self.kind, Add | AddByServer | Apply | Update | Switch) && !self.is_handed_over()
    }

    /// Whether the answer is that of a CNI plugin.
    pub(crate) fn is_plugin(self) -> bool {
        matches!(self.kind, Kind::Add | Kind::AddByServer | Kind::Del)
    }

    /// What is there before.
    fn before(self) -> Result<Option<Compiled>, String> {
        let (engine, is_other) = match self.kind {
            // See `Lab::place`.
            _ if self.mode == Mode::Node => return Ok(None),
            Kind::Clean if self.mode == Mode::Ebpf => return Ok(None),
            Kind::Apply | Kind::AddByServer | Kind::RestoreTables | Kind::RestoreSets => {
                return Ok(None);
            }
            // The plugin writes legacy tables where it finds its own.
            Kind::Add if self.engine == Engine::Nft => return Ok(None),
            Kind::Add | Kind::Update => (self.engine, true),
            Kind::Clean | Kind::Del => (self.engine, false),
            Kind::Switch if self.mode == Mode::Ebpf => (self.engine, false),
            Kind::Switch => (other(self.engine), false),
        };
        compiled(self.mode, is_other, engine).map(Some)
    }

    /// What removes what it makes.
    pub(crate) fn cleaner(self) -> Option<Self> {
        let kind = Kind::Clean;
        self.redirects().then_some(Self { kind, ..self })
    }

    /// What another writer may do beside it.
    pub(crate) fn others(self) -> &'static [Other] {
        match self.kind {
            // Without rules of its own the plugin takes the other engine.
            Kind::Add if self.engine == Engine::Xtables => &[Other::Adds, Other::Applies],
            _ if matches!(self.mode, Mode::Node | Mode::Ebpf) => &[Other::Adds],
            _ if self.redirects() => &Other::ALL,
            Kind::Clean => &Other::ALL,
            // A set that is there cannot be created.
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

/// A configuration, or one that differs from it.
fn config(mode: Mode, is_other: bool) -> String {
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
    let intent = Intent::parse(&config, &NameFiles::default()).map_err(|e| e.to_string())?;
    Ok(compile(&intent, engine))
}

fn redirect(config: &str) -> Result<Redirect, String> {
    let request = Request::from_json(config, "here").map_err(text)?;
    Redirect::new(request.config, &request.pod_overrides).map_err(text)
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
        let configs = Mode::IN_PODS.into_iter().chain([Mode::Ebpf]);
        let configs = configs.map(|mode| (format!("{mode:?}.json"), config(mode, false)));
        let texts = [("tables", TABLES), ("sets", SETS)].map(|(n, t)| (n.to_owned(), t.to_owned()));
        for (name, text) in configs.chain(texts) {
            std::fs::write(dir.join(name), text).map_err(|e| e.to_string())?;
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
        self.servers.forget(&netns.path());
        if let Some(before) = scenario.before()? {
            sandbox(&netns)?.apply(&before).map_err(|e| e.to_string())?;
        }
        let dir = self.dir.join(format!("case-{number}"));
        std::fs::create_dir(&dir).map_err(|e| e.to_string())?;
        let neighbours = match scenario.mode {
            Mode::Node => Some(Neighbours::connect(&netns)?),
            _ => None,
        };
        let bpffs = match scenario.mode {
            Mode::Ebpf => Some(BpfFs::mount().ok_or("no bpf file system can be mounted")?),
            _ => None,
        };
        let place = Place {
            netns,
            neighbours,
            bpffs,
            dir,
        };
        if let (Some(mounted), Kind::Clean) = (&place.bpffs, scenario.kind) {
            let bpffs = Bpffs::at(mounted.path()).map_err(text)?;
            let pod = Pod::of(&place.netns, &bpffs).map_err(text)?;
            let redirect = redirect(&config(scenario.mode, false))?;
            pod.apply(&redirect).map_err(text)?;
        }
        if let Some(neighbours) = &place.neighbours {
            place.write("node.json", &neighbours.config())?;
            if scenario.kind == Kind::Clean {
                neighbours.apply(&place.netns, scenario.engine)?;
            }
        }
        if scenario.is_plugin() {
            let run = place.dir.join("run");
            std::fs::create_dir(&run).map_err(|e| e.to_string())?;
            self.servers
                .run_dir(&run, scenario.kind != Kind::AddByServer)?;
            let mut stdin = json!({
                "cniVersion": "1.1.0", "name": "pods", "type": "weir-cni",
                "native_nftables": false, "cni_agent_run_dir": run,
                "pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"],
                "prevResult": {
                    "cniVersion": "1.1.0",
                    "ips": ADDRESSES.map(|address| json!({ "address": address })),
                },
            });
            if scenario.mode == Mode::Ambient {
                stdin["ambient_enabled"] = true.into();
                stdin["enablement_selectors"] = json!([{
                    "podSelector": { "matchLabels": stand_in::ambient() }, "namespaceSelector": {},
                }]);
            }
            place.write("stdin", &stdin.to_string())?;
        } else {
            place.write("stdin", "")?;
        }
        Ok(place)
    }

    /// Another writer acts in the namespace. Returns what it holds then.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(crate) fn other(
        &self,
        other: Other,
        scenario: Scenario,
        place: &Place,
    ) -> Result<State, String> {
        let netns = &place.netns;
        match other {
            Other::Adds => netns.run(|| self.foreign.add()).map_err(text)?,
            Other::Flushes => netns.run(flush).map_err(text)?,
            Other::Cleans => {
                let scheme = match (scenario.mode, &place.neighbours) {
                    (_, Some(neighbours)) => {
                        neighbours.clean(netns)?;
                        return State::at(place);
                    }
                    (Mode::Ambient | Mode::Ebpf, _) => &weir_ambient::AMBIENT,
                    _ => &SIDECAR,
                };
                let cleaned = sandbox(netns)?.visit_for(scheme, |visit| visit.clean(None));
                cleaned.map_err(text)?.map(drop).map_err(text)
            }
            Other::Applies => {
                let applied = sandbox(netns)?.apply(&scenario.other()?);
                applied.map(drop).map_err(text)
            }
        }?;
        State::at(place)
    }

    /// Whether the agent was told of the pod in this namespace.
    pub(crate) fn is_enrolled(&self, place: &Place) -> bool {
        self.servers.is_enrolled(&place.netns.path())
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
        // Cases beside each other would wait for the machine's.
        command.env("XTABLES_LOCKFILE", place.dir.join("xtables.lock"));
        if let Some(bpffs) = &place.bpffs {
            command.env("WEIR_BPFFS", bpffs.path());
        }
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
            Kind::Apply | Kind::Clean if mode == Mode::Node => {
                let verb = if kind == Kind::Clean {
                    "clean"
                } else {
                    "apply"
                };
                command.args([verb, mode.word(), "--config"]);
                command.arg(place.dir.join("node.json"));
                command.arg("--host-netns").arg(netns);
                if kind == Kind::Apply {
                    command.args(["--force", "--engine", &engine.to_string()]);
                }
            }
            Kind::Apply | Kind::Update | Kind::Switch => {
                let file = self.dir.join(format!("{mode:?}.json"));
                let engine = match mode {
                    Mode::Ebpf => "ebpf".to_owned(),
                    _ => engine.to_string(),
                };
                command.args(["apply", mode.word(), "--engine", &engine]);
                command.arg("--config").arg(file).arg("--netns").arg(netns);
            }
            Kind::Clean => {
                command.arg("clean");
                if matches!(mode, Mode::Ambient | Mode::Ebpf) {
                    command.arg(mode.word());
                }
                command.arg("--netns").arg(netns);
            }
            Kind::RestoreTables | Kind::RestoreSets => {
                let (file, format) = match kind {
                    Kind::RestoreSets => ("sets", "ipset"),
                    _ => ("tables", "iptables"),
                };
                command.args(["restore", "--noflush", "--format", format, "--netns"]);
                command.arg(netns).arg(self.dir.join(file));
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

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The namespace as the product takes it.
pub(crate) fn sandbox(netns: &Netns) -> Result<Sandbox, String> {
    let own = netns.try_clone().and_then(Sandbox::of);
    own.map_err(|e| e.to_string())
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
