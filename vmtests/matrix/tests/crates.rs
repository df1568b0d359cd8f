//! A fresh clone, in which Cargo has none of the dependencies, so the matrix fetches them. The dependency here comes from a
//! local repository, because a test must not need the network. Also checks which crates have marks.

// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::Command;
use weir_vmtests::Artifacts;
use weir_vmtests::artifacts::rooms;

/// Runs a program to its end.
fn run(program: &str, args: &[&str], dir: &Path, env: &[(&str, &Path)]) {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    command.envs(env.iter().copied());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
}

/// Creates a package in its own directory.
fn package(dir: &Path, name: &str, more: &str) {
    std::fs::create_dir_all(dir.join("src")).unwrap();
    let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{more}");
    std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(dir.join("src/lib.rs"), "#[test]\nfn nothing() {}\n").unwrap();
}

/// The variable that names the clone. The matrix reads its environment variables from the process, so the test starts itself
/// again with the variable set.
const TOP: &str = "WEIR_TEST_FRESH_CLONE";

#[test]
fn a_fresh_clone_gets_its_crates() {
    if let Some(top) = std::env::var_os(TOP) {
        let built = Artifacts::build(Path::new(&top), "test").unwrap();
        assert_eq!(built.programs.len(), rooms().count());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (dependency, top) = (dir.path().join("dependency"), dir.path().join("clone"));
    package(&dependency, "dependency", "");
    let git = |args: &[&str]| run("git", args, &dependency, &[]);
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    git(&[&identity[..], &["commit", "--quiet", "-m", "all"]].concat());

    let url = format!(
        "dependency = {{ git = \"file://{}\" }}\n",
        dependency.display()
    );
    let rooms: Vec<&str> = std::iter::once("vmtests").chain(rooms()).collect();
    for room in &rooms {
        let room = *room;
        let needs = match room {
            "agent" => format!("[dev-dependencies]\n{url}"),
            _ => String::new(),
        };
        package(&top.join(room), &format!("weir-{room}"), &needs);
    }
    let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = {rooms:?}\n");
    std::fs::write(top.join("Cargo.toml"), workspace).unwrap();
    let cargo = env!("CARGO");
    let (other, fresh) = (dir.path().join("other"), dir.path().join("fresh"));
    // A clone includes the lock file but not the crates.
    run(
        cargo,
        &["generate-lockfile"],
        &top,
        &[("CARGO_HOME", &other)],
    );

    let target = dir.path().join("target");
    let this = std::env::current_exe().unwrap();
    run(
        this.to_str().unwrap(),
        &["--exact", "a_fresh_clone_gets_its_crates"],
        &top,
        &[
            ("CARGO_HOME", &fresh),
            ("CARGO_TARGET_DIR", &target),
            (TOP, &top),
        ],
    );
}

/// Collects the source files below a directory, without those of Cargo and git.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if kind.is_file() && name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Marks in the sources of other packages would have no effect.
#[test]
fn every_file_with_a_mark_is_of_a_room() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        &mut files,
    );
    let mut marked = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let is_mark = |line: &str| line.trim_start().starts_with("// matrix: ");
        if !text.lines().any(is_mark) {
            continue;
        }
        let package = file
            .ancestors()
            .skip(1)
            .find(|dir| dir.join("Cargo.toml").is_file());
        let name = package.and_then(Path::file_name).unwrap().to_string_lossy();
        assert!(
            rooms().any(|room| room == name),
            "{}: it has a mark, and {name} is not in vmtests/matrix/src/rooms.txt",
            file.display()
        );
        marked += 1;
    }
    assert!(marked > 100, "{marked}");
}
