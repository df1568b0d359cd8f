//! Failures: each gives a clear message and leaves nothing incomplete in the cache.
use crate::archive::{Files, VERSION, kernel_files, package, path, publish};
use crate::elf;
use crate::program::{Program, Ran};
use crate::server::{Answer, Server};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Stdio;

/// Fetches a kernel made of `files`; the fetch must fail with this text and leave only the package.
#[track_caller]
fn refused(files: &Files, said: &[&str]) {
    let server = Server::start();
    let text = publish(&server, VERSION, &package(files));
    let program = Program::new(&text);
    program.fetch(&server.url()).expect(3, said);
    assert_eq!(program.names("kernel"), Vec::<String>::new());
    assert_eq!(program.names("tmp"), Vec::<String>::new());
}

fn without(name: &str) -> Files {
    let mut files = kernel_files();
    files.retain(|(path, _)| !path.contains(name));
    files
}

fn package_url() -> String {
    format!("/debian-security/{}", path(VERSION))
}

#[test]
fn nobody_answers() {
    let program = Program::new("");
    program
        .fetch("http://127.0.0.1:1/debian")
        .expect(3, &["127.0.0.1:1", "--archive URL", "cache"]);
    program.assert_nothing_left();
    program.fetch("mirror/debian").expect(3, &["not a URL"]);
}

#[test]
fn the_archive_has_no_such_suite() {
    let server = Server::start();
    let program = Program::new("");
    let url = server.url();
    program
        .fetch(&url)
        .expect(3, &["6.1", "bookworm-security", "--archive URL"]);
    program.assert_nothing_left();
    // This kernel is not required.
    let optional = ["fetch", "5.10", "--no-signature", "--archive", &url];
    program
        .run(&optional)
        .expect(0, &["5.10: skipped", "required = false"]);
}

#[test]
fn wrong_hash() {
    let server = Server::start();
    let mut other = package(&kernel_files());
    let text = publish(&server, VERSION, &other);
    let last = other.len() - 1;
    other[last] ^= 1;
    server.set(&package_url(), Answer::Content(other));
    let program = Program::new(&text);
    program
        .fetch(&server.url())
        .expect(3, &["SHA-256", "another mirror"]);
    program.assert_nothing_left();
}

#[test]
fn the_connection_ends_early() {
    let server = Server::start();
    let bytes = package(&kernel_files());
    let text = publish(&server, VERSION, &bytes);
    server.set(&package_url(), Answer::Cut(bytes.clone(), bytes.len() / 2));
    let program = Program::new(&text);
    program
        .fetch(&server.url())
        .expect(3, &["bytes", "--archive URL"]);
    program.assert_nothing_left();
}

#[test]
fn not_a_package() {
    let server = Server::start();
    let text = publish(&server, VERSION, b"<html>Please log in</html>");
    let program = Program::new(&text);
    program
        .fetch(&server.url())
        .expect(3, &["not a usable Debian package", "weir-vm fetch"]);
    assert_eq!(program.names("kernel"), Vec::<String>::new());
}

#[test]
fn a_package_that_is_cut_off_in_the_archive_itself() {
    let whole = package(&kernel_files());
    for end in [4, 40, 80, 150, whole.len() / 2, whole.len() - 40] {
        let server = Server::start();
        let text = publish(&server, VERSION, &whole[..end]);
        let program = Program::new(&text);
        program
            .fetch(&server.url())
            .expect(3, &["6.1.99-1_amd64.deb", "not a usable Debian package"]);
        assert_eq!(program.names("kernel"), Vec::<String>::new());
    }
}

#[test]
fn a_package_without_one_of_its_parts() {
    refused(
        &without("vmlinuz"),
        &["do not hold a kernel", "not complete"],
    );
    refused(&without(".ko"), &["do not hold modules", "not complete"]);
    refused(
        &without("config-"),
        &["do not hold a configuration", "not complete"],
    );
}

#[test]
fn a_module_that_another_needs_is_missing() {
    refused(
        &without("/x-common.ko"),
        &["the module nf_tables", "needs the module x_common"],
    );
}

#[test]
fn a_module_that_is_not_one_or_of_another_kernel() {
    let replaced = |content: Vec<u8>| {
        let mut files = without("/nfnetlink.ko");
        files.push(("lib/modules/x/nfnetlink.ko".into(), content));
        files
    };
    refused(
        &replaced(b"hello".to_vec()),
        &["the module nfnetlink", "not a kernel module"],
    );
    let other = elf::module_of("5.4.0", "", "");
    refused(
        &replaced(other),
        &["nfnetlink", "for the kernel 5.4.0, not for 6.1"],
    );
}

#[test]
fn a_kernel_without_what_a_guest_needs() {
    let with_config = |text: String| {
        let mut files = without("config-");
        files.push((format!("boot/config-{}", elf::RELEASE), text.into_bytes()));
        files
    };
    let lacking = elf::config()
        .replace("CONFIG_VIRTIO_CONSOLE=y", "")
        .replace("CONFIG_NET_NS=y", "");
    refused(
        &with_config(lacking),
        &[
            "CONFIG_VIRTIO_CONSOLE=y or m",
            "CONFIG_NET_NS=y",
            "the channel to the host",
        ],
    );
    let modular = elf::config().replace("CONFIG_VIRTIO_PCI=y", "CONFIG_VIRTIO_PCI=m");
    refused(&with_config(modular), &["the module virtio_pci"]);
}

#[test]
fn an_image_that_is_not_a_kernel() {
    let mut files = without("vmlinuz");
    files.push((format!("boot/vmlinuz-{}", elf::RELEASE), b"MZ".repeat(600)));
    refused(&files, &["neither a bzImage nor an ELF vmlinux"]);
}

#[test]
fn a_full_disk() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a small file system is mounted, which needs root");
        return;
    }
    let server = Server::start();
    let mut files = kernel_files();
    // Incompressible content, so that the package does not fit on the disk.
    let noise: Vec<u8> = (0_u32..100_000)
        .flat_map(|i| {
            i.wrapping_mul(2_654_435_761)
                .rotate_left(i % 31)
                .to_le_bytes()
        })
        .collect();
    files.push(("usr/share/doc/noise".into(), noise));
    let text = publish(&server, VERSION, &package(&files));
    let program = Program::new(&text);
    fs::create_dir_all(program.cache()).unwrap();
    let (cache, url) = (program.cache(), server.url());
    // The mounts are in a mount namespace of this thread and its children, so they disappear with it in any case.
    let worker = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let tmpfs = Some("tmpfs");
        mount(tmpfs, &cache, tmpfs, MsFlags::empty(), Some("size=128k")).unwrap();
        let ran = program.fetch(&url);
        ran.expect(3, &["No space left on device", "Make room", "--cache DIR"]);
        program.assert_nothing_left();
        program
    });
    // The directory is removed outside that namespace, where nothing is mounted in it.
    drop(worker.join().unwrap());
}

#[test]
fn ctrl_c_in_the_middle_of_a_download() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let (program, server, child) = stalled();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let ran = Ran::of(child.wait_with_output().unwrap());
        ran.expect(128 + signal as i32, &["stopped by"]);
        program.assert_nothing_left();
        drop(server);
    }
}

#[test]
fn what_a_killed_run_left_goes_with_the_next() {
    let (program, server, mut child) = stalled();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        program.names("tmp").len(),
        1,
        "killed before it could tidy up"
    );
    let bytes = package(&kernel_files());
    server.set(&package_url(), Answer::Content(bytes));
    program.fetch(&server.url()).expect(0, &["fetched"]);
    assert_eq!(program.names("tmp"), Vec::<String>::new());
}

/// A run that is in the middle of the download of a package.
fn stalled() -> (Program, Server, std::process::Child) {
    let server = Server::start();
    let bytes = package(&kernel_files());
    let text = publish(&server, VERSION, &bytes);
    server.set(&package_url(), Answer::Stall(bytes));
    let program = Program::new(&text);
    let child = program
        .command(&["fetch", "6.1", "--no-signature", "--archive", &server.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    server.stalled.recv().unwrap();
    (program, server, child)
}
