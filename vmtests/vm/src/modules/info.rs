//! One module: its metadata, and the parts that are removed before it goes into a guest.
use crate::elf::section;
use crate::{Error, Result};

/// The end of a signed module: MODULE_SIG_STRING of include/linux/module_signature.h.
const SIGNATURE_END: &[u8] = b"~Module signature appended~\n";

/// The size of `struct module_signature`, which precedes it: its last four bytes are the signature's length, big-endian.
const SIGNATURE_INFO: usize = 12;

/// The metadata about a module's relations to others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// `depends=`: modules without which it cannot be loaded.
    pub(super) depends: Vec<String>,
    /// `alias=`: other names under which it is requested.
    pub(super) aliases: Vec<String>,
    /// The first word of `vermagic=`: the release of the kernel that it was built for.
    pub(super) release: String,
    /// `softdep=pre:`: modules to load before it, if they exist.
    pub(super) before: Vec<String>,
}

impl Info {
    pub(super) fn read(name: &str, module: &[u8]) -> Result<Self> {
        let (_, modinfo) = section(module, ".modinfo").ok_or_else(|| {
            let reason = "not a kernel module for a 64-bit little-endian machine";
            let remedy = "The file is damaged or of another kind: get it again";
            Error::new(format!("the module {name}"), reason, remedy)
        })?;
        let mut info = Self::default();
        for entry in modinfo.split(|b| *b == 0) {
            let entry = String::from_utf8_lossy(entry);
            match entry.split_once('=') {
                Some(("depends", list)) => {
                    let names = list.split(',').filter(|n| !n.is_empty());
                    info.depends.extend(names.map(spelled));
                }
                Some(("alias", name)) => info.aliases.push(name.to_owned()),
                Some(("vermagic", text)) => {
                    info.release = text.split(' ').next().unwrap_or_default().to_owned();
                }
                Some(("softdep", text)) => info.before.extend(softdep_before(text)),
                _ => {}
            }
        }
        Ok(info)
    }
}

/// Returns the modules after `pre:` in `pre: a b post: c`.
fn softdep_before(text: &str) -> Vec<String> {
    let mut before = false;
    let mut names = Vec::new();
    for word in text.split_whitespace() {
        match word {
            "pre:" => before = true,
            "post:" => before = false,
            name if before => names.push(spelled(name)),
            _ => {}
        }
    }
    names
}

/// Returns `nf_tables` for `kernel/net/nf-tables.ko.xz`.
pub(crate) fn module_name(path: &str) -> Option<String> {
    let file = path.trim().rsplit('/').next()?;
    let mut suffixes = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"].iter();
    let stem = suffixes.find_map(|suffix| file.strip_suffix(suffix))?;
    Some(spelled(stem))
}

/// The kernel's spelling: file names may have dashes where the kernel has underscores.
fn spelled(name: &str) -> String {
    name.replace('-', "_")
}

/// The module without the signature that `scripts/sign-file` appended.
pub(super) fn without_signature(module: &[u8]) -> &[u8] {
    let cut = || {
        let body = module.strip_suffix(SIGNATURE_END)?;
        let length = u32::from_be_bytes(*body.last_chunk()?);
        let end = body.len().checked_sub(SIGNATURE_INFO)?;
        body.get(..end.checked_sub(usize::try_from(length).ok()?)?)
    };
    cut().unwrap_or(module)
}

/// Clears the name of a section in a module, so that the kernel does not find the section.
pub(crate) fn hide_section(module: &mut [u8], name: &str) {
    let Some((header, _)) = section(module, name) else {
        return;
    };
    // sh_name is the first field; offset 0 of a string table is the empty name.
    if let Some(field) = module.get_mut(header..header + 4) {
        field.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for (path, name) in [
            ("kernel/net/nf-tables.ko", Some("nf_tables")),
            ("a/veth.ko.xz", Some("veth")),
            ("veth.ko.zst\n", Some("veth")),
            ("veth.ko.gz", Some("veth")),
            ("veth.ko.debug", None),
            ("modules.dep", None),
        ] {
            assert_eq!(module_name(path).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn softdeps_before() {
        assert_eq!(softdep_before("pre: a-b c post: d"), ["a_b", "c"]);
        assert_eq!(softdep_before("post: d pre: e"), ["e"]);
        assert_eq!(softdep_before("x"), Vec::<String>::new());
    }

    /// `struct module_signature`: five bytes, three bytes of padding, the length.
    #[test]
    fn signatures() {
        let module = b"the module".to_vec();
        assert_eq!(without_signature(&module), module);
        let signed = |length: u32| {
            let mut signed = module.clone();
            signed.extend([7; 300]);
            signed.extend([0, 0, 2, 0, 0, 0, 0, 0]);
            signed.extend(length.to_be_bytes());
            signed.extend(SIGNATURE_END);
            signed
        };
        assert_eq!(without_signature(&signed(300)), module);
        // An impossible length: the module is left unchanged.
        assert_eq!(without_signature(&signed(4000)), signed(4000));
    }
}
