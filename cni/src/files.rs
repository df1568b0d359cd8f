//! Reading small files in whose place there may be anything: a pipe, a device, a link to one, a file without end.

use std::fs::{File, OpenOptions, metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Configurations, tokens, certificates and kubeconfigs have a few KiB; what is larger than this is something else.
pub const LIMIT: u64 = 4 << 20;

/// Opens a regular file for reading. Links are followed: the kubelet mounts tokens and authorities as links.
///
/// # Errors
/// `InvalidInput` when it is a directory, a pipe, a socket or a device, none of which is waited for, or opened when it
/// is one at first sight: opening some devices does things. Otherwise what `open(2)` answered.
pub fn open(path: &Path) -> Result<File> {
    is_regular(metadata(path)?.is_file())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits())
        .open(path)?;
    // It may have been replaced in between.
    is_regular(file.metadata()?.is_file())?;
    Ok(file)
}

fn is_regular(regular: bool) -> Result<()> {
    match regular {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::InvalidInput,
            "it is not a file, but a directory, a pipe, a socket or a device",
        )),
    }
}

/// Reads a regular file of at most [`LIMIT`] bytes.
///
/// # Errors
/// As [`open`]; `FileTooLarge` when there is more.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if size as u64 > LIMIT {
        let why = format!("it has more than {} MiB", LIMIT >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// The same as text.
///
/// # Errors
/// As [`read`]; `InvalidData` when it is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
