//! A fresh clone: Cargo has none of the crates, and the matrix fetches them. The crate here comes from a repository
//! on this machine, because a test needs no network.

// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

use std::path::Path;
use std::process::Command;
use weir_vmtests::Artifacts;

/// Runs a program to its end.
fn run(program: &str, args: &[&str], dir: &Path, env: &[(&str, &Path)]) {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir);
    command.envs(env.iter().copied());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {errors}");
}

/// A package in a directory of its own.
fn package(dir: &Path, name: &str, more: &str) {
    std::fs::create_dir_all(dir.join("src")).unwrap();
    let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n{more}");
    std::fs::write(dir.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(dir.join("src/lib.rs"), "#[test]\nfn nothing() {}\n").unwrap();
}

/// The matrix reads its environment from the process, so it is asked in a process of its own: this test, called
/// again with the place as a variable.
const TOP: &str = "WEIR_TEST_FRESH_CLONE";

#[test]
fn a_fresh_clone_gets_its_crates() {
    if let Some(top) = std::env::var_os(TOP) {
        let built = Artifacts::build(Path::new(&top), "test").unwrap();
        assert_eq!(built.programs.len(), 5);
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
    let rooms = [
        "vmtests",
        "netlink",
        "netfilter",
        "cni",
        "agent",
        "node-ambient",
    ];
    for room in rooms {
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
    // The lock file is part of a clone; the crates are not.
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
