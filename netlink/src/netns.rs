//! Network namespaces: a descriptor, an identity, and a thread to work in one.
//!
//! A network namespace belongs to a *thread*. Work in another one happens on a
//! thread made for it ([`Netns::run`]), or through a socket that was opened
//! there and may then be used from anywhere. No thread of the caller ever
//! changes its namespace.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::sys::namespace_type;
use crate::{Error, Result};

const OPEN: &str = "open network namespace";

/// `NET_NS_INIT_INO`: the inode of the first network namespace of a machine.
/// Fixed since Linux 6.18 (`linux/nsfs.h`). Before that the number was given
/// out from `0xf0000000` upwards, so no other namespace ever has this one.
const NET_NS_INIT_INO: u64 = 0xEFFF_FFF9;

/// What makes two descriptors the same namespace: `st_dev` and `st_ino` of
/// `fstat(2)`, see `namespaces(7)`.
///
/// The kernel gives the number of a dead namespace to a new one: compare
/// identities only while a [`Netns`] holds what they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode in it.
    pub ino: u64,
}

impl NetnsId {
    /// Of a link in `/proc/PID/ns`, without opening the namespace: for one that lives as long as its
    /// process does, and is not our own to hold.
    fn of(link: &Path) -> Result<Self> {
        let meta = std::fs::metadata(link).map_err(|e| open_error(link, &e))?;
        Ok(Self {
            dev: meta.dev(),
            ino: meta.ino(),
        })
    }
}

impl fmt::Display for NetnsId {
    /// As `readlink /proc/PID/ns/net` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net:[{}]", self.ino)
    }
}

/// An open network namespace. It lives at least as long as this value.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
    id: NetnsId,
    /// How it was found, for messages.
    origin: PathBuf,
}

thread_local! {
    /// The namespace that this thread was made for; none for every other thread.
    static ENTERED: std::cell::Cell<Option<NetnsId>> = const { std::cell::Cell::new(None) };
}

impl Netns {
    /// Opens a namespace by path: `/proc/PID/ns/net`, `/run/netns/NAME`.
    ///
    /// # Errors
    ///
    /// The path is missing or may not be opened, it is not a namespace (a plain
    /// file stays where a bind mount in `/run/netns` went away), or it is a
    /// namespace of another kind.
    pub fn open(path: &Path) -> Result<Self> {
        // O_NONBLOCK: whatever the path turns out to be, opening it must not wait.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| open_error(path, &e))?;
        Self::checked(OwnedFd::from(file), path.to_path_buf())
    }

    /// The namespace of a process, by the id that it has in our pid namespace:
    /// `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// As [`Netns::open`]. `EACCES` needs `CAP_SYS_PTRACE` or the same user.
    pub fn of_pid(pid: u32) -> Result<Self> {
        Self::open(&PathBuf::from(format!("/proc/{pid}/ns/net")))
    }

    /// Takes a descriptor that somebody else opened or sent.
    ///
    /// # Errors
    ///
    /// It is not a network namespace.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let origin = PathBuf::from(format!("descriptor {}", fd.as_raw_fd()));
        Self::checked(fd, origin)
    }

    /// The namespace of the calling thread: `/proc/thread-self/ns/net`.
    /// (`/proc/self` would be the main thread's.)
    ///
    /// # Errors
    ///
    /// As [`Netns::open`]: `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A new, empty namespace: `unshare(CLONE_NEWNET)` on a thread that ends at
    /// once.
    ///
    /// Nothing is left on a file system. It goes away with the last descriptor,
    /// process or socket in it, so also when this process is killed. `lo` is
    /// there and down, as the kernel makes it.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` ([`Error::is_permission`]); `ENOSPC` when
    /// `user.max_net_namespaces` is reached.
    pub fn create() -> Result<Self> {
        on_new_thread(OPEN, || {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| Error::kernel("create", "a network namespace", e as i32))?;
            let mut made = Self::current()?;
            // The thread ends now: its path would name nothing.
            made.origin = PathBuf::from(made.id.to_string());
            Ok(made)
        })?
    }

    /// Which namespace this is.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// A path by which other processes can open it while this value lives:
    /// `/proc/PID/fd/N`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.fd.as_raw_fd()
        ))
    }

    /// How it was found: the path it was opened by, for messages.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Another descriptor of the same namespace: `fcntl(F_DUPFD_CLOEXEC)`.
    ///
    /// # Errors
    ///
    /// `EMFILE`: no descriptor is left.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self
            .fd
            .try_clone()
            .map_err(|e| Error::io(OPEN, self.origin.display().to_string(), &e))?;
        Ok(Self {
            fd,
            id: self.id,
            origin: self.origin.clone(),
        })
    }

    /// Why this namespace is not one apart from ours, in words: it is that of the process or of the
    /// calling thread, the machine's first one, or that of process 1. `None` for every other.
    ///
    /// Process 1 is a second look at the same question, for callers that run in
    /// a namespace of their own: it needs `CAP_SYS_PTRACE`, and on kernels older
    /// than 6.18 it is the only way to know the host's namespace from outside.
    /// Where it may not be read the other checks decide alone; a program that
    /// runs on the host still sees its own namespace told.
    ///
    /// # Errors
    ///
    /// Our own cannot be read, so that nothing can be compared.
    pub fn host_reason(&self) -> Result<Option<&'static str>> {
        let own = [
            NetnsId::of(Path::new("/proc/self/ns/net"))?,
            NetnsId::of(Path::new("/proc/thread-self/ns/net"))?,
        ];
        Ok(if own.contains(&self.id) {
            Some("it is the network namespace that this program runs in")
        } else if self.id.ino == NET_NS_INIT_INO {
            Some("it is the first network namespace of this machine, the host's")
        } else if NetnsId::of(Path::new("/proc/1/ns/net")).is_ok_and(|first| first == self.id) {
            Some("it is the network namespace of process 1, the host's")
        } else {
            None
        })
    }

    /// Calls `f` on a thread of its own that has entered this namespace, and
    /// waits for it: `setns(2)`.
    ///
    /// The thread ends afterwards, so no other work can ever land in the
    /// namespace by accident. A socket that `f` returns stays in it. Called by `f`
    /// again for the same namespace, it runs on the thread that is there already.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` over the namespace; `EAGAIN` when no
    /// thread can be made. `f` was not called then.
    ///
    /// # Panics
    ///
    /// A panic of `f` goes on in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        // Work that calls for more work in the same namespace is there already.
        if ENTERED.get() == Some(self.id) {
            return Ok(f());
        }
        on_new_thread("enter network namespace", || {
            setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(|e| {
                let object = self.origin.display().to_string();
                Error::kernel("enter network namespace", object, e as i32)
            })?;
            ENTERED.set(Some(self.id));
            Ok(f())
        })?
    }

    fn checked(fd: OwnedFd, origin: PathBuf) -> Result<Self> {
        let object = || origin.display().to_string();
        let remedy = "give a network namespace, as /proc/PID/ns/net or a file in /run/netns";
        let stats = fstatfs(&fd).map_err(|e| Error::kernel(OPEN, object(), e as i32))?;
        if stats.filesystem_type() != NSFS_MAGIC {
            let reason = format!("it is not a namespace; {remedy}");
            return Err(Error::refused(OPEN, object(), reason));
        }
        let kind = namespace_type(fd.as_fd()).map_err(|e| Error::io(OPEN, object(), &e))?;
        if kind != libc::CLONE_NEWNET {
            let reason = format!("it is a namespace of kind {}; {remedy}", kind_name(kind));
            return Err(Error::refused(OPEN, object(), reason));
        }
        let stat = fstat(&fd).map_err(|e| Error::kernel(OPEN, object(), e as i32))?;
        Ok(Self {
            fd,
            id: NetnsId {
                dev: stat.st_dev,
                ino: stat.st_ino,
            },
            origin,
        })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Runs `f` on a thread that ends with it; a panic goes on in the caller.
fn on_new_thread<T: Send>(operation: &str, f: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, f)
            .map_err(|e| Error::io(operation, "a thread for it", &e))?;
        worker.join().or_else(|panic| resume_unwind(panic))
    })
}

fn open_error(path: &Path, error: &io::Error) -> Error {
    let object = path.display().to_string();
    if error.kind() == io::ErrorKind::NotFound && path.starts_with("/proc") {
        let object = format!("{object} (has the process ended?)");
        return Error::io(OPEN, object, error);
    }
    Error::io(OPEN, object, error)
}

/// The word for a `CLONE_NEW*` flag, as `/proc/PID/ns` spells it.
fn kind_name(kind: i32) -> String {
    match kind {
        libc::CLONE_NEWNS => "mnt".to_owned(),
        libc::CLONE_NEWUTS => "uts".to_owned(),
        libc::CLONE_NEWIPC => "ipc".to_owned(),
        libc::CLONE_NEWUSER => "user".to_owned(),
        libc::CLONE_NEWPID => "pid".to_owned(),
        libc::CLONE_NEWCGROUP => "cgroup".to_owned(),
        other => format!("{other:#x}"),
    }
}
