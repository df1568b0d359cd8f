//! SHA-256 in hexadecimal.
use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// An incremental hash.
#[derive(Debug, Default, Clone)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn hex(self) -> String {
        let sum = self.0.finalize();
        sum.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns the SHA-256 of some bytes, as `sha256sum` prints it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.hex()
}

/// Returns the SHA-256 of a file, as `sha256sum` prints it.
pub(crate) fn sha256_of(mut file: impl Read) -> io::Result<String> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.hex()),
            n => hasher.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}
