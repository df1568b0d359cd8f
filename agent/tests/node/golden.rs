//! Files must equal those that upstream's program writes, byte for byte.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{Node, desired, golden, names};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use weir_install::{Access, Installer, Pass, kubeconfig, remove_everything};

fn cases(dir: &Path, operation: &str) -> Vec<Value> {
    let is_case = |n: &String| n.ends_with(".json") && !n.starts_with("scenarios");
    let read = |n: String| -> Value {
        serde_json::from_str(&std::fs::read_to_string(dir.join(n)).unwrap()).unwrap()
    };
    let cases: Vec<Value> = names(dir).into_iter().filter(is_case).map(read).collect();
    let cases: Vec<Value> = cases
        .into_iter()
        .filter(|c| c["operation"] == operation)
        .collect();
    assert!(
        !cases.is_empty(),
        "no case {operation} in {}",
        dir.display()
    );
    cases
}

/// The settings of a case, by the names of their variables.
pub(crate) fn env(node: &Node, config: &Value) -> BTreeMap<String, String> {
    let mut env = node.env();
    for (key, value) in config.as_object().unwrap() {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let name = match key.as_str() {
            "plugin_log_level" => continue,
            "istio_owned_cni_config_filename" if text.is_empty() => continue,
            key => key.to_uppercase(),
        };
        env.insert(name, text);
    }
    env
}

fn fill(node: &Node, dir: &Path, case: &Value) {
    for (name, input) in case["net_dir_before"].as_object().unwrap() {
        let text = std::fs::read_to_string(dir.join(input.as_str().unwrap())).unwrap();
        node.write(&format!("net.d/{name}"), &text);
    }
}

/// Compares the files that a case expects: with a given text, removed, or unchanged.
fn compare(node: &Node, dir: &Path, case: &Value) {
    let (name, expected) = (&case["case"], &case["expected"]);
    let input = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
    let files = |key: &str| -> Vec<String> {
        let list = expected[key].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|f| f.as_str().unwrap().to_owned())
            .collect()
    };
    if let Some(golden) = expected["golden_file"].as_str() {
        let path = format!("net.d/{}", expected["config_path"].as_str().unwrap());
        assert_eq!(node.read(&path), input(golden), "{name}");
    }
    for file in files("removed") {
        assert!(!node.exists(&format!("net.d/{file}")), "{name}: {file}");
    }
    for file in files("unchanged") {
        let before = input(case["net_dir_before"][&file].as_str().unwrap());
        assert_eq!(node.read(&format!("net.d/{file}")), before, "{name}");
    }
}

#[test]
fn configurations() {
    let Some(dir) = golden() else { return };
    for case in cases(&dir, "create_cni_config_file") {
        let node = Node::new();
        fill(&node, &dir, &case);
        let before = node.names("net.d");
        let name = case["case"].as_str().unwrap();
        let config = &case["install_config"];
        let mut installer = Installer::new(desired(
            &env(&node, config),
            config["plugin_log_level"].as_str().unwrap(),
        ));
        let pass = installer.config();
        if case["expected"]["golden_file"].is_null() {
            assert!(!matches!(pass, Ok(Pass::Installed(_))), "{name}");
            assert_eq!(node.names("net.d"), before, "{name}");
            continue;
        }
        assert!(matches!(pass, Ok(Pass::Installed(_))), "{name}");
        compare(&node, &dir, &case);
        assert!(node.names("net.d").len() <= before.len() + 1, "{name}");
        // A second pass has nothing to do.
        assert_eq!(installer.changed_config().unwrap(), None, "{name}");
    }
}

#[test]
fn clean_up() {
    let Some(dir) = golden() else { return };
    for case in cases(&dir, "cleanup") {
        let node = Node::new();
        fill(&node, &dir, &case);
        let mut env = env(&node, &case["install_config"]);
        env.insert(
            "CNI_AGENT_RUN_DIR".into(),
            node.path("account").display().to_string(),
        );
        env.insert("WEIR_KEEP_PLUGIN".into(), "false".into());
        node.write("account/istio-cni-kubeconfig", "x");
        node.write("bin/istio-cni", "x");
        node.write("bin/bridge", "x");
        remove_everything(&desired(&env, "debug")).unwrap();
        compare(&node, &dir, &case);
        assert_eq!(node.names("bin"), ["bridge"]);
        assert!(!node.exists("account/istio-cni-kubeconfig"));
    }
}

/// The file may contain other bytes around the certificates.
#[test]
fn an_authority_need_not_be_text() {
    let node = Node::new();
    std::fs::write(node.path("account/ca.crt"), b"# Z\xfcrich\n").unwrap();
    let wanted = desired(&node.env(), "info");
    let (text, _) = kubeconfig(&wanted.access).unwrap();
    // printf '# Z\374rich\n' | base64
    assert!(
        text.contains("certificate-authority-data: IyBa/HJpY2gK\n"),
        "{text}"
    );
}

#[test]
fn kubeconfigs() {
    let Some(dir) = golden() else { return };
    for case in cases(&dir, "create_kubeconfig") {
        let node = Node::new();
        let inputs = &case["kubeconfig_inputs"];
        let text = |key: &str| inputs[key].as_str().unwrap_or_default().to_owned();
        node.write("account/token", &text("token"));
        let access = Access {
            protocol: text("kubernetes_service_protocol"),
            host: text("kubernetes_service_host"),
            port: text("kubernetes_service_port"),
            ca_file: Some(dir.join(text("kube_ca_file"))),
            skip_tls_verify: inputs["skip_tls_verify"] == true,
            service_account_dir: node.path("account"),
        };
        let Some(golden) = case["expected"]["golden_file"].as_str() else {
            assert!(kubeconfig(&access).is_err(), "{case}");
            continue;
        };
        let wanted = std::fs::read_to_string(dir.join(golden)).unwrap();
        let (written, shown) = kubeconfig(&access).unwrap();
        assert_eq!(written, wanted);
        assert!(!shown.contains(&text("token")), "{shown}");
    }
}
