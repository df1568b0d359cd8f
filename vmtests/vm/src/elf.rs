//! Reads 64-bit little-endian ELF files: sections and notes of kernels and modules, segments of programs. Programs are
//! read in pieces, because a test binary has tens of megabytes, most of them debug information.
use object::LittleEndian as LE;
use object::elf::{FileHeader64, ProgramHeader64, SectionHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadRef};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The size of Elf64_Ehdr (<elf.h>).
const EHDR: usize = 64;

/// The header of a 64-bit little-endian file; `None` for another file.
pub(crate) fn header<'d>(data: impl ReadRef<'d>) -> Option<&'d FileHeader64<LE>> {
    let header = FileHeader64::<LE>::parse(data).ok()?;
    header.endian().ok().map(|_| header)
}

/// The section of that name: the offset of its header, and its content.
pub(crate) fn section<'d>(file: &'d [u8], name: &str) -> Option<(usize, &'d [u8])> {
    let header = header(file)?;
    let sections = header.sections(LE, file).ok()?;
    let (index, section) = sections.section_by_name(LE, name.as_bytes())?;
    let table = usize::try_from(header.e_shoff.get(LE)).ok()?;
    let at = table.checked_add(index.0.checked_mul(size_of::<SectionHeader64<LE>>())?)?;
    Some((at, section.data(LE, file).ok()?))
}

/// Whether a PT_NOTE segment holds a note of this owner and type.
pub(crate) fn has_note(file: &[u8], owner: &str, wanted: u32) -> bool {
    let segments = segments(file).unwrap_or_default().iter();
    let mut notes = segments.filter_map(|segment| segment.notes(LE, file).ok()?);
    notes.any(|mut notes| {
        std::iter::from_fn(|| notes.next().ok()?)
            .any(|note| note.n_type(LE) == wanted && note.name() == owner.as_bytes())
    })
}

pub(crate) fn segments<'d>(data: impl ReadRef<'d>) -> Option<&'d [ProgramHeader64<LE>]> {
    header(data)?.program_headers(LE, data).ok()
}

/// The end of the last segment, the size that a program needs in order to run. Symbols and debug information follow it.
/// `None`: not a program.
pub(crate) fn loaded_size(file: &File) -> Option<u64> {
    let cache = ReadCache::new(file);
    let ends = segments(&cache)?.iter().map(|segment| {
        let (offset, size) = segment.file_range(LE);
        offset.checked_add(size)
    });
    let ends = ends.collect::<Option<Vec<_>>>()?.into_iter();
    ends.max().filter(|end| *end >= EHDR as u64)
}

/// The size to which a file is truncated for a guest: [`loaded_size`], if anything follows it.
pub(crate) fn cut_at(file: &File, size: u64) -> Option<u64> {
    loaded_size(file).filter(|end| *end < size)
}

/// The ELF header for a program truncated to [`loaded_size`]: without a reference to the sections.
pub(crate) fn header_without_sections(file: &File) -> Option<[u8; EHDR]> {
    let mut header = [0; EHDR];
    file.read_exact_at(&mut header, 0).ok()?;
    // e_shoff; then e_shentsize, e_shnum and e_shstrndx.
    header.get_mut(0x28..0x30)?.fill(0);
    header.get_mut(0x3a..0x40)?.fill(0);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
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
            header_without_sections(&File::open("/dev/null").unwrap()),
            None
        );
    }
}
