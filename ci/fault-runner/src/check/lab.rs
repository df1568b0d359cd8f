//! The environment of a case: a namespace with existing objects, and the files of the command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use weir_cni::redirection::{SIDECAR, Sandbox};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_testing::BpfFs;

use crate::check::fault::Other;
use crate::check::foreign::{ADDRESSES, Foreign, flush};
use crate::check::node::Neighbours;
use crate::check::scenario::{Kind, Mode, Scenario, config, redirect};
use crate::check::stand_in::{self, Servers};
use crate::check::state::State;
use crate::check::trace::traced_command;

/// Rules only in own chains: rules added to built-in chains would be duplicated by a second run.
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

/// The common data of all cases.
pub(crate) struct Lab {
    programs: PathBuf,
    dir: PathBuf,
    foreign: Foreign,
    servers: Servers,
}

/// The environment of one case.
pub(crate) struct Place {
    pub(crate) netns: Netns,
    /// The namespaces that it is connected to, if it is a node.
    pub(crate) neighbours: Option<Neighbours>,
    /// The BPF file system, if the case uses eBPF.
    pub(crate) bpffs: Option<BpfFs>,
    dir: PathBuf,
}

impl Lab {
    /// Prepares the files and the servers.
    ///
    /// # Errors
    /// A program is missing, or this user may not create namespaces.
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

    /// Creates a namespace in the initial state of the scenario, and a directory for the case.
    ///
    /// # Errors
    /// One of them cannot be created.
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

    /// Performs the action of another writer in the namespace. Returns the state afterwards.
    ///
    /// # Errors
    /// The kernel refuses the action.
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

    /// Whether the agent was notified of the pod in this namespace.
    pub(crate) fn is_enrolled(&self, place: &Place) -> bool {
        self.servers.is_enrolled(&place.netns.path())
    }

    /// The command of the scenario, to be run by [`crate::check::trace::run`].
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
        // With the system's lock file, parallel cases would wait for each other.
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

/// The namespace as the type of weir's API.
pub(crate) fn sandbox(netns: &Netns) -> Result<Sandbox, String> {
    let own = netns.try_clone().and_then(Sandbox::of);
    own.map_err(|e| e.to_string())
}

impl Place {
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.dir.join(name), text).map_err(|e| e.to_string())
    }

    /// The output of the last command: stdout and stderr.
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
