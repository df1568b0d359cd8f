//! Creates machines: boots one, or restores a saved one.
use super::{CONSOLE, Options, STDERR, attachment, explain};
use crate::cache::Scratch;
use crate::initramfs::Initramfs;
use crate::kernel_error::first_kernel_error;
use crate::payload::fingerprint;
use crate::program::renamed;
use crate::proto::Hello;
use crate::qemu::accel::Accel;
use crate::qemu::child::Qemu;
use crate::qemu::line::{Boot, Hardware, Memory, fixed, line, parameters};
use crate::qemu::qmp::Qmp;
use crate::session::{Lost, Session};
use crate::state::{self, Saved};
use crate::{At, Cache, Error, Kernel, Result};
use std::path::PathBuf;
use std::time::Duration;

/// The deadline of a restored machine's first answer; it usually comes within 0.2 s.
const RESTORE: Duration = Duration::from_secs(5);
/// The deadline of QEMU's own answers.
pub(super) const MONITOR: Duration = Duration::from_secs(20);
/// Memory in MiB for the kernel and the tests; memory for the payload is added.
const MEMORY_MIB: u64 = 512;

/// Everything that determines a machine.
pub(super) struct Maker<'a> {
    pub(super) cache: &'a Cache,
    pub(super) kernel: &'a Kernel,
    pub(super) initramfs: &'a Initramfs<'a>,
    pub(super) options: &'a Options,
    pub(super) qemu: PathBuf,
    pub(super) hardware: Hardware,
}

/// A machine whose agent has answered.
#[derive(Debug)]
pub(super) struct Booted {
    pub(super) qemu: Qemu,
    pub(super) qmp: Qmp,
    pub(super) session: Session,
    pub(super) hello: Hello,
    pub(super) scratch: Scratch,
}

impl Booted {
    fn of(qemu: Qemu, scratch: Scratch, attempt: Result<(Qmp, Session, Hello)>) -> Result<Self> {
        let (qmp, session, hello) = attempt.map_err(|e| explain(e, &scratch))?;
        Ok(Self {
            qemu,
            qmp,
            session,
            hello,
            scratch,
        })
    }
}

impl<'a> Maker<'a> {
    pub(super) fn new(
        cache: &'a Cache,
        kernel: &'a Kernel,
        initramfs: &'a Initramfs<'a>,
        options: &'a Options,
        qemu: PathBuf,
        accel: Accel,
    ) -> Result<Self> {
        // While unpacking, the kernel holds both the archive and its content, and the root file system may use only half of
        // the memory.
        let memory = MEMORY_MIB + (initramfs.size()? >> 20) * 5 / 2;
        let memory = u32::try_from(memory.next_multiple_of(256)).unwrap_or(u32::MAX);
        Ok(Self {
            cache,
            kernel,
            initramfs,
            options,
            qemu,
            hardware: Hardware {
                arch: kernel.arch,
                accel,
                memory_mib: options.memory_mib.unwrap_or(memory),
                cpus: options.cpus,
            },
        })
    }

    /// The key of the saved state for such a machine.
    pub(super) fn key(&self) -> Result<String> {
        let arguments = format!("{:?} {:?}", self.hardware, fixed(&self.hardware));
        Ok(state::key(&[
            &fingerprint(&self.qemu)?,
            &arguments,
            &parameters(self.kernel.arch, &self.kernel.parameters),
            &fingerprint(&self.kernel.image)?,
            &self.initramfs.fingerprint()?,
        ]))
    }

    /// Restores a saved machine.
    pub(super) fn copy(&self, saved: Saved) -> Result<Booted> {
        let scratch = self.cache.scratch()?;
        let qemu = self.launch(Memory::CopyOf(&saved.memory), &scratch, None)?;
        let attempt = || {
            let mut qmp = Qmp::greet(&qemu.qmp, MONITOR)?;
            if qmp.version != saved.qemu {
                let reason = format!("QEMU {} saved it, this is {}", saved.qemu, qmp.version);
                return Err(Error::new("state", reason, ""));
            }
            qmp.restore(saved.devices)?;
            let mut session = Session::new(self.port(&qemu)?);
            let hello = session.sync(RESTORE * self.options.slow);
            let hello = hello.map_err(|lost| Error::new("state", lost, ""))?;
            Ok((qmp, session, hello))
        };
        let attempt = attempt();
        Booted::of(qemu, scratch, attempt)
    }

    /// Boots a machine, and fails if its kernel reported an error meanwhile.
    pub(super) fn cold(
        &self,
        memory: Memory<'_>,
        deadline: Duration,
        scratch: Scratch,
    ) -> Result<Booted> {
        let initramfs = scratch.path().join("initramfs");
        self.initramfs.write(&initramfs).map_err(|e| Error {
            remedy: renamed("Is there room in the cache? `weir-vm clean` makes some"),
            ..e
        })?;
        let boot = Boot {
            image: &self.kernel.image,
            initramfs: &initramfs,
            parameters: &self.kernel.parameters,
        };
        let qemu = self.launch(memory, &scratch, Some(boot))?;
        let attempt = || {
            let qmp = Qmp::greet(&qemu.qmp, MONITOR)?;
            let mut session = Session::new(self.port(&qemu)?);
            let name = || format!("kernel {}", self.kernel.name);
            let lost = |lost: Lost| {
                let needs = "It needs virtio_pci, virtio_console, devtmpfs and an initramfs (CONFIG_VIRTIO_PCI, \
                     CONFIG_VIRTIO_CONSOLE, CONFIG_DEVTMPFS, CONFIG_BLK_DEV_INITRD), and memory for its files";
                Error::new(name(), format!("it does not boot: {lost}"), needs)
            };
            let hello = session.sync(deadline).map_err(lost)?;
            let log = session.dmesg(deadline).map_err(lost)?;
            if let Some(found) = first_kernel_error(&log) {
                let reason = format!("{} while it booted: {}", found.kind, found.line);
                let remedy = "A kernel that complains before any test is not one to test on";
                let remedy = format!("{remedy}{}", attachment("dmesg", &log));
                return Err(Error::new(name(), reason, remedy));
            }
            Ok((qmp, session, hello))
        };
        let attempt = attempt();
        let _ = std::fs::remove_file(&initramfs);
        Booted::of(qemu, scratch, attempt)
    }

    fn launch(
        &self,
        memory: Memory<'_>,
        scratch: &Scratch,
        boot: Option<Boot<'_>>,
    ) -> Result<Qemu> {
        let console = scratch.path().join(CONSOLE);
        let line = line(&self.hardware, memory, &console, boot);
        let stderr = scratch.path().join(STDERR);
        Qemu::start(&self.options.program, &self.qemu, &line, &stderr)
    }

    fn port(&self, qemu: &Qemu) -> Result<std::os::unix::net::UnixStream> {
        qemu.ctl.try_clone().at("the guest's port")
    }
}
