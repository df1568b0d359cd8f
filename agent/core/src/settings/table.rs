//! The table of settings.

/// The type of a setting, which determines how its text is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// Any text.
    Text,
    /// [`go_bool`](super::go_bool); in the environment, any other text means false.
    Bool,
    /// [`go_int`](super::go_int); in the environment, empty means 0, or the default if the variable begins with `WEIR_`.
    Int,
    /// Comma-separated items, trimmed, without empty ones.
    List,
}

/// Whether a setting has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// It has an effect.
    Used,
    /// Accepted for compatibility; it has no effect in `install-cni` either, or none is needed here.
    Unused,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Environment variable; empty if there is only a flag.
    pub env: &'static str,
    /// Another variable, read if `env` is not set.
    pub alias: &'static str,
    /// Flag without its dashes; empty if there is only a variable.
    pub flag: &'static str,
    /// Its type.
    pub kind: SettingKind,
    /// Text if it is not set.
    pub default: &'static str,
    /// Whether it has an effect.
    pub usage: Usage,
    /// One line of help.
    pub help: &'static str,
}

impl Setting {
    /// Returns its help with the default.
    #[must_use]
    pub fn described(&self) -> String {
        let default = match self.default {
            "" => String::new(),
            text => format!(" [default: {text}]"),
        };
        format!("{}{default}", self.help)
    }

    /// Returns true if its text is the configuration of another program and may contain credentials: it is neither logged nor
    /// put into a report.
    #[must_use]
    pub fn may_hold_a_secret(&self) -> bool {
        self.env == "CNI_NETWORK_CONFIG"
    }
}

use SettingKind::{Bool, Int, List, Text};
use Usage::{Unused, Used};

/// A setting with a flag and a variable.
const fn both(
    env: &'static str,
    flag: &'static str,
    kind: SettingKind,
    default: &'static str,
    usage: Usage,
    help: &'static str,
) -> Setting {
    let alias = "";
    Setting {
        env,
        alias,
        flag,
        kind,
        default,
        usage,
        help,
    }
}

/// A setting with only a variable.
const fn env(
    name: &'static str,
    kind: SettingKind,
    default: &'static str,
    usage: Usage,
    help: &'static str,
) -> Setting {
    both(name, "", kind, default, usage, help)
}

/// A setting with only a flag.
const fn flag(
    name: &'static str,
    kind: SettingKind,
    default: &'static str,
    usage: Usage,
    help: &'static str,
) -> Setting {
    both("", name, kind, default, usage, help)
}

/// All settings, in the order of `--explain-settings`.
#[rustfmt::skip]
pub static TABLE: &[Setting] = &[
    both("CNI_CONF_NAME", "cni-conf-name", Text, "", Used, "File name of the CNI configuration to use; empty is the first valid one"),
    both("CHAINED_CNI_PLUGIN", "chained-cni-plugin", Bool, "true", Used, "Add the plugin to another plugin's configuration, or write a file of its own"),
    both("CNI_NETWORK_CONFIG", "cni-network-config", Text, "", Unused, "Has no effect in install-cni either"),
    both("CNI_NETWORK_CONFIG_FILE", "cni-network-config-file", Text, "", Unused, "Has no effect in install-cni either"),
    both("ISTIO_OWNED_CNI_CONFIG", "istio-owned-cni-config", Bool, "false", Used, "Keep a separate configuration beside the primary one; needs ambient mode"),
    Setting {
        alias: "ISTIO_OWNED_CNI_CONF_FILENAME",
        ..both("ISTIO_OWNED_CNI_CONFIG_FILENAME", "istio-owned-cni-config-filename", Text, "", Used, "File name of the separate configuration of ISTIO_OWNED_CNI_CONFIG; empty is 02-istio-cni.conflist")
    },
    both("LOG_LEVEL", "log-level", Text, "warn", Unused, "Levels are set with --log_output_level"),
    both("MOUNTED_CNI_NET_DIR", "mounted-cni-net-dir", Text, "/host/etc/cni/net.d", Used, "Where the node's directory of CNI configurations is mounted"),
    both("CNI_AGENT_RUN_DIR", "cni-agent-run-dir", Text, "/var/run/istio-cni", Used, "Directory of sockets, kubeconfig and log file, here and on the node"),
    both("KUBECONFIG_MODE", "kubeconfig-mode", Int, "0600", Used, "Mode of the plugin's kubeconfig; octal with a leading zero"),
    both("CNI_CONF_GROUP_READ", "cni-conf-group-read", Bool, "false", Used, "New configuration files get mode 0640 and not 0600"),
    both("KUBE_CA_FILE", "kube-ca-file", Text, "", Used, "CA of the API server; empty is that of the service account"),
    both("SKIP_TLS_VERIFY", "skip-tls-verify", Bool, "false", Used, "The plugin does not verify the API server"),
    both("MONITORING_PORT", "monitoring-port", Int, "15014", Used, "Port of /metrics; 0 or less is none"),
    both("ZTUNNEL_UDS_ADDRESS", "ztunnel-uds-address", Text, "/var/run/ztunnel/ztunnel.sock", Used, "Socket of ztunnel"),
    both("AMBIENT_ENABLED", "ambient-enabled", Bool, "false", Used, "Ambient mode"),
    both("ENABLE_AMBIENT_DETECTION_RETRY", "enable-ambient-detection-retry", Bool, "true", Used, "A pod does not start while the plugin cannot find out whether it is ambient (it tries 31 times); with false it starts outside of the mesh, as upstream. Written into the plugin's configuration; without ambient mode as false, unless it is set"),
    both("REPAIR_ENABLED", "repair-enabled", Bool, "true", Used, "Repair of pods that started without redirection"),
    both("REPAIR_DELETE_PODS", "repair-delete-pods", Bool, "false", Used, "Delete broken pods"),
    both("REPAIR_LABEL_PODS", "repair-label-pods", Bool, "false", Used, "Label broken pods"),
    both("REPAIR_BROKEN_POD_LABEL_KEY", "repair-broken-pod-label-key", Text, "cni.istio.io/uninitialized", Used, "Key of the label of broken pods"),
    both("REPAIR_BROKEN_POD_LABEL_VALUE", "repair-broken-pod-label-value", Text, "true", Used, "Value of the label of broken pods"),
    both("REPAIR_NODE_NAME", "repair-node-name", Text, "", Used, "Node whose pods are watched when NODE_NAME is not set"),
    both("REPAIR_SIDECAR_ANNOTATION", "repair-sidecar-annotation", Text, "sidecar.istio.io/status", Used, "Annotation of pods with a sidecar"),
    both("REPAIR_INIT_CONTAINER_NAME", "repair-init-container-name", Text, "istio-validation", Used, "Init container that detects missing redirection"),
    both("REPAIR_INIT_CONTAINER_TERMINATION_MESSAGE", "repair-init-container-termination-message", Text, "", Used, "Termination message of the init container REPAIR_INIT_CONTAINER_NAME; empty is any"),
    both("REPAIR_INIT_CONTAINER_EXIT_CODE", "repair-init-container-exit-code", Int, "126", Used, "Exit code of the init container REPAIR_INIT_CONTAINER_NAME; 0 is any"),
    both("REPAIR_LABEL_SELECTORS", "repair-label-selectors", Text, "", Used, "Label selector: only these pods are verified and repaired"),
    both("REPAIR_FIELD_SELECTORS", "repair-field-selectors", Text, "", Used, "Field selector: only these pods are verified and repaired"),

    env("EXCLUDE_NAMESPACES", List, "", Used, "Namespaces whose pods are not redirected"),
    env("POD_NAMESPACE", Text, "", Used, "Namespace of this agent; if it is empty, that of the mounted service account"),
    env("AMBIENT_ENABLEMENT_SELECTOR", Text, "", Used, "Which pods are ambient, as a YAML list; written into the plugin's configuration"),
    env("AMBIENT_DNS_CAPTURE", Bool, "false", Used, "Ambient mode: capture DNS"),
    env("AMBIENT_IPV6", Bool, "false", Used, "Ambient mode: IPv6"),
    env("AMBIENT_DISABLE_SAFE_UPGRADE", Bool, "false", Used, "SIGTERM removes the installation, also in an upgrade"),
    env("AMBIENT_RECONCILE_POD_RULES_ON_STARTUP", Bool, "false", Unused, "Rules of pods are compared and healed at start and afterwards in any case"),
    env("NATIVE_NFTABLES", Bool, "false", Used, "The plugin uses native nf_tables; written into its configuration"),
    env("ISTIO_OUTBOUND_OWNER_GROUPS", Text, "*", Used, "Groups whose outbound traffic is captured in pods with a sidecar, when their rules are compared and repaired; to be the same as for the plugin, which has the environment of the container runtime. Empty is none"),
    env("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", Text, "", Used, "Groups whose outbound traffic is not captured, if ISTIO_OUTBOUND_OWNER_GROUPS captures all"),
    env("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", Text, "127.0.0.1/32", Used, "The IPv4 addresses that count as loopback in pods with a sidecar"),
    env("REPAIR_REPAIR_PODS", Bool, "false", Used, "Repair broken pods in place"),
    env("FORCE_IPTABLES_BINARY", Text, "", Used, "legacy or nft; only checked: nothing is executed"),
    env("NODE_NAME", Text, "", Used, "Name of this node, whose pods are watched; empty is REPAIR_NODE_NAME"),
    env("SYSTEM_NAMESPACE", Text, "istio-system", Used, "Namespace of ztunnel"),
    env("POD_NAME", Text, "", Used, "Name of this agent's pod: on SIGTERM its DaemonSet decides whether the installation is kept; events about a contended installation refer to it"),
    env("REVISION", Text, "", Unused, "Has no effect in install-cni either"),
    env("HOST_PROBE_SNAT_IP", Text, "169.254.7.127", Used, "Ambient mode: source address of probes over IPv4"),
    env("HOST_PROBE_SNAT_IPV6", Text, "fd16:9254:7127:1337:ffff:ffff:ffff:ffff", Used, "Ambient mode: source address of probes over IPv6"),
    env("AMBIENT_USE_SCOPED_XTABLES_LOCKING", Bool, "true", Unused, "No program that takes the lock is executed"),
    env("AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE", Bool, "true", Used, "Ambient mode: probes reach pods behind a branch ENI of AWS (policy rules on the host, where tcp_early_demux is 0)"),
    env("ALLOW_SWITCH_TO_HOST_NS", Bool, "false", Used, "The host's network namespace is that of process 1"),
    env("KUBERNETES_SERVICE_HOST", Text, "", Used, "Host of the API server in the plugin's kubeconfig; set by the kubelet"),
    env("KUBERNETES_SERVICE_PORT", Text, "", Used, "Port of the API server in the plugin's kubeconfig; set by the kubelet"),
    env("KUBERNETES_SERVICE_PROTOCOL", Text, "https", Used, "Protocol of the API server in the plugin's kubeconfig"),
    env("KUBERNETES_NODE_NAME", Text, "", Used, "Logged; the name of this host when it is not set"),
    env("GOMEMLIMIT", Text, "", Unused, "There is no garbage collector to limit"),

    env("WEIR_AMBIENT_ENGINE", Text, "auto", Used, "Ambient mode: auto or netfilter redirects pods by rules, ebpf by eBPF programs (Linux 6.6); node routes them in the node's namespace to the newest ready ztunnel pod, and node-ebpf does that by eBPF programs (Linux 5.10)"),
    env("WEIR_AMBIENT_WITHOUT_PROXY", Text, "closed", Used, "Redirection at the node: while no ztunnel pod is ready, closed refuses TCP of enrolled pods, open lets it pass in plain text"),
    env("WEIR_AMBIENT_NODE_CONFIG", Text, "", Used, "Redirection at the node: one JSON object with any of tunnel, tunnel_port, host_addresses, exclude, marks and routing, as weir plan node-ambient --help shows them"),
    env("WEIR_AMBIENT_POD_EXCLUDE", Bool, "true", Used, "Redirection at the node: the annotation ambient.weir/exclude of a pod is followed"),
    env("WEIR_AMBIENT_CONFIG_DIR", Text, "/etc/ambient-config", Used, "Redirection at the node: where config.json says whether a proxy is ready, as in Istio 1.18 to 1.20, if the directory is mounted"),
    env("WEIR_BPFFS", Text, "", Used, "Ambient mode: where the bpf file system is mounted in which eBPF programs are pinned; empty: /sys/fs/bpf, or that of the node where the agent's container has none"),
    env("WEIR_EBPF_EVENTS", Text, "drops", Used, "Ambient mode by eBPF: what eBPF programs report of single packets in the log, at most ten a second of a namespace: drops, all (first packets of connections that are captured or pass, too) or off; Linux 5.8"),
    both("WEIR_CNI_BIN_SOURCE_DIR", "weir-cni-bin-source-dir", Text, "/opt/cni/bin", Used, "Every file in it is copied to the node"),
    both("WEIR_MOUNTED_CNI_BIN_DIR", "weir-mounted-cni-bin-dir", Text, "/host/opt/cni/bin", Used, "Where the node's directory of CNI plugins is mounted"),
    both("WEIR_CRI_SOCKET", "weir-cri-socket", Text, "", Used, "Socket of the container runtime, which reports its directories of plugins and configurations, and the network namespaces of pods; empty disables this"),
    both("WEIR_HOST_ROOT", "weir-host-root", Text, "/host", Used, "Where directories that the container runtime names are mounted; / is the node itself"),
    both("WEIR_SERVICE_ACCOUNT_DIR", "weir-service-account-dir", Text, "/var/run/secrets/kubernetes.io/serviceaccount", Used, "Directory of token and ca.crt"),
    both("WEIR_HEALTH_PORT", "weir-health-port", Int, "8000", Used, "Port of /healthz and /readyz"),
    both("WEIR_HOST_NETNS", "weir-host-netns", Text, "", Used, "Path of the network namespace of the host, where rules for probes are written, or whose connections eBPF programs let pass; empty: as ALLOW_SWITCH_TO_HOST_NS says"),
    both("WEIR_VERIFY_INTERVAL", "weir-verify-interval", Int, "60", Used, "Seconds between two verifications of every pod, in ambient mode and with REPAIR_REPAIR_PODS; with 0 a pod is verified only when it appears or changes and when a process commits to its rules"),
    both("WEIR_LIVE_PROOF", "weir-live-proof", Bool, "false", Used, "Ambient mode: after an enrolment or a repair, and once after a restart of the agent, a connection is made in the pod, and where it lands is reported"),
    both("WEIR_KEEP_PLUGIN", "weir-keep-plugin", Bool, "true", Used, "Removal keeps the plugin's program: runtimes still call it to delete pods"),

    flag("log_output_level", Text, "", Used, "Levels as SCOPE:LEVEL,...; a bare level is scope default, all is every scope. Levels: debug, info, warn, error, fatal, none"),
    flag("log_as_json", Bool, "false", Used, "Log lines are JSON"),
    flag("log_target", List, "stdout", Used, "Where lines go: stdout, stderr or paths of files"),
    flag("log_caller", Text, "", Unused, "Lines do not name source files"),
    flag("log_stacktrace_level", Text, "", Unused, "Lines have no stack traces"),
    flag("ctrlz_port", Int, "9876", Unused, "There is no introspection server"),
    flag("ctrlz_address", Text, "localhost", Unused, "There is no introspection server"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn flags_are_the_variables_in_lower_case() {
        for s in TABLE
            .iter()
            .filter(|s| !s.env.is_empty() && !s.flag.is_empty())
        {
            assert_eq!(s.env.to_lowercase().replace('_', "-"), s.flag);
        }
    }

    #[test]
    fn names_are_unique_and_defaults_readable() {
        let mut names = BTreeSet::new();
        for s in TABLE {
            assert!(s.env.is_empty() || names.insert(s.env), "{s:?}");
            assert!(s.flag.is_empty() || names.insert(s.flag), "{s:?}");
            match s.kind {
                Bool => assert!(super::super::go_bool(s.default).is_some(), "{s:?}"),
                Int => assert!(super::super::go_int(s.default).is_some(), "{s:?}"),
                Text | List => {}
            }
        }
    }
}
