//! The files for Multus and OpenShift: Multus finds what the agent installs with their values.

use crate::support::{Node, desired, weir};
use serde_json::{Value, json};
use weir_install::{Installer, Pass};

const VALUES: &str = include_str!("../../deploy/openshift-values.yaml");
const MULTUS: &str = include_str!("../../deploy/multus.yaml");
const MANIFEST: &str = include_str!("../../deploy/weir.yaml");

fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("\n---\n");
    parts
        .map(|part| serde_saphyr::from_str(part).unwrap())
        .collect()
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|d| d["kind"] == kind).expect(kind)
}

/// The chart converts the values to these variables.
fn installed() -> Node {
    let values: Value = serde_saphyr::from_str(VALUES).unwrap();
    assert_eq!(values["cniConfDir"], "/etc/cni/multus/net.d");
    assert_eq!(values["cniBinDir"], "/var/lib/cni/bin");
    assert_eq!(values["provider"], "multus");
    let node = Node::new();
    let mut env = node.env();
    let chained = values["chained"].as_bool().unwrap().to_string();
    env.insert("CHAINED_CNI_PLUGIN".into(), chained);
    let file = values["cniConfFileName"].as_str().unwrap();
    env.insert("CNI_CONF_NAME".into(), file.to_owned());
    env.insert("SKIP_TLS_VERIFY".into(), "true".into());
    // Another network of Multus, which sorts first.
    let lan = json!({"cniVersion": "1.0.0", "name": "lan", "type": "lan"});
    node.write("net.d/10-lan.conf", &lan.to_string());
    std::fs::create_dir_all(node.path("run")).unwrap();
    let mut installer = Installer::new(desired(&env, "info"));
    installer.files(&|| false).unwrap();
    assert!(matches!(installer.config().unwrap(), Pass::Installed(_)));
    assert_eq!(node.names("net.d"), ["10-lan.conf", file]);
    assert_eq!(node.read("net.d/10-lan.conf"), lan.to_string(), "as it was");
    node
}

/// The network that a pod selects by its NetworkAttachmentDefinition is the file that the agent wrote.
#[test]
fn what_is_installed_is_what_a_pod_selects() {
    let node = installed();
    let documents = documents(MULTUS);
    let definition = of_kind(&documents, "NetworkAttachmentDefinition");
    assert_eq!(definition.get("spec"), None);
    let (name, namespace) = (
        &definition["metadata"]["name"],
        &definition["metadata"]["namespace"],
    );
    let selected = format!("{}/{}", namespace.as_str().unwrap(), name.as_str().unwrap());
    assert_eq!(selected, "default/istio-cni", "what the injector writes");

    let main = json!({"cniVersion": "1.0.0", "name": "cluster", "type": "main"});
    node.write("main.conf", &main.to_string());
    let answer = json!({"cniVersion": "1.0.0", "dns": {"domain": "main"}});
    let script = format!("cat > /dev/null\n[ $CNI_COMMAND != ADD ] || echo '{answer}'\n");
    // The real plugin, which does nothing for a container outside Kubernetes.
    std::fs::remove_file(node.path("bin/istio-cni")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), node.path("bin/istio-cni")).unwrap();
    weir_testing::write_script(&node.path("bin/main"), &script);
    // Any other namespace works: the plugin changes nothing for a container that belongs to no Kubernetes pod.
    let netns = weir_testing::namespace_or_skip!();
    let netns = netns.path().display().to_string();
    let cni = |verb: &str, selected: &str| {
        let path = |name: &str| node.path(name).display().to_string();
        let out = weir()
            .args(["cni", verb, "--conf", &path("main.conf"), "--id", "c1"])
            .args(["--netns", &netns, "--bin-dir", &path("bin")])
            .args(["--cache-dir", &path("cache"), "--net-dir", &path("net.d")])
            .args(["--networks", selected])
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let (code, result, errors) = cni("add", &selected);
    assert_eq!(code, Some(0), "{errors}");
    let result: Value = serde_json::from_str(&result).unwrap();
    assert_eq!(result, answer, "the default network's");
    assert_eq!(
        node.names("cache"),
        ["cluster%c1%eth0.json", "istio-cni%c1%net1.json"]
    );
    let log = node.read("run/istio-cni.log");
    assert!(log.contains("not a Kubernetes pod"), "{log}");
    let (code, _, errors) = cni("del", &selected);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(node.names("cache"), Vec::<String>::new());

    let (code, _, errors) = cni("add", "default/wan");
    assert_eq!(code, Some(2), "{errors}");
    assert!(errors.contains("network \"wan\" is not in it"), "{errors}");
}

/// weir.yaml contains everything that MULTUS changes, under the same names.
#[test]
fn the_changes_without_helm_can_be_made() {
    let documents = [documents(MANIFEST), documents(MULTUS)];
    let map = &of_kind(&documents[0], "ConfigMap");
    assert_eq!(map["metadata"]["name"], "istio-cni-config");
    assert_eq!(map["data"]["CHAINED_CNI_PLUGIN"], "true");
    let pod = &of_kind(&documents[0], "DaemonSet")["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    for name in ["cni-net-dir", "cni-bin-dir"] {
        assert!(MULTUS.contains(&format!("volume {name} ")));
        assert!(volumes.iter().any(|v| v["name"] == name), "{name}");
    }
    let account = |d: &[Value]| of_kind(d, "ServiceAccount")["metadata"]["name"].clone();
    let binding = &of_kind(&documents[1], "RoleBinding");
    assert_eq!(binding["subjects"][0]["name"], account(&documents[0]));
    let role = &of_kind(&documents[1], "Role");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
}
