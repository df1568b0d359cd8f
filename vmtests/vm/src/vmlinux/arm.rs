//! Kernels of arm64: an `Image`, plain or in an EFI zboot program that unpacks it.
use super::{VMLINUZ, u32_at};
use crate::compress;
use crate::{Error, Result};

/// Documentation/arch/arm64/booting.rst: the offset and value of `magic` in the header.
const MAGIC: (usize, &[u8]) = (56, b"ARM\x64");
/// drivers/firmware/efi/libstub/zboot-header.S: "MZ" marks an EFI program, and "zimg" at offset 4 a kernel in it. The
/// offset and the size of the payload follow at 8 and 12, four bytes each.
const ZBOOT: (&[u8], usize, &[u8]) = (b"MZ", 4, b"zimg");

/// The bytes of the file for `-kernel`; `None` if the file is not a kernel of arm64.
pub(super) fn image(name: &str, file: &[u8]) -> Result<Option<Vec<u8>>> {
    if is_image(file) {
        return Ok(Some(file.to_owned()));
    }
    let (start, at, kind) = ZBOOT;
    if !file.starts_with(start) || file.get(at..at + kind.len()) != Some(kind) {
        return Ok(None);
    }
    let payload = || {
        let (at, size) = (u32_at(file, 8)?, u32_at(file, 12)?);
        file.get(at..at.checked_add(size)?)
    };
    let reason = "the kernel in this program of EFI is cut off";
    let payload = payload().ok_or_else(|| Error::new(name, reason, "Get the file again"))?;
    let image = compress::unpack(name, payload)?;
    let reason = "this program of EFI holds no kernel of arm64";
    match is_image(&image) {
        true => Ok(Some(image)),
        false => Err(Error::new(name, reason, VMLINUZ)),
    }
}

fn is_image(file: &[u8]) -> bool {
    let (at, magic) = MAGIC;
    file.get(at..at + magic.len()) == Some(magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn kernel() -> Vec<u8> {
        let mut file = vec![0; 64];
        file[56..60].copy_from_slice(b"ARM\x64");
        file.extend(b"Linux version 6.9.1-arm (x@y)");
        file
    }

    fn zboot(payload: &[u8]) -> Vec<u8> {
        let mut file = b"MZ\0\0zimg".to_vec();
        file.extend(64_u32.to_le_bytes());
        file.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        file.resize(64, 0);
        file.extend(payload);
        file.extend(b"trailer");
        file
    }

    #[test]
    fn an_image_as_it_is_and_in_a_program_of_efi() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel()).unwrap();
        let gzip = gzip.finish().unwrap();
        for file in [kernel(), zboot(&gzip)] {
            assert_eq!(image("x", &file).unwrap().unwrap(), kernel());
        }
        assert_eq!(image("x", b"\x7fELF").unwrap(), None);
        let mut cut = zboot(&gzip);
        cut.truncate(70);
        assert!(image("x", &cut).unwrap_err().reason.contains("cut off"));
        assert!(image("x", &zboot(&gzip[..gzip.len() / 2])).is_err());
    }
}
