//! Passes that keep the plugin installed, one after the other, each for a reason.

use super::owner::Owner;
use super::throttle::{Throttle, Turn};
use super::watch::{Signals, Watch, Woken};
use super::{InstallError, Installer, Pass, Step};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_core::journal::install::{Event, Retry};
use weir_core::journal::{Journal, process};

/// Between two looks for a configuration: another writer may be writing it piece by piece.
const PACE: Duration = Duration::from_millis(100);
/// Without a configuration it is looked again after this long: an empty directory that the node deletes, and that a
/// mount keeps alive, makes no event.
const LOOK: Duration = Duration::from_secs(5);
/// Interval of the log line while contention goes on.
const SUMMARY: Duration = Duration::from_secs(60);
/// After a pass that failed the next one comes after the first of these, then after twice as long each time, up to the
/// second: what is installed is in force meanwhile.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// After a signal; the installation stays, or is removed.
    Well,
    /// The node could not be made as desired, or a task ended. Nothing is removed.
    Failed,
    /// After a signal, and the installation could not be removed.
    NotRemoved,
}

/// How the last step ended.
enum Configured {
    /// The configuration is written.
    Written,
    /// It was as it would be written.
    Unchanged,
    /// The first two steps are to be done again.
    Again,
    /// A signal came.
    Signal,
}

/// What is installed, and what was recorded of it.
pub struct Agent {
    pub(crate) owner: Owner,
    pub(crate) installer: Installer,
    pub(crate) journal: Journal,
    signals: Signals,
    /// Contention: details would flood the log.
    quiet: bool,
    was_ready: bool,
    /// What led to the last pass, and how many of those that followed each other had something to repair.
    woken: String,
    repairs: u32,
    /// Contention was told of.
    contested: bool,
    /// Why the last pass failed, until one is complete again.
    failing: Option<String>,
    summary: Option<Instant>,
    warned: Option<String>,
    /// Why there is no configuration to extend, as it was told last.
    waits: Option<String>,
    /// What else goes with the installation.
    pub(crate) beside: Option<Beside>,
}

/// Removes what is not the installer's. Returns what was removed, or what may be there still.
pub(crate) type Beside = Box<dyn FnOnce() -> Result<Vec<String>, String> + Send>;

impl Agent {
    /// Nothing is installed yet.
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

    /// This is removed, too, when the installation is; not when another agent follows.
    pub fn with(&mut self, beside: Beside) {
        self.beside = Some(beside);
    }

    /// Whether a pass was complete: from then on what fails is tried again.
    pub fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Keeps the plugin installed until a signal comes.
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

    /// What happens in every pass.
    fn detail(&self, what: &str) {
        let (what, quiet) = (what.to_owned(), self.quiet);
        self.journal.record(Event::Detail { what, quiet });
    }

    fn warn(&self, what: &str) {
        let what = what.to_owned();
        self.journal.record(Event::Warned { what });
    }

    /// Passes, one after the other. The first has to succeed: the kubelet starts the agent again, and says so. After it
    /// a failure is tried again, unless only a new container can see what is wrong.
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
                        "{} was deleted on the node, and only a new container sees the one in its place",
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

    /// Waits until something changes, if that can be seen, or until the pause is over. Whether a signal came.
    fn wait_after_failure(&self, pause: Duration) -> bool {
        let woken = self
            .watch_everything()
            .and_then(|watch| watch.wait(&self.signals, Some(pause)).map_err(watch_failed));
        match woken {
            Ok(woken) => matches!(woken, Woken::Signal),
            // Without a free descriptor there is no watch, and signals have theirs already.
            Err(_) => self.signals.wait(pause).unwrap_or(false),
        }
    }

    /// One pass, and the wait for the next reason for one. Whether a signal came.
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
        let found = self.installer.config_trouble()?;
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
        // What happened before the watches were there made no event.
        let (trouble, warning) = self.installer.trouble()?;
        match trouble {
            // Nobody changed anything meanwhile, and more passes would not either.
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
        if warning != self.warned {
            warning.iter().for_each(|line| self.warn(line));
            self.warned = warning;
        }
        self.was_ready = true;
        if self.failing.take().is_some() {
            self.journal.record(Event::Recovered);
        }
        self.journal.record(Event::InForce {
            configuration: self.configuration(),
            quiet: self.quiet,
        });
        let woken = watch.wait(&self.signals, None).map_err(watch_failed)?;
        self.not_in_force();
        match woken {
            Woken::Late => {}
            Woken::Signal => return Ok(true),
            Woken::Changed(what) => {
                self.detail(&format!("{what}: everything is looked at again"));
                self.woken = what;
            }
        }
        Ok(false)
    }

    /// Whether a signal came meanwhile.
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
        // One may be by chance, while files of others change again and again.
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

    /// Writes the configuration, once there is one to extend.
    fn configure(&mut self) -> Result<Configured, InstallError> {
        loop {
            let watch = self.watch_everything()?;
            // An entry that is there, of the time before, calls the program meanwhile, which reads the kubeconfig.
            if let Some(why) = self.installer.files_trouble() {
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

    /// Why the plugin is not in force until another component does something; once.
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
