//! `kernels.toml`: the kernels and variants that there are, and the modules that a guest wants.
use crate::{Arch, Error, Result};
use serde::Deserialize;

/// The list that this build was made with.
const TEXT: &str = include_str!("../kernels.toml");

/// All of `kernels.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The kernels, oldest first.
    #[serde(rename = "kernel")]
    pub kernels: Vec<Entry>,
    /// What can be left out of each.
    #[serde(rename = "variant")]
    pub variants: Vec<Variant>,
    /// The modules of a guest.
    pub modules: Modules,
}

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is called in `kernels.lock` and on the command line: `6.12`, `newest`.
    pub name: String,
    /// Versions must start with it: `6.12`. `None`: the highest that there is.
    pub series: Option<String>,
    /// The suite of the Debian archive: `trixie-security`.
    pub suite: String,
    /// The package flavour: `cloud`, `rt`.
    pub flavour: String,
    /// The architecture; that of a whole matrix when the file does not say.
    #[serde(default)]
    pub arch: Arch,
    /// Is it a failure when the archive does not have it any more?
    pub required: bool,
    /// What tests find on a kernel that only some of them run on, as on a variant.
    pub special: Option<Special>,
}

/// What tests find on a kernel that is not like the others.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Special {
    /// Rows of `weir preflight` that must be lacking there: area and feature.
    pub lacks: Vec<(String, String)>,
    /// Rows that must be there all the same.
    pub has: Vec<(String, String)>,
    /// Probes that tests may skip there, whatever the kernel's version: how they start.
    pub skips: Vec<String>,
}

impl Entry {
    /// Is it of the architecture of this program? A whole matrix has no others.
    pub fn is_of_host(&self) -> bool {
        self.arch == Arch::HOST
    }
}

/// A kernel with something left out.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What is appended to the kernel's name: `no-xtables`.
    pub name: String,
    /// What such a kernel is like, for a person.
    pub says: String,
    /// Modules that are not loaded; with a `*` at the end, all that start so.
    #[serde(default)]
    pub without: Vec<String>,
    /// Modules that must be neither loaded nor built in, or the variant would not be what its name says.
    #[serde(default)]
    pub gone: Vec<String>,
    /// Added to the kernel's command line.
    #[serde(default)]
    pub parameters: Vec<String>,
    /// Options of the kernel that must be `y` for the parameters to have an effect.
    #[serde(default)]
    pub builtin: Vec<String>,
    /// Sections of modules that the kernel must not find.
    #[serde(default)]
    pub hide_sections: Vec<String>,
    /// The kernels that a whole matrix runs it on.
    #[serde(default)]
    pub on: Vec<String>,
    /// What tests find there.
    pub special: Special,
}

/// The modules of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Modules {
    /// Names; with a `*` at the end, all that start so.
    pub wanted: Vec<String>,
}

impl Catalogue {
    /// The kernels and variants that this program knows.
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

    /// Takes `6.12-no-xtables` apart into the kernel's name and the variant.
    pub fn split<'a>(&self, name: &'a str) -> (&'a str, Option<&Variant>) {
        let found = self.variants.iter().find_map(|variant| {
            let kernel = name.strip_suffix(&variant.name)?.strip_suffix('-')?;
            Some((kernel, Some(variant)))
        });
        found.unwrap_or((name, None))
    }

    /// What tests find on the variant of that name, or on the kernel, if that is special.
    pub fn special(&self, name: &str) -> Option<&Special> {
        let variant = self.variants.iter().find(|v| v.name == name);
        let kernel = || self.kernels.iter().find(|k| k.name == name);
        let special = variant.map(|v| &v.special);
        special.or_else(|| kernel()?.special.as_ref())
    }
}

/// Does the module's name match the pattern: equal, or starting with what stands before its `*`?
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
