//! The options of a machine.
use crate::cache::variable;
use crate::qemu::accel::Accel;
use crate::{Arch, At, Error, Kernel, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much longer than the guest the host waits before it considers the guest hanging.
const GRACE: Duration = Duration::from_secs(15);

/// The variable that names the program for guests of another architecture.
const GUEST_VARIABLE: &str = "VMTESTS_GUEST_PROGRAM";

/// How a machine is created. [`Options::new`] suits tests.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program that becomes `/init` in the guest and QEMU's launcher on the host: this crate's binary, or another whose
    /// `main` begins with [`crate::play_another_part_if_asked`] in the same way.
    pub program: PathBuf,
    /// The same program for a guest of another architecture, linked statically; from `VMTESTS_GUEST_PROGRAM`.
    pub guest: Option<PathBuf>,
    /// The QEMU program; searched if absent.
    pub qemu: Option<PathBuf>,
    /// The accelerator; if absent, `VMTESTS_ACCEL` or a trial decides.
    pub accel: Option<Accel>,
    /// Memory in MiB; if absent, derived from the size of the payload.
    pub memory_mib: Option<u32>,
    /// Number of processors. Under emulation more than one slows everything down.
    pub cpus: u32,
    /// Whether to restore a saved state, and to save one if there is none.
    pub is_saved: bool,
    /// How long after its deadline a program's result may arrive before the guest counts as hanging.
    pub grace: Duration,
    /// The factor by which all deadlines are multiplied.
    pub slow: u32,
}

/// The file of the running program. If a concurrent build replaces the file, the kernel appends " (deleted)" to its name
/// (proc_pid_exe(5)); the new file of the original name is then used.
pub(crate) fn own_program() -> Result<PathBuf> {
    std::env::current_exe().at("/proc/self/exe").map(in_place)
}

fn in_place(named: PathBuf) -> PathBuf {
    let replaced = named.to_str().and_then(|n| n.strip_suffix(" (deleted)"));
    match replaced.map(PathBuf::from) {
        Some(path) if !named.exists() => path,
        _ => named,
    }
}

impl Options {
    /// One processor and saved states, unless `VMTESTS_SNAPSHOT` (0: no saved states) and `VMTESTS_SLOW` (a factor for
    /// deadlines) change this. `program` is the running program.
    pub fn new() -> Result<Self> {
        let program = own_program()?;
        let value = |name: &str| std::env::var(name).unwrap_or_default();
        let snapshot = value("VMTESTS_SNAPSHOT");
        if !["", "0", "1"].contains(&&*snapshot) {
            let remedy = "0 boots every machine, 1 (or nothing) restores saved states";
            let input = format!("VMTESTS_SNAPSHOT={snapshot}");
            return Err(Error::new(input, "neither 0 nor 1", remedy));
        }
        let slow = match &*value("VMTESTS_SLOW") {
            "" => Some(1),
            value => value.parse().ok().filter(|n| (1..=1000).contains(n)),
        };
        let slow = slow.ok_or_else(|| {
            let input = format!("VMTESTS_SLOW={}", value("VMTESTS_SLOW"));
            let remedy = "It multiplies every deadline: 10 suits a very busy machine";
            Error::new(input, "not a number from 1 to 1000", remedy)
        })?;
        Ok(Self {
            program,
            guest: variable(GUEST_VARIABLE),
            qemu: None,
            accel: None,
            memory_mib: None,
            cpus: 1,
            is_saved: snapshot != "0",
            grace: GRACE,
            slow,
        })
    }

    /// The program that becomes `/init` of a guest with this kernel.
    pub(crate) fn guest_for(&self, kernel: &Kernel) -> Result<&Path> {
        if kernel.arch == Arch::HOST {
            return Ok(&self.program);
        }
        self.guest.as_deref().ok_or_else(|| {
            let (name, arch) = (format!("the kernel {}", kernel.name), kernel.arch.debian());
            let reason = format!("it is one of {arch}, and this program is not");
            let how = "Name this program, built for that architecture and linked statically, with";
            Error::new(name, reason, format!("{how} {GUEST_VARIABLE}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_replaced_while_it_runs_is_the_one_of_that_name() {
        let directory =
            std::env::temp_dir().join(format!("weir-own-program-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let found = |name: &str| in_place(directory.join(name));
        assert_eq!(found("program (deleted)"), directory.join("program"));
        assert_eq!(found("program"), directory.join("program"));
        std::fs::write(directory.join("odd (deleted)"), "").unwrap();
        assert_eq!(found("odd (deleted)"), directory.join("odd (deleted)"));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
