//! The payload of guests: the test programs without debug information, the files that they read, and real tools.
use super::artifacts::Artifacts;
use std::path::{Path, PathBuf};
use weir_vm::{At, Error, Payload, Result, variable};

/// Tools that tests start, in addition to [`weir_vm::TOOLS`].
const MORE_TOOLS: &str = "chroot conntrack cp mkdir setpriv sysctl";
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The variables that name a directory of test data and a directory of release binaries, and the binaries that are used.
pub(crate) const GOLDEN: &str = "WEIR_GOLDEN";
pub(crate) const RELEASE: &str = "WEIR_BIN_DIR";
const RELEASED: [&str; 2] = ["weir", "weir-cni"];

/// The files under `/etc` that C libraries read, with the user of Istio's proxy added.
pub(crate) fn users() -> Result<Payload> {
    let mut payload = Payload::new();
    let user = "istio-proxy:x:1337:1337::/:/bin/false\n";
    payload.append(Path::new("/etc/passwd"), user)?;
    payload.append(Path::new("/etc/group"), "istio-proxy:x:1337:\n")?;
    Ok(payload)
}

/// The common payload of all guests: the binaries, the files that tests read, the tools.
pub(crate) fn common(artifacts: &Artifacts) -> Result<Payload> {
    let mut payload = users()?.stripped();
    let released = variable(RELEASE);
    for (name, path) in &artifacts.binaries {
        // The release binary replaces Cargo's if it exists: the tests then check what users get, and under emulation it starts in
        // a fraction of the time.
        let user = released.as_ref().map(|folder| folder.join(name));
        let user = user.filter(|file| file.is_file());
        payload.program_at(user.as_ref().unwrap_or(path), path)?;
    }
    for package in artifacts.programs.iter().map(|p| &p.package) {
        let tests = package.join("tests");
        if !payload.has(&tests) && tests.is_dir() {
            payload.tree(&tests, &tests, &["target"])?;
        }
    }
    if let Some(folder) = variable(GOLDEN) {
        payload.tree(&folder, &folder, &["target", ".git"])?;
    }
    if let Some(folder) = &released {
        for name in RELEASED {
            payload.program(folder.join(name))?;
        }
    }
    // A missing tool is no error here: a test that needs it reports it.
    for tools in [weir_vm::TOOLS, MORE_TOOLS] {
        payload.tools(tools)?;
        for name in tools.split_whitespace() {
            link(&mut payload, name)?;
        }
    }
    let protocols = Path::new("/etc/protocols");
    if protocols.is_file() {
        payload.file(protocols, protocols)?;
    }
    if let Some(program) = artifacts.programs.first() {
        payload.temporary_of(&program.executable)?;
    }
    payload.directory(Path::new("/tmp"), 0o1777)?;
    payload.directory(Path::new("/root"), 0o700)?;
    payload.directory(Path::new("/var/run"), 0o755)?;
    Ok(payload)
}

/// If `/bin` is a link to `/usr/bin`, a tool has two paths, and a test may use either.
fn link(payload: &mut Payload, name: &str) -> Result<()> {
    let paths = FOLDERS.map(|folder| Path::new(folder).join(name));
    let Some(there) = paths.iter().find(|p| payload.has(p)).cloned() else {
        return Ok(());
    };
    for path in paths.iter().filter(|p| p.is_file()) {
        if !payload.has(path) {
            payload.link(path, &there.to_string_lossy())?;
        }
    }
    Ok(())
}

/// The payload with only the release binary. `None`: its directory was not given.
pub(crate) fn alone() -> Result<Option<(Payload, PathBuf)>> {
    let Some(folder) = variable(RELEASE) else {
        return Ok(None);
    };
    let weir = std::path::absolute(folder.join("weir")).at(RELEASE)?;
    if !weir_vm::closure(std::slice::from_ref(&weir))?.is_empty() {
        let reason = "it needs libraries, and is to run where there are none";
        let remedy = "ci/build makes the static one and prints its folder";
        return Err(Error::new(weir.display().to_string(), reason, remedy));
    }
    let mut payload = Payload::default();
    let guest = PathBuf::from("/weir");
    payload.file(&weir, &guest)?;
    payload.directory(Path::new("/tmp"), 0o1777)?;
    Ok(Some((payload, guest)))
}
