//! The agent asks the container runtime for its directories and for the namespaces of pods.
//!
//! The tests use a real containerd if there is one, and a fake for faults that a real one does not have.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::api_server::ApiServer;
use crate::groups::Group;
use crate::repair::{IN_PLACE, Sandbox, sidecar, start};
use crate::support::{BRIDGE, Node, PATIENCE, weir};
use crate::unasked::OFTEN;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::convert::Infallible;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NET_DIR: &str = "MOUNTED_CNI_NET_DIR";
const BIN_DIR: &str = "WEIR_MOUNTED_CNI_BIN_DIR";
const SOCKET: &str = "WEIR_CRI_SOCKET";

/// What a fake runtime answers to a connection.
#[derive(Clone)]
enum Answer {
    /// It never answers.
    Silence,
    /// It sends these bytes and closes the connection.
    Bytes(&'static [u8]),
    /// A gRPC answer: the body, followed by the status unless that is empty.
    Grpc(Vec<u8>, &'static str),
    /// The answers of a runtime with these sandboxes, in this order.
    Sandboxes(Vec<Sandboxed>),
}

/// The data that a runtime has about a sandbox.
#[derive(Clone)]
struct Sandboxed {
    uid: &'static str,
    netns: PathBuf,
    is_ready: bool,
}

/// The sandbox of the pod with this UID.
fn sandboxed(uid: &'static str, netns: PathBuf) -> Sandboxed {
    Sandboxed {
        uid,
        netns,
        is_ready: true,
    }
}

impl Answer {
    fn body(&self, method: &str, asked: &[u8]) -> Vec<u8> {
        match (self, method) {
            (Self::Grpc(body, _), "Status") => {
                assert_eq!(asked, [0, 0, 0, 0, 2, 8, 1]);
                body.clone()
            }
            (Self::Sandboxes(all), "ListPodSandbox") => {
                // All sandboxes, as a runtime without filters would return them.
                let items = all.iter().enumerate().map(|(n, sandbox)| {
                    let metadata = field(2, &field(2, sandbox.uid.as_bytes()));
                    let state = [0x18, u8::from(!sandbox.is_ready)];
                    let id = field(1, format!("id-{n}").as_bytes());
                    field(1, &[&id, &metadata, &state[..]].concat())
                });
                framed(&items.collect::<Vec<_>>().concat())
            }
            (Self::Sandboxes(all), "PodSandboxStatus") => {
                let id = String::from_utf8_lossy(asked);
                let number = id.split("id-").nth(1).unwrap().chars().next().unwrap();
                let sandbox = &all[number.to_digit(10).unwrap() as usize];
                let namespaces = serde_json::json!([
                    {"type": "ipc"}, {"type": "network", "path": sandbox.netns}
                ]);
                let spec = serde_json::json!({"linux": {"namespaces": namespaces}});
                let info = serde_json::json!({"pid": 1, "runtimeSpec": spec});
                status("info", &info.to_string())
            }
            _ => panic!("{method}"),
        }
    }

    fn status(&self) -> &'static str {
        match self {
            Self::Grpc(_, status) => status,
            _ => "0",
        }
    }
}

/// A fake runtime; its threads end with the process.
struct Fake {
    socket: PathBuf,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    fn start(node: &Node, answer: Answer) -> Self {
        let socket = node.path("cri.sock");
        let _ = std::fs::remove_file(&socket);
        let (listener, asked) = (UnixListener::bind(&socket).unwrap(), Arc::default());
        let count: Arc<AtomicUsize> = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                match &answer {
                    Answer::Silence => held.push(stream),
                    Answer::Bytes(bytes) => drop(stream.write_all(bytes)),
                    answer => grpc(stream, answer),
                }
            }
        });
        Self { socket, asked }
    }

    fn socket(&self) -> &str {
        self.socket.to_str().unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Serves one connection of a gRPC server.
fn grpc(stream: UnixStream, answer: &Answer) {
    let answer = Arc::new(answer.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        stream.set_nonblocking(true).unwrap();
        let stream = tokio::net::UnixStream::from_std(stream).unwrap();
        let service = service_fn(|request: Request<Incoming>| {
            let answer = Arc::clone(&answer);
            async move {
                let (head, asked) = request.into_parts();
                assert_eq!(head.headers["content-type"], "application/grpc");
                let asked = asked.collect().await.unwrap().to_bytes();
                let path = head.uri.path();
                let method = path.strip_prefix("/runtime.v1.RuntimeService/").unwrap();
                let (body, status) = (answer.body(method, &asked), answer.status());
                let body = Bytes::from(body);
                let trailers = async move {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", status.parse().unwrap());
                    trailers.insert("grpc-message", "in words".parse().unwrap());
                    (!status.is_empty()).then_some(Ok(trailers))
                };
                let answer = Response::new(Full::new(body).with_trailers(trailers));
                Ok::<_, Infallible>(answer)
            }
        });
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
}

/// A length in protobuf's encoding.
fn varint(mut n: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(n & 0x7f).unwrap();
        n >>= 7;
        bytes.push(if n == 0 { low } else { low | 0x80 });
        if n == 0 {
            return bytes;
        }
    }
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(content.len()), content].concat()
}

/// `StatusResponse` with one entry of `info`, in a gRPC frame.
fn status(key: &str, value: &str) -> Vec<u8> {
    let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    framed(&[field(1, &[0x0a, 0]), field(2, &entry)].concat())
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

fn containerd(bin: &[PathBuf], net: &Path) -> Answer {
    let config = serde_json::json!({
        "containerd": {"snapshotter": "overlayfs"},
        "cni": {"binDir": "", "binDirs": bin, "confDir": net, "maxConfNum": 1},
    });
    Answer::Grpc(status("config", &config.to_string()), "0")
}

/// Value, origin and note of a setting in this environment.
fn explained(env: &[(&str, &str)], name: &str) -> (String, String, String) {
    let mut command = weir();
    command.args(["agent", "--explain-settings", "--json"]);
    let out = command.envs(env.iter().copied()).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let settings: Value = serde_json::from_slice(&out.stdout).unwrap();
    let mut settings = settings.as_array().unwrap().iter();
    let found = settings.find(|s| s["name"] == name).unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("value"), text("origin"), text("note"))
}

/// Without the namespace, the plugin would take this agent's own pod for any other.
#[test]
fn the_service_account_names_the_namespace_that_nobody_set() {
    let node = Node::new();
    let account = node.path("account").display().to_string();
    let account = ("WEIR_SERVICE_ACCOUNT_DIR", account.as_str());
    let name = "POD_NAMESPACE";
    let found = |text: &str, origin: &str| (text.to_owned(), origin.to_owned(), String::new());
    assert_eq!(explained(&[account], name), found("", "default"));
    for (text, is_name) in [("mesh\n", true), ("", false), ("../x", false)] {
        node.write("account/namespace", text);
        let by_account = match is_name {
            true => found("mesh", "service account"),
            false => found("", "default"),
        };
        assert_eq!(explained(&[account], name), by_account, "{text:?}");
    }
    node.write("account/namespace", "mesh");
    for (set, expected) in [("", "mesh"), ("istio-system", "istio-system")] {
        assert_eq!(explained(&[account, (name, set)], name).0, expected);
        node.write("net.d/10-a.conflist", BRIDGE);
        let out = node.run(&["agent", "--dry-run"], &[(name, set)]);
        let plan = String::from_utf8(out.stdout).unwrap();
        let entry = format!("\"pod_namespace\": \"{expected}\"");
        assert!(plan.contains(&entry), "{plan}");
    }
}

#[test]
fn the_runtime_decides_what_nobody_set() {
    let node = Node::new();
    let (bin, net) = (node.path("bin"), node.path("net.d"));
    let fake = Fake::start(&node, containerd(&[node.path("none"), bin.clone()], &net));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let url = format!("unix://{}", fake.socket());
    let by_runtime = |path: &Path| (text(path), "container runtime".into(), String::new());
    for socket in [fake.socket(), &url] {
        let env = [(SOCKET, socket), ("WEIR_HOST_ROOT", "/")];
        assert_eq!(explained(&env, BIN_DIR), by_runtime(&bin));
        assert_eq!(explained(&env, NET_DIR), by_runtime(&net));
    }
    // An explicit setting is kept, and if both are explicit the agent does not ask the runtime.
    let env = [
        (SOCKET, fake.socket()),
        ("WEIR_HOST_ROOT", "/"),
        (BIN_DIR, "/mine"),
    ];
    let of_user = (
        "/mine".into(),
        format!("environment {BIN_DIR}"),
        String::new(),
    );
    assert_eq!(explained(&env, BIN_DIR), of_user);
    assert_eq!(explained(&env, NET_DIR), by_runtime(&net));
    let before = fake.asked();
    let env = [
        (SOCKET, fake.socket()),
        (BIN_DIR, "/mine"),
        (NET_DIR, "/mine"),
    ];
    assert_eq!(explained(&env, BIN_DIR), of_user);
    let env = [(SOCKET, "")];
    assert_eq!(explained(&env, BIN_DIR).1, "default");
    assert_eq!(fake.asked(), before);
}

#[test]
fn a_directory_that_is_not_mounted_is_named_with_what_to_do() {
    let node = Node::new();
    let dirs = ["/var/lib/cni/bin".into(), "/usr/lib/cni".into()];
    let fake = Fake::start(&node, containerd(&dirs, Path::new("/etc/cni/net.d")));
    std::fs::create_dir_all(node.path("host/usr/lib/cni")).unwrap();
    let root = node.path("host").display().to_string();
    let env = [(SOCKET, fake.socket()), ("WEIR_HOST_ROOT", &root)];
    let (value, origin, note) = explained(&env, BIN_DIR);
    assert_eq!(
        (value.as_str(), origin.as_str()),
        ("/host/opt/cni/bin", "default")
    );
    for part in [
        "/var/lib/cni/bin and /usr/lib/cni",
        "cniBinDir",
        BIN_DIR,
        &format!("{root}/usr/lib/cni"),
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(explained(&env, NET_DIR).2.contains("cniConfDir"));
    // With the default root, the default directory is that of the runtime.
    let env = [(SOCKET, fake.socket())];
    let (value, origin, note) = explained(&env, NET_DIR);
    assert_eq!(
        (value.as_str(), origin.as_str()),
        ("/host/etc/cni/net.d", "container runtime")
    );
    assert_eq!(note, "");
    // A directory that is mounted there belongs to the node.
    let script = format!(
        "mount --bind {} {root}/usr/lib/cni && exec {} agent --explain-settings",
        node.path("bin").display(),
        env!("CARGO_BIN_EXE_weir"),
    );
    let out = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .envs([(SOCKET, fake.socket()), ("WEIR_HOST_ROOT", &root)])
        .output()
        .unwrap();
    if !out.status.success() {
        return println!(
            "skipped, the mount: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let line = format!("{BIN_DIR}=\"{root}/usr/lib/cni\"  (container runtime; used)\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn a_runtime_that_is_of_no_help_is_a_warning() {
    let node = Node::new();
    let whole = status("config", r#"{"cni":{"binDir":"/b","confDir":"/c"}}"#);
    let grpc = |body: &[u8]| Answer::Grpc(body.to_vec(), "0");
    let cut = |n: usize| Answer::Grpc(whole[..n].to_vec(), "0");
    let compressed = [&[1], &whole[1..]].concat();
    let message = [&[0, 0, 0, 0, 3][..], &[0x12, 200, 1]].concat();
    let http1 = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let cases = [
        (Answer::Silence, "no answer within 2s"),
        (Answer::Bytes(b""), "does not speak HTTP/2"),
        (
            Answer::Bytes(b"\x00\x01garbage and more of it"),
            "does not speak HTTP/2",
        ),
        (Answer::Bytes(http1), "does not speak HTTP/2"),
        (grpc(b""), "has no head"),
        (cut(3), "has no head"),
        (cut(whole.len() - 1), "and says"),
        (grpc(&compressed), "compressed"),
        (grpc(&message), "not a protobuf message"),
        (Answer::Grpc(whole.clone(), ""), "has no status"),
        (
            Answer::Grpc(Vec::new(), "12"),
            "does not speak CRI v1: in words",
        ),
        (Answer::Grpc(Vec::new(), "7"), "gRPC status 7: in words"),
        (
            grpc(&status("runtime", "{}")),
            "does not tell its configuration",
        ),
        (
            grpc(&status("config", "[crio]\n")),
            "not as containerd does",
        ),
        (
            grpc(&status(
                "config",
                r#"{"cni":{"binDir":"b","confDir":"/c"}}"#,
            )),
            "not to be used",
        ),
        (grpc(&vec![0; 5 << 20]), "breaks off"),
    ];
    for (n, (answer, wanted)) in cases.into_iter().enumerate() {
        let fake = Fake::start(&node, answer);
        let env = [(SOCKET, fake.socket()), ("WEIR_HOST_ROOT", "/")];
        let start = Instant::now();
        let (_, _, note) = explained(&env, SOCKET);
        assert!(start.elapsed() < PATIENCE, "{n}");
        assert!(
            note.contains(wanted) && note.contains(fake.socket()),
            "{n}, {wanted}: {note}"
        );
    }
    for (socket, wanted) in [
        ("/nowhere/cri.sock", "cannot connect"),
        ("tcp://10.0.0.1:1", "is not the path"),
    ] {
        let (_, _, note) = explained(&[(SOCKET, socket)], SOCKET);
        assert!(note.contains(wanted), "{note}");
        let (value, origin, _) = explained(&[(SOCKET, socket)], BIN_DIR);
        assert_eq!(
            (value.as_str(), origin.as_str()),
            ("/host/opt/cni/bin", "default")
        );
    }
}

#[test]
fn the_agent_installs_where_the_runtime_looks_and_removes_it_there() {
    let node = Node::new();
    node.write("net.d/10-pods.conflist", BRIDGE);
    let fake = Fake::start(&node, containerd(&[node.path("bin")], &node.path("net.d")));
    let mut env = node.env();
    env.remove(NET_DIR);
    env.remove(BIN_DIR);
    env.insert(SOCKET.into(), fake.socket().into());
    env.insert("WEIR_HOST_ROOT".into(), "/".into());
    let mut agent = node.start_with(weir(), &env, &[]);
    agent.wait_ready();
    assert!(node.exists("bin/istio-cni"));
    assert!(node.read("net.d/10-pods.conflist").contains("istio-cni"));
    agent.says(&format!("setting {BIN_DIR}="));
    agent.says("(container runtime)");
    assert!(agent.terminate().success());
    assert_eq!(fake.asked(), 1);
    assert!(!node.read("net.d/10-pods.conflist").contains("istio-cni"));
    // If the runtime cannot be reached, the agent warns and starts anyway.
    drop(fake);
    std::fs::remove_file(node.path("cri.sock")).unwrap();
    env.insert(NET_DIR.into(), node.path("net.d").display().to_string());
    let mut agent = node.start_with(weir(), &env, &[]);
    agent.until("the warning", || {
        agent.log().contains("the container runtime is of no help")
    });
    agent.terminate();
}

/// A sandbox whose process is not in the control group of any pod.
fn unnamed() -> Option<Sandbox> {
    Sandbox::within(Group::at("elsewhere/container")?)
}

#[test]
fn the_runtime_names_the_namespace_of_a_pod_that_no_control_group_names() {
    let (Some(web), Some(other)) = (unnamed(), unnamed()) else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("web", &web.address));
    let node = Node::new();
    let old = Sandboxed {
        is_ready: false,
        ..sandboxed("uid-web", other.netns().path())
    };
    let all = vec![
        sandboxed("uid-else", other.netns().path()),
        old,
        sandboxed("uid-web", web.netns().path()),
    ];
    let fake = Fake::start(&node, Answer::Sandboxes(all));
    // A runtime that was slow, as on a busy machine, is asked again ten seconds later.
    let agent = start(&node, &server, &[IN_PLACE, OFTEN, (SOCKET, fake.socket())]);
    agent.until("redirected", || web.is_redirected());
    assert_eq!(other.rules(), "");
}

/// The agent does not trust the runtime either: the namespace must have the pod's addresses, and must not be the host's.
#[test]
fn a_namespace_that_is_not_the_pods_is_refused_whoever_names_it() {
    let (Some(web), Some(other)) = (unnamed(), unnamed()) else {
        return;
    };
    let of_other = other.netns().path();
    let server = ApiServer::start();
    server.put(sidecar("web", &web.address));
    for (all, wanted) in [
        (
            vec![sandboxed("uid-web", of_other.clone())],
            "does not have the addresses",
        ),
        (
            vec![sandboxed("uid-web", "/proc/self/ns/net".into())],
            "the traffic of the whole node",
        ),
        (
            vec![sandboxed("uid-web", "/nowhere/netns".into())],
            "/nowhere/netns is not seen",
        ),
        (
            vec![
                sandboxed("uid-web", of_other.clone()),
                sandboxed("uid-web", web.netns().path()),
            ],
            "2 ready sandboxes",
        ),
    ] {
        let node = Node::new();
        let fake = Fake::start(&node, Answer::Sandboxes(all));
        let agent = start(&node, &server, &[IN_PLACE, OFTEN, (SOCKET, fake.socket())]);
        agent.until(wanted, || agent.log().contains(wanted));
        assert!(web.rules().is_empty() && other.rules().is_empty());
    }
}

#[test]
fn a_silent_runtime_holds_up_no_pod_that_a_control_group_names() {
    const PODS: usize = 8;
    let all: Option<Vec<_>> = (0..PODS)
        .map(|n| Sandbox::of(&format!("many-{n}")))
        .collect();
    let Some(all) = all else { return };
    let server = ApiServer::start();
    for (n, sandbox) in all.iter().enumerate() {
        server.put(sidecar(&format!("many-{n}"), &sandbox.address));
    }
    let node = Node::new();
    let fake = Fake::start(&node, Answer::Silence);
    let begun = Instant::now();
    let agent = start(&node, &server, &[IN_PLACE, (SOCKET, fake.socket())]);
    agent.until("redirected", || all.iter().all(Sandbox::is_redirected));
    // After it was silent, it is asked again after ten seconds at the earliest.
    let most = 1 + begun.elapsed().as_secs() / 10;
    let asked = fake.asked() as u64;
    assert!((1..=most).contains(&asked), "{asked}, not {most}");
}

/// A containerd for one test, which ends with this value.
struct Containerd(Child);

impl Drop for Containerd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs that `CONTAINERD` lists, separated by colons, or `containerd` from the path.
fn containerds() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("CONTAINERD") {
        return std::env::split_paths(&named).collect();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join("containerd"));
    found.find(|p| p.is_file()).into_iter().collect()
}

#[test]
fn a_real_containerd_tells_its_directories() {
    let programs = containerds();
    if programs.is_empty() {
        println!(
            "skipped: no containerd: `ci/node test` has two, or CONTAINERD names some, with colons between them"
        );
    }
    for program in programs {
        let version = Command::new(&program).arg("--version").output().unwrap();
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let is_old = version.contains(" 1.");
        let node = Node::new();
        let path = |name: &str| node.path(name).display().to_string();
        let (number, plugin, bin) = match is_old {
            true => (
                2,
                "io.containerd.grpc.v1.cri",
                format!("bin_dir = {:?}", path("bin")),
            ),
            false => (
                3,
                "io.containerd.cri.v1.runtime",
                format!("bin_dirs = [\"/none\", {:?}]", path("bin")),
            ),
        };
        node.write(
            "config.toml",
            &format!(
                "version = {number}\nroot = {:?}\nstate = {:?}\n[grpc]\naddress = {:?}\n\
                 [plugins.\"{plugin}\"]\nrestrict_oom_score_adj = true\n\
                 [plugins.\"{plugin}\".cni]\n{bin}\nconf_dir = {:?}\n",
                path("root"),
                path("state"),
                path("c.sock"),
                path("net.d")
            ),
        );
        let log = std::fs::File::create(node.path("containerd.log")).unwrap();
        // These mounts keep other files of containerd out of the machine.
        let script = format!(
            "mount -t tmpfs none /opt && mount -t tmpfs none /run && exec {} --config {}",
            program.display(),
            path("config.toml")
        );
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .current_dir(&node.root)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        let mut containerd = Containerd(child.unwrap());
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(node.path("c.sock")).is_err() {
            let log = node.read("containerd.log");
            let ended = containerd.0.try_wait().unwrap().is_some();
            if ended && log.to_lowercase().contains("not permitted") {
                return println!("skipped: it does not start here: {log}");
            }
            assert!(!ended && Instant::now() < end, "{version}{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let env = [(SOCKET, &*path("c.sock")), ("WEIR_HOST_ROOT", "/")];
        let by_runtime = |name: &str| (path(name), "container runtime".into(), String::new());
        assert_eq!(explained(&env, BIN_DIR), by_runtime("bin"), "{version}");
        assert_eq!(explained(&env, NET_DIR), by_runtime("net.d"), "{version}");
    }
}
