//! The dispatcher with a fake process: every row of the protocol's tables.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use crate::common::call::FakeProcess;
use serde_json::{Value, json};
use weir_cni::protocol::{About, Call, CniError, Edge, Handler, SUPPORTED, run};

/// Counts calls; fails or panics on demand.
#[derive(Default)]
struct Recorder {
    calls: Vec<Call>,
    error: Option<CniError>,
}

impl Recorder {
    fn note(&mut self, call: &Call) -> Result<(), CniError> {
        self.calls.push(call.clone());
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Handler for Recorder {
    fn add(&mut self, call: &Call) -> Result<Value, CniError> {
        self.note(call)
            .map(|()| json!({"cniVersion": call.version}))
    }
    fn check(&mut self, call: &Call) -> Result<(), CniError> {
        self.note(call)
    }
    fn del(&mut self, call: &Call) -> Result<(), CniError> {
        self.note(call)
    }
    fn gc(&mut self, call: &Call) -> Result<(), CniError> {
        self.note(call)
    }
    fn status(&mut self, call: &Call) -> Result<(), CniError> {
        self.note(call)
    }
}

const CONFIG: &str = r#"{"cniVersion":"1.1.0","name":"net","type":"weir-cni"}"#;

fn process(command: &str) -> FakeProcess {
    FakeProcess::new(command, CONFIG)
}

/// Returns the error of a run that must not reach the handler.
fn refused(process: &FakeProcess) -> CniError {
    let mut handler = Recorder::default();
    let error = process.run(&mut handler).error();
    assert!(
        handler.calls.is_empty(),
        "the handler was called in spite of {error}"
    );
    error
}

#[test]
fn every_verb_reaches_its_handler() {
    let mut handler = Recorder::default();
    let outcome = process("ADD").run(&mut handler);
    assert_eq!(outcome.stdout, "{\n    \"cniVersion\": \"1.1.0\"\n}");
    assert_eq!(outcome.status, 0);
    for verb in ["CHECK", "DEL", "GC", "STATUS"] {
        process(verb).run(&mut handler).assert_silent();
    }
    let verbs: Vec<_> = handler
        .calls
        .iter()
        .map(|call| call.command.as_str())
        .collect();
    assert_eq!(verbs, ["ADD", "CHECK", "DEL", "GC", "STATUS"]);
    let call = &handler.calls[0];
    assert_eq!(
        (call.env.container_id.as_str(), call.env.ifname.as_str()),
        ("container-1", "eth0")
    );
    assert_eq!(call.config["name"], "net");
}

#[test]
fn missing_variables_are_all_named() {
    let required: [(&str, &[&str]); 5] = [
        (
            "ADD",
            &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
        ),
        (
            "CHECK",
            &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
        ),
        ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"]),
        ("GC", &["CNI_PATH"]),
        ("STATUS", &["CNI_PATH"]),
    ];
    let all = [
        "CNI_CONTAINERID",
        "CNI_NETNS",
        "CNI_IFNAME",
        "CNI_ARGS",
        "CNI_PATH",
    ];
    for (verb, required) in required {
        let bare = all
            .iter()
            .fold(process(verb), |process, name| process.unset(name));
        let error = refused(&bare);
        assert_eq!(error.code, 4, "{verb}");
        assert!(
            error.msg.contains(&format!("[{}]", required.join(","))),
            "{verb}: {error}"
        );
        for name in all {
            let without = process(verb).unset(name);
            let empty = process(verb).set(name, "");
            if required.contains(&name) {
                assert_eq!(refused(&without).code, 4, "{verb} without {name}");
                assert_eq!(refused(&empty).code, 4, "{verb} with empty {name}");
            } else {
                let status = without.run(&mut Recorder::default()).status;
                assert_eq!(status, 0, "{verb} without {name}");
            }
        }
    }
}

#[test]
fn bad_values_are_code_4() {
    for id in ["-a", "a/b", ".a", "a b", "_", "ä"] {
        assert_eq!(
            refused(&process("ADD").set("CNI_CONTAINERID", id)).code,
            4,
            "{id}"
        );
    }
    for name in [".", "..", "a/b", "a:b", "a b", "a\tb", "sixteen-bytes-ab"] {
        assert_eq!(
            refused(&process("DEL").set("CNI_IFNAME", name)).code,
            4,
            "{name}"
        );
    }
    assert_eq!(refused(&process("add")).code, 4);
    assert!(refused(&process("REMOVE")).msg.contains("REMOVE"));
    // Variables that a command does not use are not checked.
    let gc = process("GC")
        .set("CNI_CONTAINERID", "/")
        .set("CNI_IFNAME", "..");
    gc.run(&mut Recorder::default()).assert_silent();
}

#[test]
fn stdin_that_is_no_configuration() {
    for stdin in [
        "",
        "{",
        "[]",
        "1",
        r#"{"name":1}"#,
        r#"{"name":"a","cniVersion":1}"#,
    ] {
        assert_eq!(
            refused(&FakeProcess::new("ADD", stdin)).code,
            6,
            "{stdin:?}"
        );
    }
    for stdin in [
        "{}",
        r#"{"name":""}"#,
        r#"{"name":null}"#,
        r#"{"name":"a/b"}"#,
    ] {
        let error = refused(&FakeProcess::new("STATUS", stdin));
        assert_eq!(error.code, 7, "{stdin}");
        assert!(error.msg.contains("name"), "{error}");
    }
}

/// A truncated configuration would look like one with a missing end.
#[test]
fn a_configuration_that_is_too_long_is_said_to_be() {
    let mut process = process("ADD");
    let rest = ",\"x\":\"";
    process.stdin = format!(
        "{}{rest}{}\"}}",
        &CONFIG[..CONFIG.len() - 1],
        "x".repeat(16 << 20)
    );
    let error = refused(&process);
    assert_eq!(error.code, 6, "{error}");
    assert!(error.msg.contains("more than 16 MiB"), "{error}");
}

#[test]
fn versions() {
    let with = |verb: &str, version: &str| {
        FakeProcess::new(verb, &format!(r#"{{"name":"a","cniVersion":"{version}"}}"#))
    };
    for version in SUPPORTED {
        let mut handler = Recorder::default();
        with("ADD", version).run(&mut handler).result();
        assert_eq!(handler.calls[0].version, version);
    }
    for version in ["0.5.0", "1.2.0", "2.0.0", "x", "1.0"] {
        let error = refused(&with("DEL", version));
        assert_eq!(error.code, 1, "{version}");
        assert!(
            error.details.contains("1.1.0") && error.details.contains(version),
            "{error}"
        );
    }
    // Without the key, the version is 0.1.0.
    let mut handler = Recorder::default();
    FakeProcess::new("DEL", r#"{"name":"a"}"#)
        .run(&mut handler)
        .assert_silent();
    assert_eq!(handler.calls[0].version, "0.1.0");
}

#[test]
fn verbs_need_their_version() {
    for version in SUPPORTED {
        let config = format!(r#"{{"name":"a","cniVersion":"{version}"}}"#);
        for (verb, least) in [("CHECK", "0.4.0"), ("GC", "1.1.0"), ("STATUS", "1.1.0")] {
            let process = FakeProcess::new(verb, &config);
            if version < least {
                let error = refused(&process);
                assert_eq!(error.code, 1, "{verb} {version}");
                assert!(error.msg.contains(verb), "{error}");
            } else {
                process.run(&mut Recorder::default()).assert_silent();
            }
        }
    }
}

#[test]
fn version_needs_nothing() {
    let process = FakeProcess {
        env: [("CNI_COMMAND".into(), "VERSION".into())].into(),
        stdin: "{".into(),
    };
    let outcome = process.run(&mut Recorder::default());
    assert_eq!(outcome.status, 0);
    assert_eq!(
        outcome.stdout,
        "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"0.1.0\",\"0.2.0\",\"0.3.0\",\
         \"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n"
    );
}

#[test]
fn run_by_hand() {
    let outcome = FakeProcess::default().run(&mut Recorder::default());
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, ""));
    assert!(
        outcome.stderr.starts_with("CNI plugin weir-cni 0.0.0\n"),
        "{outcome:?}"
    );
    assert!(
        outcome
            .stderr
            .contains("0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0")
    );
}

#[test]
fn the_plugins_own_namespace_is_refused() {
    let own = "/proc/thread-self/ns/net";
    for verb in ["ADD", "DEL"] {
        assert_eq!(
            refused(&process(verb).set("CNI_NETNS", own)).code,
            8,
            "{verb}"
        );
        for value in ["1", "true", "TRUE", "True"] {
            let allowed = process(verb)
                .set("CNI_NETNS", own)
                .set("CNI_NETNS_OVERRIDE", value);
            assert_eq!(
                allowed.run(&mut Recorder::default()).status,
                0,
                "{verb} {value}"
            );
        }
        let not = process(verb)
            .set("CNI_NETNS", own)
            .set("CNI_NETNS_OVERRIDE", "yes");
        assert_eq!(refused(&not).code, 8, "{verb}");
    }
}

#[test]
fn errors_of_the_handler_are_printed() {
    let error = CniError::new(100, "differs").with_details("rule 3");
    for verb in ["ADD", "CHECK", "DEL", "GC", "STATUS"] {
        let mut handler = Recorder {
            error: Some(error.clone()),
            ..Recorder::default()
        };
        let outcome = process(verb).run(&mut handler);
        assert_eq!(outcome.error(), error, "{verb}");
        assert!(!outcome.stdout.ends_with('\n'));
    }
}

/// A stdout without a reader.
struct Closed;

impl std::io::Write for Closed {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_a_failure_that_stderr_explains() {
    let process = FakeProcess::new("VERSION", "{}");
    let mut stderr = Vec::new();
    let edge = Edge {
        lookup: &|name| process.env.get(name).cloned(),
        stdin: &mut process.stdin.as_bytes(),
        stdout: &mut Closed,
        stderr: &mut stderr,
    };
    let about = About {
        name: "weir-cni",
        version: "0.0.0",
    };
    assert_eq!(run(edge, about, &mut Recorder::default()), 1);
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(
        stderr.starts_with("weir-cni: cannot write the answer to stdout: "),
        "{stderr}"
    );
}

#[test]
fn members_of_another_kind_are_refused() {
    let keys = ["ipam", "dns", "capabilities", "runtimeConfig", "args"];
    let lists = keys.map(|key| (key, json!([])));
    for (key, value) in lists.into_iter().chain([("type", json!(["weir-cni"]))]) {
        let mut config: Value = serde_json::from_str(CONFIG).unwrap();
        config[key] = value;
        // The pods of a node are deleted even with a configuration that starts none.
        let mut handler = Recorder::default();
        FakeProcess::new("DEL", &config.to_string()).run(&mut handler);
        assert_eq!(handler.calls.len(), usize::from(key != "type"), "{key}");
        let error = refused(&FakeProcess::new("ADD", &config.to_string()));
        assert_eq!(error.code, 6, "{error}");
        assert!(error.msg.contains(&format!("{key:?} must be")), "{error}");
    }
    for absent in keys {
        let mut config: Value = serde_json::from_str(CONFIG).unwrap();
        config[absent] = Value::Null;
        let mut handler = Recorder::default();
        FakeProcess::new("ADD", &config.to_string()).run(&mut handler);
        assert_eq!(handler.calls.len(), 1, "{absent}");
    }
}
