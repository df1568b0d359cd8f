//! The socket: bound, accepted from, and bound again when its file is lost.

use crate::connection::{self, Connection};
use crate::packet::timeout;
use crate::server::Shared;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// One connection in this time.
const PACE: Duration = Duration::from_millis(200);
/// Connections at once: a roll-over has two. One more replaces the oldest.
pub(crate) const CONNECTIONS: usize = 8;
/// Mode of the socket's file: root alone connects, also where the directory lets other users in.
const MODE: u32 = 0o600;
/// How the first name of the socket's file begins.
const BESIDE: &str = ".zds.";
/// First names that are tried.
const TRIES: u32 = 16;
/// A file with a first name that is older was left over.
const LEFT_OVER: Duration = Duration::from_secs(60);
/// How often it is looked whether the socket's file is there, and whether the agent ends.
const LOOK: Duration = Duration::from_millis(500);

/// The longest time between two looks while another process listens there: each is a connection that it has to close.
const LOOK_FOREIGN: Duration = Duration::from_secs(60);

/// A socket that listens, and its file.
pub(crate) struct Bound {
    socket: Socket,
    file: File,
}

/// Which file it is; inode numbers are given anew.
type File = (u64, u64, Option<SystemTime>);

fn file(path: &Path) -> io::Result<File> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino(), meta.created().ok()))
}

/// A socket with a name for the moment, which no other agent has: in each container the agent may be process 1.
fn bind_beside(path: &Path) -> io::Result<(Socket, PathBuf)> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    let mut tries = 0;
    loop {
        // Each has random keys.
        let number = RandomState::new().hash_one(tries) & 0xffff_ffff;
        let new = path.with_file_name(format!("{BESIDE}{number:08x}"));
        tries += 1;
        match socket.bind(&SockAddr::unix(&new)?) {
            Ok(()) => return Ok((socket, new)),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {}
            Err(e) => return Err(e),
        }
    }
}

/// Removes sockets of agents that were killed between the two names. One that has its first name needs it for a moment only.
fn remove_left_over(path: &Path) {
    let Some(dir) = path.parent() else { return };
    // What cannot be looked at or removed is in nobody's way.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(BESIDE);
        let is_old = |meta: fs::Metadata| {
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok());
            meta.file_type().is_socket() && age.is_some_and(|age| age > LEFT_OVER)
        };
        if is_named && entry.metadata().is_ok_and(is_old) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Listens there, in the place of what was there before. The socket listens already when it gets its name: one that did not
/// would look like the file of a process that has ended, and be taken away by an agent that looks at the same moment.
pub(crate) fn bind(path: &Path) -> io::Result<Bound> {
    remove_left_over(path);
    let (socket, new) = bind_beside(path)?;
    let named = || {
        // Before it listens: until then every connect(2) fails.
        fs::set_permissions(&new, fs::Permissions::from_mode(MODE))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let file = file(&new)?;
        fs::rename(&new, path)?;
        Ok(file)
    };
    match named() {
        Ok(file) => Ok(Bound { socket, file }),
        Err(e) => {
            let _ = fs::remove_file(&new);
            Err(e)
        }
    }
}

/// The same for a file that was lost, but never in the place of a process that listens: the agent of the next version
/// takes over while this one ends, and both would take the file from each other for ever.
fn bind_again(path: &Path) -> io::Result<Bound> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        // No file, or one that is left over. What cannot be found out counts as a process that listens.
        Err(e) if matches!(e.kind(), NotFound | ConnectionRefused) => bind(path),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        )),
    }
}

/// Accepts until the agent ends, then waits for the connections to end.
pub(crate) fn accept(shared: &Arc<Shared>, mut bound: Bound) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut failure = None;
    let (mut look_at, mut pause) = (Instant::now(), LOOK);
    while !shared.stops() {
        let path = &shared.options.path;
        if Instant::now() >= look_at && file(path).ok() != Some(bound.file) {
            match bind_again(path) {
                Ok(new) => {
                    (bound, failure, pause) = (new, None, LOOK);
                    shared.observer.socket(None);
                }
                Err(e) => {
                    let why = format!("{}: {e}", path.display());
                    if failure.as_ref() != Some(&why) {
                        shared.observer.socket(Some(&why));
                        failure = Some(why);
                    }
                    look_at = Instant::now() + pause;
                    if e.kind() == io::ErrorKind::AddrInUse {
                        pause = (pause * 2).min(LOOK_FOREIGN);
                    }
                }
            }
        }
        let mut fds = [PollFd::new(bound.socket.as_fd(), PollFlags::POLLIN)];
        // A failure leads to another look.
        let _ = poll(&mut fds, timeout(Instant::now() + LOOK));
        match bound.socket.accept() {
            Ok((socket, _)) => {
                threads.retain(|thread| !thread.is_finished());
                match begin(shared, socket) {
                    Ok(thread) => threads.push(thread),
                    Err(why) => shared.observer.stranger(&why),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            // No descriptor is free: the connection still waits, so that the next poll returns at once.
            Err(_) => {}
        }
        std::thread::sleep(PACE);
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Serves a connection on a thread of its own.
fn begin(shared: &Arc<Shared>, socket: Socket) -> Result<JoinHandle<()>, String> {
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|e| format!("it is not known whose it is: {e}"))?;
    if !shared.options.users.contains(&peer.uid()) {
        return Err(format!(
            "process {} of user {} is not ztunnel, which runs as root",
            peer.pid(),
            peer.uid()
        ));
    }
    let (connection, woken) =
        Connection::new(shared.next(), peer.pid(), socket).map_err(|e| e.to_string())?;
    let connection = Arc::new(connection);
    let mut connections = shared.connections();
    // A ztunnel that does not close what it has lost must not keep the one of now out.
    while connections.len() >= CONNECTIONS {
        connections.remove(0).replace();
    }
    connections.push(Arc::clone(&connection));
    let count = connections.len();
    drop(connections);
    shared.observer.connections(count);
    let of_thread = (Arc::clone(shared), Arc::clone(&connection));
    let serve = move || {
        let (shared, connection) = of_thread;
        let why = connection::serve(&shared, &connection, woken);
        end(&shared, &connection);
        drop(connection);
        shared.observer.closed(&why);
    };
    let thread = std::thread::Builder::new().name("zds-ztunnel".into());
    thread.spawn(serve).map_err(|e| {
        end(shared, &connection);
        format!("no thread for it: {e}")
    })
}

fn end(shared: &Shared, connection: &Arc<Connection>) {
    connection.requests.close();
    let mut connections = shared.connections();
    connections.retain(|other| other.id != connection.id);
    let count = connections.len();
    drop(connections);
    shared.observer.connections(count);
}
