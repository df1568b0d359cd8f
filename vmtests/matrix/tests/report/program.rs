//! `weir-vmtests report`.
use crate::example::lifelike;
use std::fs;
use std::path::Path;
use std::process::Command;
use weir_vmtests::report::write;

/// Returns exit code, stdout and stderr.
fn program(arguments: &[&Path]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_weir-vmtests"))
        .arg("report")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        out.status.code().unwrap(),
        text(out.stdout),
        text(out.stderr),
    )
}

#[test]
fn a_report_is_made_again_and_the_readme_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report");
    let files = write(&lifelike(false), &report).unwrap();
    let before = fs::read(&files[3]).unwrap();
    fs::remove_file(&files[3]).unwrap();
    let (code, out, _) = program(&[&report]);
    assert_eq!(code, 0);
    assert!(
        out.ends_with("in 13 environments\n") && !out.contains('\x1b'),
        "{out}"
    );
    assert_eq!(fs::read(&files[3]).unwrap(), before);

    let readme = dir.path().join("README.md");
    fs::write(&readme, "<!-- matrix -->\n<!-- /matrix -->\n").unwrap();
    let (option, check) = (Path::new("--readme"), Path::new("--check"));
    let (code, _, err) = program(&[&report, option, &readme, check]);
    assert_eq!(code, 3);
    assert!(
        err.contains(&format!("--readme {}", readme.display())),
        "{err}"
    );
    assert_eq!(program(&[&report, option, &readme]).0, 0);
    assert_eq!(program(&[&report, option, &readme, check]).0, 0);
    let (_, out, _) = program(&[&report, option, &readme]);
    assert!(out.contains("unchanged"), "{out}");
}

#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = program(&[dir.path()]);
    assert_eq!(code, 3);
    assert!(
        err.contains("matrix.json") && err.contains("ci/matrix"),
        "{err}"
    );
    assert_eq!(program(&[dir.path(), Path::new("--check")]).0, 2);
}

#[test]
fn a_remedy_names_the_command_of_this_program() {
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_weir-vmtests"))
        .args(["boot", "--kernel", "6.1", "--cache"])
        .arg(dir.path())
        .env_remove("VMTESTS_KERNEL")
        .output()
        .unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert!(err.contains("`weir-vmtests fetch 6.1` gets it"), "{err}");
}

#[test]
fn a_required_environment_that_does_not_exist_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("tests.json");
    let program = r#"{"reason":"compiler-artifact","manifest_path":"/w/netlink/Cargo.toml","target":{"name":"weir_netlink","kind":["lib"],"src_path":"/w/x.rs"},"profile":{"test":true},"executable":"/nonexistent"}"#;
    fs::write(&list, program).unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_weir-vmtests"))
        .args(["matrix", "--list", "--artifacts"])
        .arg(&list)
        .arg("--cache")
        .arg(dir.path())
        .env_remove("VMTESTS_KERNEL")
        .env("VMTESTS_REQUIRE", "newest,6.81")
        .output()
        .unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(3), "{err}");
    assert!(err.contains("VMTESTS_REQUIRE=newest,6.81"), "{err}");
    assert!(err.contains(r#"the name "6.81""#), "{err}");
}
