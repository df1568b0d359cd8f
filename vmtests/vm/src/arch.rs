//! The architecture of a guest's kernel, and the settings that depend on it.
use crate::qemu::accel::Accel;
use serde::{Deserialize, Serialize};

/// A CPU architecture that kernels are tested on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// 64-bit x86.
    #[default]
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// The architecture that this program was built for.
    pub const HOST: Self = match cfg!(target_arch = "aarch64") {
        true => Self::Arm64,
        false => Self::Amd64,
    };

    /// The name in Debian package names and index paths.
    pub const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The QEMU program that emulates this architecture.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The QEMU machine type; each has a PCI bus, which the virtio devices need.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "q35",
            Self::Arm64 => "virt",
        }
    }

    pub(crate) const fn cpu(self, accel: Accel) -> &'static str {
        match (accel, self) {
            (Accel::Kvm, _) => "host",
            // No test needs five-level page tables (LA57), and a fifth level slows every emulated page walk.
            (Accel::Tcg, Self::Amd64) => "max,-la57",
            // Later CPU models have pointer authentication, which is the most expensive part of an emulation.
            (Accel::Tcg, Self::Arm64) => "cortex-a57",
        }
    }

    /// The serial device that the kernel uses as its console.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// The kernel config option of the console driver for [`Arch::console`].
    pub(crate) const fn console_option(self) -> &'static str {
        match self {
            Self::Amd64 => "CONFIG_SERIAL_8250_CONSOLE",
            Self::Arm64 => "CONFIG_SERIAL_AMBA_PL011_CONSOLE",
        }
    }
}
