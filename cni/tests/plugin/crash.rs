//! A crash produces an error object. The test binary runs itself as the plugin.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::process::{Command, Stdio};

use serde_json::Value;

/// Not a separate test: crashes when [`a_crash_is_an_error_object`] requests it.
#[test]
fn crashing_plugin() {
    let Ok(how) = std::env::var("WEIR_TEST_CRASH") else {
        return;
    };
    weir_cni::protocol::install_panic_hook();
    match how.as_str() {
        "main" => panic!("the \"reason\""),
        _ => {
            let thread = std::thread::spawn(|| panic!("the \"reason\""));
            let _ = thread.join();
        }
    }
}

#[test]
fn a_crash_is_an_error_object() {
    for how in ["main", "thread"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "crash::crashing_plugin",
                "--nocapture",
                "--quiet",
            ])
            .env("WEIR_TEST_CRASH", how)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{how}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        // The test harness prints a line before the plugin's output.
        let object = stdout.get(stdout.find('{').unwrap()..).unwrap();
        let error: Value = serde_json::from_str(object).unwrap();
        assert_eq!(error["code"], 999);
        assert!(
            error["msg"].as_str().unwrap().contains("the \"reason\""),
            "{error}"
        );
        assert!(
            error["details"].as_str().unwrap().contains("crash.rs"),
            "{error}"
        );
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("the \"reason\""), "{stderr}");
    }
}
