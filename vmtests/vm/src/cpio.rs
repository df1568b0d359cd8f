//! The archive format of an initramfs: `cpio -o -H newc`, written and never read.
//!
//! The kernel unpacks any number of such archives one after the other, so a layer that stays the same
//! (modules) and one that changes (a test binary) are made apart and concatenated. Nothing here asks the
//! file system: a device node is a header like any other, which needs neither root nor `mknod`.
use crate::{Error, Result};
use std::io::{self, Read, Write};

/// The end of an archive; also makes the kernel forget hard links.
const TRAILER: &str = "TRAILER!!!";

/// Archives are padded to this, as `cpio` does, so that concatenating them keeps each aligned.
const BLOCK: u64 = 512;

const S_IFMT: u32 = 0o170_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;

/// Writes one layer. Every entry belongs to root and has the time 0, so equal content gives equal bytes.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    written: u64,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// An empty layer that goes to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            inode: 0,
        }
    }

    /// A directory; its parents have to come first.
    ///
    /// # Errors
    /// A name that is absolute, empty or has `..` in it; what the writer says.
    pub fn directory(&mut self, name: &str, mode: u32) -> Result<()> {
        self.entry(name, S_IFDIR | mode, 0, (0, 0))
    }

    /// A regular file with these bytes.
    ///
    /// # Errors
    /// As [`Writer::directory`]; more than 4 GiB, which the format's eight hexadecimal digits cannot tell.
    pub fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.file_from(name, mode, content.len() as u64, content)
    }

    /// A regular file of `size` bytes that come from `content`.
    ///
    /// # Errors
    /// As [`Writer::file`]; when `content` ends early.
    pub fn file_from(
        &mut self,
        name: &str,
        mode: u32,
        size: u64,
        content: impl Read,
    ) -> Result<()> {
        let length = u32::try_from(size)
            .map_err(|_| Error::new(name, "larger than 4 GiB", "An initramfs cannot hold it"))?;
        self.entry(name, S_IFREG | mode, length, (0, 0))?;
        let copied =
            io::copy(&mut content.take(size), &mut self.out).map_err(|e| failed(name, e))?;
        self.written += copied;
        if copied != size {
            return Err(Error::new(
                name,
                format!("ended after {copied} of {size} bytes"),
                "Something changes it at the same time; try again",
            ));
        }
        self.pad(4)
    }

    /// A symbolic link.
    ///
    /// # Errors
    /// As [`Writer::directory`].
    pub fn symlink(&mut self, name: &str, target: &str) -> Result<()> {
        let length = u32::try_from(target.len())
            .map_err(|_| Error::new(name, "its target is too long", "Shorten it"))?;
        self.entry(name, S_IFLNK | 0o777, length, (0, 0))?;
        self.bytes(name, target.as_bytes())?;
        self.pad(4)
    }

    /// A character device, as `mknod NAME c MAJOR MINOR`.
    ///
    /// # Errors
    /// As [`Writer::directory`].
    pub fn character_device(
        &mut self,
        name: &str,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> Result<()> {
        self.entry(name, S_IFCHR | mode, 0, (major, minor))
    }

    /// Ends the layer and gives the writer back.
    ///
    /// # Errors
    /// What the writer says.
    pub fn finish(mut self) -> Result<W> {
        self.inode = 0;
        self.header(TRAILER, 0, 0, (0, 0), 1)?;
        self.pad(BLOCK)?;
        self.out.flush().map_err(|e| failed(TRAILER, e))?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, size: u32, device: (u32, u32)) -> Result<()> {
        let bad = name.is_empty()
            || name.contains('\0')
            || name == TRAILER
            || name
                .split('/')
                .any(|part| part.is_empty() || part == ".." || part == ".");
        if bad {
            return Err(Error::new(
                format!("{name:?}"),
                "not a name for an entry of an initramfs",
                "Give a relative path without dots",
            ));
        }
        self.inode += 1;
        let links = if mode & S_IFMT == S_IFDIR { 2 } else { 1 };
        self.header(name, mode, size, device, links)
    }

    /// Documentation/driver-api/early-userspace/buffer-format.rst: thirteen numbers in hexadecimal, the
    /// name with its zero, padded to four bytes from the start of the archive.
    fn header(
        &mut self,
        name: &str,
        mode: u32,
        size: u32,
        (major, minor): (u32, u32),
        links: u32,
    ) -> Result<()> {
        let name_size = name.len() + 1;
        let inode = self.inode;
        let header = format!(
            "070701{inode:08X}{mode:08X}{uid:08X}{gid:08X}{links:08X}{mtime:08X}{size:08X}\
             {dev_major:08X}{dev_minor:08X}{major:08X}{minor:08X}{name_size:08X}{check:08X}{name}\0",
            uid = 0,
            gid = 0,
            mtime = 0,
            dev_major = 0,
            dev_minor = 0,
            check = 0,
        );
        self.bytes(name, header.as_bytes())?;
        self.pad(4)
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| failed(name, e))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self, to: u64) -> Result<()> {
        let missing = self.written.next_multiple_of(to) - self.written;
        io::copy(&mut io::repeat(0).take(missing), &mut self.out)
            .map_err(|e| failed("padding", e))?;
        self.written += missing;
        Ok(())
    }
}

/// The layer that every guest starts with: the directories that `/init` mounts on, `/dev/console` (where the
/// kernel opens the standard descriptors of `/init`) and `/dev/null`.
///
/// # Errors
/// What the writer says.
pub fn base<W: Write>(out: W) -> Result<W> {
    let mut layer = Writer::new(out);
    for directory in ["dev", "proc", "sys", "run", "tmp", "etc", "root", "modules"] {
        let mode = if directory == "tmp" { 0o1777 } else { 0o755 };
        layer.directory(directory, mode)?;
    }
    layer.character_device("dev/console", 0o600, 5, 1)?;
    layer.character_device("dev/null", 0o666, 1, 3)?;
    layer.finish()
}

fn failed(name: &str, e: io::Error) -> Error {
    Error::new(
        format!("writing {name} into an initramfs"),
        e,
        "See the reason",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first entry, byte for byte as `echo dev | cpio -o -H newc` writes it, with our numbers.
    #[test]
    fn a_device_node() {
        let mut layer = Writer::new(Vec::new());
        layer.character_device("dev/console", 0o600, 5, 1).unwrap();
        let bytes = layer.finish().unwrap();
        let header = b"070701\
            00000001\
            00002180\
            00000000\
            00000000\
            00000001\
            00000000\
            00000000\
            00000000\
            00000000\
            00000005\
            00000001\
            0000000C\
            00000000\
            dev/console\0\0\0";
        assert_eq!(&bytes[..header.len()], header);
        assert_eq!(bytes.len(), 512);
        assert_eq!(
            &bytes[124..124 + 6],
            b"070701",
            "the trailer, aligned to four bytes"
        );
    }

    #[test]
    fn contents_and_names_are_padded_and_layers_to_a_block() {
        for length in 0..9 {
            let mut layer = Writer::new(Vec::new());
            layer.directory("d", 0o755).unwrap();
            layer.file("d/file", 0o644, &vec![b'x'; length]).unwrap();
            layer.symlink("d/link", "file").unwrap();
            let bytes = layer.finish().unwrap();
            assert_eq!(bytes.len() % 512, 0);
            let all = [bytes.clone(), bytes].concat();
            let names: Vec<_> = parse(&all).into_iter().map(|(n, c)| (n, c.len())).collect();
            let once = [
                ("d".to_owned(), 0),
                ("d/file".to_owned(), length),
                ("d/link".to_owned(), 4),
            ];
            assert_eq!(names, [once.clone(), once].concat());
        }
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let mut layer = Writer::new(Vec::new());
        for name in ["", "/etc", "a/../b", "a//b", "./a", "TRAILER!!!", "a\0b"] {
            assert!(layer.directory(name, 0o755).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let mut layer = Writer::new(Vec::new());
        let e = layer.file_from("x", 0o644, 10, &b"short"[..]).unwrap_err();
        assert!(e.to_string().contains("5 of 10 bytes"), "{e}");
    }

    /// As the kernel reads it (init/initramfs.c): names and contents of every layer.
    fn parse(mut bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut entries = Vec::new();
        let start = bytes.len();
        while !bytes.is_empty() {
            assert_eq!(&bytes[..6], b"070701");
            let field = |i: usize| {
                let text = std::str::from_utf8(&bytes[6 + i * 8..14 + i * 8]).unwrap();
                usize::from_str_radix(text, 16).unwrap()
            };
            let (size, name_size) = (field(6), field(11));
            let name = String::from_utf8(bytes[110..109 + name_size].to_vec()).unwrap();
            let content = (110 + name_size).next_multiple_of(4);
            let end = (content + size).next_multiple_of(4);
            if name == TRAILER {
                bytes = &bytes[end..];
                let zeros = bytes.iter().take_while(|b| **b == 0).count();
                bytes = &bytes[zeros..];
                assert_eq!((start - bytes.len()) % 512, 0);
            } else {
                entries.push((name, bytes[content..content + size].to_vec()));
                bytes = &bytes[end..];
            }
        }
        entries
    }
}
