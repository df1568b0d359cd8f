//! An environment: where cases run.
use super::model::Environment;
use super::skip::Version;
use weir_vm::{Kernel, Kernels, Payload, Result, Special};

/// The name of the environment that is this machine.
pub const HOST: &str = "host";

/// Which of the kernels that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The one of the lowest version.
    Oldest,
    /// The one of the highest.
    Newest,
}

/// Options of a kernel's configuration that decide what weir can do there.
const OPTIONS: &[&str] = &[
    "CONFIG_NF_TABLES",
    "CONFIG_NFT_COMPAT",
    "CONFIG_NFT_TPROXY",
    "CONFIG_NFT_SOCKET",
    "CONFIG_NETFILTER_XTABLES_LEGACY",
    "CONFIG_IP_NF_IPTABLES",
    "CONFIG_IP_NF_IPTABLES_LEGACY",
    "CONFIG_IP6_NF_IPTABLES",
    "CONFIG_NETFILTER_XT_TARGET_TPROXY",
    "CONFIG_NETFILTER_XT_MATCH_SOCKET",
    "CONFIG_NETFILTER_XT_MATCH_OWNER",
    "CONFIG_IP_SET",
    "CONFIG_NETFILTER_XT_SET",
    "CONFIG_IPV6",
    "CONFIG_USER_NS",
    "CONFIG_VETH",
    "CONFIG_GENEVE",
    "CONFIG_NETKIT",
    "CONFIG_BPF_SYSCALL",
    "CONFIG_DEBUG_INFO_BTF",
    "CONFIG_PREEMPT_RT",
];

/// An environment, and why it cannot be had if it cannot.
#[derive(Debug, Clone)]
pub struct Place {
    /// What the report says about it.
    pub about: Environment,
    /// The kernel to boot. `None`: this machine.
    pub kernel: Option<Kernel>,
    /// What its guests hold, once it is known what they run. `None`: this machine.
    pub(super) payload: Option<Payload>,
    /// The name of a variant, or of a kernel that is like one, and what tests find there.
    pub special: Option<(String, Special)>,
    /// Does it answer to `newest`?
    pub is_newest: bool,
    /// Is it the oldest of the kernels that were asked for, or the newest? A kernel of the user's own stands for both.
    pub ends: Vec<End>,
    /// Of its kernel; unknown where it cannot be had.
    pub version: Option<Version>,
}

impl Place {
    /// This machine.
    pub fn host() -> Self {
        let release = release();
        let about = Environment {
            name: HOST.to_owned(),
            package: "the kernel of this machine".to_owned(),
            release: release.clone(),
            ..Environment::default()
        };
        Self {
            about,
            kernel: None,
            payload: None,
            special: None,
            is_newest: false,
            ends: Vec::new(),
            version: Version::parse(&release),
        }
    }

    /// A kernel of the catalogue, or a variant of one. One that is not in the cache is unavailable, and says why.
    pub fn guest(kernels: &Kernels, name: &str) -> Result<Self> {
        let is_own = kernels.own().iter().any(|o| o.name == name);
        let variant = if is_own {
            None
        } else {
            kernels.find(name)?.1.cloned()
        };
        let is_newest = !is_own && variant.is_none() && kernels.find(name)?.0.series.is_none();
        let says = variant.as_ref().map(|v| v.says.clone());
        let ends = match is_own {
            true => vec![End::Oldest, End::Newest],
            false => Vec::new(),
        };
        let special = variant.as_ref().map_or(name, |v| &v.name).to_owned();
        let found = kernels.catalogue().special(&special).cloned();
        let kernel = kernels.get(name);
        let mut about = Environment {
            name: name.to_owned(),
            variant: says.unwrap_or_default(),
            ..Environment::default()
        };
        match &kernel {
            Err(e) => about.unavailable = Some(format!("{}: {}", e.reason, e.remedy)),
            Ok(kernel) => {
                about.name.clone_from(&kernel.name);
                about.release.clone_from(&kernel.release);
                about.package.clone_from(&kernel.package);
                about.sources.clone_from(&kernel.sources);
                about.config = facts(kernel);
                if kernel.name.ends_with("-rt") {
                    about.variant = "PREEMPT_RT: a real-time kernel".to_owned();
                }
            }
        }
        Ok(Self {
            version: Version::parse(&about.release),
            about,
            kernel: kernel.ok(),
            payload: None,
            special: found.map(|found| (special, found)),
            is_newest,
            ends,
        })
    }

    /// Marks the oldest and the newest kernel among these.
    pub(super) fn mark_ends(places: &mut [Self]) {
        let plain = |p: &Self| p.special.is_none() && !p.is_host();
        let versions = || places.iter().filter(|p| plain(p)).filter_map(|p| p.version);
        let ends = [
            (End::Oldest, versions().min()),
            (End::Newest, versions().max()),
        ];
        for (end, version) in ends {
            let is_there = |p: &&mut Self| plain(p) && p.version.is_some() && p.version == version;
            let there = places.iter_mut().filter(is_there);
            there.for_each(|place| place.ends.push(end));
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Is it this machine?
    pub fn is_host(&self) -> bool {
        self.about.name == HOST
    }

    /// Probes that tests may skip there whatever the version.
    pub fn taken(&self) -> &[String] {
        self.special.as_ref().map_or(&[], |(_, found)| &found.skips)
    }
}

/// `uname -r` of this machine.
pub(super) fn release() -> String {
    nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn facts(kernel: &Kernel) -> Vec<String> {
    let file = kernel.config.as_ref();
    let text = file.and_then(|f| std::fs::read_to_string(f).ok());
    let is_fact = |line: &&str| {
        let option = line.split_once('=');
        option.is_some_and(|(name, _)| OPTIONS.contains(&name))
    };
    let text = text.unwrap_or_default();
    text.lines().filter(is_fact).map(str::to_owned).collect()
}
