//! The process of the agent: starts all parts, keeps the plugin installed, and stops on a signal.

mod parts;
mod settings;

use crate::repair::Action;
use crate::serve::{Ready, Reserve};
use parts::{Parts, Started};
pub(crate) use settings::Settings;
use std::time::Duration;
use weir_core::journal::process::Event;
use weir_core::journal::{Journal, Ring};
use weir_core::log::{Lines, Log};
use weir_core::settings::{Origin, Resolved, origin};
use weir_core::thread::task::Tasks;
use weir_core::thread::{descriptors, privilege, rights};
pub(crate) use weir_install::End;
use weir_install::{Agent, Installer, Owner, Signals};
use weir_show::metrics::Metrics;
use weir_show::status::Status;

/// Time limit for the servers and repair to stop.
const STOP: Duration = Duration::from_secs(2);
/// Time limit to write the last lines of the log.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Runs until SIGINT or SIGTERM. The installation is then left to the next agent or removed, as [`Owner`] decides. A
/// failure removes nothing.
///
/// # Errors
/// The agent could not start; nothing was changed on the node.
pub(crate) fn run(resolved: &Resolved, settings: &Settings) -> Result<End, String> {
    descriptors::allow_all();
    let reserve = Reserve::hold();
    let journal = Journal::default();
    let tasks = Tasks::new(journal.clone()).map_err(|e| format!("cannot open a pipe: {e}"))?;
    let (mut levels, unknown) = settings.levels()?;
    // The plugin filters by its own level; the agent accepts its lines from the agent's level on.
    levels.plugin = levels.agent;
    let repair = settings.repair.as_ref().and_then(|r| r.action);
    let verifies = matches!(repair, Some(Action::Repair)) || settings.ambient.is_some();
    let signals =
        Signals::block(tasks.clone()).map_err(|e| format!("cannot wait for signals: {e}"))?;
    // Must precede the first additional thread.
    let kept = privilege::set_no_new_privs().err();
    let said = privilege::drop_all_but_needed(verifies);
    let log = Log::open(
        &settings.log_targets,
        settings.log_json,
        levels,
        journal.clone(),
    )?;
    let _logs = Flush(log.clone());
    journal.add(Lines::new(&log));
    introduce(&journal, resolved, settings, unknown);
    let (ready, metrics) = (Ready::default(), Metrics::new());
    let status = Status::new(
        &settings.node_name,
        &settings.desired.bin_dir,
        metrics.clone(),
    );
    journal.add(metrics.clone());
    journal.add(status.clone());
    let events = Ring::default();
    journal.add(events.clone());
    // Added last: a client that sees the agent ready may query the other sinks.
    journal.add(ready.clone());
    for why in kept.into_iter().chain(said) {
        journal.record(Event::Rights { why });
    }
    let parts = Parts {
        resolved,
        settings,
        access: &settings.desired.access,
        metrics,
        status,
        log,
        events,
        journal: journal.clone(),
        tasks: tasks.clone(),
    };
    let Started {
        pods,
        names,
        ztunnel,
        ending,
    } = parts.start(ready, reserve)?;
    // All threads that need more capabilities have been started.
    journal.rights(rights::enter("weir"));
    let owner = Owner::new(resolved, &settings.node_name, &settings.desired, pods);
    owner.learn(&journal);
    let installer = Installer::new(settings.desired.clone());
    let mut agent = Agent::new(owner, installer, journal.clone(), signals);
    agent.with(Box::new(move || ending.remove()));
    // The servers keep running while the installation is removed or handed over.
    let end = agent.run();
    let stuck = tasks.stop(STOP);
    // Dropped last: a running task would take the closed socket for the end of the proxy.
    drop(ztunnel);
    if !stuck.is_empty() {
        let tasks = stuck.join(", ");
        journal.record(Event::NotStopped { tasks });
    }
    // An agent that fails before it was ready removes its socket files.
    if end == End::Well || agent.was_ready() {
        names.keep();
    }
    Ok(end)
}

/// Flushes the log when dropped, also if the start fails.
struct Flush(Log);

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.flush(LAST_LINES);
    }
}

/// Records the version, the settings and warnings about them.
fn introduce(journal: &Journal, resolved: &Resolved, settings: &Settings, unknown: Vec<String>) {
    let version = env!("CARGO_PKG_VERSION");
    journal.record(Event::Starts { version });
    for e in resolved.iter() {
        let setting = e.setting;
        let name = match setting.env {
            "" => setting.flag,
            env => env,
        };
        journal.record(Event::Setting {
            name,
            value: match setting.may_hold_a_secret() && !e.text.is_empty() {
                true => "(not logged)".to_owned(),
                false => format!("{:?}", e.text),
            },
            from: origin(e),
            is_default: matches!(e.origin, Origin::Default),
        });
        if let Some(note) = e.note.clone() {
            journal.record(Event::SettingNoted { name, note });
        }
    }
    if settings.pod_namespace.is_empty() {
        journal.record(Event::NamespaceUnknown);
    }
    let text = |name| resolved.text(name).to_owned();
    let (watched, repaired) = (text("NODE_NAME"), text("REPAIR_NODE_NAME"));
    if resolved.bool("REPAIR_ENABLED") && !watched.is_empty() && watched != repaired {
        journal.record(Event::RepairsNothing { repaired, watched });
    }
    for scope in unknown {
        journal.record(Event::ScopeUnknown { scope });
    }
}
