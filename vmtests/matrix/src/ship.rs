//! What guests hold: the test programs without what only debuggers read, what they read, and the real tools.
use super::artifacts::Artifacts;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_vm::variable;
use weir_vm::{At, Error, Payload, Result};

/// Tools that tests start besides [`weir_vm::TOOLS`].
const MORE_TOOLS: &[&str] = &["chroot", "conntrack", "cp", "mkdir", "setpriv", "sysctl"];
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// A directory of test data, and one of programs, of which these are wanted.
pub(crate) const GOLDEN: &str = "WEIR_GOLDEN";
pub(crate) const RELEASE: &str = "WEIR_BIN_DIR";
const RELEASED: [&str; 2] = ["weir", "weir-cni"];

/// What a guest holds that runs these test programs, by their places among the artifacts: them besides what every guest
/// holds. Others stay at home: every file more makes a boot longer.
pub(crate) fn with(
    common: &Payload,
    artifacts: &Artifacts,
    programs: &BTreeSet<usize>,
) -> Result<Payload> {
    let mut payload = common.clone();
    for index in programs {
        if let Some(program) = artifacts.programs.get(*index) {
            payload.program(&program.executable)?;
        }
    }
    Ok(payload)
}

/// The files under `/etc` that C libraries ask for, with the user of Istio's proxy.
pub(crate) fn users() -> Result<Payload> {
    let mut payload = Payload::new();
    let more = [
        ("/etc/passwd", "istio-proxy:x:1337:1337::/:/bin/false\n"),
        ("/etc/group", "istio-proxy:x:1337:\n"),
    ];
    for (file, line) in more {
        payload.append(Path::new(file), line)?;
    }
    Ok(payload)
}

/// What every guest holds, whatever it runs: the binaries, what tests read, the tools.
pub(crate) fn common(artifacts: &Artifacts) -> Result<Payload> {
    let mut payload = users()?.stripped();
    let released = variable(RELEASE);
    for (name, path) in &artifacts.binaries {
        payload.program_at(&of_release(released.as_deref(), name, path), path)?;
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
    // A test that misses one says so.
    payload.tools(weir_vm::TOOLS)?;
    payload.tools(MORE_TOOLS)?;
    for name in weir_vm::TOOLS.iter().chain(MORE_TOOLS) {
        link(&mut payload, name)?;
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

/// The binary of that name as users get it, where it is there: tests then judge that, and it starts in a fraction of
/// the time that Cargo's own takes under emulation.
fn of_release(folder: Option<&Path>, name: &str, own: &Path) -> PathBuf {
    let released = folder.map(|f| f.join(name)).filter(|f| f.is_file());
    released.unwrap_or_else(|| own.to_owned())
}

/// Where `/bin` is a link to `/usr/bin`, a tool has two paths, and a test may use either.
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

/// The release binary and nothing else. `None`: nobody has said where it is.
pub(crate) fn alone() -> Result<Option<(Payload, PathBuf)>> {
    let Some(folder) = variable(RELEASE) else {
        return Ok(None);
    };
    let weir = std::path::absolute(folder.join("weir")).at(RELEASE)?;
    if !weir_vm::closure(std::slice::from_ref(&weir))?.is_empty() {
        return Err(Error::new(
            weir.display().to_string(),
            "it needs libraries, and is to run where there are none",
            "ci/build makes the static one and prints its folder",
        ));
    }
    let mut payload = Payload::default();
    let guest = PathBuf::from("/weir");
    payload.file(&weir, &guest)?;
    payload.directory(Path::new("/tmp"), 0o1777)?;
    Ok(Some((payload, guest)))
}
