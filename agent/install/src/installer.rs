//! The installer: its passes, and the state written by the last one.

use super::binaries::programs;
use super::check::{Remembered, check};
use super::config::{Choice, choose, prepare, unlisted};
use super::copy;
use super::desired::Desired;
use super::files::{self, Stamp};
use super::json::Json;
use super::kubeconfig::{kubeconfig, with_token};
use super::listing;
use super::own_names;
use super::remove::{Removed, remove_installed};
use super::unfinished;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use weir_core::journal::install::Step;

/// Maximum number of attempts per pass while another writer replaces configurations.
const LOOKS: u32 = 5;

/// A pass that failed.
#[derive(Debug)]
pub struct InstallError {
    /// The step that failed.
    pub step: Step,
    /// The file, the reason, and the remedy.
    pub reason: String,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for InstallError {}

/// The result of the first two steps.
#[derive(Debug)]
pub struct Files {
    /// Texts about written files.
    pub done: Vec<String>,
    /// Texts about leftovers that could not be removed, and about what may not work.
    pub warnings: Vec<String>,
}

/// The result of [`Installer::inspect`].
#[derive(Debug)]
pub struct Inspection {
    /// What is no longer in sync, so that a pass is needed.
    pub changed: Option<String>,
    /// Why runtimes may use another configuration; a pass would not change that.
    pub preempted: Option<String>,
    /// A hint for the operator: the same, and plugins that are missing.
    pub warning: Option<String>,
}

/// The result of a pass.
#[derive(Debug)]
pub enum Pass {
    /// The installation is in place. Texts about what was written, or was not because of another writer.
    Installed(Vec<String>),
    /// There is no configuration to extend yet.
    Waiting(String),
}

/// Installs the plugin, remembers what it wrote, and removes it.
#[derive(Debug)]
pub struct Installer {
    desired: Desired,
    remembered: Option<Remembered>,
    stamps: Vec<(PathBuf, Stamp)>,
    credentials: Option<String>,
}

impl Installer {
    /// Creates an installer without changing anything.
    #[must_use]
    pub fn new(desired: Desired) -> Self {
        Self {
            desired,
            remembered: None,
            stamps: Vec::new(),
            credentials: None,
        }
    }

    /// Runs the first two steps: programs and kubeconfig. `None` if `stop` cancelled them; it is called while
    /// programs are compared and copied.
    ///
    /// # Errors
    /// The step that failed.
    pub fn files(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<Files>, InstallError> {
        let fail = |step| move |reason| InstallError { step, reason };
        let (mut done, mut warnings) = (Vec::new(), unfinished::tidy_all(&self.desired));
        let mut written = Vec::new();
        for program in programs(&self.desired).map_err(fail(Step::Binaries))? {
            warnings.extend(unfinished::tidy_copies(&program.target));
            let stamp = match program.installed(stop) {
                Ok(stamp) => stamp,
                Err(why) => {
                    let Some(stamp) = program.copy(stop).map_err(fail(Step::Binaries))? else {
                        return Ok(None);
                    };
                    done.push(format!(
                        "program {} is written: {why}",
                        program.target.display()
                    ));
                    stamp
                }
            };
            self.remember(&mut written, program.target, stamp);
        }
        let path = self.desired.kubeconfig.clone();
        let (text, _) = kubeconfig(&self.desired.access).map_err(fail(Step::Kubeconfig))?;
        let stamp = self
            .write_kubeconfig(&text)
            .map_err(fail(Step::Kubeconfig))?;
        if self.credentials.as_ref() != Some(&text) {
            done.push(format!(
                "kubeconfig {} is written, token redacted",
                path.display()
            ));
            if let Err(e) = weir_cni::api::check(&path) {
                warnings.push(format!("the plugin cannot use its kubeconfig: {e}"));
            }
        }
        self.credentials = Some(text);
        self.remember(&mut written, path, stamp);
        self.stamps.retain(|(path, _)| written.contains(path));
        Ok(Some(Files { done, warnings }))
    }

    fn write_kubeconfig(&self, text: &str) -> Result<Stamp, String> {
        let path = &self.desired.kubeconfig;
        files::replace(path, text.as_bytes(), self.desired.kubeconfig_mode).map_err(|e| {
            format!(
                "cannot write {}: {e}; is CNI_AGENT_RUN_DIR mounted and writable?",
                path.display()
            )
        })
    }

    /// Leaves the installation to the next agent: writes a kubeconfig with a token that is valid without this agent.
    ///
    /// # Errors
    /// It cannot be written; the file is unchanged.
    pub fn hand_over(&self, token: &str) -> Result<(), String> {
        let (text, _) = with_token(&self.desired.access, token)?;
        self.write_kubeconfig(&text).map(drop)
    }

    /// Returns a directory that was deleted on the node. The mount of this container refers to the deleted one for as long as
    /// the container lives, and files written into it are not on the node.
    #[must_use]
    pub fn lost(&self) -> Option<&Path> {
        use std::os::unix::fs::MetadataExt;
        let dirs = [self.desired.net_dir.as_path(), &self.desired.bin_dir];
        let gone = |dir: &&Path| std::fs::metadata(dir).is_ok_and(|meta| meta.nlink() == 0);
        let run_dir = self.desired.kubeconfig.parent();
        dirs.into_iter().chain(run_dir).find(gone)
    }

    /// Remembers a written file. Files of an earlier pass stay known until this one is complete: they are still on the node.
    fn remember(&mut self, written: &mut Vec<PathBuf>, path: PathBuf, stamp: Stamp) {
        self.stamps.retain(|(known, _)| *known != path);
        self.stamps.push((path.clone(), stamp));
        written.push(path);
    }

    /// Runs the last step: the configuration.
    ///
    /// # Errors
    /// It could not be written.
    pub fn config(&mut self) -> Result<Pass, InstallError> {
        let fail = |reason| InstallError {
            step: Step::Config,
            reason,
        };
        for _ in 0..LOOKS {
            let choice = choose(&self.desired).map_err(|e| fail(unlisted(&self.desired, &e)))?;
            if let Choice::Wait(why) = choice {
                return Ok(Pass::Waiting(why));
            }
            let Some(written) = prepare(&self.desired, choice).map_err(fail)? else {
                continue;
            };
            let mut done = Vec::new();
            // A file that this agent wrote is its own, whatever it contains now.
            if self.written() != Some(&written.path)
                && let Some(path) = copy::foreign(&self.desired)
            {
                done.push(copy::keep(&path).map_err(fail)?);
            }
            self.keep_own_names().map_err(fail)?;
            if !written.is_there() || written.replaces.is_some() {
                done.push(format!(
                    "configuration {} is written",
                    written.path.display()
                ));
            }
            if !written.apply().map_err(fail)? {
                continue;
            }
            let removed = written
                .replaces
                .iter()
                .map(|p| format!("{} is replaced by it", p.display()));
            let strays = written.strays.iter().map(|stray| {
                let path = stray.path.display();
                match stray.text {
                    Some(_) => format!("our entry is removed from {path}"),
                    None => format!("{path} contained only our entry, and is removed"),
                }
            });
            done.extend(removed.chain(strays));
            self.remembered = Some(written.remembered);
            self.keep_own_names().map_err(fail)?;
            return Ok(Pass::Installed(done));
        }
        // The check that follows requests another pass.
        let why = "another writer replaced the configuration each time before ours was written";
        Ok(Pass::Installed(vec![why.to_owned()]))
    }

    fn keep_own_names(&self) -> Result<(), String> {
        let listing =
            listing::list(&self.desired.net_dir).map_err(|e| unlisted(&self.desired, &e))?;
        own_names::keep(&self.desired, &listing).map_err(|e| {
            let path = self.desired.own_names();
            format!(
                "cannot write {}: {e}; is CNI_AGENT_RUN_DIR mounted and writable?",
                path.display()
            )
        })
    }

    /// Returns what is no longer in sync, and a hint for the operator. Read-only.
    ///
    /// # Errors
    /// The directory of configurations cannot be read.
    pub fn inspect(&self) -> Result<Inspection, InstallError> {
        let check = check(&self.desired, self.remembered.as_ref()).map_err(|e| InstallError {
            step: Step::Config,
            reason: format!("cannot read {}: {e}", self.desired.net_dir.display()),
        })?;
        let preempted = check.warning;
        let warnings = [preempted.clone(), self.missing_plugins()];
        let warnings: Vec<String> = warnings.into_iter().flatten().collect();
        Ok(Inspection {
            changed: check.invalid.or_else(|| self.changed_files()),
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
            preempted,
        })
    }

    /// Names plugins of the configuration that are missing in the node's directory of plugins. A runtime may search others, too.
    fn missing_plugins(&self) -> Option<String> {
        let path = self.written()?;
        let json = listing::read_object(path).ok()?;
        let plugins = json.get("plugins").and_then(Json::as_array);
        let types = plugins.unwrap_or(std::slice::from_ref(&json)).iter();
        let types = types.filter_map(|p| p.get("type").and_then(Json::as_str));
        let is_missing = |kind: &&str| {
            let program = std::fs::metadata(self.desired.bin_dir.join(kind));
            program.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        let missing: Vec<String> = types.filter(is_missing).map(|t| format!("{t:?}")).collect();
        if missing.is_empty() {
            return None;
        }
        Some(format!(
            "{} names plugins that are missing in {}: {}; no pod starts unless the runtime finds them in another directory",
            path.display(),
            self.desired.bin_dir.display(),
            missing.join(", ")
        ))
    }

    /// Returns why the first two steps must run again.
    pub(crate) fn changed_files(&self) -> Option<String> {
        self.changed().or_else(|| self.rotated())
    }

    fn changed(&self) -> Option<String> {
        let mut stamps = self.stamps.iter();
        let changed = stamps.find(|(path, stamp)| Stamp::of(path) != Some(*stamp));
        changed.map(|(path, _)| format!("{} was changed", path.display()))
    }

    /// Returns what on the node is not in sync with the last complete pass, or cannot be determined; `None` if all is in sync.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        match self.changed_config() {
            Ok(changed) => changed.or_else(|| self.changed()),
            Err(e) => Some(e.reason),
        }
    }

    fn rotated(&self) -> Option<String> {
        match kubeconfig(&self.desired.access) {
            Ok((text, _)) if self.credentials.as_ref() == Some(&text) => None,
            Ok(_) => Some("the token or the CA was renewed".to_owned()),
            // The next pass reports it.
            Err(why) => Some(why),
        }
    }

    /// Returns why the configuration needs a pass; `None` if it is intact.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn changed_config(&self) -> Result<Option<String>, InstallError> {
        check(&self.desired, self.remembered.as_ref())
            .map(|c| c.invalid)
            .map_err(|e| InstallError {
                step: Step::Config,
                reason: format!("cannot read {}: {e}", self.desired.net_dir.display()),
            })
    }

    /// Returns every file that a pass wrote, except the configuration, whose directory is watched; and the target of the
    /// primary configuration of owned mode if that is a link, which stays one.
    pub fn files_to_watch(&self) -> impl Iterator<Item = PathBuf> {
        let written = self.stamps.iter().map(|(path, _)| path.clone());
        let primary = self.remembered.as_ref().and_then(|r| r.copy_of.clone());
        let linked = primary.filter(|path| path.is_symlink());
        written.chain(linked.and_then(|path| path.canonicalize().ok()))
    }

    /// Returns the desired state.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Returns the configuration that was written last.
    #[must_use]
    pub fn written(&self) -> Option<&Path> {
        self.remembered.as_ref().map(|r| r.path.as_path())
    }

    /// Returns true if this agent wrote the kubeconfig, whose token then ends with its pod.
    #[must_use]
    pub fn wrote_kubeconfig(&self) -> bool {
        self.credentials.is_some()
    }

    /// Removes the installation at shutdown.
    ///
    /// # Errors
    /// The first step that failed; those after it are not done.
    pub fn remove(&self) -> Result<Removed, String> {
        remove_installed(&self.desired, self.written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use weir_core::settings::resolve;

    /// The installer of the pod before lives on for a while, and writes its own files again.
    #[test]
    fn a_file_that_another_installer_replaces_meanwhile_is_not_in_sync() {
        let dir = std::env::temp_dir().join(format!("weir-lost-race-{}", std::process::id()));
        let lookup = |name: &str| match name {
            "WEIR_CNI_BIN_SOURCE_DIR" => Some(dir.join("source").into_os_string()),
            "WEIR_SERVICE_ACCOUNT_DIR" => Some(dir.join("account").into_os_string()),
            "WEIR_MOUNTED_CNI_BIN_DIR" | "MOUNTED_CNI_NET_DIR" | "CNI_AGENT_RUN_DIR" => {
                Some(dir.join("node").into_os_string())
            }
            "KUBERNETES_SERVICE_HOST" => Some(OsString::from("10.96.0.1")),
            "KUBERNETES_SERVICE_PORT" => Some(OsString::from("443")),
            _ => None,
        };
        for (name, text) in [
            ("source/istio-cni", "ours"),
            ("node/istio-cni", "ours"),
            ("account/token", "t"),
            ("account/ca.crt", "pem"),
        ] {
            std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
            std::fs::write(dir.join(name), text).unwrap();
        }
        let replaced = |path: &Path| {
            std::fs::write(dir.join("beside"), "them").unwrap();
            std::fs::rename(dir.join("beside"), path).unwrap();
        };
        let desired = Desired::of(&resolve(&BTreeMap::new(), &lookup), "info").unwrap();
        let mut installer = Installer::new(desired);
        let files = installer.files(&|| false).unwrap().unwrap();
        assert_eq!((files.done.len(), installer.changed_files()), (1, None));
        // While the program is compared.
        let program = dir.join("node/istio-cni");
        let stop = || {
            replaced(&program);
            false
        };
        installer.files(&stop).unwrap().unwrap();
        let why = installer.changed().expect("another program");
        assert!(why.contains("node/istio-cni "), "{why}");
        // After a file got its name.
        for next in [Some(&replaced as &dyn Fn(&Path)), None] {
            installer.stamps.clear();
            let stamp = files::replace(&program, b"ours", 0o755).unwrap();
            match next {
                Some(replaced) => replaced(&program),
                None => std::fs::remove_file(&program).unwrap(),
            }
            installer.remember(&mut Vec::new(), program.clone(), stamp);
            assert!(installer.changed().is_some());
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
