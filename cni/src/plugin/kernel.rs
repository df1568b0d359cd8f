//! The backend that writes to the kernel.

use super::backend::{Backend, DesiredRedirection, Deviation};
use super::phases::Phase;
use crate::compile::{Engine, compile};
use crate::config::{Intent, NameFiles};
use crate::log::{Level, count};
use crate::pod::NodeEnvironment;
use crate::redirection::{self, AppliedRedirection, Change, Desired as _, Sandbox, Visit};
use nix::fcntl::OFlag;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads and writes the network namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelBackend;

impl Backend for KernelBackend {
    fn apply(&self, desired: &DesiredRedirection<'_>) -> Result<String, String> {
        if let Some(file) = desired.dry_run_file {
            return dry_run(file, desired);
        }
        let engine = desired.engine;
        let (done, netns, took) = visit(desired, |visit, intent| {
            let begun = Instant::now();
            let done = visit.apply_intent(intent, engine).map_err(text)?;
            let took = begun.elapsed();
            // The redirection is applied, so hindrances, or a failure to search for them, are only logged; CHECK reports them.
            let compiled = intent.compile_for(engine, done.engine);
            let found = visit.hindrances(&compiled);
            for line in found.unwrap_or_else(|doubt| vec![doubt]) {
                desired.log.warn(&format!("{line}; CHECK reports it"));
            }
            Ok((done, visit.sandbox().netns().id(), took))
        })?;
        report(desired, &done, took);
        let engine = done.engine;
        Ok(match done.changes.len() {
            0 => format!("the redirection by {engine} was in place in {netns}: nothing changed"),
            n => format!(
                "redirected by {engine} in {netns}: {}, verified",
                count(n, "change")
            ),
        })
    }

    fn verify(&self, desired: &DesiredRedirection<'_>) -> Result<Vec<Deviation>, String> {
        let named = desired.engine;
        let (changes, choice, comparison) = visit(desired, |visit, intent| {
            let begun = Instant::now();
            let to_try = || visit.engine_to_try().map(|(engine, _)| engine);
            let engine = named.map_or_else(to_try, Ok);
            let engine = engine.map_err(text)?;
            let chosen = Instant::now();
            let compiled = intent.compile_for(named, engine);
            // An older version used upstream's rules for an engine that was chosen automatically.
            let is_chosen = named.is_none() && engine == Engine::Nft;
            let older = || is_chosen.then(|| intent.compile(engine));
            let changes = visit.verify_either(&compiled, older).map_err(text)?;
            Ok((changes, chosen - begun, chosen.elapsed()))
        })?;
        desired.phases.add(Phase::Facts, choice);
        desired.phases.add(Phase::Verify, comparison);
        let deviation = |change: &Change| Deviation {
            difference: change.difference(),
            object: change.object(),
        };
        Ok(changes.iter().map(deviation).collect())
    }

    fn probe(&self) -> Result<Option<String>, String> {
        match redirection::probe() {
            Ok(()) => Ok(None),
            Err(e) if e.is_unsupported() => Ok(Some(text(e))),
            Err(e) => Err(text(e)),
        }
    }
}

/// Reports the changes to the log and their durations to the phases; `took` is the total duration.
fn report(desired: &DesiredRedirection<'_>, done: &AppliedRedirection, took: Duration) {
    let phases = desired.phases;
    let read_back = done.read_back.unwrap_or_default();
    phases.add(Phase::Apply, took.saturating_sub(read_back));
    if done.read_back.is_some() {
        phases.add(Phase::Verify, read_back);
    }
    if let Some(waited) = done.lock_wait {
        phases.add(Phase::LockWait, waited);
    }
    if desired.log.hears(Level::Debug) {
        let changes = done.changes.iter();
        changes.for_each(|change| desired.log.debug(&change.to_string()));
    }
    for kept in &done.kept {
        let line = format!("{}; CHECK reports it", kept.object());
        desired.log.warn(&line);
    }
}

/// Enters the namespace once, derives the intent from its addresses, and calls `work`.
fn visit<T: Send>(
    desired: &DesiredRedirection<'_>,
    work: impl FnOnce(&Visit<'_>, &Intent) -> Result<T, String> + Send,
) -> Result<T, String> {
    let begun = Instant::now();
    let sandbox = Sandbox::open(desired.netns).map_err(text)?;
    let group = NameFiles::default().group;
    let environment = NodeEnvironment::read(desired.lookup, &group).map_err(text)?;
    let redirect = desired.redirect;
    let inside = |visit: &Visit<'_>| {
        let entered = Instant::now();
        let found = visit.addresses(&redirect.addresses);
        let intent = redirect.intent(&environment, &found);
        let intent = intent.map_err(text)?;
        let decide = entered.elapsed();
        let done = work(visit, &intent)?;
        Ok::<_, String>((entered, decide, done))
    };
    let (entered, decide, done) = sandbox.visit(inside).map_err(text)??;
    desired.phases.add(Phase::Facts, entered - begun);
    desired.phases.add(Phase::Decide, decide);
    Ok(done)
}

/// Writes the rules as `iptables-save` prints them to `DRY_RUN_FILE_PATH`, without addresses, policy rules and routes, as
/// upstream's plugin does. Writes nothing to the kernel, and does not check which engines it has.
fn dry_run(file: &Path, desired: &DesiredRedirection<'_>) -> Result<String, String> {
    let compiled =
        |_: &Visit<'_>, intent: &Intent| Ok(compile(intent, Engine::Xtables).rules.to_string());
    let plan = visit(desired, compiled)?;
    write(file, &plan)?;
    let shown = file.display();
    Ok(format!(
        "DRY_RUN_FILE_PATH is set: nothing changed, the plan is in {shown}"
    ))
}

/// Writes the plan; does not wait at a pipe: without a reader that is an error, and if it is full, too.
fn write(file: &Path, plan: &str) -> Result<(), String> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
    let opened = options.open(file);
    let written = opened.and_then(|mut file| file.write_all(plan.as_bytes()));
    written.map_err(|error| {
        let shown = file.display();
        format!("cannot write the plan to {shown}: {error}; correct or unset DRY_RUN_FILE_PATH")
    })
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use weir_testing::TempDir;

    #[test]
    fn a_pipe_for_the_plan_does_not_hold_up_the_pod() {
        let dir = TempDir::new();
        let pipe = dir.file("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let plan = "x".repeat(1 << 20);
        let refused = || {
            let error = write(&pipe, &plan).unwrap_err();
            assert!(error.contains(&pipe.display().to_string()), "{error}");
            assert!(error.contains("DRY_RUN_FILE_PATH"), "{error}");
        };
        refused();
        // A reader that does not read.
        let mut options = OpenOptions::new();
        let nonblock = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let _reader = nonblock.open(&pipe).unwrap();
        refused();
        let file = dir.file("plan");
        write(&file, &plan).unwrap();
        write(&file, "less").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "less");
    }
}
