//! As much of ELF as kernels and modules need: sections by name and notes, 64 bits, little-endian.
use std::ops::Range;

/// Elf64_Ehdr, Elf64_Shdr and Elf64_Phdr of <elf.h>: size and the offsets that are used.
const EHDR: usize = 64;
const SHDR: usize = 64;
const PHDR: usize = 56;
const PT_NOTE: u32 = 4;
const SHT_NOBITS: u32 = 8;

/// An ELF file in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
}

/// One section: the place of its header and of its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) header: usize,
    pub(crate) content: Range<usize>,
}

impl<'a> Elf<'a> {
    /// `None` unless it is a 64-bit little-endian ELF file.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        // EI_CLASS = ELFCLASS64, EI_DATA = ELFDATA2LSB.
        let magic = bytes.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]);
        (magic && bytes.len() >= EHDR).then_some(Self { bytes })
    }

    /// The section of that name.
    pub(crate) fn section(&self, name: &str) -> Option<Section> {
        let table = self.offset(0x28)?;
        let count = usize::from(self.u16(0x3c)?);
        let strings = self.section_at(table, usize::from(self.u16(0x3e)?))?;
        let strings = self.bytes.get(strings.content)?;
        (0..count).find_map(|i| {
            let section = self.section_at(table, i)?;
            let at = usize::try_from(self.u32(section.header)?).ok()?;
            let found = strings.get(at..)?.split(|b| *b == 0).next()?;
            (found == name.as_bytes()).then_some(section)
        })
    }

    /// The content of the section of that name.
    pub(crate) fn content(&self, name: &str) -> Option<&'a [u8]> {
        self.bytes.get(self.section(name)?.content)
    }

    /// Is there a note of this owner and type in a PT_NOTE segment?
    pub(crate) fn has_note(&self, owner: &str, wanted: u32) -> bool {
        let (Some(table), Some(count)) = (self.offset(0x20), self.u16(0x38)) else {
            return false;
        };
        (0..usize::from(count)).any(|i| {
            self.note_segment(table + i * PHDR)
                .is_some_and(|notes| notes_have(notes, owner, wanted))
        })
    }

    fn note_segment(&self, header: usize) -> Option<&'a [u8]> {
        if self.u32(header)? != PT_NOTE {
            return None;
        }
        let start = self.offset(header + 0x08)?;
        let size = self.offset(header + 0x20)?;
        self.bytes.get(start..start.checked_add(size)?)
    }

    fn section_at(&self, table: usize, index: usize) -> Option<Section> {
        let header = table.checked_add(index.checked_mul(SHDR)?)?;
        let start = self.offset(header.checked_add(0x18)?)?;
        let size = match self.u32(header + 4)? {
            SHT_NOBITS => 0,
            _ => self.offset(header + 0x20)?,
        };
        let content = start..start.checked_add(size)?;
        Some(Section { header, content })
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u16::from_le_bytes(*bytes))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    fn offset(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    }
}

/// Elf64_Nhdr: length of the name, length of the description, type; both parts padded to four bytes.
fn notes_have(mut notes: &[u8], owner: &str, wanted: u32) -> bool {
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let word = |i: usize| {
            let bytes = header.get(i * 4..).and_then(|b| b.first_chunk::<4>());
            bytes.map_or(0, |b| u32::from_le_bytes(*b))
        };
        let (name_size, size, kind) = (word(0) as usize, word(1) as usize, word(2));
        let name = rest.get(..name_size).unwrap_or_default();
        if kind == wanted && name.strip_suffix(&[0]) == Some(owner.as_bytes()) {
            return true;
        }
        let length = name_size.next_multiple_of(4) + size.next_multiple_of(4);
        notes = rest.get(length..).unwrap_or_default();
    }
    false
}
