//! How a machine comes to be.
use super::{CONSOLE, Machine, Options, STDERR, attachment};
use crate::cache::Scratch;
use crate::initramfs::Initramfs;
use crate::payload::{Payload, fingerprint};
use crate::proto::Hello;
use crate::qemu::accel::{Accel, TRIAL, choose};
use crate::qemu::child::{Qemu, complaint};
use crate::qemu::line::{Boot, Hardware, Memory, fixed, line, parameters};
use crate::qemu::program;
use crate::qemu::qmp::Qmp;
use crate::session::{Lost, Session};
use crate::state::{self, Saved};
use crate::trouble::trouble;
use crate::{Cache, Error, Kernel, Result};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A boot under emulation takes 2 s; much more on a machine with other work.
const BOOT: Duration = Duration::from_secs(60);
/// A copy answers in 0.2 s.
const RESTORE: Duration = Duration::from_secs(5);
/// For QEMU's own answers.
const MONITOR: Duration = Duration::from_secs(20);
/// Memory for the kernel and for what tests need; the payload comes on top.
const MEMORY_MIB: u64 = 512;
/// What must stay free on disk beside a state.
const SPARE_MIB: u64 = 256;

/// Where a machine comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Booted; not to be saved, or it could not be: the reason.
    Cold(String),
    /// From a saved state.
    Restored,
    /// From a state that was saved just now.
    Saved,
    /// From a state that was saved just now, because the one that was there was no good: the reason.
    Renewed(String),
}

impl Machine {
    /// A fresh machine with that kernel and these files.
    ///
    /// The first of its kind is booted and saved, under a lock; all others are copies of it. A saved state that is
    /// damaged, or that does not answer, is deleted and made anew.
    ///
    /// # Errors
    /// No QEMU; a kernel that does not boot, with the end of its console; a disk that is full.
    pub fn start(
        cache: &Cache,
        kernel: &Kernel,
        payload: &Payload,
        options: &Options,
    ) -> Result<Self> {
        let qemu = program::find(options.qemu.as_deref(), cache)?;
        let trial = || {
            let plain = Initramfs::new(kernel, &options.program, &Payload::new())?;
            let maker = Maker::new(cache, kernel, &plain, options, qemu.clone(), Accel::Kvm)?;
            maker.cold(Memory::Own, TRIAL, cache.scratch()?).map(drop)
        };
        let accel = match options.accel {
            Some(accel) => accel,
            None => choose(cache, trial)?,
        };
        let initramfs = Initramfs::new(kernel, &options.program, payload)?;
        let maker = Maker::new(cache, kernel, &initramfs, options, qemu, accel)?;
        if !options.is_saved {
            return maker.cold_only("saved states are switched off");
        }
        maker.restored_or_saved()
    }
}

/// All that goes into a machine.
struct Maker<'a> {
    cache: &'a Cache,
    kernel: &'a Kernel,
    initramfs: &'a Initramfs<'a>,
    options: &'a Options,
    qemu: PathBuf,
    hardware: Hardware,
}

/// A machine whose agent has answered.
struct Booted {
    qemu: Qemu,
    qmp: Qmp,
    session: Session,
    hello: Hello,
    scratch: Scratch,
    started: Instant,
}

impl<'a> Maker<'a> {
    fn new(
        cache: &'a Cache,
        kernel: &'a Kernel,
        initramfs: &'a Initramfs<'a>,
        options: &'a Options,
        qemu: PathBuf,
        accel: Accel,
    ) -> Result<Self> {
        // While it unpacks, the kernel holds the archive and its content; and its root file system may take half
        // of the memory.
        let memory = MEMORY_MIB + (initramfs.size()? >> 20) * 5 / 2;
        let memory = u32::try_from(memory.next_multiple_of(256)).unwrap_or(u32::MAX);
        Ok(Self {
            cache,
            kernel,
            initramfs,
            options,
            qemu,
            hardware: Hardware {
                accel,
                memory_mib: options.memory_mib.unwrap_or(memory),
                cpus: options.cpus,
            },
        })
    }

    fn key(&self) -> Result<String> {
        let arguments = format!("{:?} {:?}", self.hardware, fixed(&self.hardware));
        Ok(state::key(&[
            &fingerprint(&self.qemu)?,
            &arguments,
            &parameters(&self.kernel.parameters),
            &fingerprint(&self.kernel.image)?,
            &self.initramfs.fingerprint()?,
        ]))
    }

    fn restored_or_saved(&self) -> Result<Machine> {
        let key = self.key()?;
        let first = match self.restore(&key) {
            Ok(Some(booted)) => return Ok(self.machine(booted, Origin::Restored)),
            Ok(None) => None,
            Err(reason) => Some(reason),
        };
        let _lock = self.cache.lock(&format!("state-{key}"))?;
        // Another run may have made it anew while we waited.
        let reason = match self.restore(&key) {
            Ok(Some(booted)) => return Ok(self.machine(booted, Origin::Restored)),
            Ok(None) => first,
            Err(reason) => Some(reason),
        };
        if let Some(reason) = &reason {
            crate::progress::note(&format!(
                "kernel {}: its saved state is of no use ({reason}): it is made anew",
                self.kernel.name
            ));
            state::remove(self.cache, &key);
        }
        if let Some(why) = self.lack_of_room() {
            crate::progress::note(&format!(
                "kernel {}: {why}, so its state is not saved",
                self.kernel.name
            ));
            return self.cold_only(&why);
        }
        self.save(&key)?;
        match self.restore(&key) {
            Ok(Some(booted)) => {
                let origin = reason.map_or(Origin::Saved, Origin::Renewed);
                Ok(self.machine(booted, origin))
            }
            Ok(None) => self.cold_only("the state that was saved is gone"),
            Err(reason) => {
                state::remove(self.cache, &key);
                self.cold_only(&format!(
                    "the state that was just saved does not work: {reason}"
                ))
            }
        }
    }

    /// A copy of the saved machine. None: there is no saved one.
    fn restore(&self, key: &str) -> std::result::Result<Option<Booted>, String> {
        let Some(saved) = state::open(self.cache, key)? else {
            return Ok(None);
        };
        self.copy(saved).map(Some).map_err(|e| e.reason)
    }

    fn copy(&self, saved: Saved) -> Result<Booted> {
        let scratch = self.cache.scratch()?;
        let started = Instant::now();
        let qemu = self.launch(Memory::CopyOf(&saved.memory), &scratch, None)?;
        let attempt = || {
            let mut qmp = Qmp::greet(&qemu.qmp, MONITOR)?;
            if qmp.version != saved.qemu {
                let reason = format!("QEMU {} saved it, this is {}", saved.qemu, qmp.version);
                return Err(Error::new("state", reason, ""));
            }
            qmp.restore(saved.devices)?;
            let mut session = Session::new(self.port(&qemu)?);
            let hello = session
                .sync(RESTORE * self.options.slow)
                .map_err(|lost| Error::new("state", lost, ""))?;
            Ok((qmp, session, hello))
        };
        let (qmp, session, hello) = attempt().map_err(|e| self.explain(e, &scratch))?;
        Ok(Booted {
            qemu,
            qmp,
            session,
            hello,
            scratch,
            started,
        })
    }

    /// Boots one and saves it. It does not go on from there: its memory is the file now.
    fn save(&self, key: &str) -> Result<()> {
        let scratch = self.cache.scratch()?;
        let memory = state::new_memory(&scratch)?;
        let boot = BOOT * self.options.slow;
        let mut booted = self.cold(Memory::Saved(&memory), boot, scratch)?;
        let healthy =
            |lost: Lost| Error::new(format!("kernel {}", self.kernel.name), lost, "Try again");
        booted.session.park(boot).map_err(healthy)?;
        let devices = booted.qmp.save(MONITOR)?;
        booted.qemu.kill();
        state::publish(
            self.cache,
            &booted.scratch,
            key,
            &devices,
            &booted.qmp.version,
        )
    }

    fn cold_only(&self, why: &str) -> Result<Machine> {
        let booted = self.cold(Memory::Own, BOOT * self.options.slow, self.cache.scratch()?)?;
        Ok(self.machine(booted, Origin::Cold(why.to_owned())))
    }

    /// Boots one, and fails if its kernel complained on the way.
    fn cold(&self, memory: Memory<'_>, deadline: Duration, scratch: Scratch) -> Result<Booted> {
        let initramfs = scratch.path().join("initramfs");
        self.initramfs.write(&initramfs)?;
        let started = Instant::now();
        let boot = Boot {
            image: &self.kernel.image,
            initramfs: &initramfs,
            parameters: &self.kernel.parameters,
        };
        let qemu = self.launch(memory, &scratch, Some(boot))?;
        let attempt = || {
            let qmp = Qmp::greet(&qemu.qmp, MONITOR)?;
            let mut session = Session::new(self.port(&qemu)?);
            let lost = |lost: Lost| {
                Error::new(
                    format!("kernel {}", self.kernel.name),
                    format!("it does not boot: {lost}"),
                    "It needs virtio_pci, virtio_console, devtmpfs and an initramfs (CONFIG_VIRTIO_PCI, \
                     CONFIG_VIRTIO_CONSOLE, CONFIG_DEVTMPFS, CONFIG_BLK_DEV_INITRD), and console=ttyS0 to tell why",
                )
            };
            let hello = session.sync(deadline).map_err(lost)?;
            let log = session.dmesg(deadline).map_err(lost)?;
            if let Some(found) = trouble(&log) {
                return Err(Error::new(
                    format!("kernel {}", self.kernel.name),
                    format!(
                        "{} while it booted: {}{}",
                        found.kind,
                        found.line,
                        attachment("dmesg", &log)
                    ),
                    "A kernel that complains before any test is not one to test on",
                ));
            }
            Ok((qmp, session, hello))
        };
        let (qmp, session, hello) = attempt().map_err(|e| self.explain(e, &scratch))?;
        let _ = std::fs::remove_file(&initramfs);
        Ok(Booted {
            qemu,
            qmp,
            session,
            hello,
            scratch,
            started,
        })
    }

    fn launch(
        &self,
        memory: Memory<'_>,
        scratch: &Scratch,
        boot: Option<Boot<'_>>,
    ) -> Result<Qemu> {
        let console = scratch.path().join(CONSOLE);
        let line = line(&self.hardware, memory, &console, boot);
        Qemu::start(
            &self.options.program,
            &self.qemu,
            &line,
            &scratch.path().join(STDERR),
        )
    }

    fn port(&self, qemu: &Qemu) -> Result<std::os::unix::net::UnixStream> {
        qemu.ctl
            .try_clone()
            .map_err(|e| Error::io("the guest's port", &e))
    }

    /// Adds what the console and QEMU said.
    fn explain(&self, mut e: Error, scratch: &Scratch) -> Error {
        let read = |name: &str| {
            let bytes = std::fs::read(scratch.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let qemu = complaint(&scratch.path().join(STDERR));
        if !qemu.is_empty() {
            e.reason = format!("{}. QEMU says: {qemu}", e.reason);
        }
        let console = read(CONSOLE);
        if !console.trim().is_empty() {
            e.reason += &attachment("console", &console);
        }
        e
    }

    /// Is there too little room on disk for a state? QEMU would die in the middle of the boot.
    fn lack_of_room(&self) -> Option<String> {
        let free = free_mib(&self.cache.states())?;
        let needed = u64::from(self.hardware.memory_mib) + SPARE_MIB;
        (free < needed).then(|| {
            format!(
                "{} has {free} MiB free, a state may need {needed}",
                self.cache.states().display()
            )
        })
    }

    fn machine(&self, booted: Booted, origin: Origin) -> Machine {
        Machine {
            ready: booted.started.elapsed(),
            qemu: booted.qemu,
            session: booted.session,
            scratch: booted.scratch,
            kernel: self.kernel.name.clone(),
            hello: booted.hello,
            origin,
            started: booted.started,
            accel: self.hardware.accel,
            grace: self.options.grace,
            slow: self.options.slow,
        }
    }
}

/// None: it cannot be told.
fn free_mib(folder: &Path) -> Option<u64> {
    let folder = folder.ancestors().find(|f| f.exists())?;
    let stat = nix::sys::statvfs::statvfs(folder).ok()?;
    Some((stat.blocks_available() * stat.fragment_size()) >> 20)
}
