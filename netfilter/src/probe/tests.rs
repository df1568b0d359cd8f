use super::*;
use crate::features::Feature;
use crate::features::families::FAMILIES;
use crate::features::modules;
use crate::ipset::SetType;
use crate::nft::expr::FEATURES;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that rows name, and the options that build them (`Kconfig` and `Makefile` of Linux 6.18, and of 5.10 for modules that
/// were merged into others since).
const OPTIONS: &str = include_str!("../features/options.txt");

/// A directory tree that is deleted on drop.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("weir-probe-{name}-{}", std::process::id()));
        let tree = Self(root);
        for (path, text) in files {
            let path = tree.0.join(path);
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }
    fn kernel(&self) -> RunningKernel {
        RunningKernel::read_from(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "6.1.0-44-amd64\n");
const MODPROBE: (&str, &str) = ("proc/sys/kernel/modprobe", "/sbin/modprobe\n");
const LOADED: (&str, &str) = (
    "proc/modules",
    "nf_tables 1 2 - Live 0x0\nnft_ct 1 0 - Live 0x0\n",
);
const BUILTIN: (&str, &str) = (
    "lib/modules/6.1.0-44-amd64/modules.builtin",
    "kernel/net/ipv6/ipv6.ko\n",
);
const DEP: (&str, &str) = (
    "lib/modules/6.1.0-44-amd64/modules.dep",
    "kernel/net/netfilter/nft-tproxy.ko.xz: kernel/net/netfilter/nf_tables.ko.xz\n",
);

#[test]
fn what_a_trial_could_load_is_not_tried() {
    let tree = Tree::new("guard", &[RELEASE, MODPROBE, LOADED, BUILTIN, DEP]);
    let kernel = tree.kernel();
    assert_eq!(
        (kernel.version, &kernel.loading),
        ((6, 1), &Loading::Possible)
    );
    for safe in ["", "nf_tables nft_ct", "ipv6", "nft_counter"] {
        assert_eq!(kernel.guard(safe), None, "{safe}");
    }
    // A dash in a file name is an underscore in the module name; the installed module would be loaded.
    let Some(Answer::Unknown(why)) = kernel.guard("nf_tables nft_tproxy") else {
        panic!("nft_tproxy would be loaded");
    };
    assert!(why.contains("`modprobe -a nft_tproxy`"), "{why}");
    // A module that is not installed cannot be loaded.
    assert_eq!(kernel.guard("nft_socket"), None);
}

#[test]
fn a_module_that_came_later_cannot_be_loaded() {
    let old = ("proc/sys/kernel/osrelease", "5.10.0-46-cloud-amd64\n");
    let tree = Tree::new("later", &[old, MODPROBE]);
    assert_eq!(tree.kernel().guard("nf_log_syslog"), None);
    let first = ("proc/sys/kernel/osrelease", "5.13.0\n");
    let tree = Tree::new("first", &[first, MODPROBE]);
    assert!(tree.kernel().guard("nf_log_syslog").is_some());
}

#[test]
fn a_netlink_socket_of_the_kernel_shows_that_nfnetlink_is_there() {
    let head = "sk               Eth Pid        Groups   Rmem\n";
    for (line, there) in [
        ("00000000e76a705f 12  0          00000000 0\n", true),
        // A socket of a program.
        ("00000000e76a705f 12  4711       00000000 0\n", false),
        ("00000000e76a705f 0   0          00000000 0\n", false),
    ] {
        let sockets = format!("{head}{line}");
        let files = [
            RELEASE,
            MODPROBE,
            LOADED,
            BUILTIN,
            ("proc/thread-self/net/netlink", sockets.as_str()),
        ];
        let kernel = Tree::new("sockets", &files).kernel();
        assert_eq!(kernel.has_module("nfnetlink"), there, "{line}");
    }
}

#[test]
fn without_a_list_of_modules_only_the_loaded_ones_are_tried() {
    let tree = Tree::new(
        "blind",
        &[
            RELEASE,
            MODPROBE,
            LOADED,
            ("sys/module/ip_set/parameters/x", ""),
        ],
    );
    let kernel = tree.kernel();
    assert_eq!(kernel.guard("nft_ct ip_set"), None);
    assert!(matches!(
        kernel.guard("nft_redir"),
        Some(Answer::Unknown(_))
    ));
}

#[test]
fn merged_modules_are_no_question_from_their_release_on() {
    let old = ("proc/sys/kernel/osrelease", "5.10.0\n");
    let tree = Tree::new("merged", &[old, MODPROBE, LOADED]);
    let kernel = tree.kernel();
    assert!(matches!(
        kernel.guard("nft_counter"),
        Some(Answer::Unknown(_))
    ));
    assert_eq!(kernel.guard("nft_meta"), None);
}

#[test]
fn a_kernel_that_cannot_load_is_asked_everything() {
    let off = ("proc/sys/kernel/modules_disabled", "1\n");
    let empty = ("proc/sys/kernel/modprobe", "\n");
    let cases: [(&str, &[(&str, &str)]); 3] = [
        ("static", &[RELEASE]),
        ("off", &[RELEASE, MODPROBE, LOADED, off]),
        ("empty", &[RELEASE, empty, LOADED]),
    ];
    for (name, files) in cases {
        let tree = Tree::new(name, files);
        let kernel = tree.kernel();
        assert!(matches!(kernel.loading, Loading::Never(_)), "{name}");
        assert_eq!(kernel.guard("nft_tproxy"), None, "{name}");
    }
    // If nothing can be read, loading must be assumed.
    let tree = Tree::new("nothing", &[]);
    assert_eq!(tree.kernel().loading, Loading::Possible);
    // Without the release it is unknown whether the kernel has these modules.
    for unknown in ["nf_log_syslog", "nft_meta"] {
        assert!(tree.kernel().guard(unknown).is_some(), "{unknown}");
    }
}

/// A failing stat(2) does not mean that the kernel has no loadable modules.
#[test]
fn a_file_that_cannot_be_looked_at_is_not_absent() {
    let tree = Tree::new("loop", &[RELEASE]);
    for path in ["proc/modules", "proc/sys/kernel/modprobe"] {
        // ELOOP: a symbolic link to itself.
        let itself = Path::new(path).file_name().unwrap();
        std::os::unix::fs::symlink(itself, tree.0.join(path)).unwrap();
        assert_eq!(tree.kernel().loading, Loading::Possible, "{path}");
        fs::remove_file(tree.0.join(path)).unwrap();
        assert!(matches!(tree.kernel().loading, Loading::Never(_)));
    }
}

#[test]
fn the_options_of_modules_follow_from_their_names() {
    let needs =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let mut named: HashSet<String> = HashSet::new();
    named.extend(nft::ROWS.iter().flat_map(|r| needs(r.needs)));
    named.extend(needs(nft::BASE));
    for row in xtables::rows() {
        let of = |ipv6| needs(&row.needs(ipv6).unwrap_or_default());
        named.extend(of(false));
        named.extend(of(true));
    }
    named.extend(SetType::all().map(SetType::module_name));
    named.extend(FEATURES.iter().flat_map(|e| needs(e.needs)));
    let lines = OPTIONS.lines().filter_map(|line| line.split_once(' '));
    let options: HashMap<_, _> = lines.collect();
    for name in &named {
        assert!(options.contains_key(name.as_str()), "{name} has no option");
    }
    for (module, option) in &options {
        assert_eq!(modules::option(module), *option, "{module}");
    }
}

#[test]
fn every_known_expression_is_asked_for() {
    // These expressions need another object: a flowtable on a device, or a named counter or quota.
    let untried = ["flow_offload", "objref"];
    for name in crate::nft::expr::Expr::KNOWN {
        let feature = format!("expression {name}");
        let row = Feature::find(FEATURES, &feature);
        let row = row.unwrap_or_else(|| panic!("{name} has no row"));
        assert!(!row.since.is_empty(), "{name}");
        let is_tried = nft::ROWS.iter().any(|r| r.feature == feature);
        assert_ne!(is_tried, untried.contains(name), "{name}");
    }
    let tried = nft::ROWS.iter().map(|r| r.feature);
    for feature in tried {
        let table = match feature.split_once(' ') {
            Some(("expression", _)) => FEATURES,
            Some(("family" | "chain", _)) => FAMILIES,
            _ => continue,
        };
        assert!(Feature::find(table, feature).is_some(), "{feature}");
    }
}

#[test]
fn every_extension_is_asked_for_in_its_families() {
    let known: HashSet<_> = crate::xtables::extensions().into_iter().collect();
    for (family, part, name) in &known {
        let row = xtables::rows().find(|row| (row.kind, row.name) == ((*part).into(), *name));
        let row = row.unwrap_or_else(|| panic!("{part} {name}: no row"));
        let ipv6 = *family == crate::xtables::XtFamily::Ip6;
        assert!(
            row.needs(ipv6).is_some(),
            "{part} {name} has no module for {family}"
        );
    }
}

#[test]
fn every_type_of_set_is_asked_for_with_its_module() {
    let asked = ipset::untried("");
    for kind in SetType::all() {
        let name = |f: &&Finding| f.feature.split(' ').next() == Some(kind.name());
        let asked: Vec<_> = asked.iter().filter(name).collect();
        // Hashes of addresses are asked for once per family; hashes of hardware addresses, bitmaps and lists once.
        assert_eq!(asked.len(), if kind.has_family() { 2 } else { 1 }, "{kind}");
        for f in asked {
            let named = format!("module {}, {}", f.modules[0], f.options[0]);
            assert_eq!(kind.module(), named);
        }
    }
}
