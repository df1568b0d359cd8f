//! The loop of passes that keeps the plugin installed.

use super::owner::Owner;
use super::throttle::{Throttle, Turn};
use super::watch::{Signals, Watch, Woken};
use super::{InstallError, Installer, Pass, Step};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_core::journal::install::{Event, Retry};
use weir_core::journal::{Journal, process};

/// Pause between two searches for a configuration: another writer may be writing it in pieces.
const PACE: Duration = Duration::from_millis(100);
/// Interval of searches while there is no configuration, and of inspections afterwards. No event is caused by an empty
/// directory that the node deletes and a mount keeps alive, nor by files outside of the watched directories: targets of
/// links, and plugins of a list without `plugins`, in the directory with its name.
const LOOK: Duration = Duration::from_secs(5);
/// Interval of the log line while contention continues.
const SUMMARY: Duration = Duration::from_secs(60);
/// Pause after a failed pass: the first, doubled after each further failure up to the second. The existing installation is
/// in force in the meantime.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After a signal; the installation stays or was removed.
    Well,
    /// The desired state could not be reached, or a task ended. Nothing is removed.
    Failed,
    /// After a signal, and the installation could not be removed.
    NotRemoved,
}

/// The result of the last step.
enum Configured {
    /// The configuration is written.
    Written,
    /// The configuration was already in sync.
    Unchanged,
    /// The first two steps must run again.
    Again,
    /// A signal arrived.
    Signal,
}

/// The loop of the installation, and what it recorded last.
pub struct Agent {
    pub(crate) owner: Owner,
    pub(crate) installer: Installer,
    pub(crate) journal: Journal,
    signals: Signals,
    /// During contention, details would flood the log.
    quiet: bool,
    was_ready: bool,
    /// The reason for the last pass, and how many consecutive passes repaired something.
    woken: String,
    repairs: u32,
    /// Contention was reported.
    contested: bool,
    /// Why the last pass failed, until a pass succeeds.
    failing: Option<String>,
    summary: Option<Instant>,
    warned: Option<String>,
    /// The last reported reason why there is no configuration to extend.
    waits: Option<String>,
    /// Removes other parts together with the installation.
    pub(crate) beside: Option<Beside>,
}

/// Removes objects of the agent other than the installation. Returns texts about what was removed, or what may be left.
pub(crate) type Beside = Box<dyn FnOnce() -> Result<Vec<String>, String> + Send>;

impl Agent {
    /// Creates the loop without installing anything.
    pub fn new(owner: Owner, installer: Installer, journal: Journal, signals: Signals) -> Self {
        Self {
            owner,
            installer,
            journal,
            signals,
            quiet: false,
            was_ready: false,
            woken: String::new(),
            repairs: 0,
            contested: false,
            failing: None,
            summary: None,
            warned: None,
            waits: None,
            beside: None,
        }
    }

    /// Sets what is removed together with the installation; it is not called if another agent follows.
    pub fn with(&mut self, beside: Beside) {
        self.beside = Some(beside);
    }

    /// Returns true after the first complete pass, after which failures are retried.
    pub fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Keeps the plugin installed until a signal arrives.
    pub fn run(&mut self) -> End {
        let result = self.install_until_signal();
        self.not_in_force();
        match result {
            Ok(()) => match self.signals.ended_tasks() {
                none if none.is_empty() => self.end(),
                tasks => {
                    let tasks = tasks.join(", ");
                    self.journal.record(process::Event::TaskEnded { tasks });
                    End::Failed
                }
            },
            Err(InstallError { step, reason }) => {
                self.journal.record(Event::Failed {
                    step,
                    why: reason,
                    retry: None,
                });
                End::Failed
            }
        }
    }

    fn configuration(&self) -> Option<PathBuf> {
        self.installer.written().map(Path::to_owned)
    }

    fn not_in_force(&self) {
        let configuration = self.configuration();
        self.journal.record(Event::NotInForce { configuration });
    }

    /// Records a detail of a pass.
    fn detail(&self, what: &str) {
        let (what, quiet) = (what.to_owned(), self.quiet);
        self.journal.record(Event::Detail { what, quiet });
    }

    fn warn(&self, what: &str) {
        let what = what.to_owned();
        self.journal.record(Event::Warned { what });
    }

    /// Runs passes until a signal arrives. The first one must succeed: the kubelet restarts the agent, and reports that. Later
    /// failures are retried, unless only a new container can see the node's directory.
    fn install_until_signal(&mut self) -> Result<(), InstallError> {
        let mut throttle = Throttle::default();
        let mut pause = RETRY.0;
        loop {
            let failure = match self.pass(&mut throttle) {
                Ok(true) => return Ok(()),
                Ok(false) => continue,
                Err(e) => e,
            };
            if let Some(dir) = self.installer.lost() {
                return Err(InstallError {
                    step: failure.step,
                    reason: format!(
                        "{} was deleted on the node; only a new container mounts its replacement",
                        dir.display()
                    ),
                });
            }
            if !self.was_ready {
                return Err(failure);
            }
            if self.failing.is_none() {
                pause = RETRY.0;
            }
            self.journal.record(Event::Failed {
                step: failure.step,
                why: failure.reason.clone(),
                retry: Some(Retry {
                    damage: self.installer.damage(),
                    repeated: self.failing.as_ref() == Some(&failure.reason),
                }),
            });
            self.failing = Some(failure.reason);
            if self.wait_after_failure(pause) {
                return Ok(());
            }
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// Waits until something changes, if it can be watched, or until the end of the pause. Returns true if a signal arrived.
    fn wait_after_failure(&self, pause: Duration) -> bool {
        let woken = self
            .watch_everything()
            .and_then(|watch| watch.wait(&self.signals, Some(pause)).map_err(watch_failed));
        match woken {
            Ok(woken) => matches!(woken, Woken::Signal),
            // Without a free descriptor there is no watch; the descriptor for signals is already open.
            Err(_) => self.signals.wait(pause).unwrap_or(false),
        }
    }

    /// Runs one pass and waits for the reason for the next one. Returns true if a signal arrived.
    fn pass(&mut self, throttle: &mut Throttle) -> Result<bool, InstallError> {
        if self.wait_for_turn(throttle.turn(Instant::now()))? {
            return Ok(true);
        }
        self.journal.record(Event::PassBegins);
        let signals = &self.signals;
        let Some(files) = self.installer.files(&|| signals.came())? else {
            return Ok(true);
        };
        files.done.iter().for_each(|line| self.detail(line));
        let mut repairs = !files.done.is_empty();
        files.warnings.iter().for_each(|line| self.warn(line));
        let found = self.installer.changed_config()?;
        let mut is_unchanged = false;
        if let Some(why) = &found {
            if self.waits.is_none() {
                self.detail(&format!("a configuration is to be written: {why}"));
            }
            match self.configure()? {
                Configured::Written => repairs = true,
                Configured::Unchanged => is_unchanged = true,
                Configured::Again => return Ok(false),
                Configured::Signal => return Ok(true),
            }
        }
        self.repairs += u32::from(repairs && self.was_ready);
        let watch = self.watch_everything()?;
        watch.missing.iter().for_each(|line| self.warn(line));
        // Changes before the watches were added caused no event.
        let inspection = self.installer.inspect()?;
        match inspection.changed {
            // Nothing has changed in the meantime, and further passes would change nothing.
            Some(why) if is_unchanged && found.as_ref() == Some(&why) => {
                self.tell_waits(why);
                let woken = watch.wait(&self.signals, Some(LOOK));
                return Ok(matches!(woken.map_err(watch_failed)?, Woken::Signal));
            }
            Some(why) => {
                self.detail(&format!("once more: {why}"));
                return Ok(false);
            }
            None => self.waits = None,
        }
        if inspection.warning != self.warned {
            inspection.warning.iter().for_each(|line| self.warn(line));
            self.warned = inspection.warning;
        }
        self.was_ready = true;
        if self.failing.take().is_some() {
            self.journal.record(Event::Recovered);
        }
        let preempted = inspection.preempted;
        self.journal.record(Event::Installed {
            configuration: self.configuration(),
            preempted: preempted.clone(),
            quiet: self.quiet,
        });
        let woken = self.until_changed(&watch, preempted.as_ref());
        // Also if that is not known any more.
        self.not_in_force();
        match woken? {
            Woken::Late => {}
            Woken::Signal => return Ok(true),
            Woken::Changed(what) => {
                self.detail(&format!("{what}: everything is checked again"));
                self.woken = what;
            }
        }
        Ok(false)
    }

    /// Waits for a signal or a change of what is installed.
    fn until_changed(
        &self,
        watch: &Watch,
        preempted: Option<&String>,
    ) -> Result<Woken, InstallError> {
        loop {
            let woken = watch.wait(&self.signals, Some(LOOK));
            let woken = woken.map_err(watch_failed)?;
            if !matches!(woken, Woken::Late) {
                return Ok(woken);
            }
            let now = self.installer.inspect()?;
            if now.changed.is_some() || now.preempted.as_ref() != preempted {
                let what = now.changed.or(now.preempted);
                let none = "no other configuration sorts first any more";
                return Ok(Woken::Changed(what.unwrap_or_else(|| none.into())));
            }
        }
    }

    /// Waits for the turn of a pass. Returns true if a signal arrived.
    fn wait_for_turn(&mut self, turn: Turn) -> Result<bool, InstallError> {
        let (wait, contention_begins, contention) = match turn {
            Turn::Now { after_contention } => {
                let contested = std::mem::take(&mut self.contested);
                (self.quiet, self.repairs) = (false, 0);
                if let Some(passes) = after_contention.filter(|_| contested) {
                    self.journal.record(Event::ContentionEnded { passes });
                }
                return self.signals.wait(Duration::ZERO).map_err(watch_failed);
            }
            Turn::After {
                wait,
                contention_begins,
                contention,
            } => (wait, contention_begins, contention),
        };
        self.journal.record(Event::Damped);
        self.quiet = contention;
        let due = self.summary.is_none_or(|t| t.elapsed() >= SUMMARY);
        // A single repair may be a coincidence while files of other components keep changing.
        let is_contested = contention && self.repairs > 1;
        let begins = is_contested && !self.contested;
        if begins || contention_begins || (contention && due) {
            self.summary = Some(Instant::now());
            self.contested |= is_contested;
            self.journal.record(match is_contested {
                true => Event::Contention {
                    configuration: self.configuration(),
                    begins,
                },
                false => Event::Restless {
                    what: self.woken.clone(),
                },
            });
        }
        self.signals.wait(wait).map_err(watch_failed)
    }

    /// Waits for a configuration to extend, and writes ours.
    fn configure(&mut self) -> Result<Configured, InstallError> {
        loop {
            let watch = self.watch_everything()?;
            // An existing entry from earlier calls the program in the meantime, which reads the kubeconfig.
            if let Some(why) = self.installer.changed_files() {
                self.detail(&format!("once more: {why}"));
                return Ok(Configured::Again);
            }
            match self.installer.config()? {
                Pass::Installed(done) => {
                    done.iter().for_each(|line| self.detail(line));
                    return Ok(match done.is_empty() {
                        true => Configured::Unchanged,
                        false => Configured::Written,
                    });
                }
                Pass::Waiting(why) => self.tell_waits(why),
            }
            let woken = watch
                .wait(&self.signals, Some(LOOK))
                .map_err(watch_failed)?;
            if matches!(woken, Woken::Signal) || self.signals.wait(PACE).map_err(watch_failed)? {
                return Ok(Configured::Signal);
            }
        }
    }

    /// Reports once why the plugin is not in force until another component acts.
    fn tell_waits(&mut self, why: String) {
        if self.waits.as_ref() == Some(&why) {
            return;
        }
        let retry = self.was_ready.then(|| Retry {
            damage: self.installer.damage(),
            repeated: false,
        });
        let told = why.clone();
        self.journal.record(Event::Waits { why: told, retry });
        self.waits = Some(why);
    }

    fn watch_everything(&self) -> Result<Watch, InstallError> {
        let desired = self.installer.desired();
        let mut watch = Watch::new().map_err(watch_failed)?;
        for path in self.installer.files_to_watch() {
            watch.file(&path).map_err(watch_failed)?;
        }
        watch
            .configurations(&desired.net_dir)
            .map_err(watch_failed)?;
        watch
            .credentials(&desired.access.service_account_dir)
            .map_err(watch_failed)?;
        Ok(watch)
    }
}

fn watch_failed(e: nix::Error) -> InstallError {
    InstallError {
        step: Step::Config,
        reason: format!(
            "cannot watch the node's files: {e}; see /proc/sys/fs/inotify for the limits"
        ),
    }
}
