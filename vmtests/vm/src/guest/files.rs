//! Files in and out.
use super::port::Port;
use crate::proto::{CHUNK, FilePiece, Frame};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a piece. The answer is due with the last piece, or with the first that fails.
pub(super) fn write(piece: &FilePiece) -> Option<Result<(), String>> {
    match append(piece) {
        Err(e) => Some(Err(format!("{}: {e}", piece.path.display()))),
        Ok(()) => piece.is_last.then_some(Ok(())),
    }
}

fn append(piece: &FilePiece) -> io::Result<()> {
    let path = Path::new(&piece.path);
    if piece.is_first {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // A new file, so that a program that runs from the old one does not keep it from being replaced (ETXTBSY).
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    let mut file = OpenOptions::new()
        .append(true)
        .create(piece.is_first)
        .open(path)?;
    file.write_all(&piece.bytes)?;
    if piece.is_last {
        file.set_permissions(fs::Permissions::from_mode(piece.mode))?;
    }
    Ok(())
}

/// Sends a file to the host.
pub(super) fn send(port: &mut Port, path: &Path) -> io::Result<()> {
    let failed = |e: io::Error| Frame::Failed(format!("{}: {e}", path.display()));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) => return port.send(&failed(e)),
    };
    loop {
        let mut bytes = Vec::new();
        let piece = Read::by_ref(&mut file).take(CHUNK as u64);
        // The size of a file in /proc is not known before its end, so the last piece is an empty one.
        match { piece }.read_to_end(&mut bytes) {
            Err(e) => return port.send(&failed(e)),
            Ok(got) => {
                let is_last = got == 0;
                port.send(&Frame::Piece { bytes, is_last })?;
                if is_last {
                    return Ok(());
                }
            }
        }
    }
}
