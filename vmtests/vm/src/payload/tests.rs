//! Tests of a payload's content and of its fingerprint.
use super::*;

#[test]
fn a_program_brings_its_libraries_and_what_libc_reads() {
    let mut payload = Payload::new();
    payload.program("/bin/true").unwrap();
    for path in ["/bin/true", "/etc/passwd", "/lib64/ld-linux-x86-64.so.2"] {
        assert!(payload.has(Path::new(path)), "{path}");
    }
    assert!(
        payload
            .entries
            .iter()
            .any(|(p, _)| p.ends_with("/libc.so.6"))
    );
    assert!(payload.size().unwrap() > 1 << 20);
}

#[test]
fn what_is_cut_off_takes_no_room() {
    // This test program has debug information.
    let program = std::env::current_exe().unwrap();
    let size = |mut payload: Payload| {
        payload.file(&program, Path::new("/x")).unwrap();
        payload.append(Path::new("/y"), "1234").unwrap();
        payload.size().unwrap()
    };
    let whole = size(Payload::default());
    assert_eq!(whole, program.metadata().unwrap().len() + 4);
    let cut = size(Payload::default().stripped());
    let loaded = crate::elf::loaded_size(&File::open(&program).unwrap()).unwrap();
    assert_eq!(cut, loaded + 4);
    assert!(cut < whole);
}

#[test]
fn a_path_that_a_guest_cannot_have_is_refused() {
    let mut payload = Payload::new();
    for path in ["etc/x", "/a/../b"] {
        let e = payload.append(Path::new(path), "x").unwrap_err();
        assert!(e.input.contains(path), "{e}");
    }
    assert!(payload.file(Path::new("/etc"), Path::new("/etc")).is_err());
    assert!(payload.program("/nonexistent").is_err());
}

#[test]
fn a_changed_file_changes_the_fingerprint() {
    let file = std::env::temp_dir().join(format!("weir-vm-payload-{}", std::process::id()));
    fs::write(&file, "one").unwrap();
    let mut payload = Payload::new();
    payload.file(&file, Path::new("/x")).unwrap();
    let before = payload.fingerprint().unwrap();
    assert_eq!(payload.fingerprint().unwrap(), before);
    fs::write(&file, "other").unwrap();
    assert_ne!(payload.fingerprint().unwrap(), before);
    fs::remove_file(&file).unwrap();
    assert!(payload.fingerprint().is_err());
}
