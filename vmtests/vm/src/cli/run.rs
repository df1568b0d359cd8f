//! `weir-vm run`: runs one program in a fresh guest; usable as Cargo's runner.
use super::guest::{GuestArgs, end_as, pass_on, report};
use crate::cache::variable;
use crate::program::program;
use crate::{At, Cache, Error, Payload, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "\
Examples:
  weir-vm run --kernel 6.12 -- target/debug/deps/netns-0123456789abcdef --test-threads=1
  weir-vm run --kernel 5.10 --with /usr/sbin/nft -- /usr/sbin/nft --version

  As the runner of cargo test, or of nextest, for the tests of any crate:
  export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='weir-vm run --kernel 6.12 --'
  cargo test -p some-crate

The guest gets the program and the programs of CARGO_BIN_EXE_*, with their libraries; the
package's directory (CARGO_MANIFEST_DIR); what variables VM_* name; and --with. It gets the
variables CARGO_*, RUST_*, VM_*, PROPTEST_*, NEXTEST* and --env. With --list, the program runs
here: tests are the same on every kernel. Output, exit status and signal come back as they are;
124: killed at its deadline.";

/// Runs one program in a fresh guest; also as Cargo's runner
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    guest: GuestArgs,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Prefixes of the variables that are passed to a test.
const PASSED: [&str; 4] = ["CARGO", "RUST", "PROPTEST_", "NEXTEST"];

/// Whether the variable has the prefix that this program passes on.
fn is_ours(name: &[u8]) -> bool {
    let prefix = program().variables;
    !prefix.is_empty() && name.starts_with(prefix.as_bytes())
}

pub(super) fn run(cache: &Cache, args: &Args) -> Result<u8> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Error::new("run", "no program was named", "See --help"));
    };
    let program = find(program)?;
    if arguments.iter().any(|a| a == "--list") {
        let e = Command::new(&program).args(arguments).exec();
        return Err(Error::io(program.display(), &e));
    }
    let cwd = std::env::current_dir().at("the current directory")?;
    crate::interrupt::install();
    let payload = payload(&program)?;
    let mut machine = args.guest.start(cache, payload)?;
    let mut argv = vec![program.into_os_string()];
    argv.extend(arguments.iter().cloned());
    let run = args.guest.run(argv, cwd, environment())?;
    let outcome = machine.run(&run, &mut pass_on)?;
    drop(machine);
    let status = report(&outcome);
    end_as(&outcome);
    Ok(status)
}

/// Resolves a program name; a name without a slash is searched in PATH, as by a shell.
fn find(name: &OsStr) -> Result<PathBuf> {
    let remedy = "Name its path";
    which::which(name).map_err(|_| Error::new(name.to_string_lossy(), "no such program", remedy))
}

fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.as_bytes();
            name == b"LD_LIBRARY_PATH"
                || is_ours(name)
                || PASSED.iter().any(|p| name.starts_with(p.as_bytes()))
        })
        .collect()
}

/// The files that a test of a Cargo package may need.
fn payload(tested: &Path) -> Result<Payload> {
    let mut payload = (program().payload)()?;
    payload.program(tested)?;
    for (name, value) in std::env::vars_os() {
        let (name, path) = (name.as_bytes(), Path::new(&value));
        if name.starts_with(b"CARGO_BIN_EXE_") && path.is_file() {
            payload.program(path)?;
        } else if is_ours(name) && path.is_absolute() {
            // A variable with the program's prefix may name test data or programs.
            if path.is_dir() {
                add_tree(&mut payload, path)?;
            } else if path.is_file() {
                payload.program(path)?;
            }
        }
    }
    if let Some(package) = variable("CARGO_MANIFEST_DIR") {
        payload.tree(&package, &package, &["target", ".git"])?;
    }
    payload.temporary_of(tested)?;
    Ok(payload)
}

/// Adds a directory of data, or of programs with their libraries.
fn add_tree(payload: &mut Payload, folder: &Path) -> Result<()> {
    // A build directory of Cargo holds gigabytes besides the programs, which change with every build.
    let skip: &[&str] = match folder.join(".fingerprint").is_dir() {
        true => &[".fingerprint", "build", "deps", "examples", "incremental"],
        false => &["target", ".git"],
    };
    payload.tree(folder, folder, skip)?;
    for entry in std::fs::read_dir(folder).at(folder)?.flatten() {
        let path = entry.path();
        if path.is_file() && path.extension() != Some(OsStr::new("d")) {
            payload.program(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_keeps_beside_programs_stays_here() {
        let folder = std::env::temp_dir().join(format!("weir-run-{}", std::process::id()));
        let file = |name: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "text").unwrap();
        };
        file("deps/object");
        file("data");
        let (mut all, mut some) = (Payload::new(), Payload::new());
        add_tree(&mut all, &folder).unwrap();
        file(".fingerprint/weir");
        add_tree(&mut some, &folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        for (payload, has_deps) in [(&all, true), (&some, false)] {
            assert!(payload.has(&folder.join("data")));
            assert_eq!(payload.has(&folder.join("deps/object")), has_deps);
        }
    }
}
