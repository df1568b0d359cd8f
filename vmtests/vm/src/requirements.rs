//! The kernel features that a guest needs to start and to communicate, checked in its configuration.
use crate::modules::Found;
use crate::{Arch, Error, Result};

/// A config option, the module that may replace it, and what is impossible without both.
type Need = (&'static str, Option<&'static str>, &'static str);

#[rustfmt::skip]
const NEEDS: &[Need] = &[
    ("CONFIG_BLK_DEV_INITRD", None, "it starts from an initramfs"),
    ("CONFIG_BINFMT_ELF", None, "it runs test binaries"),
    ("CONFIG_DEVTMPFS", None, "the guest mounts /dev"),
    ("CONFIG_PROC_FS", None, "the guest mounts /proc"),
    ("CONFIG_SYSFS", None, "the guest mounts /sys"),
    ("CONFIG_NET_NS", None, "each test has a network namespace"),
    ("CONFIG_PCI", None, "the devices of the machine are on PCI"),
    ("CONFIG_VIRTIO_PCI", Some("virtio_pci"), "the channel to the host is a virtio device"),
    ("CONFIG_VIRTIO_CONSOLE", Some("virtio_console"), "the channel to the host is a virtio port"),
];

/// Whether the option has this value, `y` or `m`.
pub(crate) fn is_set(config: &str, option: &str, value: &str) -> bool {
    let mut set = config.lines().filter_map(|line| line.split_once('='));
    set.any(|(o, v)| o == option && v == value)
}

/// Checks the kernel called `name`. The notes list what could not be checked.
/// The error lists everything that is missing.
pub(crate) fn check(
    name: &str,
    arch: Arch,
    config: Option<&str>,
    found: &Found,
) -> Result<Vec<String>> {
    let Some(config) = config else {
        return without_config(name, found);
    };
    let why = "its messages come over the serial port";
    let console: Need = (arch.console_option(), None, why);
    let all = NEEDS.iter().chain([&console]);
    let missing = all.filter_map(|(option, module, why)| {
        let modular = is_set(config, option, "m");
        let what = match module {
            _ if is_set(config, option, "y") => return None,
            Some(module) if modular && found.has(module) => return None,
            Some(module) if modular => {
                format!("the module {module} ({option}=m, not in the modules)")
            }
            Some(_) => format!("{option}=y or m"),
            None => format!("{option}=y"),
        };
        Some(format!("{what}: {why}"))
    });
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let reason = format!("it lacks {}", missing.join("; "));
    let remedy = "Build it with these options, or give the modules directory that belongs to it";
    Err(Error::new(format!("the kernel {name}"), reason, remedy))
}

/// The check without a configuration: it can only use the list of built-in modules, if there is one.
fn without_config(name: &str, found: &Found) -> Result<Vec<String>> {
    let is_there = |m: &str| found.builtin.is_empty() || found.has(m) || found.builtin.contains(m);
    let modules = NEEDS.iter().filter_map(|(_, module, _)| *module);
    let missing: Vec<_> = modules.filter(|m| !is_there(m)).collect();
    if missing.is_empty() {
        let note = "its configuration is not known (no config file beside it, no CONFIG_IKCONFIG), so whether it \
             has what a guest needs shows when it boots";
        return Ok(vec![note.to_owned()]);
    }
    let missing = missing.join(" and ");
    let reason = format!("it has {missing} neither as a module nor built in");
    let remedy = "Give the modules directory that belongs to it, or another kernel";
    Err(Error::new(format!("the kernel {name}"), reason, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(virtio: &str) -> String {
        let rest = NEEDS.iter().filter(|(_, module, _)| module.is_none());
        let rest = rest
            .map(|need| need.0)
            .chain([Arch::Amd64.console_option()]);
        let mut text: String = rest.map(|option| format!("{option}=y\n")).collect();
        text.push_str(virtio);
        text
    }

    #[test]
    fn built_in_or_present_module_will_do() {
        let mut found = Found::default();
        let modular = config("CONFIG_VIRTIO_PCI=m\nCONFIG_VIRTIO_CONSOLE=y\n");
        let e = check("x", Arch::Amd64, Some(&modular), &found)
            .unwrap_err()
            .to_string();
        assert!(e.contains("the module virtio_pci"), "{e}");
        found.take(Path::new("a/virtio_pci.ko")).unwrap();
        assert_eq!(
            check("x", Arch::Amd64, Some(&modular), &found).unwrap(),
            Vec::<String>::new()
        );
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let text = config("# CONFIG_VIRTIO_PCI is not set\n").replace("CONFIG_PCI=y", "");
        let e = check("x", Arch::Amd64, Some(&text), &Found::default())
            .unwrap_err()
            .to_string();
        for name in [
            "CONFIG_PCI=y",
            "CONFIG_VIRTIO_PCI=y or m",
            "CONFIG_VIRTIO_CONSOLE=y or m",
        ] {
            assert!(e.contains(name), "{name} in {e}");
        }
    }

    #[test]
    fn without_a_configuration_the_built_in_list_decides() {
        let mut found = Found::default();
        assert_eq!(check("x", Arch::Amd64, None, &found).unwrap().len(), 1);
        found.builtin.insert("virtio_pci".to_owned());
        let e = check("x", Arch::Amd64, None, &found)
            .unwrap_err()
            .to_string();
        assert!(e.contains("virtio_console neither"), "{e}");
    }
}
