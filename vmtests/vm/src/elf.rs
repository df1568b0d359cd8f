//! Kernels and modules as ELF files: sections by name, and notes. 64 bits, little-endian.
use object::LittleEndian as LE;
use object::elf::{FileHeader64, SectionHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

/// The header of a file of 64 bits, little-endian; `None` for another file.
pub(crate) fn header<'d>(data: impl ReadRef<'d>) -> Option<&'d FileHeader64<LE>> {
    let header = FileHeader64::<LE>::parse(data).ok()?;
    header.endian().ok().map(|_| header)
}

/// The section of that name: where its header is, and its content.
pub(crate) fn section<'d>(file: &'d [u8], name: &str) -> Option<(usize, &'d [u8])> {
    let header = header(file)?;
    let sections = header.sections(LE, file).ok()?;
    let (index, section) = sections.section_by_name(LE, name.as_bytes())?;
    let table = usize::try_from(header.e_shoff.get(LE)).ok()?;
    let at = table.checked_add(index.0.checked_mul(size_of::<SectionHeader64<LE>>())?)?;
    Some((at, section.data(LE, file).ok()?))
}

/// Is there a note of this owner and type in a PT_NOTE segment?
pub(crate) fn has_note(file: &[u8], owner: &str, wanted: u32) -> bool {
    let segments = header(file).and_then(|header| header.program_headers(LE, file).ok());
    let notes = segments
        .into_iter()
        .flatten()
        .filter_map(|segment| segment.notes(LE, file).ok()?);
    notes.into_iter().any(|mut notes| {
        std::iter::from_fn(|| notes.next().ok()?)
            .any(|note| note.n_type(LE) == wanted && note.name() == owner.as_bytes())
    })
}
