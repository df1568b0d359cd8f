//! The namespace that a directory of pins belongs to. The directory is named after the inode of the namespace, which the kernel reuses
//! for another namespace later; a directory `netns_COOKIE` inside records the cookie. Before 5.14 there are no cookies.

use crate::failed;
use crate::pins::{Bpffs, entries};
use std::path::{Path, PathBuf};
use weir_netlink::{Netns, Result};

/// Prefix of the directory with the cookie of the namespace. A bpf file system allows no dot in names.
const COOKIE: &str = "netns_";

/// Creates the directory of a namespace, and records its cookie.
pub(crate) fn make_folder(bpffs: &Bpffs, netns: &Netns) -> Result<()> {
    let folder = bpffs.folder(netns);
    let cookie = netns.cookie()?;
    let mark = cookie.map(|cookie| folder.join(format!("{COOKIE}{cookie}")));
    for path in [Some(folder), mark].into_iter().flatten() {
        let made = std::fs::create_dir_all(&path);
        made.map_err(|e| failed("create", &path.display().to_string(), &e))?;
    }
    Ok(())
}

/// True if the pins in a directory belong to a former namespace with the same inode as this one. `None`: the directory has no
/// cookie, or the kernel does not support them.
pub(crate) fn is_of_another(folder: &Path, netns: &Netns) -> Result<Option<bool>> {
    let cookie_of = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix(COOKIE)?;
        name.parse::<u64>().ok()
    };
    let Some(cookie) = entries(folder)?.into_iter().find_map(cookie_of) else {
        return Ok(None);
    };
    Ok(netns.cookie()?.map(|own| own != cookie))
}

/// False if the pins are known to belong to another namespace, or cannot be read. For output only.
pub(crate) fn may_be_own(folder: &Path, netns: &Netns) -> bool {
    is_of_another(folder, netns).is_ok_and(|it_is| it_is != Some(true))
}
