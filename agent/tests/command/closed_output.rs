//! Output that cannot be written changes nothing but what can be read.

use std::fs::File;
use std::process::{Command, Stdio};

/// Every write to it fails with ENOSPC.
fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn a_message_that_cannot_be_written_does_not_change_the_exit_code() {
    for (arguments, code) in [
        (&["plan", "sidecar", "--config", "/nowhere"][..], 2),
        (&["show", "--netns", "/nowhere"], 2),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let status = command.args(arguments).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {status}");
    }
}
