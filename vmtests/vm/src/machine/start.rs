//! Starts a machine: decides between restoring and booting.
use super::maker::{Booted, MONITOR, Maker};
use super::{Machine, Options};
use crate::initramfs::Initramfs;
use crate::memory::BootMemory;
use crate::payload::Payload;
use crate::qemu::accel::{Accel, TRIAL, choose};
use crate::qemu::line::Memory;
use crate::qemu::program;
use crate::state;
use crate::{Arch, At, Cache, Error, Kernel, Result};
use std::time::Duration;

/// The deadline of a boot. Under emulation it takes 2 s, much more on a busy host.
const BOOT: Duration = Duration::from_secs(60);
/// The disk space in MiB that must remain free after a state is saved.
const SPARE_MIB: u64 = 256;

/// How a machine was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Booted: its state was not saved, for this reason.
    Cold(String),
    /// Restored from a saved state.
    Restored,
    /// Restored from a state that was just saved.
    Saved,
    /// Restored from a state that was just saved, because the existing one was unusable for this reason.
    Renewed(String),
}

impl Machine {
    /// Starts a machine with this kernel and these files.
    ///
    /// The first machine with a given content is booted and saved, under a lock; all others are restored from that state. A
    /// saved state that is damaged, or whose guest does not answer, is deleted and made again. The error of a failed boot
    /// includes the end of the console.
    pub fn start(
        cache: &Cache,
        kernel: &Kernel,
        payload: &Payload,
        options: &Options,
    ) -> Result<Self> {
        let qemu = program::find(options.qemu.as_deref(), cache, kernel.arch)?;
        let trial = || {
            let plain = Initramfs::new(kernel, &options.program, &Payload::new())?;
            let maker = Maker::new(cache, kernel, &plain, options, qemu.clone(), Accel::Kvm)?;
            maker.cold(Memory::Own, TRIAL, cache.scratch()?).map(drop)
        };
        let accel = match options.accel {
            Some(accel) => accel,
            None if kernel.arch != Arch::HOST => Accel::Tcg,
            None => choose(cache, trial)?,
        };
        let guest = options.guest_for(kernel)?;
        let initramfs = Initramfs::new(kernel, guest, payload)?;
        let maker = Maker::new(cache, kernel, &initramfs, options, qemu, accel)?;
        if !options.is_saved {
            return maker.cold_only("saved states are switched off");
        }
        maker.restored_or_saved()
    }
}

/// Decides when to boot, when to restore, and what to do with an unusable state.
impl Maker<'_> {
    fn restored_or_saved(&self) -> Result<Machine> {
        let key = self.key()?;
        let first = match self.restore(&key) {
            Ok(Some(machine)) => return Ok(machine),
            other => other.err(),
        };
        // A lock file per key would accumulate files; runs seldom boot the same kernel with different files at the same time.
        let _lock = self.cache.lock(&format!("state-{}", self.kernel.name))?;
        // Another run may have made the state while this one waited for the lock.
        let reason = match self.restore(&key) {
            Ok(Some(machine)) => return Ok(machine),
            Ok(None) => first,
            Err(reason) => Some(reason),
        };
        if let Some(reason) = &reason {
            let what = format!("its saved state is of no use ({reason}): it is made anew");
            crate::program::note(&format!("kernel {}: {what}", self.kernel.name));
            state::remove(self.cache, &key);
        }
        if let Some(why) = self.lack_of_room() {
            let name = &self.kernel.name;
            crate::program::note(&format!("kernel {name}: {why}, so its state is not saved"));
            return self.cold_only(&why);
        }
        self.save(&key)?;
        match self.restore(&key) {
            Ok(Some(mut machine)) => {
                machine.origin = reason.map_or(Origin::Saved, Origin::Renewed);
                Ok(machine)
            }
            Ok(None) => self.cold_only("the state that was saved is gone"),
            Err(reason) => {
                state::remove(self.cache, &key);
                let why = format!("the state that was just saved does not work: {reason}");
                self.cold_only(&why)
            }
        }
    }

    /// Restores a machine. `None`: there is no saved state.
    fn restore(&self, key: &str) -> std::result::Result<Option<Machine>, String> {
        let Some(saved) = state::open(self.cache, key)? else {
            return Ok(None);
        };
        let booted = self.copy(saved).map_err(|e| e.reason)?;
        Ok(Some(self.machine(booted, Origin::Restored)))
    }

    /// Boots a machine, saves its state and ends it.
    fn save(&self, key: &str) -> Result<()> {
        let scratch = self.cache.scratch()?;
        let memory = BootMemory::new().at("memory for the machine")?;
        let boot = BOOT * self.options.slow;
        let mut booted = self.cold(Memory::Saved(&memory.path()), boot, scratch)?;
        let name = || format!("kernel {}", self.kernel.name);
        let parked = booted.session.park(boot);
        parked.map_err(|lost| Error::new(name(), lost, "Try again"))?;
        let devices = booted.qmp.save(MONITOR)?;
        booted.qemu.kill();
        let (scratch, qemu) = (&booted.scratch, &booted.qmp.version);
        state::publish(self.cache, scratch, key, &memory, &devices, qemu)
    }

    fn cold_only(&self, why: &str) -> Result<Machine> {
        let booted = self.cold(Memory::Own, BOOT * self.options.slow, self.cache.scratch()?)?;
        Ok(self.machine(booted, Origin::Cold(why.to_owned())))
    }

    /// The reason if the disk has too little space for a state, which would make booting for it pointless. `None` also if
    /// the space cannot be determined.
    fn lack_of_room(&self) -> Option<String> {
        let states = self.cache.states();
        let folder = states.ancestors().find(|f| f.exists())?;
        let stat = nix::sys::statvfs::statvfs(folder).ok()?;
        let free = (stat.blocks_available() * stat.fragment_size()) >> 20;
        let needed = u64::from(self.hardware.memory_mib) + SPARE_MIB;
        let states = states.display();
        let text = || format!("{states} has {free} MiB free, a state may need {needed}");
        (free < needed).then(text)
    }

    fn machine(&self, booted: Booted, origin: Origin) -> Machine {
        Machine {
            guest: booted,
            kernel: self.kernel.name.clone(),
            origin,
            accel: self.hardware.accel,
            grace: self.options.grace,
            slow: self.options.slow,
        }
    }
}
