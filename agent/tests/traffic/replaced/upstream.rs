//! The rules and the routing that upstream's agent leaves in a pod.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weir_ambient::AMBIENT;
use weir_netlink::Netns;

fn fed(netns: &Netns, program: &str, args: &[&str], text: &str) {
    let run = || {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(text.as_bytes()).expect("fed");
        drop(stdin);
        assert!(child.wait().expect("waited").success(), "{program}: {text}");
    };
    netns.run(run).expect("entered");
}

/// The policy rules and routes of upstream's agent.
pub(super) fn upstream_routing(netns: &Netns) {
    for family in ["-4", "-6"] {
        let rule = "rule add fwmark 0x111/0xfff pref 32764 lookup 100";
        let route = "route add local default dev lo table 100";
        for what in [rule, route] {
            let args: Vec<&str> = [family].into_iter().chain(what.split(' ')).collect();
            fed(netns, "ip", &args, "");
        }
    }
}

/// The forms in which upstream's agent leaves its rules.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// By iptables-legacy.
    Legacy,
    /// By iptables-nft.
    Nft,
    /// By nft.
    Native,
}

pub(super) const FORMS: [Form; 3] = [Form::Legacy, Form::Nft, Form::Native];
/// The programs that write each family's rules, the file of the golden case, and loopback.
const IPTABLES: [(&str, &str, &str); 2] = [
    ("iptables", "v4.save", "127.0.0.1/32"),
    ("ip6tables", "v6.save", "::1/128"),
];

/// The rules of upstream's agent with capture of DNS, from the golden cases.
pub(super) struct Upstream(PathBuf);

impl Upstream {
    /// `None` and a message without the golden cases.
    pub(super) fn golden() -> Option<Self> {
        let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
            eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
            return None;
        };
        Some(Self(root.join("ambient")))
    }

    fn text(&self, name: &str) -> String {
        let path = self.0.join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The golden case of iptables has no capture of DNS: its rules are inserted where upstream has them.
    fn save(&self, ending: &str, loopback: &str) -> String {
        let case = "iptables-dns_pod_disabled_and_on_globally_ipv6";
        let text = self.text(&format!("{case}.{ending}"));
        let reply = "-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT\n";
        assert_eq!(text.matches(reply).count(), 1, "{text}");
        let not_own = "-m mark ! --mark 0x539/0xfff";
        let dns = format!(
            "-A ISTIO_OUTPUT ! -o lo -p udp {not_own} -m udp --dport 53 -j REDIRECT --to-ports 15053\n\
             -A ISTIO_OUTPUT ! -d {loopback} -p tcp -m tcp --dport 53 {not_own} -j REDIRECT --to-ports 15053\n"
        );
        let raw = format!(
            "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_PRERT - [0:0]\n\
             -A PREROUTING -j ISTIO_PRERT\n-A OUTPUT -j ISTIO_OUTPUT\n\
             -A ISTIO_OUTPUT -p udp -m mark --mark 0x539/0xfff -m udp --dport 53 -j CT --zone 1\n\
             -A ISTIO_PRERT -p udp {not_own} -m udp --sport 53 -j CT --zone 1\nCOMMIT\n"
        );
        text.replace(reply, &format!("{dns}{reply}")) + &raw
    }

    /// Loads the rules in this form, then removes all others. At every moment there are complete rules.
    pub(super) fn load(&self, netns: &Netns, form: Form) {
        let restore = |variant: &str, text: &dyn Fn(&str, &str) -> String| {
            for (program, ending, loopback) in IPTABLES {
                let program = format!("{program}-{variant}-restore");
                fed(netns, &program, &[], &text(ending, loopback));
            }
        };
        let save = |ending: &str, loopback: &str| self.save(ending, loopback);
        let nothing = |_: &str, _: &str| "*mangle\nCOMMIT\n*nat\nCOMMIT\n*raw\nCOMMIT\n".into();
        match form {
            Form::Legacy => restore("legacy", &save),
            Form::Nft => restore("nft", &save),
            Form::Native => {
                let case = "nftables-dns_pod_enabled_and_off_globally_ipv6.golden";
                fed(netns, "nft", &["-f", "-"], &self.text(case));
            }
        }
        if !matches!(form, Form::Native) {
            let delete = |table| format!("add table inet {table}\ndelete table inet {table}\n");
            let tables: String = AMBIENT.tables.iter().map(delete).collect();
            fed(netns, "nft", &["-f", "-"], &tables);
        }
        if !matches!(form, Form::Legacy) {
            restore("legacy", &nothing);
        }
    }
}
