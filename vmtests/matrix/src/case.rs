//! A case: one test of one test program. The same file runs on the host and in every guest.
use super::artifacts::{Artifacts, Program};
use super::marks::{Marks, Reader};
use super::ship::RELEASE;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_vm::{At, Error, Result};

/// What runs, and under which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// `netfilter::sets::a_set_with_intervals`.
    pub name: String,
    /// What runs it.
    pub what: What,
    /// What it says about where it runs.
    pub marks: Marks,
}

/// What a case is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A test of a test program.
    Test {
        /// Which program: its place in [`Artifacts::programs`].
        program: usize,
        /// The test's name in it.
        test: String,
    },
    /// `weir preflight --json`: its rows are in the report, and have to show what a variant takes away.
    Preflight,
    /// `weir demo` of the release binary, in a guest that holds no other file.
    Alone,
}

/// The case that fills the table of capabilities.
pub const PREFLIGHT: &str = "agent::preflight::report";
/// The case with the release binary alone.
pub const ALONE: &str = "agent::demo::the_static_program_alone";

impl Case {
    /// Every case, in the order of the rooms, and those of the matrix itself.
    pub fn all(artifacts: &Artifacts) -> Result<Vec<Self>> {
        let case = |name: &str, what, marks| Self {
            name: name.to_owned(),
            what,
            marks,
        };
        let (mut preflight, mut alone) = (Marks::default(), Marks::default());
        (preflight.is_smoke, alone.is_smoke) = (true, true);
        preflight.variants.insert("all".to_owned());
        alone.needs.insert(RELEASE.to_owned());
        let preflight = case(PREFLIGHT, What::Preflight, preflight);
        let mut cases = vec![preflight, case(ALONE, What::Alone, alone)];
        let mut stale = Vec::new();
        for (index, program) in artifacts.programs.iter().enumerate() {
            let mut reader = Reader::new(program);
            for test in tests_of(program)? {
                let name = format!("{}::{}::{test}", program.room, program.name);
                let marks = reader.marks(&test)?;
                // The library's own tests are about values; those that ask the kernel say so.
                if program.name == "unit" && marks.on.is_none() {
                    continue;
                }
                let program = index;
                cases.push(case(&name, What::Test { program, test }, marks));
            }
            stale.extend(reader.stale());
        }
        match stale.first() {
            None => Ok(cases),
            Some(first) => {
                let reason = "it has a line for the matrix, and is no test";
                let remedy = "Put the line above a test, or above all items of the file";
                Err(Error::new(first, reason, remedy))
            }
        }
    }
}

/// What `PROGRAM --list` says, without the tests that are switched off.
fn tests_of(program: &Program) -> Result<Vec<String>> {
    let name = program.executable.display().to_string();
    let list = |more: &[&str]| {
        let mut command = Command::new(&program.executable);
        command.args(["--list", "--format", "terse"]).args(more);
        command.current_dir(&program.package).stdin(Stdio::null());
        let output = command.output().at(&name)?;
        if !output.status.success() {
            let (status, said) = (output.status, String::from_utf8_lossy(&output.stderr));
            let reason = format!("--list ended with {status}: {said}");
            let remedy = "Is it a test program of this system?";
            return Err(Error::new(&name, reason, remedy));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let tests = text.lines().filter_map(|l| l.strip_suffix(": test"));
        Ok(tests.map(str::to_owned).collect::<Vec<_>>())
    };
    let ignored = list(&["--ignored"])?;
    let mut tests = list(&[])?;
    tests.retain(|t| !ignored.contains(t));
    Ok(tests)
}

/// The workspace that this program was built in.
pub fn top() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}
