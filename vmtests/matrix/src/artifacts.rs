//! The test programs and the binaries under test, as Cargo built them.
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_vm::{At, Error, Result};

/// The crates whose tests are in the matrix, dependencies first: `rooms.txt`, which `ci/matrix` reads, too.
pub fn rooms() -> impl Iterator<Item = &'static str> {
    include_str!("rooms.txt").lines()
}

/// This package is selected, too: Cargo then unifies features as in a plain `cargo test`, and nothing is built twice.
const OURSELVES: &str = "weir-vmtests";

const AGAIN: &str = "Make it with `cargo test --no-run --message-format=json` in this repository";

/// One test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The crate without its prefix: `netfilter`.
    pub room: String,
    /// The name of the integration test (`sets`), or `unit` for the unit tests of the library.
    pub name: String,
    /// The root source file of the test crate.
    pub source: PathBuf,
    /// The executable that Cargo built.
    pub executable: PathBuf,
    /// The directory of its package, in which Cargo runs it.
    pub package: PathBuf,
}

/// All test programs and binaries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// The test programs, by crate and name.
    pub programs: Vec<Program>,
    /// The binaries of the crates, by name.
    pub binaries: BTreeMap<String, PathBuf>,
}

/// A line of `cargo --message-format=json`, with the fields that are used here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Artifacts {
    /// Lets Cargo build the test programs; `top` is the workspace. Cargo downloads crates that are missing on this machine, as
    /// in a fresh clone. `profile` is a profile of Cargo.toml; `cargo test` uses `test`, so its results are reused.
    pub fn build(top: &Path, profile: &str) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(&cargo);
        command
            .current_dir(top)
            .args(["test", "--no-run", "--quiet"])
            .arg("--message-format=json-render-diagnostics")
            .args(["--profile", profile, "-p", OURSELVES]);
        for room in rooms() {
            command.args(["-p", &format!("weir-{room}")]);
        }
        let what = "cargo test --no-run";
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().at(what)?;
        if !output.status.success() {
            let reason = format!("it ended with {}", output.status);
            let remedy = "See what it says above. Crates that it lacks come over the network";
            return Err(Error::new(what, reason, remedy));
        }
        Self::parse(what, &output.stdout[..])
    }

    /// Reads the output of `cargo test --no-run --message-format=json`.
    pub fn load(file: &Path) -> Result<Self> {
        let open = std::fs::File::open(file).at(file)?;
        Self::parse(&file.display().to_string(), std::io::BufReader::new(open))
    }

    fn parse(input: &str, lines: impl BufRead) -> Result<Self> {
        let mut found = Self::default();
        for line in lines.lines() {
            let line = line.at(input)?;
            if !line.starts_with('{') {
                continue;
            }
            let message: serde_json::Result<Message> = serde_json::from_str(&line);
            let reason = |e| format!("not what Cargo prints: {e}");
            found.add(message.map_err(|e| Error::new(input, reason(e), AGAIN))?);
        }
        if found.programs.is_empty() {
            let reason = "no test program of these crates is in it";
            return Err(Error::new(input, reason, AGAIN));
        }
        let place = |p: &Program| (order(&p.room), p.name.clone());
        found.programs.sort_by_key(place);
        Ok(found)
    }

    fn add(&mut self, message: Message) {
        let (Some(manifest), Some(target)) = (message.manifest_path, message.target) else {
            return;
        };
        let (Some(profile), Some(executable)) = (message.profile, message.executable) else {
            return;
        };
        let package = manifest.parent().unwrap_or(Path::new("/")).to_owned();
        let room = package.file_name().unwrap_or_default().to_string_lossy();
        let room = room.into_owned();
        if message.reason != "compiler-artifact" || !rooms().any(|r| r == room) {
            return;
        }
        let is = |kind: &str| target.kind.iter().any(|k| k == kind);
        match profile.test {
            true if is("test") || is("lib") => self.programs.push(Program {
                name: match is("lib") {
                    true => "unit".into(),
                    false => target.name,
                },
                room,
                source: target.src_path,
                executable,
                package,
            }),
            false if is("bin") => _ = self.binaries.insert(target.name, executable),
            _ => {}
        }
    }
}

/// The position of a crate in the list; others come last.
pub(crate) fn order(room: &str) -> usize {
    rooms().position(|r| r == room).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(room: &str, name: &str, kind: &str, is_test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/{room}/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"],"src_path":"/w/{room}/x.rs"}},"profile":{{"test":{is_test}}},"executable":"/t/{name}-1"}}"#
        )
    }

    #[test]
    fn test_programs_of_the_rooms_are_found_lowest_room_first() {
        let text = [
            line("cni", "plugin", "test", true),
            line("netlink", "weir_netlink", "lib", true),
            line("agent", "weir", "bin", false),
            // Unit tests of a binary, and a test of a crate that is not in the list.
            line("agent", "weir", "bin", true),
            line("vmtests", "machine", "test", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "   Compiling something".to_owned(),
        ]
        .join("\n");
        let found = Artifacts::parse("x", text.as_bytes()).unwrap();
        let names: Vec<_> = found
            .programs
            .iter()
            .map(|p| format!("{} {}", p.room, p.name))
            .collect();
        assert_eq!(names, ["netlink unit", "cni plugin"]);
        assert_eq!(found.binaries.get("weir"), Some(&"/t/weir-1".into()));
        assert_eq!(found.programs[0].package, Path::new("/w/netlink"));
    }

    #[test]
    fn something_else_is_refused() {
        let e = Artifacts::parse("f", &b"{\"reason\":3}"[..]).unwrap_err();
        assert!(e.to_string().contains("not what Cargo prints"), "{e}");
        let e = Artifacts::parse("f", &b""[..]).unwrap_err();
        assert!(e.to_string().contains("no test program"), "{e}");
        assert!(Artifacts::load(Path::new("/nonexistent")).is_err());
    }
}
