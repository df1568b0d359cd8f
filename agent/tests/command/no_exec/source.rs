//! The sources of the product, without its tests.
// matrix: none: reads the sources and the crates of Cargo's registry, and asks no kernel

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::tokens::{Token, tokens, without_tests};

/// The crates of the product: the default members of the workspace except the runner of virtual machines.
fn crates() -> Vec<String> {
    let manifest = std::fs::read_to_string(super::top().join("Cargo.toml")).unwrap();
    let members = manifest.split_once("default-members = [").unwrap().1;
    let names = members.split_once(']').unwrap().0.split(',');
    let names = names.map(|name| name.trim().trim_matches('"').to_owned());
    names.filter(|name| !name.starts_with("vmtests/")).collect()
}

/// The only file that may start programs: it acts as a container runtime, and a CNI plugin is a program.
const RUNNER: &str = "agent/runner/src/exec.rs";

/// The only file that forks a process, which executes nothing: a certain system call requires a process with a single thread.
const FORKS: &str = "netlink/src/sys/xtables/inside.rs";

/// Identifiers that have no other meaning in the sources.
const CALLS: [&str; 24] = [
    "CommandExt",
    "posix_spawn",
    "posix_spawnp",
    "pidfd_spawn",
    "pidfd_spawnp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "execl",
    "execle",
    "execlp",
    "fexecve",
    "fork",
    "vfork",
    "popen",
    "SYS_execve",
    "SYS_execveat",
    "SYS_fork",
    "SYS_vfork",
    "SYS_clone",
    "SYS_clone3",
    "dlopen",
];

/// The items of `std::process` and `tokio::process` that start a program.
const PROCESS: [&str; 3] = ["Command", "Child", "*"];

/// The lines that can execute something, each with its reason.
fn findings(code: &[Token]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (n, token) in code.iter().enumerate() {
        let next = |k: usize| code.get(n + k).map_or("", |t| t.text.as_str());
        let mut report = |what: &str| found.push((token.line, what.to_owned()));
        match token.text.as_str() {
            word if CALLS.contains(&word) => report(word),
            // The sources declare no foreign functions: all of them come from the libc crate.
            "extern" if next(1) == "{" || (next(1) == "\"" && next(2) == "{") => {
                report("foreign functions");
            }
            "libc" if next(1) == "::" && matches!(next(2), "system" | "clone" | "*") => {
                report(&format!("libc::{}", next(2)));
            }
            // The assembler of eBPF programs has modules and values with these names.
            "asm" | "global_asm" | "naked_asm" if matches!(next(1), "!" | "as") => report("asm!"),
            // An alias would hide later uses.
            "arch" if next(1) == "as" => report("arch as"),
            "process" if next(1) == "as" => report("process as"),
            "process" if next(1) == "::" => {
                for name in imported(&code[n + 2..]) {
                    if PROCESS.contains(&name) || name == "as" {
                        report(&format!("process::{name}"));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// `a` of `a::b`, or the identifiers of `{a, b as c}`.
fn imported(after: &[Token]) -> Vec<&str> {
    let words = after.iter().map(|t| t.text.as_str());
    match after.first().map(|t| t.text.as_str()) {
        Some("{") => words.take_while(|w| *w != "}").collect(),
        _ => words.take(1).collect(),
    }
}

/// All files of the crate's `src`, except the modules that only tests contain.
fn files(krate: &Path) -> Vec<(PathBuf, Vec<Token>)> {
    let mut all = Vec::new();
    let mut dirs = vec![krate.join("src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                all.push(path);
            }
        }
    }
    let mut of_tests = BTreeSet::new();
    let mut read = Vec::new();
    for path in all {
        let source = std::fs::read_to_string(&path).unwrap();
        let (code, modules) = without_tests(&tokens(&source));
        let dir = match path.file_stem().and_then(|s| s.to_str()) {
            Some("lib" | "main" | "mod") => path.parent().unwrap().to_owned(),
            _ => path.with_extension(""),
        };
        of_tests.extend(modules.into_iter().map(|name| dir.join(name)));
        read.push((path, code));
    }
    read.retain(|(path, _)| {
        let module = path.with_extension("");
        !module.ancestors().any(|a| of_tests.contains(a))
    });
    read
}

#[test]
fn nothing_but_the_runner_can_execute_a_program() {
    let (mut bad, mut runner, mut forks) = (Vec::new(), 0, 0);
    let crates = crates();
    assert!(crates.len() > 5, "{crates:?}");
    for krate in crates {
        let files = files(&super::top().join(&krate));
        assert!(files.len() > 1, "{krate}: no sources found");
        for (path, code) in files {
            let mut found = findings(&code);
            if path.ends_with(FORKS) {
                let all = found.len();
                found.retain(|(_, what)| what != "fork");
                forks += all - found.len();
            }
            if path.ends_with(RUNNER) {
                runner += found.len();
                continue;
            }
            bad.extend(
                found
                    .iter()
                    .map(|(line, what)| format!("{}:{line}: {what}", path.display())),
            );
        }
    }
    assert!(
        bad.is_empty(),
        "weir executes nothing; use its own netlink, or a test:\n{}",
        bad.join("\n")
    );
    assert!(
        runner > 0,
        "{RUNNER} is gone or executes nothing: the exception can be removed"
    );
    assert_eq!(
        forks, 1,
        "{FORKS} is gone or makes no process: the exception can be removed"
    );
}

#[test]
fn every_way_to_execute_is_found() {
    let ways = [
        "fn f() { std::process::Command::new(\"nft\"); }",
        "use std::process::Command;",
        "use std::process::{ExitCode, Command};",
        "use std::process::*;",
        "use std::process as p;",
        "use std::process::{self as p};",
        "use std::{io, process}; fn f() { process::Command::new(\"nft\"); }",
        "use tokio::process::Command;",
        "use std::os::unix::process::CommandExt;",
        "fn f() { unsafe { libc::execve(a, b, c) }; }",
        "fn f() { unsafe { libc::system(a) }; }",
        "fn f() { unsafe { libc::syscall(libc::SYS_execveat, a) }; }",
        "use libc::*;",
        "unsafe extern \"C\" { fn system(a: *const i8); }",
        "use nix::unistd::{fork, ForkResult};",
        "fn f() { nix::spawn::posix_spawn(a, b); }",
        "fn f() { unsafe { core::arch::asm!(\"syscall\") }; }",
        "use core::arch::{global_asm as a};",
        "use core::arch as a;",
    ];
    for way in ways {
        assert_eq!(
            findings(&tokens(way)).len(),
            1,
            "{way}: {:?}",
            findings(&tokens(way))
        );
    }
    let harmless = [
        "use std::process::ExitCode; fn f() { std::process::exit(1); std::process::id(); }",
        "use clap::Command; enum Command { Plan } fn f(c: Command) {}",
        "fn f() { log(\"std::process::Command\"); } // fork",
        "pub mod process; use crate::process::Owner;",
        "mod asm; use asm::{Program}; fn f(asm: &mut Program) { asm.exit(); }",
        "struct System { system: u8 } extern \"C\" fn f() {}",
    ];
    for text in harmless {
        assert_eq!(findings(&tokens(text)), [], "{text}");
    }
}
