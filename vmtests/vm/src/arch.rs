//! The architecture of a kernel, and what differs with it.
use crate::qemu::accel::Accel;
use serde::{Deserialize, Serialize};

/// An architecture, as Debian names it.
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
    /// That of this program.
    pub const HOST: Self = match cfg!(target_arch = "aarch64") {
        true => Self::Arm64,
        false => Self::Amd64,
    };

    /// In names of packages and indexes of Debian.
    pub const fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The program that emulates it.
    pub const fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// The machine: one with PCI, where the devices of a guest are.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "q35",
            Self::Arm64 => "virt",
        }
    }

    pub(crate) const fn cpu(self, accel: Accel) -> &'static str {
        match (accel, self) {
            (Accel::Kvm, _) => "host",
            // No test is about a fifth level of page tables, and each emulated walk would go through it.
            (Accel::Tcg, Self::Amd64) => "max,-la57",
            // Later ones authenticate pointers, which costs an emulation more than all else.
            (Accel::Tcg, Self::Arm64) => "cortex-a57",
        }
    }

    /// The serial port that a kernel writes its messages to.
    pub(crate) const fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// The option of a kernel that has such a port.
    pub(crate) const fn console_option(self) -> &'static str {
        match self {
            Self::Amd64 => "CONFIG_SERIAL_8250_CONSOLE",
            Self::Arm64 => "CONFIG_SERIAL_AMBA_PL011_CONSOLE",
        }
    }
}
