//! The listening socket: bound, accepted from, and bound again if its file is lost.

use crate::connection::{self, Connection};
use crate::packet::timeout;
use crate::server::Shared;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 16;
/// Minimum interval between two accepted connections.
const PACE: Duration = Duration::from_millis(200);
/// Maximum number of connections; a roll-over has two. One more replaces the oldest.
pub(crate) const CONNECTIONS: usize = 8;
/// Mode of the socket's file: only root may connect, even if other users may enter the directory.
const MODE: u32 = 0o600;
/// Prefix of the temporary name of the socket's file.
const BESIDE: &str = ".zds.";
/// Number of temporary names that are tried.
const TRIES: u32 = 16;
/// Age from which a file with a temporary name counts as left over.
const LEFT_OVER: Duration = Duration::from_secs(60);
/// Maximum length of a socket's path: `sun_path` without the zero at its end.
const PATH: usize = 107;
/// Interval of checks whether the socket's file exists, and whether the agent stops.
const LOOK: Duration = Duration::from_millis(500);

/// Time that connections have to end by themselves when the agent stops: ztunnel usually answers a request within milliseconds.
const STOP: Duration = Duration::from_secs(1);
/// Longest interval between checks while another process listens there: each check is a connection that it has to close.
const LOOK_FOREIGN: Duration = Duration::from_secs(60);

/// A listening socket and its file.
pub(crate) struct Bound {
    socket: Socket,
    file: File,
}

/// The identity of a file; inode numbers are reused.
type File = (u64, u64, Option<SystemTime>);

fn file(path: &Path) -> io::Result<File> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino(), meta.created().ok()))
}

/// Creates a socket with a unique temporary name: in each container, the agent may be process 1. Binds it through a descriptor of the
/// directory, because the path with that name may be longer than [`PATH`].
fn bind_beside(path: &Path) -> io::Result<(Socket, PathBuf)> {
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    let held = fs::File::open(path.with_file_name("."))?;
    let dir = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    let mut tries = 0;
    loop {
        // Each `RandomState` has random keys.
        let number = RandomState::new().hash_one(tries) & 0xffff_ffff;
        let name = format!("{BESIDE}{number:08x}");
        tries += 1;
        match socket.bind(&SockAddr::unix(dir.join(&name))?) {
            Ok(()) => return Ok((socket, path.with_file_name(name))),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {}
            Err(e) => return Err(e),
        }
    }
}

/// Removes sockets of agents that were killed before the rename. A temporary name is only used for a moment.
fn remove_left_over(path: &Path) {
    let Some(dir) = path.parent() else { return };
    // Files that cannot be examined or removed do no harm.
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

/// Checks that a socket may be bound at this path: peers can connect to it, and at most a socket, which an earlier process has left, is
/// there.
///
/// # Errors
/// The path is too long, or another file is there; or one of stat(2).
pub fn may_bind_at(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if length > PATH {
        let why = format!(
            "the path has {length} bytes, and no process can connect to a socket by more than {PATH}; choose a shorter one"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a file that is not a socket is there; move it away, or choose another path",
        )),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Listens at `path` and replaces a socket that was there. The socket listens before it gets its name: otherwise it
/// would look like the file of an ended process, and another agent could replace it at that moment.
pub(crate) fn bind(path: &Path) -> io::Result<Bound> {
    may_bind_at(path)?;
    remove_left_over(path);
    let (socket, new) = bind_beside(path)?;
    let named = || {
        // Before listen(2): until then every connect(2) fails.
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

/// Binds again after the file was lost, but never replaces a process that listens: the agent of the next version
/// takes over while this one stops, and both would take the file from each other forever.
fn bind_again(path: &Path) -> io::Result<Bound> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let socket = Socket::new(Domain::UNIX, Type::SEQPACKET.cloexec(), None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        // No file, or a left-over one. In doubt, a process counts as listening.
        Err(e) if matches!(e.kind(), NotFound | ConnectionRefused) => bind(path),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there",
        )),
    }
}

/// Accepts connections until the agent stops, then waits until they have ended, and closes those that have not after [`STOP`].
pub(crate) fn accept(shared: &Arc<Shared>, mut bound: Bound) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut failure = None;
    let (mut look_at, mut pause) = (Instant::now(), LOOK);
    while !shared.stops() {
        let path = &shared.options.path;
        let is_due = Instant::now() >= look_at;
        let is_there = is_due && file(path).ok() == Some(bound.file);
        if is_there && failure.take().is_some() {
            // Only its file could not be read for a moment.
            shared.observer.socket(None);
        }
        if is_due && !is_there {
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
        // After a failure, the loop checks again.
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
            // No file descriptor is free: the connection still waits, and the next poll returns immediately.
            Err(_) => {}
        }
        std::thread::sleep(PACE);
    }
    let until = Instant::now() + STOP;
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = shared.connections().clone();
    left.iter().for_each(|connection| connection.close());
    for thread in threads {
        let _ = thread.join();
    }
}

/// Serves a connection on a separate thread.
fn begin(shared: &Arc<Shared>, socket: Socket) -> Result<JoinHandle<()>, String> {
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|e| format!("reading the process and user of the peer failed: {e}"))?;
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
    // Stale connections of a ztunnel must not block the current one.
    while connections.len() >= CONNECTIONS {
        connections.remove(0).close();
    }
    connections.push(Arc::clone(&connection));
    shared.observer.connections(connections.len());
    drop(connections);
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
        format!("cannot start a thread for it: {e}")
    })
}

fn end(shared: &Shared, connection: &Arc<Connection>) {
    connection.requests.close();
    let mut connections = shared.connections();
    connections.retain(|other| other.id != connection.id);
    // Under the lock: of two changes at once, the second one is reported last.
    shared.observer.connections(connections.len());
}
