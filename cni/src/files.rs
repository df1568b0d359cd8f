//! Reads small files from untrusted paths, which may lead to a pipe, a device, a link to one, or an endless file.

use std::fs::{File, OpenOptions, metadata};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Maximum file size: configurations, tokens, certificates and kubeconfigs have a few KiB.
pub const LIMIT: u64 = 4 << 20;

/// Opens a regular file for reading. Follows links: the kubelet mounts tokens and CA certificates as links.
///
/// # Errors
/// `InvalidInput` for a directory, pipe, socket or device. Never blocks on one, and does not open one that `stat(2)`
/// already reports: opening some devices has side effects. Otherwise the error of `stat(2)` or `open(2)`.
pub fn open(path: &Path) -> Result<File> {
    is_regular(metadata(path)?.is_file())?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits())
        .open(path)?;
    // The file may have been replaced since stat(2).
    is_regular(file.metadata()?.is_file())?;
    Ok(file)
}

/// Returns whether there is a file at the path; follows links.
///
/// # Errors
/// That is unknown: the error of `stat(2)`, unless it [means absence](is_absence).
pub fn exists(path: &Path) -> Result<bool> {
    match metadata(path) {
        Ok(_) => Ok(true),
        Err(e) if is_absence(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Returns true if the error means that there is no such file: ENOENT or ENOTDIR. After any other error that is unknown.
#[must_use]
pub fn is_absence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
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
/// As [`open`]; `FileTooLarge` if the file is larger.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if size as u64 > LIMIT {
        let why = format!("it has more than {} MiB", LIMIT >> 20);
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Like [`read`], as text.
///
/// # Errors
/// As [`read`]; `InvalidData` if it is not UTF-8.
pub fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}
