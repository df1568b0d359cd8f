//! `kernels.toml`: the kernels and variants of the matrix, and the modules that a guest loads.
use crate::{Arch, Error, Result};
use serde::Deserialize;

/// The content of `kernels.toml` at build time.
const TEXT: &str = include_str!("../kernels.toml");

/// The parsed `kernels.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The kernels, oldest first.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Entry>,
    /// The variants, each of which omits something.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// The modules that a guest loads.
    pub modules: Modules,
}

/// A kernel: its name, its origin, and its place in the matrix.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name in `kernels.lock` and on the command line: `6.12`, `newest`.
    pub name: String,
    /// The prefix that package versions must have: `6.12`. `None`: the highest version of the suite.
    pub series: Option<String>,
    /// The suite of the Debian archive: `trixie-security`.
    pub suite: String,
    /// The package flavour: `cloud`, `rt`.
    pub flavour: String,
    /// The architecture; by default that of a whole matrix.
    #[serde(default)]
    pub arch: Arch,
    /// Whether it is a failure if the archive no longer has it.
    pub required: bool,
    /// Set if, as on a variant, only some tests run on this kernel: what they find there.
    pub special: Option<Special>,
}

/// What tests find on a kernel or variant that lacks features.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Special {
    /// Rows of `weir preflight` (area and feature) that must be reported as lacking there.
    pub lacks: Vec<(String, String)>,
    /// Rows that must nevertheless be reported as present there.
    pub has: Vec<(String, String)>,
    /// Prefixes of the probes that tests may skip there, whatever the kernel's version.
    pub skips: Vec<String>,
}

impl Entry {
    /// Whether the architecture is that of this program. A whole matrix contains only such kernels.
    pub fn is_of_host(&self) -> bool {
        self.arch == Arch::HOST
    }
}

/// A modification of a kernel that omits something.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The suffix of the kernel's name: `no-xtables`.
    pub name: String,
    /// A description for the user.
    pub says: String,
    /// Modules that are not loaded; a trailing `*` matches any suffix.
    #[serde(default)]
    pub without: Vec<String>,
    /// Modules that must be neither loaded nor built in; otherwise the variant would not be what its name states.
    #[serde(default)]
    pub gone: Vec<String>,
    /// Parameters that are appended to the kernel's command line.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// Kernel config options that must be `y` for the parameters to have an effect.
    #[serde(default)]
    pub builtin: Vec<String>,
    /// ELF sections of modules that are hidden from the kernel.
    #[serde(default)]
    pub hide_sections: Vec<String>,
    /// The kernels that a whole matrix combines with this variant.
    #[serde(default)]
    pub on: Vec<String>,
    /// What tests find on this variant.
    pub special: Special,
}

/// The modules that a guest loads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// Module names; a trailing `*` matches any suffix.
    pub wanted: Vec<String>,
}

impl Catalogue {
    /// The kernels and variants of this build.
    pub fn load() -> Result<Self> {
        Self::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Self> {
        let remedy = "Correct it; its comments say what belongs there";
        let catalogue = toml::from_str(text);
        let catalogue: Self = catalogue.map_err(|e| Error::new("kernels.toml", e, remedy))?;
        let is_unknown = |on: &&String| catalogue.kernels.iter().all(|k| k.name != **on);
        for variant in &catalogue.variants {
            if let Some(on) = variant.on.iter().find(is_unknown) {
                let input = format!("kernels.toml, variant {}", variant.name);
                let reason = format!("there is no kernel {on}");
                let remedy = "Add the kernel, or take it from `on`";
                return Err(Error::new(input, reason, remedy));
            }
        }
        Ok(catalogue)
    }

    /// Splits `6.12-no-xtables` into the kernel's name and the variant.
    pub fn split<'a>(&self, name: &'a str) -> (&'a str, Option<&Variant>) {
        let found = self.variants.iter().find_map(|variant| {
            let kernel = name.strip_suffix(&variant.name)?.strip_suffix('-')?;
            Some((kernel, Some(variant)))
        });
        found.unwrap_or((name, None))
    }

    /// What tests find on the variant of that name, or on the kernel if it is marked as special.
    pub fn special(&self, name: &str) -> Option<&Special> {
        let variant = self.variants.iter().find(|v| v.name == name);
        let kernel = || self.kernels.iter().find(|k| k.name == name);
        let special = variant.map(|v| &v.special);
        special.or_else(|| kernel()?.special.as_ref())
    }
}

/// Whether the module's name matches the pattern: it is equal, or has the prefix before a trailing `*`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_valid_and_names_are_unique() {
        let catalogue = Catalogue::load().unwrap();
        let mut names: Vec<_> = catalogue.kernels.iter().map(|k| &k.name).collect();
        names.extend(catalogue.variants.iter().map(|v| &v.name));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        let mut wanted = catalogue.modules.wanted.clone();
        wanted.sort();
        wanted.dedup();
        assert_eq!(wanted.len(), catalogue.modules.wanted.len());
    }

    #[test]
    fn every_variant_lacks_something_and_a_plain_kernel_is_not_special() {
        let catalogue = Catalogue::load().unwrap();
        for variant in &catalogue.variants {
            assert!(!catalogue.special(&variant.name).unwrap().lacks.is_empty());
        }
        assert!(catalogue.special("6.12-rt").is_some());
        assert!(catalogue.special("6.12").is_none());
    }

    #[test]
    fn splits_the_variant_off() {
        let catalogue = Catalogue::load().unwrap();
        let split = |name| {
            let (kernel, variant) = catalogue.split(name);
            (kernel.to_owned(), variant.map(|v| v.name.clone()))
        };
        assert_eq!(split("6.12"), ("6.12".into(), None));
        assert_eq!(split("6.12-rt"), ("6.12-rt".into(), None));
        assert_eq!(
            split("6.12-no-ipv6"),
            ("6.12".into(), Some("no-ipv6".into()))
        );
        assert_eq!(
            split("6.12-rt-no-ip6tables"),
            ("6.12-rt".into(), Some("no-ip6tables".into()))
        );
        assert_eq!(split("no-ipv6"), ("no-ipv6".into(), None));
    }

    #[test]
    fn a_variant_on_a_kernel_that_is_not_there_is_refused() {
        let text = TEXT.replace("on = [\"6.18\"]", "on = [\"4.4\"]");
        let e = Catalogue::parse(&text).unwrap_err().to_string();
        assert!(e.contains("no kernel 4.4"), "{e}");
    }

    #[test]
    fn patterns() {
        assert!(matches("ip_set*", "ip_set"));
        assert!(matches("ip_set*", "ip_set_hash_ip"));
        assert!(!matches("ip_set", "ip_set_hash_ip"));
    }
}
