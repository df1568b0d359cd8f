//! What a machine may be asked to be.
use crate::cache::variable;
use crate::qemu::accel::Accel;
use crate::{Arch, At, Error, Kernel, Result};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much longer than the guest the host waits before it calls a guest hanging.
const GRACE: Duration = Duration::from_secs(15);

/// The variable that names the program of a guest of another architecture.
const GUEST_VARIABLE: &str = "VMTESTS_GUEST_PROGRAM";

/// How a machine is made. [`Options::new`] is right for tests.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program that becomes `/init` in the guest and QEMU's launcher on the host: this crate's binary, or one whose
    /// `main` begins with [`crate::play_another_part_if_asked`] as that does.
    pub program: PathBuf,
    /// The same program for a guest of another architecture, linked statically; `VMTESTS_GUEST_PROGRAM` names it.
    pub guest: Option<PathBuf>,
    /// QEMU; looked for when absent.
    pub qemu: Option<PathBuf>,
    /// Who executes the guest; `VMTESTS_ACCEL` or a trial decides when absent.
    pub accel: Option<Accel>,
    /// Memory in MiB; by the size of the payload when absent.
    pub memory_mib: Option<u32>,
    /// Processors. Under emulation more than one makes everything slower.
    pub cpus: u32,
    /// Go on from a saved state, and save one where there is none.
    pub is_saved: bool,
    /// How long after its deadline a program's verdict may come before the guest counts as hanging.
    pub grace: Duration,
    /// All deadlines are so many times longer.
    pub slow: u32,
}

/// The file of the running program. A build that ends meanwhile may have put the same program under this name once more;
/// the kernel then adds " (deleted)" to the name of the running one (proc_pid_exe(5)).
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
    /// One processor, saved states, and what `VMTESTS_SNAPSHOT` (0: no saved states) and `VMTESTS_SLOW` (a factor) say.
    /// `program` is the running one.
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
