//! Common network and shell tools. A guest has them only on request.
use crate::{At, Payload, Result};
use std::path::{Path, PathBuf};

/// Tools that tests often start.
pub const TOOLS: &str = "ip nft ipset tc ethtool ipvsadm unshare nsenter prlimit strace sh bash true false cat echo \
     env id kill ls mount umount readlink rm sleep stat touch uname \
     iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore \
     iptables-nft iptables-nft-save iptables-nft-restore ip6tables-nft ip6tables-nft-save ip6tables-nft-restore \
     iptables-legacy iptables-legacy-save iptables-legacy-restore \
     ip6tables-legacy ip6tables-legacy-save ip6tables-legacy-restore";

/// Directories that some of the tools read, or load shared objects from.
const DATA: &str = "/usr/lib/x86_64-linux-gnu/xtables /usr/lib64/xtables /usr/lib/xtables \
     /etc/iproute2 /usr/share/iproute2";

/// Directories of tools that may be missing from an ordinary user's PATH.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

impl Payload {
    /// Adds those of these tools (separated by spaces) that the host has, with their data and libraries, at the same paths.
    /// Returns the names of the others; tests that need them cannot run.
    pub fn tools<'a>(&mut self, names: &'a str) -> Result<Vec<&'a str>> {
        let mut missing = Vec::new();
        for name in names.split_whitespace() {
            let Some(path) = find(name) else {
                missing.push(name);
                continue;
            };
            self.program(&path)?;
            // The interpreter line of scripts is /bin/sh, wherever the host has it.
            if name == "sh" {
                self.program_at(&path, Path::new("/bin/sh"))?;
            }
        }
        let folders = DATA.split_whitespace().map(Path::new);
        for folder in folders.filter(|f| f.is_dir()) {
            self.tree(folder, folder, &[])?;
            let entries = folder.read_dir().at(folder)?;
            for path in entries.flatten().map(|e| e.path()) {
                if path.extension().is_some_and(|e| e == "so") && path.is_file() {
                    self.program(&path)?;
                }
            }
        }
        Ok(missing)
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    let folders = std::env::join_paths(folders.filter(|f| f.is_absolute())).ok()?;
    which::which_in_global(name, Some(folders)).ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_and_the_rest_is_taken() {
        let mut payload = Payload::new();
        let missing = payload.tools("true no-such-tool").unwrap();
        assert_eq!(missing, ["no-such-tool"]);
        assert!(
            payload
                .entries
                .iter()
                .any(|(path, _)| path.ends_with("/true"))
        );
        assert!(
            payload
                .entries
                .iter()
                .any(|(path, _)| path.ends_with("/libc.so.6"))
        );
    }
}
