//! Sockets with an owner, as `meta skuid` and `-m owner` match it.
//!
//! The kernel takes the owner of a packet from the credentials of the file that its
//! socket was opened as (`f_cred->fsuid`). `setfsuid(2)` changes those of one
//! thread, so a separate thread opens the socket, and the rights of other threads do not
//! change: no child process and no `setuid` is needed.

use std::fmt;
use std::fs::{File, Metadata, metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use weir_netlink::{self as netlink, Error, Netns, Result};

/// The user and the group that a socket is opened as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// `fsuid`.
    pub uid: u32,
    /// `fsgid`.
    pub gid: u32,
}

impl Owner {
    /// The mesh proxy: user and group 1337.
    pub const PROXY: Self = Self {
        uid: 1337,
        gid: 1337,
    };
    /// An application: user and group 1000.
    pub const APPLICATION: Self = Self {
        uid: 1000,
        gid: 1000,
    };
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Maps these numbers from the user namespace of a network namespace: rules there use the numbers of that user namespace.
    ///
    /// # Errors
    /// The numbers are not mapped there, or no process in that user namespace is visible.
    pub fn inside(self, netns: &Netns) -> Result<Self> {
        let refused = |why: String| {
            let object = format!("{self} of the pod's user namespace");
            Error::refused("open sockets as", object, why)
        };
        let failed = |e: &std::io::Error| Error::io("read", "the pod's user namespace", e);
        let of_pod = match netns.owner()? {
            netlink::Owner::Own => return Ok(self),
            netlink::Owner::Other(fd) => File::from(fd).metadata().map_err(|e| failed(&e))?,
            netlink::Owner::OutOfSight => {
                let why =
                    "it is not a descendant of the one that weir runs in; run weir on the node";
                return Err(refused(why.to_owned()));
            }
        };
        let Some(process) = process_in(&of_pod).map_err(|e| failed(&e))? else {
            let why = "no process there is seen in /proc, whose uid_map says who they are; run weir in the node's PID namespace";
            return Err(refused(why.to_owned()));
        };
        let mapped = |file: &str, number: u32| {
            let path = process.join(file);
            let text = std::fs::read_to_string(&path)
                .map_err(|e| Error::io("read", path.display().to_string(), &e))?;
            let outside = outside(&text, number);
            outside.ok_or_else(|| refused(format!("{number} is not in its {file}")))
        };
        Ok(Self {
            uid: mapped("uid_map", self.uid)?,
            gid: mapped("gid_map", self.gid)?,
        })
    }

    /// Calls `f` in a namespace, on a thread that opens files as this owner.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SETUID` and `CAP_SETGID`, or if the user namespace
    /// does not map the number; as [`Netns::run`].
    pub fn run<T: Send>(self, netns: &Netns, f: impl FnOnce() -> T + Send) -> Result<T> {
        netns.run(|| {
            self.become_it()?;
            Ok(f())
        })?
    }

    /// Makes the calling thread open sockets as this owner from now on. The group is set
    /// first. The calls return the previous ID, never an
    /// error, so each is repeated to check that it took effect.
    pub(crate) fn become_it(self) -> Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setfsgid(gid);
        setfsuid(uid);
        if setfsgid(gid) == gid && setfsuid(uid) == uid {
            return Ok(());
        }
        Err(Error::kernel(
            "open sockets as",
            self.to_string(),
            nix::libc::EPERM,
        ))
    }
}

/// Finds the `/proc` directory of a process in this user namespace.
fn process_in(user_ns: &Metadata) -> std::io::Result<Option<PathBuf>> {
    let id = |of: &Metadata| (of.dev(), of.ino());
    for entry in Path::new("/proc").read_dir()? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_process = name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit()));
        // A process that has exited in the meantime has no namespace.
        if is_process && metadata(path.join("ns/user")).is_ok_and(|of| id(&of) == id(user_ns)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Maps an ID inside a user namespace to the ID outside, by its `uid_map` or `gid_map`. Each line has the first ID inside, the
/// first ID outside, and the number of IDs.
fn outside(map: &str, inside: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (first, outside, count) = (next()?, next()?, next()?);
        let place = inside.checked_sub(first).filter(|place| *place < count)?;
        outside.checked_add(place)
    })
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::outside;

    #[test]
    fn numbers_are_looked_up_in_the_lines_of_the_map() {
        let map = "         0     100000       1000\n      1337     201337          1\n";
        for (inside, expected) in [
            (0, Some(100_000)),
            (999, Some(100_999)),
            (1000, None),
            (1337, Some(201_337)),
            (1338, None),
        ] {
            assert_eq!(outside(map, inside), expected, "{inside}");
        }
        assert_eq!(outside("0 0 4294967295", 1337), Some(1337));
        assert_eq!(outside("0 4294967295 2", 1), None);
        assert_eq!(outside("0 one 2", 1), None);
    }
}
