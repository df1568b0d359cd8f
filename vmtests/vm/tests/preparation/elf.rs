//! Kernels and modules of a few hundred bytes: valid ELF files with only what the preparation reads.

/// The release (`uname -r`) of every kernel here.
pub(crate) const RELEASE: &str = "6.1.0-99-cloud-amd64";

/// A module with dependencies.
pub(crate) fn module(depends: &str) -> Vec<u8> {
    module_of(RELEASE, depends, "")
}

pub(crate) fn module_of(release: &str, depends: &str, more: &str) -> Vec<u8> {
    let info = format!("vermagic={release} SMP\0depends={depends}\0{more}");
    file(&[(".modinfo", info.as_bytes()), (".BTF", b"types")], None)
}

/// A kernel whose PVH note QEMU would accept.
pub(crate) fn vmlinux() -> Vec<u8> {
    let banner = format!("Linux version %s\0Linux version {RELEASE} (someone) #1\0");
    // Owner "Xen", XEN_ELFNOTE_PHYS32_ENTRY, eight bytes.
    let mut note = Vec::new();
    for word in [4_u32, 8, 18] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"Xen\0\x00\x00\x00\x01\x00\x00\x00\x00");
    file(&[(".rodata", banner.as_bytes())], Some(&note))
}

/// A configuration with everything that a guest needs.
pub(crate) fn config() -> String {
    [
        "BLK_DEV_INITRD",
        "BINFMT_ELF",
        "DEVTMPFS",
        "PROC_FS",
        "SYSFS",
        "NET_NS",
        "SERIAL_8250_CONSOLE",
        "PCI",
        "VIRTIO_PCI",
        "VIRTIO_CONSOLE",
        "IPV6",
    ]
    .iter()
    .map(|option| format!("CONFIG_{option}=y\n"))
    .collect()
}

/// The file: Elf64_Ehdr, one Elf64_Phdr for the note, the contents, the Elf64_Shdr table.
fn file(sections: &[(&str, &[u8])], note: Option<&[u8]>) -> Vec<u8> {
    let mut names = vec![0_u8];
    let mut body = Vec::new();
    // Name, start, size.
    let mut table = vec![(0_u32, 0_u64, 0_u64)];
    let start = 64 + 56;
    let note_at = start as u64;
    body.extend_from_slice(note.unwrap_or_default());
    let mut add = |names: &mut Vec<u8>, body: &mut Vec<u8>, name: &str, content: &[u8]| {
        let at = names.len() as u32;
        names.extend(name.as_bytes());
        names.push(0);
        table.push((at, (start + body.len()) as u64, content.len() as u64));
        body.extend_from_slice(content);
    };
    for (name, content) in sections {
        add(&mut names, &mut body, name, content);
    }
    let strings = [names.as_slice(), b".shstrtab\0"].concat();
    add(&mut names, &mut body, ".shstrtab", &strings);

    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend([1, 0, 62, 0, 1, 0, 0, 0]);
    out.extend(0_u64.to_le_bytes());
    out.extend(64_u64.to_le_bytes());
    out.extend(((start + body.len()) as u64).to_le_bytes());
    out.extend([0; 4]);
    let notes = u16::from(note.is_some());
    for field in [
        64,
        56,
        notes,
        64,
        table.len() as u16,
        table.len() as u16 - 1,
    ] {
        out.extend(field.to_le_bytes());
    }
    out.extend(4_u32.to_le_bytes());
    out.extend(4_u32.to_le_bytes());
    let size = note.unwrap_or_default().len() as u64;
    for field in [note_at, 0, 0, size, size, 4] {
        out.extend(field.to_le_bytes());
    }
    out.extend(body);
    for (name, at, size) in table {
        out.extend(name.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        for field in [0, 0, at, size, 0, 1, 0] {
            out.extend(field.to_le_bytes());
        }
    }
    out
}
