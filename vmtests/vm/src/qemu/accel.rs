//! The accelerator: KVM (the processor executes the guest) or TCG (QEMU emulates it).
//!
//! An accessible `/dev/kvm` does not suffice: on some machines every Linux guest hangs under KVM, at full load. So KVM is
//! used only after a kernel has booted under it; the result is kept until the host boots again.
use crate::{Cache, Error, Result, replace};
use std::fs::{self, File};
use std::time::Duration;

/// The deadline of the trial under KVM until the agent answers. A working KVM needs less than one second.
pub(crate) const TRIAL: Duration = Duration::from_secs(10);
/// The variable that overrides the choice.
const VARIABLE: &str = "VMTESTS_ACCEL";
const KVM: &str = "/dev/kvm";

/// An accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// QEMU translates the instructions.
    Tcg,
    /// The processor executes them.
    Kvm,
}

impl Accel {
    /// The name on QEMU's command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcg => "tcg",
            Self::Kvm => "kvm",
        }
    }
}

/// Chooses the accelerator: the one named by `VMTESTS_ACCEL`; TCG if `/dev/kvm` cannot be opened; the result of an earlier
/// trial; else KVM if `trial` succeeds.
pub(crate) fn choose(cache: &Cache, trial: impl FnOnce() -> Result<()>) -> Result<Accel> {
    match &*std::env::var(VARIABLE).unwrap_or_default() {
        "tcg" => return Ok(Accel::Tcg),
        "kvm" => return Ok(Accel::Kvm),
        "" | "auto" => {}
        other => {
            let (input, remedy) = (format!("{VARIABLE}={other}"), "Set it to auto, kvm or tcg");
            return Err(Error::new(input, "no such accelerator", remedy));
        }
    }
    if File::options().read(true).write(true).open(KVM).is_err() {
        return Ok(Accel::Tcg);
    }
    verdict(cache, trial)
}

fn verdict(cache: &Cache, trial: impl FnOnce() -> Result<()>) -> Result<Accel> {
    let file = cache.place(format!("state/kvm-{}", boot_id()))?;
    if let Some(accel) = read(&file) {
        return Ok(accel);
    }
    let _lock = cache.lock("kvm")?;
    // Another run may have made the trial while this one waited for the lock.
    if let Some(accel) = read(&file) {
        return Ok(accel);
    }
    let (accel, text) = match trial() {
        Ok(()) => (Accel::Kvm, "kvm\n".to_owned()),
        Err(e) => (Accel::Tcg, format!("tcg\n{e}\n")),
    };
    if accel == Accel::Tcg {
        let what =
            "KVM does not boot a kernel here, so QEMU emulates until this machine boots again";
        crate::program::note(&format!("{what} ({})", file.display()));
    }
    replace(&file, &text)?;
    Ok(accel)
}

fn read(file: &std::path::Path) -> Option<Accel> {
    match fs::read_to_string(file).ok()?.lines().next()? {
        "kvm" => Some(Accel::Kvm),
        "tcg" => Some(Accel::Tcg),
        _ => None,
    }
}

/// An identifier of the host's current boot.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_made_once() {
        let root = std::env::temp_dir().join(format!("weir-vm-accel-{}", std::process::id()));
        let cache = Cache::open(Some(root.clone())).unwrap();
        let hangs = || Err(Error::new("kernel", "no answer", ""));
        assert_eq!(verdict(&cache, hangs), Ok(Accel::Tcg));
        assert_eq!(verdict(&cache, || panic!("asked again")), Ok(Accel::Tcg));
        let file = root.join(format!("state/kvm-{}", boot_id()));
        fs::write(&file, "nonsense").unwrap();
        assert_eq!(verdict(&cache, || Ok(())), Ok(Accel::Kvm));
        assert_eq!(verdict(&cache, || panic!("asked again")), Ok(Accel::Kvm));
        fs::remove_dir_all(root).unwrap();
    }
}
