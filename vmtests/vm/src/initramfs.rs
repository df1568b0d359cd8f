//! The initramfs of one machine: base directories, the agent as `/init`, the modules in load order, the payload.
use crate::cpio::Writer;
use crate::elf::{cut_at, header_without_sections};
use crate::guest::{INIT, MODULES_LIST};
use crate::payload::{Entry, Payload};
use crate::{At, Kernel, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The directories that every guest has.
const BASE: [&str; 8] = ["dev", "proc", "sys", "run", "tmp", "etc", "root", "modules"];

type Archive = Writer<File>;

/// The content of an initramfs.
#[derive(Debug)]
pub(crate) struct Initramfs<'a> {
    kernel: &'a Kernel,
    /// The payload, and the agent with its libraries.
    files: Payload,
}

impl<'a> Initramfs<'a> {
    /// `agent` is the program that becomes `/init`.
    pub(crate) fn new(kernel: &'a Kernel, agent: &Path, payload: &Payload) -> Result<Self> {
        let mut files = payload.clone();
        files.program_at(agent, Path::new(INIT))?;
        Ok(Self { kernel, files })
    }

    /// The unpacked size in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        let mut size = self.files.size()?;
        for module in &self.kernel.modules {
            size += module.file.metadata().map_or(0, |m| m.len());
        }
        Ok(size)
    }

    /// A text that changes whenever the content changes.
    pub(crate) fn fingerprint(&self) -> Result<String> {
        let mut text = self.files.fingerprint()?;
        for module in &self.kernel.modules {
            text += &(crate::payload::fingerprint(&module.file)? + "\n");
        }
        Ok(text)
    }

    /// Writes the archive to a file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let out = File::create(path).at(path)?;
        let mut archive = Writer::new(out);
        // `/init` mounts file systems on them, and the kernel opens the standard descriptors of `/init` at dev/console.
        for directory in BASE {
            archive.directory(directory, mode_of(directory))?;
        }
        archive.character_device("dev/console", 0o600, 5, 1)?;
        archive.character_device("dev/null", 0o666, 1, 3)?;
        let mut list = String::new();
        for module in &self.kernel.modules {
            let name = format!("modules/{}.ko", module.name);
            copy(&mut archive, &name, 0o644, &module.file, false)?;
            list += &format!("/{name}\n");
        }
        let name = MODULES_LIST.trim_start_matches('/');
        archive.text(name, &list)?;
        let mut made = BTreeSet::new();
        for (path, entry) in &self.files.entries {
            let name = path.trim_start_matches('/');
            parents(&mut archive, &mut made, name)?;
            match entry {
                Entry::Directory { mode } => {
                    if made.insert(name.to_owned()) && !name.is_empty() {
                        archive.directory(name, *mode)?;
                    }
                }
                Entry::File { host, mode } => {
                    let is_cut = self.files.is_stripped || path == INIT;
                    copy(&mut archive, name, *mode, host, is_cut)?;
                }
                Entry::Text(text) => archive.text(name, text)?,
                Entry::Link { target } => archive.symlink(name, target)?,
            }
        }
        archive.finish().map(drop)
    }
}

/// Copies a file into the archive; with `is_cut`, only the loaded part of a program.
fn copy(out: &mut Archive, name: &str, mode: u32, host: &Path, is_cut: bool) -> Result<()> {
    let mut file = File::open(host).at(host)?;
    let size = file.metadata().at(host)?.len();
    let end = cut_at(&file, size).filter(|_| is_cut);
    match (end, header_without_sections(&file)) {
        (Some(end), Some(header)) => {
            let start = header.len() as u64;
            file.seek(SeekFrom::Start(start)).at(host)?;
            out.file(name, mode, end, header.as_slice().chain(file))
        }
        _ => {
            file.rewind().at(host)?;
            out.file(name, mode, size, file)
        }
    }
}

/// Adds the parent directories of a file, which the kernel does not create. An entry for an existing directory is harmless.
fn parents(archive: &mut Archive, made: &mut BTreeSet<String>, name: &str) -> Result<()> {
    for (end, _) in name.match_indices('/') {
        let parent = name.get(..end).unwrap_or_default();
        if made.insert(parent.to_owned()) {
            archive.directory(parent, mode_of(parent))?;
        }
    }
    Ok(())
}

fn mode_of(directory: &str) -> u32 {
    if directory == "tmp" { 0o1777 } else { 0o755 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Module;

    #[test]
    fn every_directory_comes_before_what_is_in_it_and_modules_in_their_order() {
        let folder = std::env::temp_dir().join(format!("weir-vm-initramfs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let module = |name: &str| {
            let file = folder.join(name);
            std::fs::write(&file, name).unwrap();
            Module {
                name: name.into(),
                file,
            }
        };
        let kernel = Kernel {
            modules: vec![module("zeta"), module("alpha")],
            ..Kernel::default()
        };
        let mut payload = Payload::new();
        payload.append(Path::new("/a/b/c"), "deep").unwrap();
        payload.directory(Path::new("/a"), 0o700).unwrap();
        let initramfs = Initramfs::new(&kernel, Path::new("/bin/true"), &payload).unwrap();
        let file = folder.join("initramfs");
        initramfs.write(&file).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        let at = |text: &str| {
            let found = bytes.windows(text.len()).position(|w| w == text.as_bytes());
            found.unwrap_or_else(|| panic!("{text:?} is not there"))
        };
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"));
        assert!(at("/modules/zeta.ko\n/modules/alpha.ko\n") > 0);
        assert!(at("init\0") > 0 && at("lib64/ld-linux") > 0);
        assert_eq!(bytes.len() % 4, 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
