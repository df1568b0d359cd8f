//! The release binaries run in a root directory that contains no other file.
// matrix: every; needs WEIR_BIN_DIR

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use weir_testing::copy_program;

const CONFIG: &str = r#"{"inbound_ports_include": "*", "outbound_ip_ranges_include": "*"}"#;

/// A directory that is deleted with this value, also if the test fails.
struct EmptyRoot(PathBuf);

impl EmptyRoot {
    /// A directory that contains the two binaries of `ci/build` and a configuration, and nothing else.
    ///
    /// Prints the reason and returns `None` if there are no binaries or if `chroot(2)` is not permitted.
    fn new(name: &str) -> Option<Self> {
        let Some(binaries) = std::env::var_os("WEIR_BIN_DIR") else {
            println!(
                "skipped: WEIR_BIN_DIR does not name the release binaries. `ci/build` makes them \
                 and prints their folder"
            );
            return None;
        };
        let path = std::env::temp_dir().join(format!("weir-root-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let root = Self(path);
        for program in ["weir", "weir-cni"] {
            copy_program(&Path::new(&binaries).join(program), &root.0);
        }
        std::fs::write(root.0.join("config.json"), CONFIG).unwrap();
        let probe = root.run(&["/weir", "--version"], &[]);
        let errors = String::from_utf8_lossy(&probe.stderr).into_owned();
        if errors.contains("Operation not permitted") {
            println!("skipped: {}", errors.trim());
            return None;
        }
        Some(root)
    }

    /// Runs `chroot ROOT COMMAND` with exactly this environment.
    fn run(&self, command: &[&str], env: &[(&str, &str)]) -> Output {
        let mut chroot = Command::new("/usr/sbin/chroot");
        chroot.arg(&self.0).args(command);
        chroot
            .env_clear()
            .envs(env.iter().copied())
            .stdin(Stdio::null());
        chroot.output().expect("chroot of coreutils is needed")
    }

    /// The stdout of a run that must succeed.
    fn stdout(&self, command: &[&str], env: &[(&str, &str)]) -> String {
        let output = self.run(command, env);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{command:?}: {}: {errors}",
            output.status
        );
        assert_eq!(errors, "", "{command:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for EmptyRoot {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn weir_runs_in_an_empty_root() {
    let Some(root) = EmptyRoot::new("weir") else {
        return;
    };
    let help = root.stdout(&["/weir", "--help"], &[]);
    assert!(help.contains("Usage:") && help.contains("apply"), "{help}");
    let plan = root.stdout(
        &["/weir", "plan", "sidecar", "--config", "/config.json"],
        &[],
    );
    assert!(plan.contains("15006") && plan.contains("15001"), "{plan}");
    assert_eq!(
        root.files(),
        ["config.json", "weir", "weir-cni"],
        "nothing is left behind"
    );
}

#[test]
fn the_plugin_runs_in_an_empty_root() {
    let Some(root) = EmptyRoot::new("weir-cni") else {
        return;
    };
    let versions = root.stdout(&["/weir-cni"], &[("CNI_COMMAND", "VERSION")]);
    let versions: serde_json::Value = serde_json::from_str(&versions).unwrap();
    let supported = versions["supportedVersions"].as_array().unwrap();
    assert!(supported.iter().any(|v| v == "1.1.0"), "{versions}");
    assert_eq!(
        root.files(),
        ["config.json", "weir", "weir-cni"],
        "nothing is left behind"
    );
}
