//! A user's own kernel, from files.
use crate::archive::xz;
use crate::elf;
use std::fs;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;
use weir_vm::own::Own;
use weir_vm::{Cache, Kernel, Kernels, Result};

struct Files {
    folder: TempDir,
}

impl Files {
    /// Makes `vmlinuz-X` with `config-X` beside it, and a modules directory.
    fn new(config: Option<&str>) -> Self {
        let files = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        files.write("vmlinuz-x", &elf::vmlinux());
        if let Some(text) = config {
            files.write("config-x", text.as_bytes());
        }
        files.write(
            "modules/modules.builtin",
            b"a/virtio_pci.ko\nb/virtio_console.ko\n",
        );
        files
    }

    fn write(&self, name: &str, content: &[u8]) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn own(&self, modules: bool) -> Own {
        let root = self.folder.path();
        Own {
            name: "mine".into(),
            vmlinuz: root.join("vmlinuz-x"),
            modules: modules.then(|| root.join("modules")),
        }
    }

    fn get(&self, own: Own, name: &str) -> Result<Kernel> {
        let cache = Cache::open(Some(self.folder.path().join("cache")))?;
        let mut kernels = Kernels::open(&cache, None)?;
        kernels.add(own);
        kernels.get(name)
    }
}

fn gz(content: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

#[test]
fn modules_in_every_packing() {
    let files = Files::new(Some(&elf::config()));
    files.write("modules/kernel/nfnetlink.ko", &elf::module(""));
    files.write(
        "modules/kernel/nf_tables.ko.xz",
        &xz(&elf::module("nfnetlink")),
    );
    files.write("modules/extra/veth.ko.zst", &zstd(&elf::module("")));
    files.write("modules/dummy.ko.gz", &gz(&elf::module("")));
    std::os::unix::fs::symlink("/", files.folder.path().join("modules/build")).unwrap();
    let kernel = files.get(files.own(true), "mine").unwrap();
    let names: Vec<_> = kernel.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["nfnetlink", "nf_tables", "veth", "dummy"]);
    for module in &kernel.modules {
        assert!(
            fs::read(&module.file).unwrap().starts_with(b"\x7fELF"),
            "{}",
            module.name
        );
    }
    assert!(kernel.package.contains("vmlinuz-x"));
    assert!(kernel.notes.is_empty(), "{:?}", kernel.notes);
    // A variant of the kernel; then a module is rebuilt, which gives another kernel.
    let variant = files.get(files.own(true), "mine-no-nftables").unwrap();
    assert_eq!(variant.left_out, ["nf_tables"]);
    files.write("modules/dummy.ko.gz", &gz(&elf::module("veth")));
    let again = files.get(files.own(true), "mine").unwrap();
    assert_ne!(again.image, kernel.image);
}

#[test]
fn an_alias_in_a_softdep_finds_its_general_provider() {
    let files = Files::new(Some(&elf::config()));
    let with = |more| elf::module_of(elf::RELEASE, "", more);
    files.write("modules/veth.ko", &with("softdep=pre: crc32c\0"));
    files.write(
        "modules/crc32c_generic.ko",
        &with("alias=crypto-crc32c\0alias=crc32c\0"),
    );
    files.write(
        "modules/crc32c-intel.ko",
        &with("alias=cpu:type:x86*\0alias=crc32c\0"),
    );
    files.write("modules/crc32c_other.ko", &with("alias=other\0"));
    let kernel = files.get(files.own(true), "mine").unwrap();
    let names: Vec<_> = kernel.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["crc32c_generic", "veth"]);
}

#[test]
fn no_btf_hides_the_section_of_modules_and_changes_nothing_else() {
    let config = format!(
        "{}CONFIG_DEBUG_INFO_BTF=y\nCONFIG_KALLSYMS=y\n",
        elf::config()
    );
    let files = Files::new(Some(&config));
    files.write("modules/veth.ko", &elf::module(""));
    let plain = files.get(files.own(true), "mine").unwrap();
    let hidden = files.get(files.own(true), "mine-no-btf").unwrap();
    let read = |kernel: &Kernel| fs::read(&kernel.modules[0].file).unwrap();
    let (before, after) = (read(&plain), read(&hidden));
    assert_eq!(before.len(), after.len());
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert_eq!(
        changed, 1,
        "the name of one section, whose offset fits a byte"
    );
    assert_eq!(hidden.parameters, ["initcall_blacklist=btf_vmlinux_init"]);
}

#[test]
fn what_is_built_in_cannot_be_left_out() {
    let files = Files::new(Some(&elf::config()));
    files.write(
        "modules/modules.builtin",
        b"a/virtio_pci.ko\nb/virtio_console.ko\nnet/nf_tables.ko\nnet/ip_set_hash_ip.ko\n",
    );
    files.write("modules/nft_nat.ko", &elf::module(""));
    files.write("modules/ip_set.ko", &elf::module(""));
    let e = files
        .get(files.own(true), "mine-no-nftables")
        .unwrap_err()
        .to_string();
    assert!(e.contains("nf_tables is built into the kernel"), "{e}");
    // The variant is not about this module, so there is only a note.
    let kernel = files.get(files.own(true), "mine-no-ipset").unwrap();
    assert_eq!(kernel.notes, ["ip_set_hash_ip is built in and stays"]);
}

#[test]
fn a_signature_is_cut_unless_the_kernel_insists() {
    let mut signed = elf::module("");
    let plain = signed.len();
    signed.extend(b"SIGNATURE");
    signed.extend([0; 8]);
    signed.extend(9_u32.to_be_bytes());
    signed.extend(b"~Module signature appended~\n");
    let insists = format!("{}CONFIG_MODULE_SIG_FORCE=y\n", elf::config());
    for (config, length) in [(elf::config(), plain), (insists, signed.len())] {
        let files = Files::new(Some(&config));
        files.write("modules/veth.ko", &signed);
        let kernel = files.get(files.own(true), "mine").unwrap();
        assert_eq!(fs::read(&kernel.modules[0].file).unwrap().len(), length);
    }
}

#[test]
fn a_kernel_without_modules_and_one_without_a_configuration() {
    let files = Files::new(Some(&elf::config()));
    let kernel = files.get(files.own(false), "mine").unwrap();
    assert_eq!(kernel.modules, []);
    let files = Files::new(None);
    files.write("modules/veth.ko", &elf::module(""));
    let kernel = files.get(files.own(true), "mine").unwrap();
    assert!(
        kernel.notes[0].contains("configuration is not known"),
        "{:?}",
        kernel.notes
    );
}

#[test]
fn what_is_wrong_with_files_is_named() {
    let refused = |files: &Files, own: Own, said: &str| {
        let e = files.get(own, "mine").unwrap_err().to_string();
        assert!(e.contains(said), "{said:?} is not in: {e}");
    };
    let files = Files::new(Some(&elf::config()));
    refused(&files, files.own(true), "no module in it");
    let mut own = files.own(false);
    own.vmlinuz = Path::new("/nonexistent/vmlinuz").to_owned();
    refused(&files, own, "/nonexistent/vmlinuz");
    files.write("modules/veth.ko", &elf::module_of("5.4.0", "", ""));
    refused(&files, files.own(true), "for the kernel 5.4.0");
    files.write("modules/veth.ko.xz", b"not xz at all");
    fs::remove_file(files.folder.path().join("modules/veth.ko")).unwrap();
    refused(&files, files.own(true), "not a kernel module");
    files.write("modules/veth.ko.xz", &xz(&elf::module(""))[..40]);
    refused(&files, files.own(true), "cannot be unpacked");

    let files = Files::new(None);
    files.write("modules/modules.builtin", b"a/virtio_pci.ko\n");
    files.write("modules/veth.ko", &elf::module(""));
    refused(&files, files.own(true), "virtio_console");
    let lacking = elf::config().replace("CONFIG_VIRTIO_PCI=y", "# CONFIG_VIRTIO_PCI is not set");
    let files = Files::new(Some(&lacking));
    refused(&files, files.own(false), "CONFIG_VIRTIO_PCI=y or m");
    files.write("vmlinuz-x", b"#!/bin/sh\n");
    refused(
        &files,
        files.own(false),
        "neither a bzImage nor an ELF vmlinux",
    );
}
