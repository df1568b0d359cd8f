//! The runner with small plugins that record their input.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use std::time::{Duration, Instant};

use crate::common::TempDir;
use serde_json::{Value, json};
use weir_runner::{Attachment, Error, NetworkList, Runner};

/// A directory with plugins, a cache and a record of calls.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: TempDir::new(),
        }
    }

    /// A plugin that appends its name, command and environment to `calls`, stores its stdin as `NAME.COMMAND.json`, and runs `body`.
    fn plugin(&self, name: &str, body: &str) {
        let here = self.dir.path().display();
        let text = format!(
            "echo {name} $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS >> {here}/calls\n\
             cat > {here}/{name}.$CNI_COMMAND.json\n{body}\n"
        );
        self.dir.script(name, &text);
    }

    /// A plugin whose ADD returns one address.
    fn good(&self, name: &str, address: &str) {
        let result = json!({"cniVersion": "1.1.0", "ips": [{"address": address}]});
        self.plugin(name, &format!("[ $CNI_COMMAND != ADD ] || echo '{result}'"));
    }

    fn runner(&self) -> Runner {
        let missing = self.dir.file("no-such-dir");
        Runner::new(
            vec![missing, self.dir.path().to_owned()],
            self.dir.file("cache"),
        )
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.file("calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.dir.file("calls"));
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    fn stdin(&self, name: &str, command: &str) -> Value {
        serde_json::from_str(&self.dir.read(&format!("{name}.{command}.json"))).unwrap()
    }
}

fn list(version: &str, plugins: Value) -> NetworkList {
    let text = json!({"cniVersion": version, "name": "net", "plugins": plugins});
    NetworkList::from_list(&text.to_string(), "(test)").unwrap()
}

fn two(version: &str) -> NetworkList {
    list(version, json!([{"type": "one", "a": 1}, {"type": "two"}]))
}

fn attachment() -> Attachment {
    Attachment {
        container_id: "c1".into(),
        netns: "/run/netns/x".into(),
        ifname: "eth0".into(),
        args: Attachment::pod_args("shop", "web-0", "c1"),
        ..Attachment::default()
    }
}

const ARGS: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                    K8S_POD_INFRA_CONTAINER_ID=c1";

#[test]
fn a_chain_hands_results_on() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    bench.good("two", "10.0.0.2/24");
    let (runner, list) = (bench.runner(), two("1.1.0"));
    let result = runner.add(&list, &attachment()).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.0.0.2/24");
    assert_eq!(
        bench.calls(),
        [
            format!("one ADD c1 eth0 {ARGS}"),
            format!("two ADD c1 eth0 {ARGS}")
        ]
    );
    let one = bench.stdin("one", "ADD");
    assert_eq!(
        one,
        json!({"type": "one", "a": 1, "name": "net", "cniVersion": "1.1.0"})
    );
    assert_eq!(
        bench.stdin("two", "ADD")["prevResult"]["ips"][0]["address"],
        "10.0.0.1/24"
    );

    runner.check(&list, &attachment()).unwrap();
    assert_eq!(bench.calls().len(), 2);
    assert_eq!(bench.stdin("one", "CHECK")["prevResult"], result);

    runner.del(&list, &attachment()).unwrap();
    let calls = bench.calls();
    assert!(
        calls[0].starts_with("two DEL") && calls[1].starts_with("one DEL"),
        "{calls:?}"
    );
    assert_eq!(bench.stdin("one", "DEL")["prevResult"], result);
    assert_eq!(
        std::fs::read_dir(bench.dir.file("cache")).unwrap().count(),
        0
    );
    // A second DEL is no error, although the stored result is deleted.
    runner.del(&list, &attachment()).unwrap();
    assert_eq!(bench.stdin("one", "DEL").get("prevResult"), None);
    assert!(matches!(
        runner.check(&list, &attachment()),
        Err(Error::NotPossible(_))
    ));
}

#[test]
fn a_failed_add_is_taken_back() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    bench.plugin(
        "two",
        r#"echo "some log" >&2
           echo '{"code": 11, "msg": "try again", "details": "later", "x": 1}'; exit 1"#,
    );
    let runner = bench.runner();
    let error = runner.add(&two("1.0.0"), &attachment()).unwrap_err();
    // DEL of the second fails, too; the first is called nevertheless.
    let Error::Chain(errors) = &error else {
        panic!("{error}")
    };
    assert_eq!(errors.len(), 2, "{error}");
    assert_eq!(error.code(), Some(11));
    let text = error.to_string();
    assert!(
        text.contains("try again") && text.contains("some log"),
        "{text}"
    );
    let calls: Vec<_> = bench.calls().iter().map(|c| c[..7].to_owned()).collect();
    assert_eq!(calls, ["one ADD", "two ADD", "two DEL", "one DEL"]);
}

/// The plugins of a chain refuse a previous result without a version.
#[test]
fn a_result_without_a_version_has_that_of_the_configuration() {
    for (version, expected) in [
        ("", "1.0.0"),
        (r#""cniVersion":null,"#, "1.0.0"),
        (r#""cniVersion":"","#, "1.0.0"),
        (r#""cniVersion":"0.4.0","#, "0.4.0"),
    ] {
        let bench = Bench::new();
        for name in ["one", "two"] {
            let answer = format!(r#"{{{version}"ips":[]}}"#);
            bench.plugin(name, &format!("[ $CNI_COMMAND != ADD ] || echo '{answer}'"));
        }
        let result = bench.runner().add(&two("1.0.0"), &attachment()).unwrap();
        let previous = bench.stdin("two", "ADD")["prevResult"].clone();
        let wanted = json!({"cniVersion": expected, "ips": []});
        assert_eq!((&result, &previous), (&wanted, &wanted), "{version}");
    }
}

#[test]
fn an_attachment_that_exists_is_not_added_again() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    bench.good("two", "10.0.0.2/24");
    let (runner, list) = (bench.runner(), two("1.1.0"));
    let result = runner.add(&list, &attachment()).unwrap();
    bench.calls();
    // If a plugin refused, the runner would remove the attachment that is in use.
    bench.plugin("two", "exit 1");
    let error = runner.add(&list, &attachment()).unwrap_err();
    assert!(matches!(error, Error::Attached { .. }), "{error}");
    for word in ["\"c1\"", "\"eth0\"", "\"net\"", "DEL first"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(bench.calls(), [""; 0], "no plugin is called");
    bench.good("two", "10.0.0.2/24");
    runner.check(&list, &attachment()).unwrap();
    assert_eq!(bench.stdin("one", "CHECK")["prevResult"], result);
    // Another interface is another attachment.
    let mut other = attachment();
    other.ifname = "eth1".into();
    runner.add(&list, &other).unwrap();
    for attachment in [attachment(), other] {
        runner.del(&list, &attachment).unwrap();
        runner.add(&list, &attachment).unwrap();
    }
}

#[test]
fn two_adds_of_one_attachment_at_a_time() {
    let bench = Bench::new();
    let result = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.1/24"}]});
    let here = bench.dir.path().display();
    // Continues when the other ADD has ended.
    bench.plugin(
        "one",
        &format!(
            "[ $CNI_COMMAND != ADD ] || {{ mkfifo {here}/go; read x < {here}/go; echo '{result}'; }}"
        ),
    );
    let list = list("1.1.0", json!([{"type": "one"}]));
    let (first, second) = (bench.runner(), bench.runner());
    std::thread::scope(|s| {
        let adding = s.spawn(|| first.add(&list, &attachment()));
        let fifo = bench.dir.file("go");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !fifo.exists() {
            assert!(Instant::now() < deadline, "the first ADD did not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = second.add(&list, &attachment()).unwrap_err();
        std::fs::write(fifo, "x\n").unwrap();
        assert!(error.to_string().contains("another ADD"), "{error}");
        adding.join().unwrap().unwrap();
    });
    first.check(&list, &attachment()).unwrap();
}

#[test]
fn capabilities_become_runtime_config() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    let list = list(
        "1.0.0",
        json!([{"type": "one", "capabilities": {"portMappings": true, "mac": false, "ips": true}}]),
    );
    let mut attachment = attachment();
    for (name, value) in [
        ("portMappings", json!([1])),
        ("mac", json!("m")),
        ("other", json!(1)),
    ] {
        attachment.capability_args.insert(name.into(), value);
    }
    bench.runner().add(&list, &attachment).unwrap();
    let stdin = bench.stdin("one", "ADD");
    assert_eq!(stdin["runtimeConfig"], json!({"portMappings": [1]}));
    assert_eq!(stdin.get("capabilities"), None);
}

#[test]
fn answers_that_are_none() {
    for (body, word) in [
        ("exit 3", "exit status 3"),
        ("echo oops; exit 1", "oops"),
        ("true", "empty"),
        ("echo hello", "not JSON"),
        ("echo '[]'", "not an object"),
        ("kill -9 $$", "137"),
    ] {
        let bench = Bench::new();
        bench.plugin("one", &format!("[ $CNI_COMMAND != ADD ] || {{ {body}; }}"));
        let list = list("1.0.0", json!([{"type": "one"}]));
        let error = bench.runner().add(&list, &attachment()).unwrap_err();
        assert!(matches!(error, Error::Answer { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_plugin_that_is_missing_or_no_program() {
    let bench = Bench::new();
    let list = list("1.0.0", json!([{"type": "one"}]));
    let error = bench.runner().add(&list, &attachment()).unwrap_err();
    assert!(error.to_string().contains("no-such-dir"), "{error}");
    bench.dir.write("one", "not a program");
    let error = bench.runner().status(&two("1.1.0")).unwrap_err();
    assert!(matches!(error, Error::Exec { .. }), "{error}");
}

#[test]
fn a_plugin_that_does_not_end_is_killed_with_its_children() {
    let bench = Bench::new();
    let here = bench.dir.path().display();
    // The child holds stdout open; its process id is recorded.
    bench.plugin("one", &format!("sleep 600 & echo $! > {here}/child; wait"));
    let list = list("1.1.0", json!([{"type": "one"}]));
    // Long enough for the plugin to start, even on a busy machine.
    let runner = bench.runner().with_limit(Duration::from_secs(3));
    let started = Instant::now();
    let error = runner.status(&list).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
    let child = bench.dir.read("child");
    let stat = format!("/proc/{}/stat", child.trim());
    // The process is killed, but its new parent may not have reaped it yet.
    let gone = || match std::fs::read_to_string(&stat) {
        Err(_) => true,
        Ok(text) => text.contains(") Z "),
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !gone() {
        assert!(Instant::now() < deadline, "the plugin's child lives on");
        std::thread::yield_now();
    }
}

#[test]
fn old_versions_lack_verbs() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    bench.good("two", "10.0.0.1/24");
    let (runner, list) = (bench.runner(), two("0.3.1"));
    runner.add(&list, &attachment()).unwrap();
    assert!(matches!(
        runner.check(&list, &attachment()),
        Err(Error::NotPossible(_))
    ));
    runner.status(&list).unwrap();
    bench.calls();
    // Before 0.4.0 DEL does not receive the result.
    runner.del(&list, &attachment()).unwrap();
    assert_eq!(bench.stdin("one", "DEL").get("prevResult"), None);
}

#[test]
fn switches_of_the_list() {
    let bench = Bench::new();
    bench.plugin("one", "exit 1");
    let text = json!({"cniVersion": "1.1.0", "name": "net", "disableCheck": "true",
                      "disableGC": true, "plugins": [{"type": "one"}]});
    let list = NetworkList::from_list(&text.to_string(), "(test)").unwrap();
    bench.runner().check(&list, &attachment()).unwrap();
    bench.runner().gc(&list, &[]).unwrap();
    assert!(bench.calls().is_empty());
}

#[test]
fn gc_removes_what_is_not_named() {
    let bench = Bench::new();
    bench.good("one", "10.0.0.1/24");
    let (runner, list) = (bench.runner(), list("1.1.0", json!([{"type": "one"}])));
    let other = Attachment {
        container_id: "c2".into(),
        ..attachment()
    };
    runner.add(&list, &attachment()).unwrap();
    runner.add(&list, &other).unwrap();
    bench.calls();
    runner.gc(&list, &[attachment()]).unwrap();
    let calls = bench.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(
        calls[0].starts_with("one DEL c2 eth0") && calls[1] == "one GC",
        "{calls:?}"
    );
    assert_eq!(
        bench.stdin("one", "GC")["cni.dev/valid-attachments"],
        json!([{"containerID": "c1", "ifname": "eth0"}])
    );
    runner.check(&list, &attachment()).unwrap();
    assert!(matches!(
        runner.check(&list, &other),
        Err(Error::NotPossible(_))
    ));
}

#[test]
fn status_is_the_first_that_cannot() {
    let bench = Bench::new();
    bench.plugin("one", r#"echo '{"code": 50, "msg": "not yet"}'; exit 1"#);
    bench.good("two", "10.0.0.1/24");
    let error = bench.runner().status(&two("1.1.0")).unwrap_err();
    assert_eq!(error.code(), Some(50));
    assert_eq!(bench.calls(), ["one STATUS"]);
}

#[test]
fn versions_are_asked_for() {
    let bench = Bench::new();
    bench.plugin(
        "one",
        r#"echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'"#,
    );
    bench.plugin(
        "two",
        r#"echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'"#,
    );
    assert_eq!(bench.runner().versions("one").unwrap(), ["0.4.0", "1.0.0"]);
    bench.runner().validate(&two("1.0.0")).unwrap();
    let error = bench.runner().validate(&two("1.1.0")).unwrap_err();
    assert!(error.to_string().contains("\"one\""), "{error}");
}

#[test]
fn bad_attachments() {
    let bench = Bench::new();
    let list = two("1.0.0");
    for (id, ifname) in [("", "eth0"), ("../x", "eth0"), ("a", ""), ("a", "a/b")] {
        let bad = Attachment {
            container_id: id.into(),
            ifname: ifname.into(),
            ..Attachment::default()
        };
        assert!(matches!(
            bench.runner().add(&list, &bad),
            Err(Error::NotPossible(_))
        ));
    }
}
