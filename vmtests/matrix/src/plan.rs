//! The selection of kernels, variants and cases for a run.
use std::path::PathBuf;
use weir_vm::{Kernels, Result};

/// The selection of kernels, variants and cases for a run.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Kernels by their names in `weir-vmtests list`.
    pub kernels: Vec<String>,
    /// Variants by name; each runs on those kernels of its list in `kernels.toml` that are in `kernels`.
    pub variants: Vec<String>,
    /// Whether cases also run on this machine's own kernel.
    pub is_on_host: bool,
    /// Run only cases whose `ENVIRONMENT::CASE` contains this.
    pub filter: Option<String>,
    /// How many guests run at the same time; one case on this machine runs in addition.
    pub jobs: usize,
    /// A description of the selection; empty for the whole matrix.
    pub selection: String,
    /// The file that records each result until [`crate::Matrix::end`].
    pub progress: Option<PathBuf>,
    /// Whether to continue the stopped run in that file, if it is a run of the same programs and cases.
    pub resume: bool,
    /// The binary of this crate, if the running program is another one.
    pub program: Option<PathBuf>,
}

impl Plan {
    /// The kernels, then the variants on those of them that the catalogue lists.
    pub(crate) fn environments(&self, kernels: &Kernels) -> Result<Vec<String>> {
        let mut names = self.kernels.clone();
        for kernel in &self.kernels {
            if kernels.own().iter().any(|o| &o.name == kernel) {
                continue;
            }
            let entry = kernels.find(kernel)?.0;
            let on = kernels.catalogue().variants.iter();
            let on = on.filter(|v| self.variants.contains(&v.name) && v.on.contains(&entry.name));
            names.extend(on.map(|v| format!("{kernel}-{}", v.name)));
        }
        Ok(names)
    }
}
