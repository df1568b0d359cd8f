//! A user's own kernel: a `vmlinuz` (or `vmlinux`) and its modules.
use crate::cache::variable;
use crate::modules::{Found, Signature};
use crate::prepare::{self, Material, Prepared};
use crate::requirements::is_set;
use crate::{At, Cache, Error, Result, digest};
use std::fs;
use std::path::PathBuf;

/// The variable that names own kernels: `NAME=VMLINUZ[,MODULES]`, several separated by `;`.
pub const KERNEL_VARIABLE: &str = "VMTESTS_KERNEL";

const FORM: &str =
    "Write NAME=VMLINUZ or NAME=VMLINUZ,MODULES: mine=/boot/vmlinuz-6.9.1,/lib/modules/6.9.1";

/// A kernel from files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Its name in the matrix.
    pub name: String,
    /// A bzImage or an ELF vmlinux.
    pub vmlinuz: PathBuf,
    /// The directory `lib/modules/RELEASE`; none if everything is built in.
    pub modules: Option<PathBuf>,
}

impl Own {
    /// Reads `NAME=VMLINUZ[,MODULES]`.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |reason: &str| Error::new(format!("the kernel {text:?}"), reason, FORM);
        let parts = text.split_once('=');
        let (name, files) = parts.ok_or_else(|| bad("no NAME= before the file"))?;
        let (vmlinuz, modules) = files.split_once(',').unwrap_or((files, ""));
        // The name becomes part of file names and test names.
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            let reason = "the name has to be of letters, digits, dots and dashes";
            return Err(bad(reason));
        }
        if vmlinuz.is_empty() {
            return Err(bad("no file"));
        }
        Ok(Self {
            name: name.to_owned(),
            vmlinuz: vmlinuz.into(),
            modules: Some(modules).filter(|m| !m.is_empty()).map(PathBuf::from),
        })
    }

    /// Parses the kernels in [`KERNEL_VARIABLE`].
    pub fn from_environment() -> Result<Vec<Self>> {
        let value = variable(KERNEL_VARIABLE).unwrap_or_default();
        let value = value.to_string_lossy();
        let items = value.split(';').map(str::trim);
        items.filter(|i| !i.is_empty()).map(Self::parse).collect()
    }

    /// Makes the kernel ready to boot, unless it is already.
    pub(crate) fn prepare(&self, cache: &Cache, wanted: &[String]) -> Result<Prepared> {
        let shown = self.vmlinuz.display().to_string();
        let image = fs::read(&self.vmlinuz).at(&shown)?;
        let (modules, state) = match &self.modules {
            Some(directory) => Found::directory(directory)?,
            None => (Found::default(), String::new()),
        };
        if let Some(directory) = self.modules.as_ref().filter(|_| modules.is_empty()) {
            let reason = "no module in it (*.ko, *.ko.xz, *.ko.zst, *.ko.gz)";
            let remedy =
                "Give the directory lib/modules/RELEASE; leave it out if everything is built in";
            return Err(Error::new(directory.display().to_string(), reason, remedy));
        }
        let config = self.config(&modules);
        let text = config.clone().unwrap_or_default();
        let signature = match is_set(&text, "CONFIG_MODULE_SIG_FORCE", "y") {
            true => Signature::Keep,
            false => Signature::Cut,
        };
        let sum = digest::sha256(&image);
        let key = prepare::key(&self.name, &[&sum, &state, &text], wanted, signature);
        let _guard = cache.lock(&format!("kernel-{}", self.name))?;
        // A damaged or incomplete entry is made again.
        if let Ok(Some(prepared)) = prepare::open(cache, &key) {
            return Ok(prepared);
        }
        let package = match &self.modules {
            Some(directory) => format!("{shown} with {}", directory.display()),
            None => shown.clone(),
        };
        let material = Material {
            name: format!("{} ({shown})", self.name),
            package,
            sources: vec![(shown, sum)],
            image,
            config,
            modules,
            signature,
        };
        prepare::build(cache, &key, material, wanted)
    }

    /// The configuration that distributions install beside a kernel: `config-RELEASE`, or `config` with the modules.
    fn config(&self, modules: &Found) -> Option<String> {
        let file = self.vmlinuz.file_name()?.to_str()?;
        let release = file.strip_prefix("vmlinuz-");
        let release = release.or(file.strip_prefix("vmlinux-"));
        let beside = release.map(|r| self.vmlinuz.with_file_name(format!("config-{r}")));
        // In a build tree, arch/x86/boot/bzImage is below the directory of .config.
        let built = self.vmlinuz.ancestors().nth(4);
        let built = built.map(|top| top.join(".config"));
        let inside = modules.config.clone();
        let mut files = [beside, inside, built].into_iter().flatten();
        files.find_map(|path| fs::read_to_string(path).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let own = Own::parse("mine=/boot/vmlinuz,/lib/modules/6.9").unwrap();
        assert_eq!(own.name, "mine");
        assert_eq!(own.modules, Some("/lib/modules/6.9".into()));
        assert_eq!(Own::parse("a=b").unwrap().modules, None);
        assert_eq!(Own::parse("a=b,").unwrap().modules, None);
        for bad in ["/boot/vmlinuz", "=x", "a=", "a b=x", "../a=x"] {
            let e = Own::parse(bad).unwrap_err().to_string();
            assert!(e.contains("NAME=VMLINUZ"), "{e}");
        }
    }
}
