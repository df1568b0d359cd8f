//! The arguments that name one kernel: of the matrix, or of one's own.
use crate::own::Own;
use crate::{Cache, Kernel, Kernels, Result};
use std::path::PathBuf;

/// What a kernel of one's own is called without `--kernel`.
const OWN: &str = "own";

/// Which kernel.
#[derive(clap::Args)]
pub(super) struct KernelArgs {
    /// The kernel: a name of `weir-vm list`, such as 6.12, newest, or a variant
    #[arg(long, short, value_name = "NAME", required_unless_present = "vmlinuz")]
    kernel: Option<String>,

    /// A kernel of your own in its place, a bzImage or vmlinux; --kernel may then name it (own-no-ipv6: a
    /// variant of it)
    #[arg(long, value_name = "FILE")]
    vmlinuz: Option<PathBuf>,

    /// Its modules: lib/modules/RELEASE; none if everything is built in
    #[arg(long, value_name = "DIR", requires = "vmlinuz")]
    modules: Option<PathBuf>,
}

impl KernelArgs {
    /// The kernel, ready to boot.
    pub(super) fn get(&self, cache: &Cache) -> Result<Kernel> {
        let mut kernels = Kernels::open(cache, None)?;
        let name = self.kernel.as_deref().unwrap_or(OWN);
        if let Some(vmlinuz) = &self.vmlinuz {
            let own = kernels.catalogue().split(name).0.to_owned();
            kernels.add(Own {
                name: own,
                vmlinuz: vmlinuz.clone(),
                modules: self.modules.clone(),
            });
        }
        kernels.get(name)
    }
}
