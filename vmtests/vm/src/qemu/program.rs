//! Finds the QEMU program.
use crate::cache::variable;
use crate::{Arch, Cache, Error, Result};
use std::path::{Path, PathBuf};

const REMEDY: &str = "Run `ci/fetch-qemu`, or `ci/fetch-qemu arm64`, which puts one under target/qemu without installing it; or \
     install the package qemu-system-x86 or qemu-system-arm; or name one with VMTESTS_QEMU=FILE";

/// The QEMU program: the given one, else that of `VMTESTS_QEMU`, else in `qemu/` beside the cache (where ci/fetch-qemu
/// installs it) or in the target directory of the workspace, else in `PATH`.
pub fn find(asked: Option<&Path>, cache: &Cache, arch: Arch) -> Result<PathBuf> {
    let asked = asked.map(Path::to_owned);
    if let Some(path) = asked.or_else(|| variable("VMTESTS_QEMU")) {
        let what = "not a program that can be started";
        let refuse = |_| Error::new(path.display().to_string(), what, REMEDY);
        return which::which(&path).map_err(refuse);
    }
    let beside = cache.root().parent().map(|target| target.join("qemu"));
    let of_workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/qemu");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain([of_workspace]);
    let folders = std::env::join_paths(folders.chain(std::env::split_paths(&path)));
    let mut found = which::which_in_global(arch.qemu(), folders.ok())
        .into_iter()
        .flatten();
    let what = "not found in target/qemu nor in PATH";
    found
        .next()
        .ok_or_else(|| Error::new(arch.qemu(), what, REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_is_not_there_is_named_with_what_helps() {
        let cache = Cache::open(Some("/nonexistent/vmtests".into())).unwrap();
        let e = find(Some(Path::new("/nonexistent/qemu")), &cache, Arch::Amd64).unwrap_err();
        assert_eq!(e.input, "/nonexistent/qemu");
        assert!(
            e.remedy.contains("ci/fetch-qemu") && e.remedy.contains("VMTESTS_QEMU"),
            "{e}"
        );
        let e = find(Some(Path::new("/etc/passwd")), &cache, Arch::Amd64).unwrap_err();
        assert!(e.reason.contains("not a program"), "{e}");
    }
}
