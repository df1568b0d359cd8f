//! Sysctls of a network namespace, also from inside a container.
//!
//! A container without `privileged` has its `/proc/sys` mounted read-only; the node's, accessed through the root of the
//! node's first process, is writable.

use crate::of_node::ROOTS;
use std::io;
use std::path::{Path, PathBuf};
use weir_cni::sysctl::{OWN, absent};

pub use weir_cni::sysctl::{find, read};

/// Writes a value as `sysctl -w net/KEY=VALUE` does, in the calling thread's network namespace.
///
/// # Errors
/// Those of open(2) and write(2): ENOENT as [`read`]; EACCES without CAP_NET_ADMIN over the namespace; EROFS in a container
/// that has neither a writable `/proc/sys` nor the node's procfs at `/host/proc`, or may not follow it (CAP_SYS_PTRACE);
/// EINVAL for a value that the key does not take.
pub fn write(key: &str, value: &str) -> io::Result<()> {
    let nodes = ROOTS.map(|root| Path::new(root).join(OWN.trim_start_matches('/')));
    write_below(Path::new(OWN), &nodes, key, value).map_err(absent)
}

fn write_below(own: &Path, nodes: &[PathBuf], key: &str, value: &str) -> io::Result<()> {
    let refused = match std::fs::write(own.join(key), value) {
        Err(e) if e.kind() == io::ErrorKind::ReadOnlyFilesystem => e,
        done => return done,
    };
    for node in nodes {
        match std::fs::write(node.join(key), value) {
            Ok(()) => return Ok(()),
            // Also mounted read-only, no such mount, or no permission to follow it.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::NotFound
                        | io::ErrorKind::PermissionDenied
                ) => {}
            Err(e) => return Err(e),
        }
    }
    Err(refused)
}

/// Returns the name of a key as sysctl(8) takes it: `net.ipv4.conf.br0/10.rp_filter` for that of the link `br0.10`.
#[must_use]
pub fn name(key: &str) -> String {
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    };
    format!("net.{}", key.chars().map(swap).collect::<String>())
}

/// Describes an error and the remedy.
#[must_use]
pub fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "/proc/sys is mounted read-only here; mount the node's /proc at /host/proc, or give the container a writable one"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netlink::Netns;

    #[test]
    fn a_key_has_the_name_that_sysctl_takes() {
        assert_eq!(
            name("ipv4/conf/br0.10/rp_filter"),
            "net.ipv4.conf.br0/10.rp_filter"
        );
    }

    /// A link that is gone has no keys; that there are none at all says nothing about it.
    #[test]
    fn a_key_is_not_taken_for_unknown_where_there_is_no_proc_sys() {
        let netns = match Netns::create() {
            Ok(netns) => netns,
            Err(e) if e.is_permission() => return println!("skipped: {e}"),
            Err(e) => panic!("{e}"),
        };
        let outcome = netns.run(|| {
            if let Err(e) = weir_testing::container::empty("/proc/sys".as_ref()) {
                return Err(format!("no mount namespace: {e}"));
            }
            for done in [
                read("ipv4/conf/all/rp_filter").map(drop),
                write("ipv4/conf/all/rp_filter", "0"),
            ] {
                let error = done.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::Other);
                assert!(describe(&error).contains("mount /proc"), "{error}");
            }
            Ok(())
        });
        if let Err(why) = outcome.unwrap() {
            println!("skipped: {why}");
        }
    }

    #[test]
    fn where_proc_sys_is_read_only_that_of_the_node_is_used() {
        let netns = match Netns::create() {
            Ok(netns) => netns,
            Err(e) if e.is_permission() => return println!("skipped: {e}"),
            Err(e) => panic!("{e}"),
        };
        let key = "ipv4/conf/lo/route_localnet";
        let outcome = netns.run(|| {
            if let Err(e) = weir_testing::container::read_only("/proc/sys".as_ref()) {
                return Err(format!("no mount namespace: {e}"));
            }
            if let Err(e) = std::fs::metadata("/proc/1/root/proc/sys") {
                return Err(format!("the first process may not be looked at: {e}"));
            }
            let refused = std::fs::write(Path::new(OWN).join(key), "1").map_err(|e| e.kind());
            assert_eq!(refused, Err(io::ErrorKind::ReadOnlyFilesystem));
            assert_eq!(read(key).unwrap(), "0");
            write(key, "1").unwrap();
            assert_eq!(read(key).unwrap(), "1");
            // A key that the kernel does not have is still refused.
            let missing = write("ipv4/conf/nothing/route_localnet", "1").map_err(|e| e.kind());
            assert_eq!(missing, Err(io::ErrorKind::NotFound));
            let none = write_below(Path::new(OWN), &[], key, "0").map_err(|e| describe(&e));
            assert!(none.unwrap_err().contains("mount the node's /proc"));
            assert_eq!(read(key).unwrap(), "1");
            Ok(())
        });
        if let Err(why) = outcome.unwrap() {
            println!("skipped: {why}");
        }
    }
}
