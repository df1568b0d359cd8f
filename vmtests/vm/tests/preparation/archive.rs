//! A Debian archive that contains the kernel 6.1.
use crate::elf;
use crate::server::{Answer, Server};
use std::io::Write;

pub(crate) const VERSION: &str = "6.1.99-1";
const SUITE: &str = "/debian-security/dists/bookworm-security";

/// A file of a package: path and content.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// The files of a good kernel package.
pub(crate) fn kernel_files() -> Files {
    let modules = format!("lib/modules/{}", elf::RELEASE);
    let module = |name: &str, depends: &str| {
        (
            format!("{modules}/kernel/net/{name}.ko"),
            elf::module(depends),
        )
    };
    vec![
        (format!("boot/vmlinuz-{}", elf::RELEASE), elf::vmlinux()),
        (
            format!("boot/config-{}", elf::RELEASE),
            elf::config().into_bytes(),
        ),
        (
            format!("{modules}/modules.builtin"),
            b"kernel/drivers/virtio/virtio_pci.ko\n".to_vec(),
        ),
        module("nf_tables", "nfnetlink,x-common"),
        module("nfnetlink", ""),
        module("x-common", ""),
        module("ip_tables", "x-common"),
        module("iptable_nat", "ip_tables"),
        module("unrelated", ""),
    ]
}

/// `dpkg-deb --build`: an ar archive with control.tar.gz and data.tar.xz.
pub(crate) fn package(files: &Files) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("./{path}"), content.as_slice())
            .unwrap();
    }
    let data = xz(&tar.into_inner().unwrap());
    let mut out = b"!<arch>\n".to_vec();
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", b"odd".to_vec()),
        ("data.tar.xz", data),
    ];
    for (name, content) in members {
        let size = content.len();
        writeln!(
            out,
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`",
            0, 0, 0, 100644
        )
        .unwrap();
        out.extend(&content);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

pub(crate) fn xz(content: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::default();
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    let sum = sha2::Sha256::digest(bytes);
    sum.iter().map(|b| format!("{b:02x}")).collect()
}

/// The path of the package of a version.
pub(crate) fn path(version: &str) -> String {
    format!("pool/linux-image-{}_{version}_amd64.deb", elf::RELEASE)
}

/// Puts a package into the archive as the only kernel of bookworm-security, and returns its lock.
pub(crate) fn publish(server: &Server, version: &str, package: &[u8]) -> String {
    let path = path(version);
    let sum = sha256(package);
    let size = package.len();
    let text = format!(
        "Package: linux-image-{}\nVersion: {version}\nDepends: kmod\nFilename: {path}\nSize: {size}\n\
         SHA256: {sum}\n\n",
        elf::RELEASE
    );
    let index = xz(text.as_bytes());
    let release = format!(
        "Suite: bookworm-security\nSHA256:\n {} {} main/binary-amd64/Packages.xz\n",
        sha256(&index),
        index.len()
    );
    server.set(
        &format!("{SUITE}/main/binary-amd64/Packages.xz"),
        Answer::Content(index),
    );
    server.set(
        &format!("{SUITE}/InRelease"),
        Answer::Content(release.into_bytes()),
    );
    server.set(
        &format!("/debian-security/{path}"),
        Answer::Content(package.to_vec()),
    );
    lock(version, size, &sum)
}

pub(crate) fn lock(version: &str, size: usize, sum: &str) -> String {
    format!(
        "[[kernel]]\nname = \"6.1\"\nseries = \"6.1\"\nversion = \"{version}\"\n\
         suite = \"bookworm-security\"\n[[kernel.part]]\npath = \"{}\"\nsize = {size}\n\
         sha256 = \"{sum}\"\n",
        path(version)
    )
}
