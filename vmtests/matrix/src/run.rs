//! Runs cases in environments.
use super::artifacts::Artifacts;
use super::capability;
use super::case::{ALONE, Case, What};
use super::marks::On;
use super::model::{Capability, CaseResult, Verdict};
use super::place::{End, TestKernel};
use super::ran::Ran;
use super::{host, ship};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_vm::cli::PATH;
use weir_vm::proto::Run as Command;
use weir_vm::{Cache, Error, KernelError, Machine, Options, Origin, Payload, Result, Stream};

/// The environment variables of every case.
const ALL: [(&str, &str); 4] = [
    ("PATH", PATH),
    ("LANG", "C.UTF-8"),
    ("TERM", "dumb"),
    ("RUST_BACKTRACE", "0"),
];
/// The additional variables of a guest. Properties get few random cases, because emulation makes each twenty times slower.
const GUEST: [(&str, &str); 2] = [("HOME", "/root"), ("PROPTEST_CASES", "5")];
/// Variables that a case on this machine inherits: they give the paths of Cargo, compilers and libraries.
const HOST: &str = "PATH HOME CARGO_HOME RUSTUP_HOME TMPDIR CC LD_LIBRARY_PATH";

/// The deadline of a case in seconds. The longest cases take 90 s in an emulated guest with a processor of its own.
const DEADLINE: u64 = 300;

/// The common context of all cases.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) artifacts: Artifacts,
    pub(crate) options: Options,
    /// The payload with only the release binary, and the path of the binary.
    alone: Option<(Payload, PathBuf)>,
}

/// The result of one case in one environment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) result: CaseResult,
    /// The rows for the capability table, from the case that determines them.
    pub(crate) capabilities: Vec<Capability>,
    /// The duration of the cold boot in seconds, if there was one.
    pub(crate) cold_boot: Option<f64>,
}

impl<'a> Runner<'a> {
    /// Sets the payload of each environment.
    pub(crate) fn new(
        cache: &'a Cache,
        artifacts: Artifacts,
        cases: &[Case],
        places: &mut [TestKernel],
        options: Options,
    ) -> Result<Self> {
        let common = ship::common(&artifacts)?;
        for place in places.iter_mut().filter(|p| p.kernel.is_some()) {
            // Only the programs of its cases: each additional file prolongs the boot.
            let belong = cases.iter().filter(|case| Self::belongs(case, place));
            let programs = belong.filter_map(|case| match case.what {
                What::Test { program, .. } => Some(program),
                What::Preflight | What::Alone => None,
            });
            let programs: BTreeSet<usize> = programs.collect();
            let mut payload = common.clone();
            for program in programs.iter().filter_map(|at| artifacts.programs.get(*at)) {
                payload.program(&program.executable)?;
            }
            place.payload = Some(payload);
        }
        Ok(Self {
            alone: ship::alone()?,
            cache,
            artifacts,
            options,
        })
    }

    /// Whether the case belongs to the environment.
    pub(crate) fn belongs(case: &Case, place: &TestKernel) -> bool {
        let on = case.marks.on.as_ref().unwrap_or(&On::Every);
        match (on, &place.special) {
            (On::None(_), _) => false,
            _ if place.is_host() => case.what != What::Alone,
            (On::Host(_), _) => false,
            (_, Some((name, _))) => case.marks.runs_on(name),
            (On::Every, None) => true,
            (On::Oldest, None) => place.ends.contains(&End::Oldest),
            (On::Newest, None) => place.ends.contains(&End::Newest),
        }
    }

    /// Runs one case.
    pub(crate) fn run(&self, case: &Case, place: &TestKernel) -> Done {
        let started = Instant::now();
        let mut done = Done {
            result: CaseResult {
                environment: place.name().to_owned(),
                case: case.name.clone(),
                verdict: Verdict::Passed,
                seconds: 0.0,
                restored: false,
            },
            capabilities: Vec::new(),
            cold_boot: None,
        };
        done.result.verdict = if let Some(reason) = self.impossible(case, place) {
            Verdict::Ignored { reason }
        } else {
            match self.execute(case, place, &mut done) {
                Err(e) => failed(e.to_string()),
                Ok(ran) => {
                    done.result.restored = ran.restored;
                    match case.what {
                        What::Preflight => {
                            let (rows, verdict) = capability::judge(place, &ran);
                            done.capabilities = rows;
                            verdict
                        }
                        _ => ran.verdict(&case.what, place),
                    }
                }
            }
        };
        done.result.seconds = started.elapsed().as_secs_f64();
        done
    }

    pub(crate) fn impossible(&self, case: &Case, place: &TestKernel) -> Option<String> {
        if let Some(reason) = &place.about.unavailable {
            return Some(reason.clone());
        }
        let mut needs = case.marks.needs.iter();
        let missing = needs.find(|name| weir_vm::variable(name).is_none())?;
        let help = match missing.as_str() {
            ship::GOLDEN => "it names the directory of the golden cases",
            ship::RELEASE => "ci/build makes the release binaries and prints their folder",
            _ => "the test needs it",
        };
        Some(format!("{missing} is not set: {help}"))
    }

    fn execute(&self, case: &Case, place: &TestKernel, done: &mut Done) -> Result<Ran> {
        let command = self.command(case, place)?;
        let Some(kernel) = &place.kernel else {
            return host::run(&self.options.program, &command);
        };
        // A guest without a payload is an error; the case must not run on the host instead.
        let unknown = || Error::new(place.name(), "its guests hold nothing", "Report it");
        let payload = place.payload.as_ref().ok_or_else(unknown)?;
        let mut options = self.options.clone();
        let payload = match (&case.what, &self.alone) {
            (What::Alone, Some((alone, _))) => {
                // No other case could restore its state.
                options.is_saved = false;
                alone
            }
            _ => payload,
        };
        let begun = Instant::now();
        let mut machine = Machine::start(self.cache, kernel, payload, &options)?;
        let mut ran = Ran::default();
        ran.restored = matches!(machine.origin, Origin::Restored);
        if !ran.restored && case.name != ALONE {
            done.cold_boot = Some(begun.elapsed().as_secs_f64());
        }
        match machine.run(&command, &mut |stream, bytes| ran.add(stream, bytes)) {
            // The output of the test before its guest died remains part of the result.
            Err(e) => {
                ran.add(Stream::Err, e.to_string().as_bytes());
                ran.kernel_error = Some("its guest came to no verdict".to_owned());
            }
            Ok(outcome) => {
                ran.ending = Some(outcome.exit.ending);
                let (log, console) = (outcome.exit.kernel_log, machine.console());
                let tell = |KernelError { kind, line }| {
                    format!(
                        "the kernel reports an error ({kind}): {line}\n{log}\n--- console:\n{console}\n---"
                    )
                };
                ran.kernel_error = outcome.kernel_error.map(tell);
            }
        }
        Ok(ran)
    }

    fn command(&self, case: &Case, place: &TestKernel) -> Result<Command> {
        let is_host = place.is_host();
        let passed = std::env::vars_os().filter(|(name, _)| passes(name, is_host));
        let pair = |(name, value): (&str, &str)| (name.into(), value.into());
        let mut env: Vec<(OsString, OsString)> = ALL.map(pair).to_vec();
        if !is_host {
            env.extend(GUEST.map(pair));
        }
        env.extend(passed);
        let (program, arguments, cwd) = match &case.what {
            What::Test { program, test } => {
                let program = self.artifacts.programs.get(*program);
                let program = program.ok_or_else(|| missing(&case.name))?;
                for (name, file) in &self.artifacts.binaries {
                    env.push((format!("CARGO_BIN_EXE_{name}").into(), file.into()));
                }
                env.push(("CARGO_MANIFEST_DIR".into(), (&program.package).into()));
                let arguments = vec!["--exact", test, "--nocapture", "--test-threads=1"];
                (&*program.executable, arguments, &*program.package)
            }
            What::Preflight => {
                let weir = self.artifacts.binaries.get("weir");
                let weir = weir.ok_or_else(|| missing("weir"))?;
                (&**weir, vec!["preflight", "--json"], Path::new("/"))
            }
            What::Alone => {
                let (_, weir) = self.alone.as_ref().ok_or_else(|| missing("weir"))?;
                (&**weir, vec!["demo"], Path::new("/"))
            }
        };
        let arguments = arguments.into_iter().map(OsString::from);
        Ok(Command {
            argv: std::iter::once(program.into()).chain(arguments).collect(),
            cwd: cwd.into(),
            env,
            deadline_ms: DEADLINE * 1000,
        })
    }
}

fn failed(text: String) -> Verdict {
    Verdict::Failed { text }
}

/// Whether a case may read this variable of our process. WEIR_REQUIRE_* turn skips into failures on the host; a guest does
/// not get them.
fn passes(name: &OsStr, on_host: bool) -> bool {
    let name = name.to_str().unwrap_or_default();
    let is_host = HOST.split(' ').any(|h| h == name) || name.starts_with("WEIR_REQUIRE_");
    let on_host = on_host && is_host;
    on_host || [ship::GOLDEN, ship::RELEASE].contains(&name)
}

fn missing(what: &str) -> Error {
    let remedy = "Give --artifacts the whole output of cargo test --no-run --message-format=json";
    Error::new(what, "Cargo did not say where it is", remedy)
}

/// The options of machines; `program` is the binary that acts as `/init`, as QEMU's launcher, and as the entry into namespaces.
pub(crate) fn options(program: Option<&Path>) -> Result<Options> {
    let mut options = Options::new()?;
    if let Some(program) = program {
        options.program = program.to_owned();
    }
    Ok(options)
}
