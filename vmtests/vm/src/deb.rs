//! A Debian package: an `ar` archive whose member `data.tar.*` holds the files.
//!
//! The archive is read once, as a stream.
use crate::{Error, Result, compress};
use std::io::Read;
use std::path::Path;

/// The size of `struct ar_hdr` of <ar.h>: the name, five fields that are not used here, the size as decimal text, the magic.
const HEADER: usize = 60;

/// Extracts all files of a package into a directory.
pub(crate) fn extract(name: &str, mut package: impl Read, into: &Path) -> Result<()> {
    let mut magic = [0; 8];
    let read = package.read_exact(&mut magic);
    read.map_err(|e| damaged(name, &e))?;
    if &magic != b"!<arch>\n" {
        return Err(damaged(name, &"it does not start as an ar archive"));
    }
    loop {
        let (member, size) = member(name, &mut package)?;
        let mut content = package.by_ref().take(size);
        if member.starts_with("data.tar") {
            return unpack(name, compress::reader(name, content)?, into);
        }
        // Members start at even offsets, so a byte of padding may follow.
        let skipped = std::io::copy(&mut content, &mut std::io::sink())
            .and_then(|n| Ok(n + package.by_ref().take(size % 2).read(&mut [0])? as u64))
            .map_err(|e| damaged(name, &e))?;
        if skipped != size.next_multiple_of(2) {
            return Err(damaged(name, &"it ends in the middle"));
        }
    }
}

/// Extracts all files of a tar archive into a directory. No entry can escape the directory.
pub(crate) fn unpack(name: &str, tar: impl Read, into: &Path) -> Result<()> {
    let mut archive = tar::Archive::new(tar);
    archive.set_preserve_permissions(true);
    archive.unpack(into).map_err(|e| {
        let mut reason = e.to_string();
        let mut cause = std::error::Error::source(&e);
        while let Some(next) = cause {
            reason = format!("{reason}: {next}");
            cause = next.source();
        }
        damaged(name, &reason)
    })
}

fn member(name: &str, package: &mut impl Read) -> Result<(String, u64)> {
    let mut header = [0; HEADER];
    let read = package.read_exact(&mut header);
    read.map_err(|_| damaged(name, &"it has no data.tar"))?;
    let text = |range: std::ops::Range<usize>| {
        let field = header.get(range).unwrap_or_default();
        String::from_utf8_lossy(field).trim().to_owned()
    };
    let size = text(48..58).parse();
    let size = size.map_err(|_| damaged(name, &"a member without a size"))?;
    Ok((text(0..16), size))
}

fn damaged(name: &str, reason: &dyn std::fmt::Display) -> Error {
    let remedy = "Remove it and fetch it again with `weir-vm fetch`";
    let reason = format!("not a usable Debian package: {reason}");
    Error::new(name, reason, remedy)
}
