//! What is to run where.
use std::path::PathBuf;
use weir_vm::{Kernels, Result};

/// What is to run where.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Kernels, as `weir-vmtests list` names them.
    pub kernels: Vec<String>,
    /// Variants by name; each runs on the kernels that `kernels.toml` gives it, as far as they are in `kernels`.
    pub variants: Vec<String>,
    /// Run cases on this machine's own kernel, too.
    pub is_on_host: bool,
    /// Only what has this in `ENVIRONMENT::CASE`.
    pub filter: Option<String>,
    /// How many guests at a time; one case of this machine runs beside them.
    pub jobs: usize,
    /// What a whole run was cut down to, in words; empty: it is whole.
    pub selection: String,
    /// Where what is done is written down case by case, until [`crate::Matrix::end`].
    pub progress: Option<PathBuf>,
    /// Go on with the run that was stopped, if this file is of the same one.
    pub resume: bool,
    /// The binary of this crate, when the running program is another one.
    pub program: Option<PathBuf>,
}

impl Plan {
    /// Kernels, then variants on those of them that the catalogue names.
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
