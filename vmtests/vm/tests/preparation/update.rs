//! kernels.lock: how it is written and compared with the archive, and how the archive's signature is verified.
use crate::archive::{VERSION, kernel_files, package, publish, xz};
use crate::program::Program;
use crate::server::{Answer, Server};
use std::fs;
use std::path::Path;

const SUITE: &str = "/debian-security/dists/bookworm-security";

fn update<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["update", "6.1", "--archive", url];
    arguments.extend(more);
    arguments
}

#[test]
fn writes_the_newest_build_without_a_host_name() {
    let server = Server::start();
    let expected = publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new("");
    let url = server.url();
    let arguments = update(&url, &["--no-signature"]);
    program.run(&arguments).expect(0, &["6.1", "-> 6.1.99-1"]);
    let text = fs::read_to_string(program.lock_file()).unwrap();
    assert!(!text.contains("127.0.0.1"), "{text}");
    let words = |text: &str| {
        let lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(words(&text), words(&expected));
    program.run(&arguments).expect(0, &["is the newest"]);
    assert_eq!(fs::read_to_string(program.lock_file()).unwrap(), text);
    let locked = ["fetch", "6.1", "--locked", "--archive", &url];
    program.run(&locked).expect(0, &["fetched"]);
}

#[test]
fn an_old_entry_stays_when_a_kernel_has_left_the_archive() {
    let server = Server::start();
    let old = crate::archive::lock("6.1.1-1", 1, &"0".repeat(64)).replace("\"6.1\"", "\"5.10\"");
    let program = Program::new(&old);
    let url = server.url();
    let ran = program.run(&["update", "5.10", "--no-signature", "--archive", &url]);
    ran.expect(0, &["5.10", "stays", "does not have it any more"]);
    assert!(
        fs::read_to_string(program.lock_file())
            .unwrap()
            .contains("6.1.1-1")
    );
}

#[test]
fn an_index_that_the_release_file_does_not_vouch_for() {
    let server = Server::start();
    publish(&server, VERSION, &package(&kernel_files()));
    let other = xz(b"Package: linux-image-6.1.0-1-cloud-amd64\n");
    server.set(
        &format!("{SUITE}/main/binary-amd64/Packages.xz"),
        Answer::Content(other),
    );
    let program = Program::new("");
    let url = server.url();
    program.run(&update(&url, &["--no-signature"])).expect(
        3,
        &[
            "Packages.xz",
            "not the one that the release file vouches for",
        ],
    );
    assert_eq!(fs::read_to_string(program.lock_file()).unwrap(), "");
    program.assert_nothing_left();
}

#[test]
fn an_index_that_is_missing() {
    let server = Server::start();
    publish(&server, VERSION, &package(&kernel_files()));
    server.forget(&format!("{SUITE}/main/binary-amd64/Packages.xz"));
    let program = Program::new("");
    let url = server.url();
    program
        .run(&update(&url, &["--no-signature"]))
        .expect(3, &["has the suite and not its index"]);
}

#[test]
fn a_release_file_without_a_good_signature() {
    let server = Server::start();
    publish(&server, VERSION, &package(&kernel_files()));
    let program = Program::new("");
    let url = server.url();
    // Without keys, it reports that the signature was not checked.
    let ran = program
        .command(&update(&url, &[]))
        .env("VMTESTS_KEYRING", "/nonexistent/keys.gpg")
        .output();
    crate::program::Ran::of(ran.unwrap()).expect(
        0,
        &[
            "signature of bookworm-security was not checked",
            "/nonexistent/keys.gpg",
        ],
    );
    let keys = Path::new("/usr/share/keyrings/debian-archive-keyring.gpg");
    let gpgv = std::process::Command::new("gpgv").arg("--version").output();
    if !keys.exists() || gpgv.is_err() {
        eprintln!("not run further: gpgv or {} is missing", keys.display());
        return;
    }
    let program = Program::new("");
    program
        .run(&update(&url, &[]))
        .expect(3, &["signature is not good", "--no-signature"]);
    assert_eq!(fs::read_to_string(program.lock_file()).unwrap(), "");
}

#[test]
fn a_lock_that_is_not_one() {
    let program = Program::new("kernel = 3");
    program
        .run(&["list"])
        .expect(3, &["kernels.lock", "weir-vm update"]);
    let outside = crate::archive::lock("6.1.1-1", 1, &"0".repeat(64)).replace("pool/", "../");
    let program = Program::new(&outside);
    program
        .run(&["list"])
        .expect(3, &["is not a path with a SHA-256"]);
}

#[test]
fn help_has_examples_and_exit_codes() {
    for command in ["fetch", "update", "list", "clean"] {
        let program = Program::new("");
        let ran = program.run(&[command, "--help"]);
        ran.expect(
            0,
            &["Examples:", &format!("weir-vm {command}"), "Exit codes:"],
        );
    }
    Program::new("")
        .run(&["fetch", "--no-such"])
        .expect(2, &["--no-such"]);
}
