//! A temporary directory, and programs in it.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is deleted when this value is dropped, also when the test fails.
pub struct TempDir(PathBuf);

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl TempDir {
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("weir-test-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                // Left by a process with the same id that was killed.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => {
                    made.expect("a new directory");
                    return Self(path);
                }
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// Writes an executable shell script: [`write_script`].
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        write_script(&path, text);
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect(name)
    }
}

/// Writes an executable shell script through another process: if this process wrote it, a child started by another thread
/// at this moment would hold the file open for writing, and execve(2) would fail with `ETXTBSY`.
pub fn write_script(path: &Path, text: &str) {
    let mut sh = Command::new("sh");
    sh.args(["-c", "cat >\"$0\""]).arg(path);
    let mut child = sh.stdin(Stdio::piped()).spawn().expect("sh");
    let stdin = child.stdin.take();
    let script = format!("#!/bin/sh\n{text}");
    stdin
        .expect("piped")
        .write_all(script.as_bytes())
        .expect("written");
    assert!(child.wait().expect("sh").success());
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("chmod");
}

/// Copies a program to a file or into a directory through another process, for the same reason as [`write_script`].
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(copied.success(), "{} to {}", from.display(), to.display());
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
