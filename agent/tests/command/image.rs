//! The container image of `ci/image`, and the manifests that refer to it.
// matrix: none: makes files and asks no kernel

use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_core::settings::TABLE;

const MANIFEST: &str = include_str!("../../deploy/weir.yaml");
const VALUES: &str = include_str!("../../deploy/values.yaml");

/// A directory that is deleted with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> Output {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SOURCE_DATE_EPOCH", "1000000000");
    command.output().unwrap()
}

fn good(program: impl AsRef<OsStr>, arguments: &[&OsStr]) -> String {
    let output = run(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The file of a descriptor. Checks its size and digest.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let path = layout.join("blobs/sha256").join(digest);
    assert_eq!(descriptor["size"], std::fs::metadata(&path).unwrap().len());
    let sum = good("sha256sum", &[path.as_ref()]);
    assert_eq!(sum.split(' ').next(), Some(digest));
    path
}

/// Paths and sizes of all files below `root`, sorted.
fn files(root: &Path) -> Vec<(String, u64)> {
    let listing = good(
        "find",
        &[
            root.as_ref(),
            "-type".as_ref(),
            "f".as_ref(),
            "-printf".as_ref(),
            "%P %s\n".as_ref(),
        ],
    );
    let mut files: Vec<_> = listing
        .lines()
        .map(|line| {
            let (path, size) = line.split_once(' ').unwrap();
            (path.to_owned(), size.parse().unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn the_image_is_small_whole_and_the_same_again() {
    if std::env::var_os("WEIR_BIN_DIR").is_none() {
        println!(
            "skipped: WEIR_BIN_DIR does not name the release binaries. `ci/build` makes them and \
             prints their folder"
        );
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/image");
    let scratch = Scratch::new("image");
    let [first, second] = ["first", "second"].map(|name| scratch.0.join(name));
    for dir in [&first, &second] {
        good(
            &script,
            &[
                "--name".as_ref(),
                "localhost/weir:test".as_ref(),
                dir.as_ref(),
            ],
        );
    }
    let bytes = |dir: &Path| std::fs::read(dir.join("install-cni.tar")).unwrap();
    assert!(
        bytes(&first) == bytes(&second),
        "the same input, other bytes"
    );

    let layout = first.join("layout");
    let index = json(&layout.join("index.json"));
    let of_index = &index["manifests"][0];
    assert_eq!(
        of_index["annotations"]["io.containerd.image.name"],
        "localhost/weir:test"
    );
    let manifest = json(&blob(&layout, of_index));
    let config = json(&blob(&layout, &manifest["config"]));
    assert_eq!(
        config["config"]["Env"][0],
        "PATH=/usr/local/bin:/opt/cni/bin"
    );
    assert_eq!(config["created"], "2001-09-09T01:46:40Z");
    let layer = blob(&layout, &manifest["layers"][0]);

    let root = scratch.0.join("root");
    std::fs::create_dir(&root).unwrap();
    good(
        "tar",
        &[
            "-xzf".as_ref(),
            layer.as_ref(),
            "-C".as_ref(),
            root.as_ref(),
        ],
    );
    let files = files(&root);
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "opt/cni/bin/istio-cni",
        "usr/local/bin/install-cni",
        "usr/local/bin/weir",
        "usr/share/doc/weir/LICENSE",
        "usr/share/doc/weir/sbom.cdx.json",
    ];
    assert_eq!(names, wanted);
    // "weir" and "install-cni" are the same file.
    let sizes = files
        .iter()
        .filter(|(name, _)| name != "usr/local/bin/weir");
    let unpacked: u64 = sizes.map(|(_, size)| size).sum();
    assert!(unpacked <= 20 << 20, "{unpacked} bytes");

    let sbom = json(&root.join("usr/share/doc/weir/sbom.cdx.json"));
    let components = sbom["components"].as_array().unwrap();
    let has = |name: &str| {
        components
            .iter()
            .any(|c| c["name"] == name && c["licenses"].is_array())
    };
    assert!(has("weir-agent") && has("neli") && has("kube") && !has("proptest"));

    let started = run(
        "/usr/sbin/chroot",
        &[root.as_ref(), "install-cni".as_ref(), "--version".as_ref()],
    );
    let errors = String::from_utf8_lossy(&started.stderr);
    if errors.contains("Operation not permitted") {
        println!("skipped, the start in it: {}", errors.trim());
        return;
    }
    assert!(started.status.success(), "{errors}");
}

fn documents() -> Vec<Value> {
    let parts = MANIFEST.split("\n---\n");
    parts
        .map(|part| serde_saphyr::from_str(part).unwrap())
        .collect()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|d| d["kind"] == kind).expect(kind)
}

/// Every variable in the manifest is a setting, and the agent reads every directory where the manifest mounts it.
#[test]
fn the_manifest_fits_the_agent() {
    let documents = documents();
    let pod = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let annotations =
        &of_kind(&documents, "DaemonSet")["spec"]["template"]["metadata"]["annotations"];
    let apparmor = "container.apparmor.security.beta.kubernetes.io/install-cni";
    assert_eq!(annotations[apparmor], "unconfined");
    let seccomp = &container["securityContext"]["seccompProfile"];
    assert_eq!(seccomp["type"], "RuntimeDefault");
    let of_map = of_kind(&documents, "ConfigMap")["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned();
    let of_container = container["env"].as_array().unwrap().iter();
    let of_container = of_container.map(|e| e["name"].as_str().unwrap().to_owned());
    for name in of_map.chain(of_container) {
        assert!(TABLE.iter().any(|s| s.env == name), "{name} is no setting");
    }
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    let mounts: BTreeSet<&str> = mounts.map(|m| m["mountPath"].as_str().unwrap()).collect();
    for setting in [
        "MOUNTED_CNI_NET_DIR",
        "WEIR_MOUNTED_CNI_BIN_DIR",
        "CNI_AGENT_RUN_DIR",
    ] {
        let default = TABLE.iter().find(|s| s.env == setting).unwrap().default;
        assert!(mounts.contains(default), "{setting}: {default}");
    }
}

#[test]
fn the_manifests_name_this_version() {
    let image = format!("docker.io/weir/install-cni:{}", env!("CARGO_PKG_VERSION"));
    let documents = documents();
    let containers = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], image);
    let values: Value = serde_saphyr::from_str(VALUES).unwrap();
    assert_eq!(values["image"], image);
}
