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

impl What {
    /// The test program that runs it: its place in [`Artifacts::programs`].
    pub fn program(&self) -> Option<usize> {
        match self {
            Self::Test { program, .. } => Some(*program),
            Self::Preflight | Self::Alone => None,
        }
    }
}

/// The case that fills the table of capabilities.
pub const PREFLIGHT: &str = "agent::preflight::report";
/// The case with the release binary alone.
pub const ALONE: &str = "agent::demo::the_static_program_alone";

impl Case {
    /// Every case, in the order of the rooms, and those of the matrix itself.
    pub fn all(artifacts: &Artifacts) -> Result<Vec<Self>> {
        let mut cases = vec![
            Self {
                name: PREFLIGHT.to_owned(),
                what: What::Preflight,
                marks: Marks {
                    is_smoke: true,
                    variants: ["all".to_owned()].into(),
                    ..Marks::default()
                },
            },
            Self {
                name: ALONE.to_owned(),
                what: What::Alone,
                marks: Marks {
                    is_smoke: true,
                    needs: [RELEASE.to_owned()].into(),
                    ..Marks::default()
                },
            },
        ];
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
                cases.push(Self {
                    name,
                    what: What::Test {
                        program: index,
                        test,
                    },
                    marks,
                });
            }
            stale.extend(reader.stale());
        }
        match stale.first() {
            None => Ok(cases),
            Some(first) => Err(Error::new(
                first,
                "it has a line for the matrix, and is no test",
                "Put the line above a test, or above all items of the file",
            )),
        }
    }
}

/// What `PROGRAM --list` says, without the tests that are switched off.
fn tests_of(program: &Program) -> Result<Vec<String>> {
    let name = program.executable.display().to_string();
    let list = |more: &[&str]| {
        let output = Command::new(&program.executable)
            .args(["--list", "--format", "terse"])
            .args(more)
            .current_dir(&program.package)
            .stdin(Stdio::null())
            .output()
            .at(&name)?;
        if !output.status.success() {
            return Err(Error::new(
                &name,
                format!(
                    "--list ended with {}: {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                ),
                "Is it a test program of this system?",
            ));
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
