//! The archive format of an initramfs: `cpio -o -H newc`.
//!
//! The writer does not touch the file system: a device node is a header like any other and needs neither root nor `mknod`.
use crate::{Error, Result};
use cpio::newc::{Builder, ModeFileType, trailer};
use std::io::{self, Read, Write};

/// Writes an archive. Every entry belongs to root and has the time 0, so equal content gives equal bytes.
pub(crate) struct Writer<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    /// Starts an empty archive that is written to `out`.
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// Adds a directory; its parents must have been added before.
    pub(crate) fn directory(&mut self, name: &str, mode: u32) -> Result<()> {
        let entry = Builder::new(name).mode(mode).nlink(2);
        self.entry(name, entry, ModeFileType::Directory, 0, io::empty())
    }

    /// Adds a regular file of `size` bytes from `from`; fewer bytes are an error.
    pub(crate) fn file(&mut self, name: &str, mode: u32, size: u64, from: impl Read) -> Result<()> {
        let entry = Builder::new(name).mode(mode);
        self.entry(name, entry, ModeFileType::Regular, size, from)
    }

    /// Adds a regular file with this text.
    pub(crate) fn text(&mut self, name: &str, text: &str) -> Result<()> {
        self.file(name, 0o644, text.len() as u64, text.as_bytes())
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, name: &str, target: &str) -> Result<()> {
        let (entry, size) = (Builder::new(name).mode(0o777), target.len() as u64);
        self.entry(name, entry, ModeFileType::Symlink, size, target.as_bytes())
    }

    /// Adds a character device, as `mknod NAME c MAJOR MINOR`.
    pub(crate) fn character_device(
        &mut self,
        name: &str,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> Result<()> {
        let entry = Builder::new(name).mode(mode);
        let entry = entry.rdev_major(major).rdev_minor(minor);
        self.entry(name, entry, ModeFileType::Char, 0, io::empty())
    }

    /// Ends the archive and returns the writer.
    pub(crate) fn finish(self) -> Result<W> {
        trailer(self.out).map_err(|e| failed("the end", e))
    }

    /// Adds an entry. Refuses an absolute name, one with an empty, `.` or `..` component, and a file above 4 GiB: the format
    /// has eight hexadecimal digits for the size.
    fn entry(
        &mut self,
        name: &str,
        entry: Builder,
        kind: ModeFileType,
        size: u64,
        content: impl Read,
    ) -> Result<()> {
        let is_odd = |part| ["", ".", "..", "TRAILER!!!"].contains(&part);
        if name.contains('\0') || name.split('/').any(is_odd) {
            let (name, remedy) = (format!("{name:?}"), "Give a relative path without dots");
            let reason = "not a name for an entry of an initramfs";
            return Err(Error::new(name, reason, remedy));
        }
        let length = u32::try_from(size)
            .map_err(|_| Error::new(name, "larger than 4 GiB", "An initramfs cannot hold it"))?;
        self.inode += 1;
        let entry = entry.ino(self.inode).set_mode_file_type(kind);
        let mut writer = entry.write(&mut self.out, length);
        let copied = io::copy(&mut content.take(size), &mut writer).map_err(|e| failed(name, e))?;
        if copied != size {
            let reason = format!("ended after {copied} of {size} bytes");
            let remedy = "Something changes it at the same time; try again";
            return Err(Error::new(name, reason, remedy));
        }
        writer.finish().map_err(|e| failed(name, e)).map(drop)
    }
}

fn failed(name: &str, e: io::Error) -> Error {
    let what = format!("writing {name} into an initramfs");
    Error::new(what, e, "See the reason")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first entry equals the bytes of `echo dev | cpio -o -H newc`, except for our numbers and lower-case digits.
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
            0000000c\
            00000000\
            dev/console\0\0\0";
        assert_eq!(&bytes[..header.len()], header);
        assert_eq!(bytes.len(), 124 + 124);
        assert_eq!(
            &bytes[124..124 + 6],
            b"070701",
            "the trailer, aligned to four bytes"
        );
    }

    #[test]
    fn contents_and_names_are_padded_and_archives_may_follow_each_other() {
        for length in 0..9 {
            let mut layer = Writer::new(Vec::new());
            layer.directory("d", 0o755).unwrap();
            let content = vec![b'x'; length];
            layer
                .file("d/file", 0o644, length as u64, &*content)
                .unwrap();
            layer.symlink("d/link", "file").unwrap();
            let bytes = layer.finish().unwrap();
            assert_eq!(bytes.len() % 4, 0);
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
        let e = layer.file("x", 0o644, 10, &b"short"[..]).unwrap_err();
        assert!(e.to_string().contains("5 of 10 bytes"), "{e}");
    }

    /// Parses as the kernel does (init/initramfs.c) and returns the names and contents of every layer.
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
            if name == "TRAILER!!!" {
                bytes = &bytes[end..];
                assert_eq!((start - bytes.len()) % 4, 0);
            } else {
                entries.push((name, bytes[content..content + size].to_vec()));
                bytes = &bytes[end..];
            }
        }
        entries
    }
}
