//! QMP, QEMU's JSON monitor: the commands for saving and restoring.
use crate::{Error, Result};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The name of the file descriptor in QEMU that carries a state.
const STATE_FD: &str = "state";

/// A monitor connection after the greeting.
#[derive(Debug)]
pub(crate) struct Qmp {
    reader: BufReader<UnixStream>,
    /// QEMU's version, including the distribution's.
    pub(crate) version: String,
}

impl Qmp {
    /// Reads the greeting. `deadline` also bounds every later wait.
    pub(crate) fn greet(stream: &UnixStream, deadline: Duration) -> Result<Self> {
        let failed = |e| failed("greeting", e);
        let stream = stream.try_clone().map_err(failed)?;
        stream.set_read_timeout(Some(deadline)).map_err(failed)?;
        let (reader, version) = (BufReader::new(stream), String::new());
        let mut qmp = Self { reader, version };
        let greeting = qmp.message("greeting")?;
        let version = |part: &str| greeting.pointer(&format!("/QMP/version/{part}"));
        let number = |part: &str| version(part).and_then(Value::as_u64).unwrap_or(0);
        let [major, minor, micro] = ["qemu/major", "qemu/minor", "qemu/micro"].map(number);
        let package = version("package").and_then(Value::as_str);
        qmp.version = format!("{major}.{minor}.{micro} {}", package.unwrap_or_default());
        qmp.command("qmp_capabilities", json!({}), None)?;
        Ok(qmp)
    }

    /// Saves the state of devices and processors; the memory is in its own file and is not part of it. The guest is stopped
    /// afterwards.
    pub(crate) fn save(&mut self, deadline: Duration) -> Result<Vec<u8>> {
        let failed_io = |e: std::io::Error| failed("migrate", e);
        let (mut ours, mut state) = (self.prepare()?, Vec::new());
        ours.set_read_timeout(Some(deadline)).map_err(failed_io)?;
        self.command("migrate", json!({"uri": format!("fd:{STATE_FD}")}), None)?;
        ours.read_to_end(&mut state).map_err(failed_io)?;
        let start = Instant::now();
        loop {
            let answer = self.command("query-migrate", json!({}), None)?;
            match answer.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(state),
                // The last bytes arrive shortly before QEMU reports completion.
                Some("active" | "device" | "setup") if start.elapsed() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                _ => return Err(failed("migrate", answer)),
            }
        }
    }

    /// Restores a saved state.
    /// QEMU reads the state afterwards, and exits if it cannot use it.
    pub(crate) fn restore(&mut self, state: Vec<u8>) -> Result<()> {
        let mut ours = self.prepare()?;
        let uri = json!({"uri": format!("fd:{STATE_FD}")});
        self.command("migrate-incoming", uri, None)?;
        // An early exit of QEMU shows as a closed port.
        std::thread::spawn(move || ours.write_all(&state));
        Ok(())
    }

    /// Passes one end of a new socket pair to QEMU and returns the other. Shared memory is excluded from the migration.
    fn prepare(&mut self) -> Result<UnixStream> {
        let capability =
            json!({"capabilities": [{"capability": "x-ignore-shared", "state": true}]});
        self.command("migrate-set-capabilities", capability, None)?;
        let (ours, theirs) = UnixStream::pair().map_err(|e| failed("getfd", e))?;
        self.command("getfd", json!({"fdname": STATE_FD}), Some(&theirs))?;
        Ok(ours)
    }

    fn command(&mut self, name: &str, arguments: Value, fd: Option<&UnixStream>) -> Result<Value> {
        let line = format!("{}\n", json!({"execute": name, "arguments": arguments}));
        let fds = fd.map(|fd| [fd.as_raw_fd()]);
        let rights = fds.iter().map(|fds| ControlMessage::ScmRights(fds));
        let (rights, line) = (rights.collect::<Vec<_>>(), [IoSlice::new(line.as_bytes())]);
        let (socket, flags) = (self.reader.get_ref().as_raw_fd(), MsgFlags::MSG_NOSIGNAL);
        let sent = sendmsg::<()>(socket, &line, &rights, flags, None);
        sent.map_err(|e| failed(name, e))?;
        loop {
            let mut answer = self.message(name)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                let said = error.get("desc").and_then(Value::as_str);
                return Err(failed(name, said.unwrap_or("an error without text")));
            }
            // Events are skipped.
        }
    }

    fn message(&mut self, what: &str) -> Result<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Err(e) => Err(failed(what, e)),
            Ok(0) => Err(failed(what, "QEMU is gone")),
            Ok(_) => serde_json::from_str(&line).map_err(|e| failed(what, e)),
        }
    }
}

fn failed(what: &str, reason: impl fmt::Display) -> Error {
    let remedy = "Is it a QEMU of 5.2 or later? VMTESTS_QEMU=FILE names another";
    Error::new(format!("QEMU, {what}"), reason, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(200);
    /// What comes at once may be late on a busy machine, as may the end of a connection that another test's child inherited.
    const LONG: Duration = Duration::from_secs(30);

    /// A fake monitor that has sent these lines in advance, whatever the commands will be; returns both ends.
    fn monitor(lines: &[&str]) -> (UnixStream, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in lines {
            writeln!(theirs, "{}", line.replace('\n', " ")).unwrap();
        }
        (ours, theirs)
    }

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7},
        "package": "Debian"}, "capabilities": []}}"#;

    #[test]
    fn the_greeting_names_the_version_and_events_are_no_answers() {
        let (stream, _end) = monitor(&[GREETING, r#"{"event": "RESUME"}"#, r#"{"return": {}}"#]);
        let qmp = Qmp::greet(&stream, LONG).unwrap();
        assert_eq!(qmp.version, "7.2.22 Debian");
    }

    #[test]
    fn an_error_is_passed_on_in_qemus_words() {
        let error = r#"{"error": {"class": "GenericError", "desc": "no such thing"}}"#;
        let (stream, _end) = monitor(&[GREETING, error]);
        let e = Qmp::greet(&stream, LONG).err().unwrap();
        assert_eq!(e.reason, "no such thing");
    }

    #[test]
    fn a_qemu_that_ends_or_says_nothing_or_nonsense_is_an_error() {
        let (stream, end) = monitor(&[]);
        assert!(Qmp::greet(&stream, SOON).is_err());
        drop(end);
        let e = Qmp::greet(&stream, LONG).err().unwrap();
        assert_eq!(e.reason, "QEMU is gone");
        let (stream, _end) = monitor(&["{"]);
        assert!(Qmp::greet(&stream, LONG).is_err());
    }
}
