//! Sysctls of a network namespace.
//!
//! `/proc/sys/net` belongs to the network namespace of the thread that opens a file in it (`net_ctl_header_lookup`,
//! net/sysctl_net.c), regardless of the mount.

use std::io;
use std::path::Path;
use weir_netlink::{Error, Result};

/// The directory of these sysctls.
pub const OWN: &str = "/proc/sys/net";

/// Reads `net/KEY` in the calling thread's network namespace, without surrounding white space; `key` is for example
/// `ipv4/conf/lo/accept_local`.
///
/// # Errors
/// Those of open(2) and read(2): ENOENT for a key that this kernel or this namespace does not have, not where there are no sysctls
/// at all.
pub fn read(key: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(Path::new(OWN).join(key)).map_err(absent)?;
    Ok(text.trim().to_owned())
}

/// Returns the error of a key in `/proc/sys/net`. Without `/proc/sys`, as in a procfs that was mounted with `subset=pid`,
/// every key seems to be unknown to the kernel.
#[must_use]
pub fn absent(error: io::Error) -> io::Error {
    let is_all = || !Path::new(OWN).join("ipv4/conf/all").exists();
    match error.kind() {
        io::ErrorKind::NotFound if is_all() => {
            io::Error::other("/proc/sys/net has no sysctls here; mount /proc with all of them")
        }
        _ => error,
    }
}

/// Like [`read`]; `None` for a key that this kernel or this namespace does not have.
///
/// # Errors
/// The key exists but cannot be read: its value is unknown.
pub fn find(key: &str) -> Result<Option<String>> {
    match read(key) {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", format!("sysctl net/{key}"), &e)),
    }
}
