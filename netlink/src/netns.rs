//! Network namespaces: a descriptor, an identity, and a thread to work in one.
//!
//! A network namespace belongs to a *thread*. Work in another one runs on a thread created for it ([`Netns::run`]),
//! or through a socket that was opened there and may be used from any thread. No thread of the caller ever changes
//! its namespace.

use std::fmt;
use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::fstat;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::sys::{namespace_type, socket_netns_cookie};
use crate::{Error, Result};

const OPEN: &str = "open network namespace";

/// `NET_NS_INIT_INO`: the inode of the initial network namespace of a machine, fixed since Linux 6.18 (`linux/nsfs.h`).
/// Older kernels allocate inodes from `0xf0000000` upwards, so no other namespace ever has this inode.
const NET_NS_INIT_INO: u64 = 0xEFFF_FFF9;
/// The number of links that the kernel follows from one path (`linux/namei.h`).
const MAXSYMLINKS: usize = 40;

/// Identity of a namespace: `st_dev` and `st_ino` of `fstat(2)`, see `namespaces(7)`.
///
/// The kernel reuses the inode of a deleted namespace: compare identities only while a [`Netns`] holds the namespaces
/// open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "st_ino")]
pub struct NetnsId {
    /// Device of the namespace file system.
    pub dev: u64,
    /// Inode in it.
    pub ino: u64,
}

impl NetnsId {
    /// Identity of a link in `/proc/PID/ns`, without opening the namespace: for a namespace that exists as long as its
    /// process, so that it need not be held open here.
    fn of(link: &Path) -> Result<Self> {
        let meta = std::fs::metadata(link).map_err(|e| open_error(link, &e))?;
        allowed(link, &meta)?;
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

/// An open network namespace. The namespace lives at least as long as this value.
#[derive(Debug)]
#[doc(alias = "setns")]
pub struct Netns {
    fd: OwnedFd,
    id: NetnsId,
    /// How it was opened, for messages.
    origin: PathBuf,
}

thread_local! {
    /// The namespace that this thread was created for; `None` for every other thread.
    static ENTERED: std::cell::Cell<Option<NetnsId>> = const { std::cell::Cell::new(None) };
}

impl Netns {
    /// Opens a namespace by path: `/proc/PID/ns/net`, `/run/netns/NAME`.
    ///
    /// # Errors
    /// The path does not exist or may not be opened, it is not a namespace (a plain file remains in `/run/netns` after its
    /// bind mount is removed), or it is a namespace of another type.
    pub fn open(path: &Path) -> Result<Self> {
        // O_NONBLOCK: opening must not block, whatever the path refers to.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| open_error(path, &e))?;
        let meta = file.metadata().map_err(|e| open_error(path, &e))?;
        allowed(path, &meta)?;
        Self::checked(OwnedFd::from(file), path.to_path_buf())
    }

    /// The namespace of a process, by its id in the pid namespace of the caller: `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// As [`Netns::open`]; `EACCES` without `CAP_SYS_PTRACE` for a process of another user.
    pub fn of_pid(pid: u32) -> Result<Self> {
        Self::open(&PathBuf::from(format!("/proc/{pid}/ns/net")))
    }

    /// Takes ownership of a descriptor that another component opened or another process sent.
    ///
    /// # Errors
    /// It is not a network namespace.
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let origin = PathBuf::from(format!("descriptor {}", fd.as_raw_fd()));
        Self::checked(fd, origin)
    }

    /// The namespace of the calling thread: `/proc/thread-self/ns/net`.
    /// (`/proc/self` would be the main thread's.)
    ///
    /// # Errors
    /// As [`Netns::open`], if `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A new, empty namespace: `unshare(CLONE_NEWNET)` on a thread that ends immediately.
    ///
    /// Nothing is created on a file system. The kernel deletes the namespace after the last descriptor, process or socket
    /// that refers to it is closed, so also if this process is killed. `lo` exists and is down, as the kernel creates it.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` ([`Error::is_permission`]); `ENOSPC` if `user.max_net_namespaces` is reached.
    pub fn create() -> Result<Self> {
        on_new_thread(OPEN, || {
            unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|e| Error::kernel("create", "a network namespace", e as i32))?;
            let mut made = Self::current()?;
            // The thread ends now, so a path through it would be invalid.
            made.origin = PathBuf::from(made.id.to_string());
            Ok(made)
        })?
    }

    /// The identity of the namespace.
    #[must_use]
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// The cookie of the namespace (`getsockopt(SO_NETNS_COOKIE)`), unique until the machine is restarted, unlike the inode,
    /// which is reused. `None` if the kernel is older than 5.14.
    ///
    /// # Errors
    /// As [`Netns::run`]; a socket cannot be opened in the namespace.
    #[doc(alias = "SO_NETNS_COOKIE")]
    pub fn cookie(&self) -> Result<Option<u64>> {
        let failed = |e: &io::Error| {
            let object = self.origin.display().to_string();
            Error::io("read the cookie of network namespace", object, e)
        };
        let socket = self.run(UnixDatagram::unbound)?;
        let socket = socket.map_err(|e| failed(&e))?;
        match socket_netns_cookie(socket.as_fd()) {
            Ok(cookie) => Ok(Some(cookie)),
            Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            Err(e) => Err(failed(&e)),
        }
    }

    /// A path by which other processes can open the namespace while this value exists: `/proc/PID/fd/N`. `PID` is the number of
    /// this process in the PID namespace of `/proc`, which may be another one than that of the process (`unshare --pid`): there
    /// the number of getpid(2) is that of another process. Without `/proc` it is `self`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        let own = std::fs::read_link("/proc/self");
        let own = own.unwrap_or_else(|_| PathBuf::from("self"));
        let fd = self.fd.as_raw_fd().to_string();
        Path::new("/proc").join(own).join("fd").join(fd)
    }

    /// The path by which it was opened, or a description, for messages.
    #[must_use]
    pub fn origin(&self) -> &Path {
        &self.origin
    }

    /// Another descriptor of the same namespace: `fcntl(F_DUPFD_CLOEXEC)`.
    ///
    /// # Errors
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

    /// The reason why this namespace is not separate from the host or the caller: it is the namespace of the process or of
    /// the calling thread, the initial namespace of the machine, or that of process 1. `None` for every other namespace.
    ///
    /// Process 1 identifies the host's namespace from another one, also on kernels older than 6.18 and on a node that is
    /// itself a container. Looking at it needs `CAP_SYS_PTRACE`; where that is denied, [`Netns::is_initial`] decides.
    ///
    /// # Errors
    /// The namespace of the caller cannot be read, so that nothing can be compared; that of process 1 cannot be read for
    /// another reason than a missing permission; those of [`Netns::is_initial`].
    pub fn host_reason(&self) -> Result<Option<&'static str>> {
        let own = [
            NetnsId::of(Path::new("/proc/self/ns/net"))?,
            NetnsId::of(Path::new("/proc/thread-self/ns/net"))?,
        ];
        if own.contains(&self.id) {
            return Ok(Some(
                "it is the network namespace that this program runs in",
            ));
        }
        let is_initial = match NetnsId::of(Path::new("/proc/1/ns/net")) {
            Ok(first) if first == self.id => {
                return Ok(Some("it is the network namespace of process 1, the host's"));
            }
            Ok(_) => self.id.ino == NET_NS_INIT_INO,
            // With `hidepid` the process is not found.
            Err(e) if e.is_permission() || e.is_not_found() => self.is_initial()?,
            Err(e) => return Err(e),
        };
        Ok(is_initial.then_some("it is the first network namespace of this machine, the host's"))
    }

    /// Whether this is the initial network namespace of the machine. Its inode is fixed since Linux 6.18. Before, only that
    /// namespace has sysctls that are not separate for each namespace, such as `net.core.netdev_max_backlog`
    /// (`sysctl_core_init()` in net/core/sysctl_net_core.c).
    ///
    /// # Errors
    /// Before Linux 6.18: as [`Netns::run`]; sysctls cannot be read.
    pub fn is_initial(&self) -> Result<bool> {
        if has_fixed_inode() {
            return Ok(self.id.ino == NET_NS_INIT_INO);
        }
        self.run(|| {
            let find = |path| std::fs::metadata(path).map_err(|e| Error::io("find", path, &e));
            // Every namespace has this directory, unless sysctls are not visible at all.
            find("/proc/sys/net/ipv4/conf")?;
            match find("/proc/sys/net/core/netdev_max_backlog") {
                Err(e) if e.is_not_found() => Ok(false),
                found => found.map(|_| true),
            }
        })?
    }

    /// Calls `f` on a new thread that has entered this namespace with `setns(2)`, and waits for it.
    ///
    /// The thread ends afterwards, so no other work can run in the namespace by accident. A socket that `f` returns
    /// stays in the namespace. A nested call for the same namespace runs on the current thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` over the namespace; `EAGAIN` if no thread can be created. In both cases `f` was not
    /// called.
    ///
    /// # Panics
    /// A panic of `f` is resumed in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        // In a nested call this thread is already in the namespace.
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

/// Fails with `EACCES` if access to the namespace is denied. Linux 5.10 returns no error in that case: the link in `/proc/PID/ns`
/// is empty, and leads to the directory that contains it (`fs/proc/namespaces.c`). The path may lead there by further links.
fn allowed(path: &Path, opened: &Metadata) -> Result<()> {
    if !opened.is_dir() {
        return Ok(());
    }
    let mut link = path.to_path_buf();
    for _ in 0..MAXSYMLINKS {
        let Ok(next) = link.read_link() else {
            break;
        };
        if next.as_os_str().is_empty() {
            let denied = io::Error::from_raw_os_error(libc::EACCES);
            return Err(open_error(path, &denied));
        }
        link = link.with_file_name(next);
    }
    Ok(())
}

/// True if the initial network namespace is known to have the inode [`NET_NS_INIT_INO`], as it does since Linux 6.18.
fn has_fixed_inode() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse::<u32>().ok();
        number().zip(number()) >= Some((6, 18))
    })
}

/// The object of an error, with the remedy: the errno (EAGAIN) is the same for processes and memory.
fn thread_to(operation: &str) -> String {
    format!(
        "a thread to {operation}, for which the limits of processes (pids.max of the cgroup, ulimit -u) and of memory have to leave room"
    )
}

/// Runs `f` on a thread that ends with it; a panic is resumed in the caller.
fn on_new_thread<T: Send>(operation: &str, f: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, f)
            .map_err(|e| Error::io("start", thread_to(operation), &e))?;
        worker.join().or_else(|panic| resume_unwind(panic))
    })
}

fn open_error(path: &Path, error: &io::Error) -> Error {
    let object = path.display().to_string();
    if error.kind() == io::ErrorKind::NotFound && path.starts_with("/proc") {
        let why = match Path::new("/proc/self").try_exists() {
            Ok(false) => "/proc is not mounted",
            _ => "has the process ended?",
        };
        let object = format!("{object} ({why})");
        return Error::io(OPEN, object, error);
    }
    Error::io(OPEN, object, error)
}

/// The name of a `CLONE_NEW*` flag, as `/proc/PID/ns` spells it.
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
