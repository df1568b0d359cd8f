//! The kernel image for QEMU: the ELF kernel from a bzImage, so that the guest need not unpack it.
//!
//! Under emulation a guest takes 0.25 s (LZ4) to 0.6 s (zstd) to unpack itself; the host does it once.
use crate::compress;
use crate::elf::{has_note, header};
use crate::{Arch, Error, Result};
use std::io::Read;

mod arm;

/// XEN_ELFNOTE_PHYS32_ENTRY of xen/interface/elfnote.h: the entry point that QEMU uses for an ELF kernel
/// (PVH, CONFIG_PVH, from Linux 4.21).
const PHYS32_ENTRY: u32 = 18;

/// The remedy for a file that is not a kernel.
const VMLINUZ: &str = "Give the file that is called vmlinuz-VERSION in /boot";

/// A kernel image in a form that QEMU boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) arch: Arch,
    /// The bytes of the file for `-kernel`.
    pub(crate) boot: Vec<u8>,
    /// The ELF kernel if `boot` is a bzImage that could be unpacked.
    pub(crate) vmlinux: Option<Vec<u8>>,
}

/// Accepts a bzImage or an ELF vmlinux, compressed or not; for arm64 an `Image`, compressed or in an EFI zboot program.
pub(crate) fn image(name: &str, file: Vec<u8>) -> Result<Image> {
    let file = compress::unpack(name, &file)?;
    let image = |arch, boot, vmlinux| Image {
        arch,
        boot,
        vmlinux,
    };
    if let Some(boot) = arm::image(name, &file)? {
        return Ok(image(Arch::Arm64, boot, None));
    }
    let arch = Arch::Amd64;
    let enters = |vmlinux: &[u8]| has_note(vmlinux, "Xen", PHYS32_ENTRY);
    if header(&*file).is_some() {
        if enters(&file) {
            return Ok(image(arch, file, None));
        }
        let reason = "this vmlinux has no PVH note, so QEMU cannot boot it";
        let remedy = "Give the bzImage (arch/x86/boot/bzImage), or build with CONFIG_PVH=y";
        return Err(Error::new(name, reason, remedy));
    }
    let payload = payload(&file).ok_or_else(|| {
        let reason =
            "neither a bzImage nor an ELF vmlinux for 64-bit x86, nor an Image for 64-bit ARM";
        Error::new(name, reason, VMLINUZ)
    })?;
    // A payload in an unknown compression is left to the guest.
    let vmlinux = compress::unpack(name, payload)?;
    Ok(match vmlinux == payload {
        false if enters(&vmlinux) => image(arch, vmlinux, None),
        false => image(arch, file, Some(vmlinux)),
        true => image(arch, file, None),
    })
}

impl Image {
    /// The ELF kernel for inspection; `boot` if there is none.
    pub(crate) fn elf(&self) -> &[u8] {
        self.vmlinux.as_deref().unwrap_or(&self.boot)
    }
}

fn u32_at(file: &[u8], at: usize) -> Option<usize> {
    let bytes = file.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*bytes)).ok()
}

/// The compressed kernel in a bzImage, by Documentation/arch/x86/boot.rst: setup_sects at 0x1f1, "HdrS" at 0x202,
/// payload_offset and payload_length at 0x248 and 0x24c (protocol 2.08).
fn payload(file: &[u8]) -> Option<&[u8]> {
    if file.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    // For compatibility, 0 means 4.
    let setup = Some(*file.get(0x1f1)?).filter(|n| *n > 0).unwrap_or(4);
    let start = (usize::from(setup) + 1) * 512 + u32_at(file, 0x248)?;
    // The build appends the unpacked size, four bytes that the decompressors do not expect.
    let end = start.checked_add(u32_at(file, 0x24c)?)?.checked_sub(4)?;
    file.get(start..end)
}

/// The configuration that CONFIG_IKCONFIG embeds in a kernel, as `scripts/extract-ikconfig` finds it.
pub(crate) fn embedded_config(vmlinux: &[u8]) -> Option<String> {
    const START: &[u8] = b"IKCFG_ST";
    let at = vmlinux.windows(START.len()).position(|w| w == START)?;
    let packed = vmlinux.get(at + START.len()..)?;
    let mut text = String::new();
    let mut unpacked = flate2::read::GzDecoder::new(packed).take(16 << 20);
    unpacked.read_to_string(&mut text).ok()?;
    Some(text)
}

/// `uname -r`: the third word of `linux_banner` (init/version.c), "Linux version RELEASE (...".
pub(crate) fn release(vmlinux: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let starts = vmlinux.windows(BANNER.len()).enumerate();
    starts.filter(|(_, w)| *w == BANNER).find_map(|(at, _)| {
        let rest = vmlinux.get(at + BANNER.len()..)?;
        let word = rest.split(|b| *b == b' ').next()?;
        // The image also contains the banner's format string, with "%s".
        let release = std::str::from_utf8(word).ok()?;
        let plausible = release.starts_with(|c: char| c.is_ascii_digit()) && release.len() < 65;
        plausible.then(|| release.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A minimal bzImage: one sector of setup, then the payload and its size.
    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 1024];
        file[0x1f1] = 1;
        file[0x202..0x206].copy_from_slice(b"HdrS");
        file[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = payload.len() as u32 + 4;
        file[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        file.extend([0xcc; 16]);
        file.extend(payload);
        file.extend([1, 2, 3, 4]);
        file.extend([0xcc; 100]);
        file
    }

    /// An ELF header and one program header, PT_NOTE with the note of that owner.
    fn elf(owner: &[u8; 4]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        file[0x20] = 64;
        file[0x36] = 56;
        file[0x38] = 1;
        file[64] = 4;
        file[64 + 0x08] = 120;
        file[64 + 0x20] = 20;
        for word in [4_u32, 4, PHYS32_ENTRY] {
            file.extend(word.to_le_bytes());
        }
        file.extend(owner);
        file.extend([0, 0, 0, 1]);
        file.extend(b"Linux version %s\0Linux version 6.9.1-mine (x@y)");
        file
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn the_kernel_comes_out_of_every_packing() {
        let kernel = elf(b"Xen\0");
        let block = lz4_flex::block::compress(&kernel);
        let mut lz4 = 0x184c_2102_u32.to_le_bytes().to_vec();
        lz4.extend((block.len() as u32).to_le_bytes());
        lz4.extend(block);
        let zstd = ruzstd::encoding::compress_to_vec(
            kernel.as_slice(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        for packed in [gzip(&kernel), lz4, zstd] {
            let image = image("x", bzimage(&packed)).unwrap();
            assert_eq!(image.boot, kernel);
            assert_eq!(release(image.elf()).as_deref(), Some("6.9.1-mine"));
        }
    }

    #[test]
    fn what_qemu_cannot_enter_stays_a_bzimage() {
        let kernel = elf(b"GNU\0");
        let file = bzimage(&gzip(&kernel));
        let image = image("x", file.clone()).unwrap();
        assert_eq!(image.boot, file);
        assert_eq!(image.vmlinux, Some(kernel));
        // An unsupported compression, such as bzip2.
        let file = bzimage(b"BZh91AY");
        assert_eq!(super::image("x", file.clone()).unwrap().boot, file);
    }

    #[test]
    fn a_vmlinux_as_it_is_and_packed() {
        let kernel = elf(b"Xen\0");
        assert_eq!(image("x", kernel.clone()).unwrap().boot, kernel);
        assert_eq!(image("x", gzip(&kernel)).unwrap().boot, kernel);
        let e = image("x", elf(b"GNU\0")).unwrap_err().to_string();
        assert!(e.contains("no PVH note") && e.contains("CONFIG_PVH"), "{e}");
    }

    #[test]
    fn a_damaged_payload_is_an_error() {
        let mut packed = gzip(&elf(b"Xen\0"));
        let middle = packed.len() / 2;
        packed.truncate(middle);
        let e = image("x", bzimage(&packed)).unwrap_err().to_string();
        assert!(e.contains("cannot be unpacked"), "{e}");
        let mut short = bzimage(&packed);
        short.truncate(1030);
        assert!(image("x", short).is_err());
    }

    #[test]
    fn the_configuration_inside() {
        let mut kernel = b"xxIKCFG_ST".to_vec();
        kernel.extend(gzip(b"CONFIG_X=y\n"));
        kernel.extend(b"IKCFG_ED");
        assert_eq!(embedded_config(&kernel).as_deref(), Some("CONFIG_X=y\n"));
        assert_eq!(embedded_config(b"nothing"), None);
    }
}
