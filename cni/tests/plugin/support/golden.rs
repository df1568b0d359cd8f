//! Golden cases: a configuration or a pod, and the rules that another author derives from it.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use weir_cni::pod::Pod;
use weir_rules::SidecarConfig;

/// `NAME.json` and `NAME.txt`.
#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub config: SidecarConfig,
    pod: Option<GoldenPod>,
    #[serde(default)]
    pub symbolic_groups: BTreeMap<String, u32>,
    pub sections: Vec<Section>,
    /// `NAME.txt` with group names replaced by their ids.
    #[serde(skip)]
    pub rules: String,
}

/// The table of a block of `NAME.txt`.
#[derive(Deserialize)]
pub struct Section {
    pub family: String,
}

#[derive(Deserialize)]
struct GoldenPod {
    namespace: String,
    name: String,
    #[serde(default)]
    labels: Value,
    #[serde(default)]
    annotations: Value,
    #[serde(default)]
    init_containers: Vec<GoldenContainer>,
    #[serde(default)]
    containers: Vec<GoldenContainer>,
    netns_addresses: Vec<String>,
}

#[derive(Deserialize)]
struct GoldenContainer {
    name: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Option<String>>,
    security_context: Option<GoldenIds>,
}

#[derive(Deserialize)]
struct GoldenIds {
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
}

/// All cases of a backend. Empty when `WEIR_GOLDEN` is not set, which is reported as a skip.
pub fn cases(backend: &str) -> Option<Vec<Case>> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN") else {
        eprintln!("skip: WEIR_GOLDEN does not name the directory of the golden cases");
        return None;
    };
    let dir = PathBuf::from(root).join("sidecar").join(backend);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    assert!(!files.is_empty(), "{} has no cases", dir.display());
    let read = |file: &PathBuf| std::fs::read_to_string(file).unwrap();
    let cases = files.iter().map(|file| {
        let mut case: Case =
            serde_json::from_str(&read(file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let text = read(&file.with_extension("txt"));
        case.rules = text
            .lines()
            .map(|line| case.with_numbers(line) + "\n")
            .collect();
        case
    });
    Some(cases.collect())
}

impl Case {
    fn with_numbers(&self, line: &str) -> String {
        let number = |word: &str| match self.symbolic_groups.get(word) {
            Some(gid) => gid.to_string(),
            None => word.to_owned(),
        };
        line.split(' ').map(number).collect::<Vec<_>>().join(" ")
    }

    /// The blocks of `NAME.txt`, each for its family, which the text does not name.
    pub fn blocks(&self) -> Vec<(&str, String)> {
        let is_rule = |l: &&str| !matches!(*l, "iptables-save" | "ip6tables-save");
        let text = self.rules.lines().filter(is_rule).collect::<Vec<_>>();
        let text = text.join("\n");
        let blocks: Vec<_> = text
            .split_inclusive("COMMIT")
            .filter(|b| b.contains('*'))
            .collect();
        assert_eq!(blocks.len(), self.sections.len(), "{}", self.name);
        let families = self.sections.iter().map(|s| s.family.as_str());
        let texts = blocks.iter().map(|b| format!("{}\n", b.trim()));
        families.zip(texts).collect()
    }

    /// `group(5)` with the names of this case.
    pub fn group_file(&self) -> String {
        self.symbolic_groups
            .iter()
            .map(|(name, gid)| format!("{name}:x:{gid}:\n"))
            .collect()
    }

    /// The pod as the API server returns it, and the addresses of its namespace in the order of the kernel's dump.
    pub fn pod(&self) -> Option<(Pod, Vec<IpAddr>)> {
        let pod = self.pod.as_ref()?;
        let containers =
            |list: &[GoldenContainer]| -> Value { list.iter().map(container).collect() };
        let value = json!({
            "kind": "Pod",
            "metadata": {
                "namespace": pod.namespace,
                "name": pod.name,
                "labels": pod.labels,
                "annotations": pod.annotations,
            },
            "spec": {
                "initContainers": containers(&pod.init_containers),
                "containers": containers(&pod.containers),
            },
        });
        let mut addresses: Vec<IpAddr> = pod
            .netns_addresses
            .iter()
            .map(|a| a.split('/').next().unwrap().parse().unwrap())
            .collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        Some((
            Pod::from_manifest(&value.to_string(), &self.name).unwrap(),
            addresses,
        ))
    }
}

fn container(container: &GoldenContainer) -> Value {
    let env = container.env.iter().map(|(name, value)| match value {
        Some(value) => json!({"name": name, "value": value}),
        None => json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}),
    });
    let ids = container.security_context.as_ref();
    json!({
        "name": container.name,
        "args": container.args,
        "env": env.collect::<Value>(),
        "securityContext":
            ids.map(|i| json!({"runAsUser": i.run_as_user, "runAsGroup": i.run_as_group})),
    })
}
