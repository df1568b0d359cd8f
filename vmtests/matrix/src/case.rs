//! A case: one test of one test program. The same executable runs on the host and in every guest.
use super::artifacts::{Artifacts, Program};
use super::marks::{Marks, Reader};
use super::ship::RELEASE;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_vm::{At, Error, Result};

/// A case with its name and its marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// `netfilter::sets::a_set_with_intervals`.
    pub name: String,
    /// What the case runs.
    pub what: What,
    /// Where the case runs, from the marks in its source.
    pub marks: Marks,
}

/// What a case runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A test of a test program.
    Test {
        /// The index of the program in [`Artifacts::programs`].
        program: usize,
        /// The name of the test in the program.
        test: String,
    },
    /// `weir preflight --json`: its rows go into the report, and must show what a variant omits.
    Preflight,
    /// `weir demo` of the release binary, in a guest without any other file.
    Alone,
}

/// The name of the case that fills the capability table.
pub const PREFLIGHT: &str = "agent::preflight::report";
/// The name of the case with only the release binary.
pub const ALONE: &str = "agent::demo::the_static_program_alone";

impl Case {
    /// All cases in the order of the crates, then those of the matrix itself.
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
                // Most unit tests do not use the kernel; those that do have a mark.
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

/// The tests that `PROGRAM --list` prints, without ignored ones.
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

/// The workspace that this program was built from.
pub fn top() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}
