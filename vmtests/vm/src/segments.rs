//! As much of an ELF program as its loader looks at: the segments. Read in pieces, for a test binary has tens of
//! megabytes, most of them for debuggers.
use std::os::unix::fs::FileExt;

/// ELF, 64 bits, little-endian.
pub(crate) const MAGIC: [u8; 6] = *b"\x7fELF\x02\x01";
/// Elf64_Ehdr and Elf64_Phdr (<elf.h>).
const EHDR: u64 = 64;
const PHDR: usize = 56;
pub(crate) const PT_LOAD: u64 = 1;
pub(crate) const PT_DYNAMIC: u64 = 2;
pub(crate) const PT_INTERP: u64 = 3;
/// No table that is read here is larger: the strings of a large library have some hundred kilobytes.
const MOST: u64 = 16 << 20;

/// The bytes of a file at an offset; None where there are fewer.
pub(crate) fn read_at(file: &impl FileExt, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= MOST)?];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    let number = bytes.get(at..)?.first_chunk::<N>()?;
    wide.get_mut(..N)?.copy_from_slice(number);
    Some(u64::from_le_bytes(wide))
}

/// One Elf64_Phdr: what is where in the file, and where in memory.
pub(crate) struct Segment {
    pub(crate) kind: u64,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

pub(crate) fn segments(file: &impl FileExt) -> Option<Vec<Segment>> {
    let header = read_at(file, 0, EHDR)?;
    if !header.starts_with(&MAGIC) {
        return None;
    }
    let (table, count) = (number::<8>(&header, 0x20)?, number::<2>(&header, 0x38)?);
    let table = read_at(file, table, count * PHDR as u64)?;
    let segment = |h: &[u8]| {
        Some(Segment {
            kind: number::<4>(h, 0)?,
            offset: number::<8>(h, 0x08)?,
            address: number::<8>(h, 0x10)?,
            size: number::<8>(h, 0x20)?,
        })
    };
    table.chunks_exact(PHDR).map(segment).collect()
}

/// Where what a program is made of when it runs ends. Behind are symbols and lines, for debuggers and backtraces.
/// None: not a program.
pub(crate) fn loaded_size(file: &impl FileExt) -> Option<u64> {
    let ends = segments(file)?
        .into_iter()
        .map(|s| s.offset.checked_add(s.size));
    ends.collect::<Option<Vec<_>>>()?
        .into_iter()
        .max()
        .filter(|end| *end >= EHDR)
}

/// Where a file of that size is cut off for a guest: at [`loaded_size`], if there is anything behind it.
pub(crate) fn cut_at(file: &impl FileExt, size: u64) -> Option<u64> {
    loaded_size(file).filter(|end| *end < size)
}

/// The start of a program that is cut off at [`loaded_size`]: its header, which no longer speaks of sections.
pub(crate) fn header_without_sections(file: &impl FileExt) -> Option<Vec<u8>> {
    let mut header = read_at(file, 0, EHDR)?;
    // e_shoff; then e_shentsize, e_shnum and e_shstrndx.
    header.get_mut(0x28..0x30)?.fill(0);
    header.get_mut(0x3a..0x40)?.fill(0);
    Some(header)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::FileExt;

    /// Bytes as a file.
    pub(crate) struct Memory(pub(crate) Vec<u8>);

    impl FileExt for Memory {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
            let rest = usize::try_from(offset)
                .ok()
                .and_then(|o| self.0.get(o..))
                .unwrap_or_default();
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }

        fn write_at(&self, _: &[u8], _: u64) -> std::io::Result<usize> {
            unreachable!("nothing here writes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_runs_without_what_is_for_debuggers() {
        let own = File::open(std::env::current_exe().unwrap()).unwrap();
        let size = loaded_size(&own).unwrap();
        assert!(size < own.metadata().unwrap().len() / 2, "{size}");
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        own.read_exact_at(&mut bytes, 0).unwrap();
        let header = header_without_sections(&own).unwrap();
        bytes[..header.len()].copy_from_slice(&header);
        let path = std::env::temp_dir().join(format!("weir-vm-strip-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&bytes).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o755))
            .unwrap();
        drop(file);
        let out = std::process::Command::new(&path)
            .arg("--list")
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(out.status.success());
        assert!(String::from_utf8_lossy(&out.stdout).contains("a_program_runs_without"));
    }

    #[test]
    fn what_is_no_program_has_no_segments() {
        assert_eq!(loaded_size(&File::open("/etc/passwd").unwrap()), None);
        assert_eq!(
            header_without_sections(&testing::Memory(vec![0x7f; 63])),
            None
        );
    }
}
