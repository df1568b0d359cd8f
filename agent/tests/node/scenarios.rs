//! The effect of the agent on directories, from its start to its end.
// matrix: none: about files, sockets and settings of a node, where no rule is made and no kernel is asked

use crate::support::{Agent, Node, golden};
use serde_json::Value;
use std::path::Path;

fn source(dir: &Path, name: &str) -> String {
    let read = |n: &str| std::fs::read_to_string(dir.join(format!("input-{n}"))).unwrap();
    match name {
        // A list with a misspelt key for its plugins.
        "noplugins_calico.conflist" => read("calico.conflist").replace("\"plugins\"", "\"plugin\""),
        name => read(name),
    }
}

/// The golden text with the run directory of this node.
fn wanted(node: &Node, dir: &Path, words: &str) -> String {
    let text = std::fs::read_to_string(dir.join(words.split(' ').next().unwrap())).unwrap();
    let run = node.path("run").display().to_string();
    match words.contains("run dir /tmp") {
        false => text.replace("\"/tmp\"", &format!("\"{run}\"")),
        true => text
            .replace("/path/to/kubeconfig", &run)
            .replace(
                "\"exclude_namespaces\": null",
                "\"exclude_namespaces\": [\n    \"istio-system\"\n  ]",
            )
            .replace("my-namespace", ""),
    }
}

fn tamper(node: &Node, path: &str) {
    let text = node.read(path);
    let mut json: Value = serde_json::from_str(&text).unwrap();
    match json["plugins"].as_array_mut() {
        Some(plugins) => {
            plugins.retain(|p| p["type"] != "istio-cni");
            node.write(path, &json.to_string());
        }
        None => std::fs::remove_file(node.path(path)).unwrap(),
    }
}

fn run(dir: &Path, scenario: &Value) {
    let name = scenario["name"].as_str().unwrap();
    let node = Node::new();
    for (n, file) in scenario["files_in_order"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let file = file.as_str().unwrap();
        node.write(&format!("net.d/0{n}-{file}"), &source(dir, file));
    }
    let chained = scenario["chained_cni_plugin"].to_string();
    let env = [
        ("CHAINED_CNI_PLUGIN", chained.as_str()),
        ("CNI_CONF_NAME", scenario["cni_conf_name"].as_str().unwrap()),
        ("EXCLUDE_NAMESPACES", "istio-system"),
        ("POD_NAMESPACE", ""),
    ];
    let mut agent = node.start(&env, &["--log_output_level=cni-plugin:debug"]);
    if let Some(words) = scenario["file_written_later"].as_str() {
        agent.until("waiting", || agent.log().contains("waiting for"));
        // Meanwhile the agent uses no other valid configuration.
        node.write("net.d/00-other.conflist", &source(dir, "list.conflist"));
        node.write("net.d/missing_initially.conf.tmp", "half");
        let (input, target) = words.split_once(" written as ").unwrap();
        assert!(!agent.is_ready(), "{name}");
        node.write(&format!("net.d/{target}"), &source(dir, input));
    }
    agent.wait_ready();
    let path = format!("net.d/{}", scenario["installed_file"].as_str().unwrap());
    let wanted = wanted(&node, dir, scenario["installed_like"].as_str().unwrap());
    assert_eq!(node.read(&path), wanted, "{name}");
    repair_and_clean_up(&node, &mut agent, dir, scenario, &path, &wanted);
}

fn repair_and_clean_up(
    node: &Node,
    agent: &mut Agent,
    dir: &Path,
    scenario: &Value,
    path: &str,
    wanted: &str,
) {
    let name = scenario["name"].as_str().unwrap();
    tamper(node, path);
    agent.until(name, || node.exists(path) && node.read(path) == wanted);
    agent.wait_ready();
    let unfinished = |n: &String| n.contains(".tmp") && n != "missing_initially.conf.tmp";
    for folder in ["net.d", "bin", "run"] {
        assert!(
            !node.names(folder).iter().any(unfinished),
            "{name}: {:?}",
            node.names(folder)
        );
    }
    assert!(agent.terminate().success(), "{name}: {}", agent.log());
    if let Some(input) = scenario["after_cleanup_like"].as_str() {
        let input = std::fs::read_to_string(dir.join(input)).unwrap();
        assert_eq!(node.read(path), input, "{name}");
    } else if scenario["chained_cni_plugin"] == false {
        assert!(!node.exists(path), "{name}");
    } else {
        assert!(!node.read(path).contains("istio-cni"), "{name}");
    }
    assert!(!node.exists("run/istio-cni-kubeconfig"), "{name}");
}

#[test]
fn from_start_to_end() {
    let Some(dir) = golden() else { return };
    let text = std::fs::read_to_string(dir.join("scenarios-install.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let scenarios = file["scenarios"].as_array().unwrap();
    assert!(scenarios.len() >= 7);
    scenarios.iter().for_each(|s| run(&dir, s));
}
