//! Help printed below a command's arguments: examples, and the exit codes of its class.

/// Exit codes of commands that print desired rules.
pub(super) const PRINTS: &str = "\
Exit codes: 0 printed; 1 the rules cannot be made or the node's state cannot be read; 2 the arguments or input files \
cannot be used; 3 the output could not be written.";

/// Exit codes of commands that only read.
pub(super) const LOOKS: &str = "\
Exit codes: 0 printed; 2 the arguments cannot be used; 3 the state could not be read or the output could not be written.";

/// Exit codes of commands that compare with a desired state.
pub(super) const COMPARES: &str = "\
Exit codes: 0 in sync; 1 drift, or a foreign rule keeps packets from the redirection; 2 the arguments or input files \
cannot be used; 3 the state could not be determined or the output could not be written.";

/// Exit codes of commands that write to a namespace.
pub(super) const CHANGES: &str = "\
Exit codes: 0 done, or nothing to do; 1 failed; 2 the arguments or input files cannot be used; 3 the output could not \
be written.";

/// Exit codes of the command that can probe what it wrote.
pub(super) const CHANGES_AND_PROBES: &str = "\
Exit codes: 0 done, or nothing to do; 1 failed; 2 the arguments or input files cannot be used; 3 the output could not \
be written; 126 the probe of run_validation failed, as in istio-iptables.";

/// Exit codes of commands that run plugins.
pub(super) const RUNS_PLUGINS: &str = "\
Exit codes: 0 every plugin succeeded; 1 a plugin failed, could not be run or is not ready; 2 the arguments or the \
configuration cannot be used; 3 the output could not be written.";

/// Appends the exit codes of the class to the help of a command.
pub(super) fn with(text: &str, codes: &str) -> String {
    format!("{text}\n\n{codes}")
}

pub(super) const PLAN_SIDECAR: &str = "\
Examples:
  weir plan sidecar --pod pod.yaml --address 10.0.0.2/24
  weir plan sidecar --config config.json --json";

pub(super) const PLAN_AMBIENT: &str = "\
Examples:
  weir plan ambient --pod pod.yaml
  weir plan ambient --config request.json --engine ebpf

--config is one JSON object:
{
  \"config\": {\"enable_ipv6\": true, \"redirect_dns\": true,
    \"host_probe_snat_address\": \"169.254.7.127\",
    \"host_probe_v6_snat_address\": \"fd16:9254::1\"},
  \"pod_overrides\": {\"virtual_interfaces\": [\"tap0\"],
    \"ingress_mode\": false, \"dns_proxy\": \"unset\"}
}
Every key may be absent; dns_proxy is unset, enabled or disabled.";

pub(super) const PLAN_NODE_AMBIENT: &str = "\
Example:
  sudo weir plan node-ambient --config node.json

--config is one JSON object:
{
  \"proxies\": [{\"uid\": \"u\", \"netns\": \"/run/netns/ztunnel\",
    \"addresses\": [\"10.0.0.2\"], \"created\": 1700000000, \"ready\": true}],
  \"pods\": [{\"uid\": \"v\", \"addresses\": [\"10.0.0.9\"],
    \"netns\": \"/run/netns/pod\", \"exclude\": {\"outbound_ports\": [5432]}}],
  \"host_addresses\": [\"10.0.0.1\"],
  \"tunnel\": \"auto\", \"tunnel_port\": 6081,
  \"dns_capture\": false, \"without_proxy\": \"closed\",
  \"exclude\": {\"peers\": [\"10.0.0.0/8\"], \"except\": [\"10.1.0.0/16\"],
    \"outbound_ports\": [5432], \"inbound_ports\": [9090]},
  \"marks\": {\"outbound\": 256, \"skip\": 512, \"conn_skip\": 544,
    \"proxy\": 528, \"proxy_return\": 64, \"second\": 2048},
  \"routing\": {\"inbound_table\": 100, \"outbound_table\": 101,
    \"proxy_table\": 102, \"second_table\": 103, \"priority\": 100}
}
Every key may be absent; tunnel selects the links to the proxy: geneve, vxlan, veth, or auto (the first of these that \
the kernel supports); without_proxy is closed or open. exclude: TCP that is not captured; peers apply in both \
directions, and the longest prefix of peers and except decides. A pod may have its own exclude with at most 64 \
networks and ports, which takes precedence for its networks. With --engine ebpf (Linux 5.10), tunnel, marks and \
routing are ignored.";

pub(super) const APPLY_SIDECAR: &str = "\
All differences from the desired state are removed, those of rules in one transaction; `reconcile` in the configuration \
has no effect. With `run_validation`, apply then connects as the proxy's user until a connection is redirected \
(`iptables_probe_port`) or `probe_timeout` has passed. Foreign rules that keep packets from the redirection, and \
counters, quotas and flowtables of other programs in owned tables, only cause warnings: they are not changed, \
`weir verify` reports them, and the exit code is 0.

Examples:
  weir apply sidecar --pod pod.yaml --pid 4711
  weir apply sidecar --config config.json --netns pod --dry-run";

pub(super) const APPLY_AMBIENT: &str = "\
Examples:
  weir apply ambient --pod pod.yaml --pid 4711
  weir apply ambient --config request.json --netns pod --dry-run

Only the namespace of the pod is changed: the node agent handles ztunnel and the host's rules for probes. Foreign rules \
that keep packets from the redirection only cause warnings, and the exit code is 0.";

pub(super) const APPLY_NODE_AMBIENT: &str = "\
Examples:
  sudo weir apply node-ambient --config node.json --dry-run
  sudo weir apply node-ambient --config node.json

`weir plan node-ambient --help` describes --config. Nothing is written if foreign objects use the same marks, tables or \
policy rules, unless --force is given. Previous values of sysctls are stored, and restored by `weir clean node-ambient`.";

pub(super) const VERIFY_SIDECAR: &str = "\
Example:
  weir verify sidecar --pod pod.yaml --netns /run/netns/pod --json";

pub(super) const VERIFY_AMBIENT: &str = "\
Example:
  weir verify ambient --config request.json --netns /run/netns/pod --json";

pub(super) const VERIFY_NODE_AMBIENT: &str = "\
Example:
  sudo weir verify node-ambient --config node.json --json";

pub(super) const LIVE: &str = "\
For each address family of the namespace, one outbound and one inbound TCP connection is opened and reset at once; \
with --dns, DNS queries are sent as well. If the namespace has no address of a family, --to and --dns of that family are \
reported as unknown. Connection tracking shows where the connections landed: the expected ports are 15001 (outbound), \
15006 (inbound) and 15053 (DNS). No proxy needs to run. In ambient mode connections of the node pass as probes, so \
--from must name the namespace of another pod.

Exit codes: 0 every connection was redirected; 1 at least one was not; 2 the arguments cannot be used; 3 the path of \
at least one is unknown, as without nf_conntrack_netlink.";

pub(super) const CLEAN_AMBIENT: &str = "\
Examples:
  weir clean ambient --netns pod
  weir clean ambient --config request.json --pid 4711

Removes the nf_tables tables, legacy chains and rules, policy rules and routes of ambient mode, including those of \
Istio's agent, and detaches the eBPF programs of ambient mode. With --config or --pod, also untagged rules of built-in \
chains that equal rules of that plan.";

pub(super) const CLEAN_NODE_AMBIENT: &str = "\
Examples:
  sudo weir clean node-ambient
  sudo weir clean node-ambient --config node.json

Removes links, routes, policy rules, rules and sets of weir, detaches its eBPF programs, and restores sysctls. With \
--config, also in the namespaces of its proxies.";

pub(super) const CNI_ADD: &str = "\
Examples:
  weir cni add --conf 10-net.conflist --netns /run/netns/pod --id c1 \\
    --args 'K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web' --bin-dir /opt/cni/bin
  weir cni add --conf 10-net.conflist --netns pod --id c1 --networks lan,default/istio-cni \\
    --net-dir /etc/cni/multus/net.d";

pub(super) const CNI_CHECK: &str =
    "Example:\n  weir cni check --conf 10-net.conflist --netns pod --id c1";
pub(super) const CNI_DEL: &str =
    "Example:\n  weir cni del --conf 10-net.conflist --netns pod --id c1";
pub(super) const CNI_GC: &str = "Example:\n  weir cni gc --conf 10-net.conflist --keep c1/eth0";
pub(super) const CNI_STATUS: &str = "Example:\n  weir cni status --conf 10-net.conflist";
pub(super) const CNI_VERSION: &str = "Example:\n  weir cni version --conf 10-net.conflist";

pub(super) const PREFLIGHT: &str = "\
Every feature is probed in a temporary network namespace. Nothing on the machine is changed and no module is loaded: a \
feature whose module is not loaded is reported as \"unknown\", with the name of the module. No network and no cluster is \
needed; without root most features are unknown.

The first lines show whether each job of weir works here. Jobs that only a setting or an option selects follow at the \
end; they count for the exit code only if --job names them.

Exit codes: 0 every job works, perhaps with a fallback; 1 some job does not work; 2 the \
arguments cannot be used; 3 none is known not to work, but some are unknown, or the output could not be written.

With --bundle the result is part of a report of the node for support, with the settings of the node agent and the source \
of each, its state and last log lines, the CNI configurations, the rules of the node and of its pods, versions, modules, \
and a manifest with SHA-256 sums. Tokens, passwords, private keys and the contents of kubeconfigs are left out. A part \
that is not available is a line with the reason. Only the owner can read the file, and it is written whole or \
not at all. Exit codes then: 0 written, also without parts that are not available; 1 not written; 2 the arguments \
cannot be used; 3 stdout could not be written.

Examples:
  sudo weir preflight
  sudo weir preflight --job sidecar --json && echo fit for sidecars
  sudo weir preflight --bundle node1.tar --pid 4711
  kubectl -n istio-system exec istio-cni-node-x2x9v -- weir preflight --bundle - >node1.tar";

pub(super) const PLAN: &str = "\
`plan sidecar` and `plan ambient` read no namespace; `plan node-ambient` reads the node's and prints the differences.

Example:
  weir plan sidecar --pod pod.yaml --address 10.0.0.2";

pub(super) const APPLY: &str = "\
Example:
  weir apply sidecar --pod pod.yaml --pid 4711";

pub(super) const VERIFY: &str = "\
Example:
  weir verify sidecar --pod pod.yaml --netns pod";

pub(super) const CNI: &str = "\
Example:
  weir cni add --conf 10-net.conflist --netns pod --id c1";

pub(super) const SHOW: &str = "\
Examples:
  weir show --pid 4711
  weir show --netns pod --engine routing

The text is that of `nft list ruleset`, then that of `iptables-save` and `ip6tables-save` for legacy \
tables that exist, then that of `ipset save`, then one line for each address, policy rule and route in the syntax \
of `ip`, without those that the kernel creates in every namespace. The command creates no table and no set, and loads no \
module. If this process may not read eBPF programs, everything else is printed, and the exit code is 3.";

pub(super) const CLEAN: &str = "\
Example:
  weir clean --netns pod

The objects of a redirection to a sidecar are removed from nf_tables and from legacy tables, and eBPF programs are \
detached. `clean ambient` and `clean node-ambient` remove those of ambient mode.";

pub(super) const RESTORE: &str = "\
The whole text is parsed before anything is changed. Each table of iptables is then replaced atomically; if the kernel \
refuses one, those before it are restored. ipset has no transactions: if the kernel refuses a line, the lines before it \
are in force.

Without --format, the format is detected: lines with *TABLE are iptables, or ip6tables below a \
header \"# Generated by ip6tables-save\"; lines with create or add are ipset.

Exit codes: 0 done; 1 the kernel refused it, or existing rules prevent it; 2 the arguments or \
the text cannot be used; 3 the output could not be written.

Examples:
  iptables-legacy-save | weir restore --netns /run/netns/pod -
  weir restore --pid 4711 --format ip6tables --noflush --test rules.v6
  weir restore --netns /run/netns/pod sets.ipset";

pub(super) const DEMO: &str = "\
Examples:
  sudo weir demo
  sudo weir demo --ambient
  sudo weir demo --node-ambient
  sudo weir demo --node-ambient --engine ebpf

The demonstration runs in temporary network namespaces and removes everything afterwards, also after SIGINT and SIGTERM. \
The directory that a killed demonstration leaves in TMPDIR is removed by the next one, and so are its pins below weir in \
the bpf file system. Before Linux 6.6 these stay until the node is restarted, or until an agent that captures by eBPF removes them.

Exit codes: 0 every flow had its expected destination, and nothing is left behind; 1 a flow had another one, something is \
left behind, or the demonstration could not run; 2 the arguments cannot be used; 3 the output could not be written.";
