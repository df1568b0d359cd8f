//! A folder that goes away with its value.

use std::path::{Path, PathBuf};
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
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new directory");
        Self(path)
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

    /// Writes an executable shell script. Another process writes it: a child that another thread of this process starts
    /// at this moment would hold the file open for writing, and the kernel runs no such file (`ETXTBSY`).
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        use std::process::{Command, Stdio};
        let path = self.file(name);
        let mut sh = Command::new("sh");
        sh.args(["-c", "cat >\"$0\""]).arg(&path);
        let mut child = sh.stdin(Stdio::piped()).spawn().expect("sh");
        let stdin = child.stdin.take();
        let script = format!("#!/bin/sh\n{text}");
        stdin
            .expect("piped")
            .write_all(script.as_bytes())
            .expect("written");
        assert!(child.wait().expect("sh").success());
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("chmod");
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect(name)
    }
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
