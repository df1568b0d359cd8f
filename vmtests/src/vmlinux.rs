//! What QEMU boots: the ELF kernel out of a bzImage, so that the guest need not unpack it.
//!
//! Under emulation a guest takes 0.25 s (LZ4) to 0.6 s (zstd) to unpack itself; here it happens once.
use crate::compress::{self, Packing};
use crate::elf::Elf;
use crate::{Error, Result};
use std::io::Read;

/// XEN_ELFNOTE_PHYS32_ENTRY of xen/interface/elfnote.h: the entry point that QEMU uses for an ELF kernel
/// (PVH, CONFIG_PVH, from Linux 4.21).
const PHYS32_ENTRY: u32 = 18;

/// A kernel image in a form that QEMU boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// The bytes for `-kernel`.
    pub(crate) boot: Vec<u8>,
    /// The ELF kernel, where it could be had; the same as `boot` if that has a PVH note.
    pub(crate) vmlinux: Option<Vec<u8>>,
}

/// Takes a bzImage or an ELF vmlinux, packed or not.
///
/// # Errors
/// It is neither; it is an ELF kernel that QEMU cannot enter; it is damaged.
pub(crate) fn image(name: &str, file: Vec<u8>) -> Result<Image> {
    let file = match Packing::of(&file) {
        Packing::Plain => file,
        _ => compress::unpack(name, &file)?,
    };
    if let Some(elf) = Elf::new(&file) {
        return if elf.has_note("Xen", PHYS32_ENTRY) {
            Ok(Image {
                boot: file,
                vmlinux: None,
            })
        } else {
            Err(Error::new(
                name,
                "this vmlinux has no PVH note, so QEMU cannot boot it",
                "Give the bzImage (arch/x86/boot/bzImage), or build with CONFIG_PVH=y",
            ))
        };
    }
    let payload = payload(&file).ok_or_else(|| {
        Error::new(
            name,
            "neither a bzImage nor an ELF vmlinux for 64-bit x86",
            "Give the file that is called vmlinuz-VERSION in /boot",
        )
    })?;
    let Some(vmlinux) = unpack_payload(name, payload)? else {
        // A packing that we do not know: the guest unpacks it itself.
        return Ok(Image {
            boot: file,
            vmlinux: None,
        });
    };
    let enters = Elf::new(&vmlinux).is_some_and(|elf| elf.has_note("Xen", PHYS32_ENTRY));
    Ok(if enters {
        Image {
            boot: vmlinux,
            vmlinux: None,
        }
    } else {
        Image {
            boot: file,
            vmlinux: Some(vmlinux),
        }
    })
}

impl Image {
    /// The unpacked kernel, for a look into it.
    pub(crate) fn elf(&self) -> &[u8] {
        self.vmlinux.as_deref().unwrap_or(&self.boot)
    }
}

/// The compressed kernel in a bzImage: Documentation/arch/x86/boot.rst, setup_sects at 0x1f1, "HdrS" at
/// 0x202, payload_offset and payload_length at 0x248 and 0x24c (protocol 2.08).
fn payload(file: &[u8]) -> Option<&[u8]> {
    let u32_at = |at: usize| {
        let bytes = file.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    if file.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    // 0 means 4, for compatibility.
    let setup = match usize::from(*file.get(0x1f1)?) {
        0 => 4,
        n => n,
    };
    let start = (setup + 1) * 512 + u32_at(0x248)?;
    // The build appends the unpacked size, four bytes that the decompressors do not expect.
    let end = start.checked_add(u32_at(0x24c)?)?.checked_sub(4)?;
    file.get(start..end)
}

fn unpack_payload(name: &str, payload: &[u8]) -> Result<Option<Vec<u8>>> {
    match Packing::of(payload) {
        Packing::Plain => Ok(None),
        _ => compress::unpack(name, payload).map(Some),
    }
}

/// The configuration that CONFIG_IKCONFIG puts into a kernel, as `scripts/extract-ikconfig` finds it.
pub(crate) fn embedded_config(vmlinux: &[u8]) -> Option<String> {
    const START: &[u8] = b"IKCFG_ST";
    let at = vmlinux.windows(START.len()).position(|w| w == START)?;
    let packed = vmlinux.get(at + START.len()..)?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(packed)
        .take(16 << 20)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// `uname -r`: the third word of `linux_banner` (init/version.c), "Linux version RELEASE (...".
pub(crate) fn release(vmlinux: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let starts = vmlinux.windows(BANNER.len()).enumerate();
    starts.filter(|(_, w)| *w == BANNER).find_map(|(at, _)| {
        let word = vmlinux
            .get(at + BANNER.len()..)?
            .split(|b| *b == b' ')
            .next()?;
        // The format string of the banner, "%s", is in the image as well.
        let release = std::str::from_utf8(word).ok()?;
        let plausible = release.starts_with(|c: char| c.is_ascii_digit()) && release.len() < 65;
        plausible.then(|| release.to_owned())
    })
}
