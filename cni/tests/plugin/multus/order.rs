//! The order of calls, with plugins that record their input.

use crate::common::TempDir;
use serde_json::{Value, json};
use weir_runner::{Attachment, Error, NetworkList, PodNetworks, Runner};

/// A directory with plugins, networks and a record of calls.
struct Bench(TempDir);

const NAMES: [&str; 3] = ["main", "lan", "mesh"];

impl Bench {
    /// Plugins `main`, `lan` and `mesh`, each with a network of that name.
    fn new() -> Self {
        let bench = Self(TempDir::new());
        for name in NAMES {
            bench.plugin(name, "true");
            let conf = json!({"cniVersion": "1.0.0", "name": name, "type": name,
                "capabilities": {"portMappings": true}});
            bench.0.write(&format!("{name}.conf"), &conf.to_string());
        }
        bench
    }

    /// A plugin that records its calls, answers ADD with its name, and then runs `body`.
    fn plugin(&self, name: &str, body: &str) {
        let here = self.0.path().display();
        let result = json!({"cniVersion": "1.0.0", "by": name});
        let text = format!(
            "echo $CNI_COMMAND {name} $CNI_IFNAME >> {here}/calls\n\
             cat > {here}/{name}.$CNI_COMMAND.json\n\
             {body} || exit 1\n[ $CNI_COMMAND != ADD ] || echo '{result}'\n"
        );
        self.0.script(name, &text);
    }

    fn runner(&self) -> Runner {
        let bin = self.0.path().to_owned();
        Runner::new(vec![bin], self.0.file("cache"))
    }

    fn networks(&self, annotation: &str) -> Result<PodNetworks, Error> {
        let default = NetworkList::load(&self.0.file("main.conf")).unwrap();
        PodNetworks::select(default, annotation, self.0.path())
    }

    /// The calls since the last call of this function.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.file("calls")).unwrap_or_default();
        let _ = std::fs::remove_file(self.0.file("calls"));
        text.lines().map(str::to_owned).collect()
    }

    fn stdin(&self, name: &str, command: &str) -> Value {
        serde_json::from_str(&self.0.read(&format!("{name}.{command}.json"))).unwrap()
    }

    fn kept_results(&self) -> usize {
        std::fs::read_dir(self.0.file("cache")).map_or(0, Iterator::count)
    }
}

fn pod() -> Attachment {
    let ports = json!({"portMappings": [{"hostPort": 1}]});
    Attachment {
        container_id: "c1".into(),
        netns: "/run/netns/x".into(),
        ifname: "eth0".into(),
        args: Attachment::pod_args("shop", "web-0", "c1"),
        capability_args: ports.as_object().unwrap().clone(),
    }
}

#[test]
fn the_default_network_first_and_last() {
    let bench = Bench::new();
    let (runner, networks) = (bench.runner(), bench.networks("lan,default/mesh").unwrap());
    let result = runner.add_pod(&networks, &pod()).unwrap();
    assert_eq!(result["by"], "main", "the result is the default network's");
    assert_eq!(
        bench.calls(),
        ["ADD main eth0", "ADD lan net1", "ADD mesh net2"]
    );
    let given = bench.stdin("main", "ADD");
    assert_eq!(given["runtimeConfig"]["portMappings"][0]["hostPort"], 1);
    for name in ["lan", "mesh"] {
        let given = bench.stdin(name, "ADD");
        assert_eq!(given.get("prevResult"), None, "{name}");
        assert_eq!(given.get("runtimeConfig"), None, "{name}");
    }
    runner.check_pod(&networks, &pod()).unwrap();
    assert_eq!(
        bench.calls(),
        ["CHECK main eth0", "CHECK lan net1", "CHECK mesh net2"]
    );
    assert_eq!(bench.stdin("mesh", "CHECK")["prevResult"]["by"], "mesh");
    runner.del_pod(&networks, &pod()).unwrap();
    assert_eq!(
        bench.calls(),
        ["DEL mesh net2", "DEL lan net1", "DEL main eth0"]
    );
    assert_eq!(bench.kept_results(), 0);
}

#[test]
fn the_pod_names_interfaces() {
    let bench = Bench::new();
    let annotation = r#"[{"name": "lan", "interface": "wlan7"}, {"name": "mesh"}]"#;
    let networks = bench.networks(annotation).unwrap();
    bench.runner().add_pod(&networks, &pod()).unwrap();
    assert_eq!(
        bench.calls(),
        ["ADD main eth0", "ADD lan wlan7", "ADD mesh net2"]
    );
    let networks = bench.networks("lan@net2,mesh").unwrap();
    let error = bench.runner().add_pod(&networks, &pod()).unwrap_err();
    assert!(error.to_string().contains("\"net2\""), "{error}");
    assert_eq!(bench.calls(), Vec::<String>::new(), "nothing was called");
}

#[test]
fn a_network_that_is_not_there_is_named_with_those_that_are() {
    let bench = Bench::new();
    let error = bench.networks("lan,istio-cni").unwrap_err().to_string();
    assert!(
        error.contains("network \"istio-cni\" is not in it"),
        "{error}"
    );
    assert!(error.contains("lan.conf is network \"lan\""), "{error}");
}

#[test]
fn a_failed_add_takes_back_what_was_before_it() {
    let bench = Bench::new();
    bench.plugin("mesh", "[ $CNI_COMMAND != ADD ]");
    bench.plugin("lan", "[ $CNI_COMMAND != DEL ]");
    let networks = bench.networks("lan,mesh").unwrap();
    let error = bench.runner().add_pod(&networks, &pod()).unwrap_err();
    assert_eq!(
        bench.calls(),
        [
            "ADD main eth0",
            "ADD lan net1",
            "ADD mesh net2",
            "DEL mesh net2",
            "DEL lan net1",
            "DEL main eth0"
        ]
    );
    let Error::Chain(all) = &error else {
        panic!("{error}")
    };
    let text = |n: usize| all[n].to_string();
    assert_eq!(all.len(), 2, "{error}");
    assert!(text(0).contains("\"mesh\"") && text(0).contains("ADD"));
    assert!(text(1).contains("\"lan\"") && text(1).contains("DEL"));
}

#[test]
fn del_goes_on_after_a_failure() {
    let bench = Bench::new();
    let (runner, networks) = (bench.runner(), bench.networks("lan,mesh").unwrap());
    runner.add_pod(&networks, &pod()).unwrap();
    bench.plugin("lan", "false");
    bench.calls();
    let error = runner.del_pod(&networks, &pod()).unwrap_err();
    assert!(error.to_string().contains("\"lan\""), "{error}");
    assert_eq!(
        bench.calls(),
        ["DEL mesh net2", "DEL lan net1", "DEL main eth0"]
    );
    assert_eq!(bench.kept_results(), 1, "DEL of lan is tried again");
    bench.plugin("lan", "true");
    runner.del_pod(&networks, &pod()).unwrap();
    assert_eq!(bench.kept_results(), 0);
}

/// The runtime calls Multus, which passes GC to no selected network: their attachments stay until DEL.
#[test]
fn gc_leaves_out_selected_networks() {
    let bench = Bench::new();
    for name in ["main", "lan"] {
        let conf = json!({"cniVersion": "1.1.0", "name": name, "type": name});
        bench.0.write(&format!("{name}.conf"), &conf.to_string());
    }
    // The pod also selects the default network.
    let (runner, networks) = (bench.runner(), bench.networks("lan,mesh,main").unwrap());
    runner.add_pod(&networks, &pod()).unwrap();
    bench.calls();
    let valid = || bench.stdin("main", "GC")["cni.dev/valid-attachments"].clone();
    let named = |ifname: &str| json!({"containerID": "c1", "ifname": ifname});
    runner.gc_pods(&networks, &[pod()]).unwrap();
    assert_eq!(bench.calls(), ["GC main"]);
    assert_eq!(valid(), json!([named("eth0"), named("net3")]));
    assert_eq!(bench.kept_results(), 4);
    runner.gc_pods(&networks, &[]).unwrap();
    assert_eq!(bench.calls(), ["DEL main eth0", "GC main"]);
    assert_eq!(valid(), json!([named("net3")]));
    assert_eq!(bench.kept_results(), 3);
    runner.del_pod(&networks, &pod()).unwrap();
    assert_eq!(bench.kept_results(), 0);
}
