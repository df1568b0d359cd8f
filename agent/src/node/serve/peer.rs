//! Sockets of the run directory that only root may ask.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use std::io;
use tokio::net::{UnixListener, UnixStream};

/// To those who may not ask.
const REFUSED: &[u8] = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 23\r\nConnection: close\r\n\r\n\
    only root may ask here\n";

/// The next connection of root. The mode of socket and directory keeps others out already; one that came through is
/// answered here, and `refused` hears who it was.
pub(super) async fn accept_root(
    listener: &UnixListener,
    refused: impl Fn(String),
) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        match is_root(&stream) {
            Ok(()) => return Ok(stream),
            Err(who) => {
                refused(who);
                let _ = stream.try_write(REFUSED);
            }
        }
    }
}

/// (An agent that is not root, in a test, hears its own user.)
fn is_root(stream: &UnixStream) -> Result<(), String> {
    match getsockopt(stream, PeerCredentials) {
        Ok(peer) if peer.uid() == 0 || peer.uid() == geteuid().as_raw() => Ok(()),
        Ok(peer) => Err(format!("uid {}, process {}", peer.uid(), peer.pid())),
        Err(e) => Err(format!("its credentials cannot be read: {e}")),
    }
}
