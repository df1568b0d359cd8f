//! A BPF file system for one test.

use crate::TempDir;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::Path;

/// A new, empty BPF file system. When the value is dropped, also by a test that fails, it is unmounted, and everything that
/// only its pins kept alive is detached.
pub struct BpfFs {
    folder: TempDir,
    filters: bool,
}

impl BpfFs {
    /// Returns a file system for each way of attaching programs to interfaces that this kernel supports: tcx links (6.6) and
    /// filters of a clsact qdisc. `has_links` probes the kernel. Returns none, and prints the reason, if this user may not mount.
    pub fn each(has_links: impl Fn() -> bool) -> impl Iterator<Item = Self> {
        [false, true].into_iter().filter_map(move |filters| {
            let mounted = Self::mount()?;
            if !filters && !has_links() {
                println!("not by tcx links, which this kernel lacks");
                return None;
            }
            Some(mounted.with(filters))
        })
    }

    fn with(mut self, filters: bool) -> Self {
        self.filters = filters;
        self
    }

    /// Whether programs are attached as filters instead of tcx links.
    #[must_use]
    pub fn by_filters(&self) -> bool {
        self.filters
    }

    /// Mounts a file system; `None`, with the reason printed, if this user may not.
    #[must_use]
    pub fn mount() -> Option<Self> {
        if let Some(reason) = crate::rights::not_first_user_namespace() {
            println!("skipped: {reason}");
            return None;
        }
        let folder = TempDir::new();
        let done = mount(
            Some("bpf"),
            folder.path(),
            Some("bpf"),
            MsFlags::empty(),
            None::<&str>,
        );
        match done {
            Ok(()) => Some(Self {
                folder,
                filters: false,
            }),
            Err(nix::errno::Errno::EPERM) => {
                println!("skipped: mounting a bpf file system is not permitted");
                None
            }
            Err(nix::errno::Errno::ENODEV) => {
                crate::lacks::skip("bpf file system", "4.4", "the kernel has none");
                None
            }
            Err(e) => panic!("a bpf file system: {e}"),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// As [`BpfFs::mount`]; also `None`, with the reason printed, on a kernel without tcx links.
#[must_use]
pub fn mount_for_links() -> Option<BpfFs> {
    let mounted = BpfFs::mount()?;
    match weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS) {
        Err(e) if e.raw_os_error() == Some(22) => {
            crate::lacks::skip("attach tcx", "6.6", e);
            None
        }
        _ => Some(mounted),
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        let _ = umount2(self.folder.path(), MntFlags::MNT_DETACH);
    }
}
