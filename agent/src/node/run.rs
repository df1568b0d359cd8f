//! The process: settings in, an installed plugin until a signal comes.

use super::install::{Desired, InstallError, Installer, Pass, Step, remove_everything};
use super::log::{Levels, Log};
use super::metrics::Metrics;
use super::notices::Notices;
use super::owner::{Owner, Verdict};
use super::parts::Parts;
use super::privilege;
use super::repair::Action;
use super::serve::{Ready, Reserve};
use super::settings::{Origin, Resolved, Settings, Usage};
use super::status::Status;
use super::throttle::{Throttle, Turn};
use super::watch::{Signals, Watch, Woken};
use std::time::{Duration, Instant};
use weir_cni::log::Level;

/// Between two looks for a configuration: somebody may be writing it piece by piece.
const PACE: Duration = Duration::from_millis(100);
/// Without a configuration it is looked again after this long: an empty directory that the node deletes, and that a
/// mount keeps alive, makes no event.
const LOOK: Duration = Duration::from_secs(5);
/// Reason of the event that somebody fights back; one for each fight.
const FIGHT: &str = "InstallationContested";
/// While somebody fights back, so often it is said.
const SUMMARY: Duration = Duration::from_secs(60);
/// After a pass that failed the next one comes after the first of these, then after twice as long each time, up to the
/// second: what is installed is in force meanwhile.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Runs until SIGINT or SIGTERM. Then the installation stays for the next agent or goes, as [`Owner`] decides. A
/// failure removes nothing. The answer is whether all went well.
///
/// # Errors
/// What kept it from starting; nothing was changed on the node then.
pub(crate) fn run(resolved: &Resolved, settings: &Settings) -> Result<bool, String> {
    let reserve = Reserve::hold();
    let (mut levels, unknown) =
        Levels::parse(&settings.log_levels).map_err(|e| format!("--log_output_level: {e}"))?;
    let desired = Desired::new(settings, levels.plugin.as_str())?;
    // The plugin filters by its own level; here its lines are heard from the agent's level on.
    levels.plugin = levels.agent;
    let log = Log::open(&settings.log_targets, settings.log_json, levels)?;
    introduce(&log, resolved, settings, &unknown);
    // Before there is a second thread.
    privilege::set_no_new_privs(&log);
    let repair = settings.repair.as_ref().and_then(|r| r.action);
    let verifies = matches!(repair, Some(Action::Repair));
    privilege::drop_all_but_needed(&log, verifies);
    let signals = Signals::block().map_err(|e| format!("cannot wait for signals: {e}"))?;
    let (ready, metrics) = (Ready::default(), Metrics::new());
    let status = Status::new(&settings.node_name, &desired.bin_dir, metrics.clone());
    let parts = Parts {
        resolved,
        settings,
        access: &desired.access,
        metrics: metrics.clone(),
        status: status.clone(),
        log: log.clone(),
    };
    let notices = parts.start(ready.clone(), reserve)?;
    let owner = Owner::new(settings, &desired.kubeconfig);
    let mut agent = Agent {
        owner,
        installer: Installer::new(desired),
        log,
        metrics,
        status,
        notices,
        ready,
        signals,
        quiet: false,
        was_ready: false,
        failing: None,
        summary: None,
        warned: None,
    };
    Ok(agent.run())
}

fn introduce(log: &Log, resolved: &Resolved, settings: &Settings, unknown: &[String]) {
    log.info(&format!("weir agent {} starts", env!("CARGO_PKG_VERSION")));
    for e in resolved.iter() {
        let name = if e.setting.env.is_empty() {
            e.setting.flag
        } else {
            e.setting.env
        };
        let (level, by) = match e.origin {
            Origin::Default => (Level::Debug, "default".to_owned()),
            Origin::Runtime => (Level::Info, "container runtime".to_owned()),
            Origin::Flag => (Level::Info, format!("flag --{}", e.setting.flag)),
            Origin::Env(name) => (Level::Info, format!("environment {name}")),
        };
        let text = match e.setting.may_hold_a_secret() && !e.text.is_empty() {
            true => "(not logged)".to_owned(),
            false => format!("{:?}", e.text),
        };
        log.say(level, &format!("setting {name}={text} ({by})"));
        if let Some(note) = &e.note {
            log.warn(&format!("setting {name}: {note}"));
        }
        if e.setting.usage == Usage::Later && e.origin != Origin::Default {
            log.info(&format!(
                "setting {name} has no effect yet: what it is for is not part of this agent"
            ));
        }
    }
    if settings.pod_namespace.is_empty() {
        log.warn(
            "POD_NAMESPACE is not set: the plugin cannot tell this agent's own pod from others, and \
             holds it up like any other",
        );
    }
    let (watched, repaired) = (
        resolved.text("NODE_NAME"),
        resolved.text("REPAIR_NODE_NAME"),
    );
    if resolved.bool("REPAIR_ENABLED") && !watched.is_empty() && watched != repaired {
        log.warn(&format!(
            "REPAIR_NODE_NAME={repaired:?} is not NODE_NAME={watched:?}, whose pods are watched: no pod is repaired \
             by the criteria; give both the name of this node"
        ));
    }
    for scope in unknown {
        log.debug(&format!(
            "--log_output_level: nobody speaks under scope {scope:?}"
        ));
    }
}

struct Agent {
    owner: Owner,
    installer: Installer,
    log: Log,
    metrics: Metrics,
    status: Status,
    notices: Option<Notices>,
    ready: Ready,
    signals: Signals,
    /// Somebody fights back: details would flood the log.
    quiet: bool,
    /// A pass was complete: from then on what fails is tried again.
    was_ready: bool,
    /// Why the last pass failed, until one is complete again.
    failing: Option<String>,
    summary: Option<Instant>,
    warned: Option<String>,
}

impl Agent {
    fn run(&mut self) -> bool {
        let result = self.install_until_signal();
        self.ready(false);
        match result {
            Ok(()) => self.end(),
            Err(e) => {
                self.failed(&e);
                self.log.error(&format!(
                    "cannot install: {e}; what is on the node stays as it is"
                ));
                false
            }
        }
    }

    fn failed(&self, e: &InstallError) {
        self.metrics.failed(e.step);
        self.status.install_failed(&e.reason);
    }

    /// After a signal. Whether all went well.
    fn end(&mut self) -> bool {
        self.log.info("a signal asks to end");
        let (why, account) = match self.owner.verdict() {
            Verdict::Stays {
                why,
                service_account,
            } => (why, service_account),
            Verdict::Goes { why } => return self.remove(&why),
        };
        self.log.info(&format!("the installation stays: {why}"));
        if self.installer.written().is_some() {
            self.hand_over(account.as_deref());
        }
        true
    }

    /// The plugin works by itself from now on, with a token that does not end with this agent's pod.
    fn hand_over(&self, account: Option<&str>) {
        let made = match account {
            Some(account) => self.owner.token(account),
            None => Err("the API server was not asked".into()),
        };
        let written = made.and_then(|(token, until)| {
            self.installer.hand_over(&token)?;
            Ok(until)
        });
        match written {
            Ok(until) => self.log.info(&format!(
                "the plugin's kubeconfig has a token of its own, good until {until}"
            )),
            Err(why) => self.log.warn(&format!(
                "the plugin's kubeconfig keeps the token of this pod, and with the pod that ends: until another agent \
                 writes a new one, pods whose plugin has to ask the API server do not start. There is no other token: \
                 {why}; the service account needs create on its serviceaccounts/token, as \
                 agent/deploy/upgrade-rbac.yaml grants"
            )),
        }
    }

    fn remove(&self, why: &str) -> bool {
        self.log
            .info(&format!("the installation is removed: {why}"));
        let removed = match self.installer.written() {
            None if self.owner.is_a_pod() => remove_everything(self.installer.desired()),
            _ => self.installer.remove(),
        };
        match removed {
            Ok(done) => done.iter().for_each(|line| self.log.info(line)),
            Err(e) => {
                let line =
                    format!("the installation is not removed: {e}; weir uninstall tries again");
                self.log.error(&line);
                return false;
            }
        }
        true
    }

    fn ready(&self, ready: bool) {
        self.ready.set(ready);
        self.metrics.ready(ready);
        self.status.install(ready, self.installer.written());
    }

    /// What happens in every pass: said, unless it happens all the time.
    fn detail(&self, line: &str) {
        let level = if self.quiet {
            Level::Debug
        } else {
            Level::Info
        };
        self.log.say(level, line);
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
            self.failed(&failure);
            if self.failing.is_none() {
                pause = RETRY.0;
            }
            let level = match self.failing.as_ref() == Some(&failure.reason) {
                true => Level::Debug,
                false => Level::Error,
            };
            self.log.say(
                level,
                &format!(
                    "cannot install: {failure}; what is on the node stays, and it is tried again"
                ),
            );
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
        self.metrics.pass();
        let (done, warnings) = self.installer.files()?;
        done.iter().for_each(|line| self.detail(line));
        warnings.iter().for_each(|line| self.log.warn(line));
        if let Some(why) = self.installer.config_trouble()? {
            self.detail(&format!("a configuration is to be written: {why}"));
            if self.configure()? {
                return Ok(true);
            }
        }
        let watch = self.watch_everything()?;
        // What happened before the watches were there made no event.
        let (trouble, warning) = self.installer.trouble()?;
        if let Some(why) = trouble {
            self.detail(&format!("once more: {why}"));
            return Ok(false);
        }
        if warning != self.warned {
            warning.iter().for_each(|line| self.log.warn(line));
            self.warned = warning;
        }
        self.was_ready = true;
        self.ready(true);
        self.metrics.installed();
        if self.failing.take().is_some() {
            self.log.info("installing works again");
        }
        self.detail("the plugin is installed and in force");
        let woken = watch.wait(&self.signals, None).map_err(watch_failed)?;
        self.ready(false);
        match woken {
            Woken::Late => {}
            Woken::Signal => return Ok(true),
            Woken::Changed(what) => self.detail(&format!("{what}: everything is looked at again")),
        }
        Ok(false)
    }

    /// Whether a signal came meanwhile.
    fn wait_for_turn(&mut self, turn: Turn) -> Result<bool, InstallError> {
        let (wait, fight_begins, fight) = match turn {
            Turn::Now { after_fight } => {
                self.quiet = false;
                if let Some(passes) = after_fight {
                    self.log.info(&format!(
                        "it is quiet again, after {passes} passes that had to wait"
                    ));
                }
                return self.signals.wait(Duration::ZERO).map_err(watch_failed);
            }
            Turn::After {
                wait,
                fight_begins,
                fight,
            } => (wait, fight_begins, fight),
        };
        self.metrics.damped();
        self.quiet = fight;
        let due = self.summary.is_none_or(|t| t.elapsed() >= SUMMARY);
        if fight_begins || (fight && due) {
            self.summary = Some(Instant::now());
            let path = self
                .installer
                .written()
                .map(|p| p.display().to_string())
                .unwrap_or_default();
            let hint = match path.to_lowercase().contains("cilium") {
                true => "; Cilium does this unless its Helm value cni.exclusive is false",
                false => "",
            };
            let why = format!(
                "another component keeps changing what is installed ({path}){hint}; it is put right \
                 once a second, and pods that start in between may lack the plugin"
            );
            self.status.install_failed(&why);
            self.log.warn(&why);
            if let Some(notices) = self.notices.as_ref().filter(|_| fight_begins) {
                notices.warn(FIGHT, &why);
            }
        }
        self.signals.wait(wait).map_err(watch_failed)
    }

    /// Writes the configuration, once there is one to extend. Whether a signal came meanwhile.
    fn configure(&mut self) -> Result<bool, InstallError> {
        let mut said = None;
        loop {
            let mut watch = Watch::new().map_err(watch_failed)?;
            let desired = self.installer.desired();
            watch
                .configurations(&desired.net_dir, desired.conf_name.as_deref())
                .map_err(watch_failed)?;
            match self.installer.config()? {
                Pass::Installed(done) => {
                    done.iter().for_each(|line| self.detail(line));
                    return Ok(false);
                }
                Pass::Waiting(why) => {
                    if said.as_ref() != Some(&why) {
                        self.log.warn(&why);
                        self.status.install_failed(&why);
                        said = Some(why);
                    }
                }
            }
            let woken = watch
                .wait(&self.signals, Some(LOOK))
                .map_err(watch_failed)?;
            if matches!(woken, Woken::Signal) || self.signals.wait(PACE).map_err(watch_failed)? {
                return Ok(true);
            }
        }
    }

    fn watch_everything(&self) -> Result<Watch, InstallError> {
        let desired = self.installer.desired();
        let mut watch = Watch::new().map_err(watch_failed)?;
        for path in self.installer.files_to_watch() {
            watch.file(path).map_err(watch_failed)?;
        }
        watch
            .configurations(&desired.net_dir, desired.conf_name.as_deref())
            .map_err(watch_failed)?;
        watch
            .credentials(&desired.access.service_account_dir)
            .map_err(watch_failed)?;
        watch.missing.iter().for_each(|line| self.log.warn(line));
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
