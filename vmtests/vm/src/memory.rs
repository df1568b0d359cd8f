//! The memory of a machine that will be saved, while it boots.
//!
//! It is a memfd whose content is written to a file afterwards. With a file on disk, the file system would allocate a
//! block for each page that the guest writes first, which takes half of the boot time.
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::Whence;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A memfd; the kernel frees it with the last process that has it open.
pub(crate) struct BootMemory(File);

impl BootMemory {
    /// Creates an empty memfd: QEMU sets its size.
    pub(crate) fn new() -> io::Result<Self> {
        let memory = memfd_create(c"weir-vm memory", MFdFlags::MFD_CLOEXEC)?;
        Ok(Self(memory.into()))
    }

    /// The path under which our other processes can open it.
    pub(crate) fn path(&self) -> PathBuf {
        let (pid, fd) = (std::process::id(), self.0.as_raw_fd());
        format!("/proc/{pid}/fd/{fd}").into()
    }

    /// Writes the content to a new file, with holes where the guest never wrote.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut to = File::create_new(path)?;
        let size = self.0.metadata()?.len();
        to.set_len(size)?;
        let mut from = &self.0;
        let mut at = 0;
        while let Some(start) = self.find(at, Whence::SeekData)? {
            let end = self.find(start, Whence::SeekHole)?.unwrap_or(size);
            from.seek(SeekFrom::Start(start))?;
            to.seek(SeekFrom::Start(start))?;
            io::copy(&mut from.take(end - start), &mut to)?;
            at = end;
        }
        Ok(())
    }

    /// The start of the next data or hole at or after `at`; lseek(2).
    fn find(&self, at: u64, what: Whence) -> io::Result<Option<u64>> {
        let at = i64::try_from(at).map_err(io::Error::other)?;
        match nix::unistd::lseek64(&self.0, at, what) {
            Ok(found) => Ok(u64::try_from(found).ok()),
            // ENXIO: only a hole follows.
            Err(nix::errno::Errno::ENXIO) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_has_the_content_and_the_holes() {
        const SIZE: u64 = 64 << 20;
        let memory = BootMemory::new().unwrap();
        let mut opened = File::options().write(true).open(memory.path()).unwrap();
        opened.set_len(SIZE).unwrap();
        for at in [0, 8 << 20, SIZE - 4] {
            opened.seek(SeekFrom::Start(at)).unwrap();
            opened.write_all(b"weir").unwrap();
        }
        let path = std::env::temp_dir().join(format!("weir-vm-memory-{}", std::process::id()));
        memory.write(&path).unwrap();
        let (written, about) = (std::fs::read(&path).unwrap(), path.metadata().unwrap());
        assert!(memory.write(&path).is_err(), "it is there already");
        std::fs::remove_file(&path).unwrap();
        assert!(written == std::fs::read(memory.path()).unwrap());
        assert!(written.ends_with(b"weir") && written.starts_with(b"weir\0"));
        assert!(about.blocks() * 512 < SIZE / 8, "{} blocks", about.blocks());
    }

    #[test]
    fn nothing_is_a_file_too() {
        let memory = BootMemory::new().unwrap();
        let path = std::env::temp_dir().join(format!("weir-vm-empty-{}", std::process::id()));
        memory.write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        std::fs::remove_file(&path).unwrap();
    }
}
