//! Decompression of kernels, modules and packages; the format is detected from the first bytes.
use crate::{Error, Result};
use std::io::{BufRead, BufReader, Read};

/// The upper bound of decompressed bytes, above any kernel or module; a file that expands to more is damaged or hostile.
const LIMIT: u64 = 1 << 30;

/// The window size, 128 MiB: the kernel's build compresses with `zstd -22 --ultra`.
const WINDOW: u64 = 128 << 20;

/// A reader of the decompressed content; of `packed` itself, if its format is not a known compression.
pub(crate) fn reader<'a>(name: &str, packed: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
    let mut packed = BufReader::with_capacity(1 << 16, packed);
    let start = packed.fill_buf().map_err(|e| damaged(name, &e))?;
    Ok(match start {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Box::new(lzma_rust2::XzReader::new(packed, true)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(
            ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, WINDOW)
                .map_err(|e| damaged(name, &e))?,
        ),
        // The legacy frame format that `lz4 -l` writes: no checksums, blocks of up to 8 MiB.
        [0x02, 0x21, 0x4c, 0x18, ..] => Box::new(lz4_flex::frame::FrameDecoder::new(packed)),
        _ => Box::new(packed),
    })
}

/// Decompresses all of `packed`.
pub(crate) fn unpack(name: &str, packed: &[u8]) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut reader = reader(name, packed)?.take(LIMIT + 1);
    match reader.read_to_end(&mut content) {
        Err(e) => Err(damaged(name, &e)),
        Ok(read) if read as u64 > LIMIT => Err(damaged(name, &"holds more than a gigabyte")),
        Ok(_) => Ok(content),
    }
}

fn damaged(name: &str, reason: &dyn std::fmt::Display) -> Error {
    let remedy =
        "Get it again: a package with `weir-vm fetch`, a file of your own from where it came";
    Error::new(name, format!("cannot be unpacked: {reason}"), remedy)
}
