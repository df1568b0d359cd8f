//! The three sinks of the log.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::TempDir;
use crate::common::agent::Agent;
use serde_json::Value;
use weir_cni::log::{Logger, RollingFile, SEND_LIMIT, SIZE_LIMIT};
use weir_testing::sockets::left_over;

/// A stderr that can be read.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn messages(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        messages(&text)
    }
}

fn messages(lines: &str) -> Vec<String> {
    let message = |line: &str| -> String {
        let value: Value = serde_json::from_str(line).unwrap();
        value["msg"].as_str().unwrap().to_owned()
    };
    lines.lines().map(message).collect()
}

fn say_all(log: &Logger) {
    log.debug("d");
    log.info("i");
    log.warn("w");
    log.error("e");
}

#[test]
fn levels_per_sink() {
    for (level, stderr) in [
        ("debug", vec!["d", "i", "w", "e"]),
        ("info", vec!["i", "w", "e"]),
        ("warn", vec!["w", "e"]),
        ("error", vec!["e"]),
        ("fatal", vec![]),
        ("none", vec![]),
        ("loud", vec!["i", "w", "e"]),
        ("", vec!["i", "w", "e"]),
    ] {
        let dir = TempDir::new();
        let agent = Agent::listen(&dir.file("log.sock"), Some((200, "")));
        let seen = Shared::default();
        let log = Logger::new(Box::new(seen.clone()));
        log.open_sinks(level, &dir.file("p.log"), &dir.file("log.sock"));
        say_all(&log);
        log.flush();
        assert_eq!(seen.messages(), stderr, "{level}");
        assert_eq!(messages(&dir.read("p.log")), ["i", "w", "e"], "{level}");
        if stderr.is_empty() {
            assert!(agent.is_untouched());
            continue;
        }
        let (head, body) = agent.request();
        assert!(head.starts_with("POST /log HTTP/1.1\r\n"), "{head}");
        let lines: Vec<String> = serde_json::from_str(&body).unwrap();
        assert!(lines.iter().all(|line| line.ends_with("}\n")), "{lines:?}");
        assert_eq!(messages(&lines.concat()), stderr, "{level}");
    }
}

#[test]
fn before_the_configuration_is_read() {
    let seen = Shared::default();
    let log = Logger::new(Box::new(seen.clone()));
    say_all(&log);
    assert_eq!(seen.messages(), ["i", "w", "e"]);
}

#[test]
fn no_socket_no_sending() {
    let dir = TempDir::new();
    let log = Logger::silent();
    log.open_sinks("debug", &dir.file("p.log"), &dir.file("log.sock"));
    // Too late: the socket is looked up when the sinks are opened.
    let agent = Agent::listen(&dir.file("log.sock"), Some((200, "")));
    log.error("e");
    log.flush();
    assert!(agent.is_untouched());
}

#[test]
fn a_receiver_that_never_answers_costs_a_second() {
    let dir = TempDir::new();
    let _agent = Agent::listen(&dir.file("log.sock"), None);
    // A socket on which no connection is accepted, and one without a listener.
    let _deaf = UnixListener::bind(dir.file("deaf.sock")).unwrap();
    left_over(&dir.file("dead.sock"));
    for socket in ["log.sock", "deaf.sock", "dead.sock"] {
        let log = Logger::new(Box::new(std::io::sink()));
        log.open_sinks("info", &dir.file("p.log"), &dir.file(socket));
        log.info("i");
        let started = Instant::now();
        log.flush();
        assert!(
            started.elapsed() < SEND_LIMIT + Duration::from_secs(10),
            "{socket}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_opened_is_said_once() {
    let dir = TempDir::new();
    let seen = Shared::default();
    let log = Logger::new(Box::new(seen.clone()));
    log.open_sinks("info", &dir.file("no/such/dir.log"), &dir.file("log.sock"));
    log.info("i");
    let messages = seen.messages();
    assert!(
        messages.len() == 2 && messages[0].contains("no/such/dir.log"),
        "{messages:?}"
    );
}

#[test]
fn a_full_file_rolls_over() {
    let dir = TempDir::new();
    let path = dir.file("p.log");
    let fill = || {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        file.set_len(SIZE_LIMIT).unwrap();
    };
    fill();
    RollingFile::open(&path)
        .unwrap()
        .append("second\n")
        .unwrap();
    assert_eq!(dir.read("p.log"), "second\n");
    assert_eq!(
        std::fs::metadata(dir.file("p.log.1")).unwrap().len(),
        SIZE_LIMIT
    );
    RollingFile::open(&path).unwrap().append("third\n").unwrap();
    assert_eq!(dir.read("p.log"), "second\nthird\n");
    // An old backup is deleted.
    let old = std::time::SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    std::fs::File::open(dir.file("p.log.1"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    drop(RollingFile::open(&path).unwrap());
    assert!(!dir.file("p.log.1").exists());
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    drop(std::fs::remove_file(&path));
    drop(RollingFile::open(&path).unwrap());
    let fresh = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!((fresh & 0o777, mode & 0o077), (0o600, 0));
}

#[test]
fn a_link_or_a_pipe_in_the_place_of_the_log_file_is_not_written_to() {
    let dir = TempDir::new();
    let path = dir.path().join("log");
    let target = dir.path().join("another");
    std::fs::write(&target, "as it was").unwrap();
    std::os::unix::fs::symlink(&target, &path).unwrap();
    assert!(RollingFile::open(&path).is_err());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "as it was");
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(RollingFile::open(&path).is_err(), "nobody reads");
    let _reader = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(&path)
        .unwrap();
    assert!(RollingFile::open(&path).is_err(), "somebody else reads");
}
