//! Reads files and stdin.

use super::failure::Failure;
use super::patient::Patient;
use std::io::Read;
use std::path::Path;
use weir_netlink::attr::text_of;

/// The name of a file in messages; `-` is stdin.
pub(super) fn name(file: &Path) -> String {
    match is_stdin(file) {
        true => "stdin".to_owned(),
        false => file.display().to_string(),
    }
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new("-")
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Maximum size of a text to restore: several million entries of `ipset save`.
pub(super) const RESTORED: u64 = 256 << 20;
/// Maximum size of a configuration or manifest, the same limit as everywhere: the API server stores objects of at most 1.5 MiB.
pub(super) const DESCRIPTION: u64 = weir_cni::files::LIMIT;

/// Reads a file of at most `limit` bytes as UTF-8 text; `-` is stdin. Pipes and devices are accepted: a shell may pass them as files.
pub(super) fn read(file: &Path, limit: u64) -> Result<String, Failure> {
    String::from_utf8(read_bytes(file, limit)?).map_err(|e| {
        let remedy = match is_stdin(file) {
            true => "give UTF-8 text",
            false => "give a readable file of UTF-8 text",
        };
        Failure::usage(format!("cannot read {}: {e}; {remedy}", name(file)))
    })
}

/// Reads a file in any encoding: see [`text_of`].
pub(super) fn read_any(file: &Path, limit: u64) -> Result<String, Failure> {
    let bytes = read_bytes(file, limit)?;
    Ok(match bytes.is_ascii() {
        true => String::from_utf8(bytes).unwrap_or_default(),
        false => text_of(&bytes),
    })
}

fn read_bytes(file: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    let fail = |e: std::io::Error| {
        Failure::usage(format!(
            "cannot read {}: {e}; give a readable file",
            name(file)
        ))
    };
    let source = match is_stdin(file) {
        true => Patient::stdin(),
        false => Patient::open(file),
    };
    let source = source.map_err(fail)?;
    // A regular file is read at once: each read polls for data, and a growing buffer would begin with 32 bytes.
    let mut text = Vec::with_capacity(4096);
    let read = source.take(limit + 1).read_to_end(&mut text);
    if read.map_err(fail)? as u64 > limit {
        return Err(Failure::usage(format!(
            "cannot read {}: it has more than {} MiB; give a smaller text",
            name(file),
            limit >> 20
        )));
    }
    // Some editors write a byte order mark.
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}
