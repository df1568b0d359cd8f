//! Runs cases in environments, several at a time.
use super::artifacts::Artifacts;
use super::capability;
use super::case::{ALONE, Case, What};
use super::marks::On;
use super::model::{Capability, CaseResult, Verdict};
use super::place::{End, Place};
use super::ran::Ran;
use super::{host, ship};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_vm::proto::Run as Command;
use weir_vm::{Cache, Error, Machine, Options, Origin, Payload, Result, Stream};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Random cases of one property in a guest: emulation makes each about twenty times slower.
const PROPTEST_CASES: &str = "5";

/// How long a case may take, in seconds.
const DEADLINE: u64 = 120;

/// Everything that cases need.
#[derive(Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) artifacts: Artifacts,
    pub(crate) options: Options,
    alone: Option<Alone>,
}

/// The release binary as all that a guest holds.
#[derive(Debug)]
struct Alone {
    payload: Payload,
    /// Where the guest has it.
    path: PathBuf,
    /// Nobody would use its state again: it is not saved.
    options: Options,
}

/// What came of one case in one environment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) result: CaseResult,
    /// Rows of the capability table, from the case that has them.
    pub(crate) capabilities: Vec<Capability>,
    /// How long the cold boot took, if there was one.
    pub(crate) cold_boot: Option<f64>,
}

impl<'a> Runner<'a> {
    /// Gives each place what its guests hold.
    pub(crate) fn new(
        cache: &'a Cache,
        artifacts: Artifacts,
        cases: &[Case],
        places: &mut [Place],
        options: Options,
    ) -> Result<Self> {
        let common = ship::common(&artifacts)?;
        for place in places.iter_mut().filter(|p| p.kernel.is_some()) {
            let belong = cases.iter().filter(|case| Self::belongs(case, place));
            let programs = belong.filter_map(|case| case.what.program()).collect();
            place.payload = Some(ship::with(&common, &artifacts, &programs)?);
        }
        Ok(Self {
            alone: ship::alone()?.map(|(payload, path)| Alone {
                payload,
                path,
                options: Options {
                    is_saved: false,
                    ..options.clone()
                },
            }),
            cache,
            artifacts,
            options,
        })
    }

    /// The test programs, and the programs that they test.
    pub(crate) fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Does the case belong to the environment?
    pub(crate) fn belongs(case: &Case, place: &Place) -> bool {
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
    pub(crate) fn run(&self, case: &Case, place: &Place) -> Done {
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
                Err(e) => Verdict::Failed {
                    text: e.to_string(),
                },
                Ok(ran) => {
                    done.result.restored = ran.restored;
                    self.judge(case, place, &ran, &mut done)
                }
            }
        };
        done.result.seconds = started.elapsed().as_secs_f64();
        done
    }

    pub(crate) fn impossible(&self, case: &Case, place: &Place) -> Option<String> {
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

    fn judge(&self, case: &Case, place: &Place, ran: &Ran, done: &mut Done) -> Verdict {
        let verdict = ran.verdict(&case.what, place);
        if case.what != What::Preflight {
            return verdict;
        }
        // Exit code 3 says that something could not be told, and the rows say what.
        match capability::rows(place.name(), &ran.stdout()) {
            Err(why) => Verdict::Failed {
                text: format!("{why}\n{}", ran.text()),
            },
            Ok(rows) => {
                done.capabilities = rows;
                match (
                    &ran.trouble,
                    capability::objection(place, &done.capabilities),
                ) {
                    (None, None) => Verdict::Passed,
                    (None, Some(text)) => Verdict::Failed { text },
                    (Some(_), _) => verdict,
                }
            }
        }
    }

    fn execute(&self, case: &Case, place: &Place, done: &mut Done) -> Result<Ran> {
        let command = self.command(case, place)?;
        let Some(kernel) = &place.kernel else {
            return host::run(&self.options.program, &command);
        };
        // Never on the host instead.
        let unknown = || Error::new(place.name(), "its guests hold nothing", "Report it");
        let payload = place.payload.as_ref().ok_or_else(unknown)?;
        let (payload, options) = match (&case.what, &self.alone) {
            (What::Alone, Some(alone)) => (&alone.payload, &alone.options),
            _ => (payload, &self.options),
        };
        let begun = Instant::now();
        let mut machine = Machine::start(self.cache, kernel, payload, options)?;
        let mut ran = Ran::default();
        ran.restored = matches!(machine.origin(), Origin::Restored);
        if !ran.restored && case.name != ALONE {
            done.cold_boot = Some(begun.elapsed().as_secs_f64());
        }
        let outcome = machine.run(&command, &mut |stream, bytes| ran.add(stream, bytes));
        match outcome {
            // What the test said before its guest died is a part of the story.
            Err(e) => {
                ran.add(Stream::Err, e.to_string().as_bytes());
                ran.trouble = Some("its guest came to no verdict".to_owned());
            }
            Ok(outcome) => {
                ran.ending = Some(outcome.exit.ending);
                ran.trouble = outcome.trouble.map(|t| {
                    format!(
                        "the kernel is in trouble ({}): {}\n{}\n--- console:\n{}\n---",
                        t.kind,
                        t.line,
                        outcome.exit.kernel_log,
                        machine.console()
                    )
                });
            }
        }
        Ok(ran)
    }

    fn command(&self, case: &Case, place: &Place) -> Result<Command> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        // Cargo is where the user has it; a guest has what it was given.
        let own = std::env::var_os("PATH").filter(|_| place.is_host());
        let mut env: Vec<(OsString, OsString)> = vec![
            ("PATH".into(), own.unwrap_or_else(|| PATH.into())),
            ("LANG".into(), "C.UTF-8".into()),
            ("TERM".into(), "dumb".into()),
            ("RUST_BACKTRACE".into(), "0".into()),
        ];
        if place.is_host() {
            env.extend(std::env::vars_os().filter(|(name, _)| passes(name, true)));
        } else {
            env.push(("HOME".into(), "/root".into()));
            env.push(("PROPTEST_CASES".into(), PROPTEST_CASES.into()));
            env.extend(std::env::vars_os().filter(|(name, _)| passes(name, false)));
        }
        let (argv, cwd) = match &case.what {
            What::Test { program, test } => {
                let Some(program) = self.artifacts.programs.get(*program) else {
                    return Err(missing(&case.name));
                };
                for (name, file) in &self.artifacts.binaries {
                    env.push((format!("CARGO_BIN_EXE_{name}").into(), file.into()));
                }
                env.push(("CARGO_MANIFEST_DIR".into(), (&program.package).into()));
                let mut argv = vec![program.executable.clone().into_os_string()];
                argv.extend(words(&["--exact", test, "--nocapture", "--test-threads=1"]));
                (argv, program.package.clone())
            }
            What::Preflight => {
                let weir = self.artifacts.binary("weir");
                let weir = weir.ok_or_else(|| missing("weir"))?;
                let mut argv = vec![weir.as_os_str().to_owned()];
                argv.extend(words(&["preflight", "--json"]));
                (argv, PathBuf::from("/"))
            }
            What::Alone => {
                let alone = self.alone.as_ref().ok_or_else(|| missing("weir"))?;
                let mut argv = vec![alone.path.clone().into_os_string()];
                argv.extend(words(&["demo"]));
                (argv, PathBuf::from("/"))
            }
        };
        Ok(Command {
            argv,
            cwd: cwd.into(),
            env,
            deadline_ms: DEADLINE * 1000,
        })
    }
}

/// Variables of ours that a case may read.
fn passes(name: &std::ffi::OsStr, on_host: bool) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    match name {
        "WEIR_GOLDEN" | "WEIR_BIN_DIR" => true,
        // These turn skips of the host into failures; a guest has rules of its own.
        _ => {
            on_host
                && ([
                    "HOME",
                    "CARGO_HOME",
                    "RUSTUP_HOME",
                    "TMPDIR",
                    "CC",
                    "LD_LIBRARY_PATH",
                ]
                .contains(&name)
                    || name.starts_with("WEIR_REQUIRE_"))
        }
    }
}

fn missing(what: &str) -> Error {
    Error::new(
        what,
        "Cargo did not say where it is",
        "Give --artifacts the whole output of cargo test --no-run --message-format=json",
    )
}

/// The binary that plays `/init`, QEMU's launcher and the namespaces' door.
pub(crate) fn options(program: Option<&Path>) -> Result<Options> {
    let options = Options::new()?;
    Ok(match program {
        Some(program) => Options {
            program: program.to_owned(),
            ..options
        },
        None => options,
    })
}
