//! Runs the program with its own cache and lock.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

pub(crate) struct Program {
    folder: TempDir,
}

/// The exit code and the output of the program.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) text: String,
}

impl Program {
    /// Creates a directory with this text as kernels.lock.
    pub(crate) fn new(lock: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kernels.lock"), lock).unwrap();
        Self { folder }
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    pub(crate) fn lock_file(&self) -> PathBuf {
        self.folder.path().join("kernels.lock")
    }

    /// The command with `--cache` and `--lock`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-vm"));
        command
            .args(arguments)
            .arg("--cache")
            .arg(self.cache())
            .env_remove("VMTESTS_KERNEL")
            .env_remove("VMTESTS_ARCHIVE")
            .env("no_proxy", "127.0.0.1");
        if arguments[0] != "clean" {
            command.arg("--lock").arg(self.lock_file());
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs `fetch 6.1` without verifying signatures.
    pub(crate) fn fetch(&self, url: &str) -> Ran {
        self.run(&["fetch", "6.1", "--no-signature", "--archive", url])
    }

    /// All files below the cache, except lock files, which stay and are empty.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(&self.cache(), &mut files);
        let root = self.cache().display().to_string();
        files.retain(|f| !f.starts_with(&format!("{root}/lock/")));
        files
            .iter()
            .map(|f| {
                f.trim_start_matches(&root)
                    .trim_start_matches('/')
                    .to_owned()
            })
            .collect()
    }

    /// The names in a directory of the cache.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.cache().join(folder));
        let names = entries.into_iter().flatten().flatten();
        names
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Fails unless the cache contains only empty directories.
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.files(), Vec::<String>::new());
        assert_eq!(self.names("tmp"), Vec::<String>::new());
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = [output.stdout, output.stderr].concat();
        Self {
            code: output.status.code(),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }

    /// Fails unless the program ended with this code and printed all of these texts.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.text);
        for text in said {
            assert!(
                self.text.contains(text),
                "{text:?} is not in: {}",
                self.text
            );
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path.display().to_string());
        }
    }
}
