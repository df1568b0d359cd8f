//! Whose pins a folder has. It is named after the inode of a namespace, which the kernel gives to another one when that is gone; a folder
//! `netns_COOKIE` in it says which namespace it was. Before 5.14 there are no cookies.

use crate::failed;
use crate::pins::{Bpffs, entries};
use std::path::{Path, PathBuf};
use weir_netlink::{Netns, Result};

/// What begins the name of the folder with the cookie of the namespace. A bpf file system allows no dot in names.
const COOKIE: &str = "netns_";

/// Makes the folder of a namespace, and writes down whose it is.
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

/// Whether what is pinned in a folder is of a namespace that is gone, and had the same inode as this one. `None`: the folder does not
/// say whose it is.
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

/// For what is only shown.
pub(crate) fn may_be_own(folder: &Path, netns: &Netns) -> bool {
    is_of_another(folder, netns).is_ok_and(|it_is| it_is != Some(true))
}
