//! An environment, in which cases run.
use super::model::Environment;
use super::skip::Version;
use weir_vm::{Kernel, Kernels, Payload, Result, Special};

/// The name of the environment for this machine.
pub const HOST: &str = "host";

/// A position among the selected kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The kernel with the lowest version.
    Oldest,
    /// The kernel with the highest version.
    Newest,
}

/// The config options, without CONFIG_, that determine which features weir can use.
const OPTIONS: &str = "NF_TABLES NFT_COMPAT NFT_TPROXY NFT_SOCKET NETFILTER_XTABLES_LEGACY IP_NF_IPTABLES \
     IP_NF_IPTABLES_LEGACY IP6_NF_IPTABLES NETFILTER_XT_TARGET_TPROXY NETFILTER_XT_MATCH_SOCKET \
     NETFILTER_XT_MATCH_OWNER IP_SET NETFILTER_XT_SET IPV6 USER_NS VETH GENEVE NETKIT BPF_SYSCALL DEBUG_INFO_BTF \
     PREEMPT_RT";

/// An environment, with the reason if it is not available.
#[derive(Debug, Clone)]
pub struct TestKernel {
    /// Its description in the report.
    pub about: Environment,
    /// The kernel to boot. `None`: this machine.
    pub kernel: Option<Kernel>,
    /// The payload of its guests, once the cases are known. `None`: this machine.
    pub(super) payload: Option<Payload>,
    /// The name of a variant, or of a kernel that is treated as one, and what tests find there.
    pub special: Option<(String, Special)>,
    /// Whether it has the alias `newest`.
    pub is_newest: bool,
    /// Whether it is the oldest or the newest of the selected kernels. A user's own kernel counts as both.
    pub ends: Vec<End>,
    /// The version of its kernel; `None` if it is not available.
    pub version: Option<Version>,
}

impl TestKernel {
    /// The environment of this machine.
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

    /// A kernel of the catalogue, or a variant of one. A kernel that is not in the cache gives an unavailable environment
    /// with the reason.
    pub fn guest(kernels: &Kernels, name: &str) -> Result<Self> {
        let is_own = kernels.own().iter().any(|o| o.name == name);
        let (mut variant, mut is_newest, mut ends) = (None, false, Vec::new());
        if is_own {
            ends.extend([End::Oldest, End::Newest]);
        } else {
            let (entry, of_entry) = kernels.find(name)?;
            (variant, is_newest) = (of_entry, of_entry.is_none() && entry.series.is_none());
        }
        let special = variant.map_or(name, |v| &v.name).to_owned();
        let found = kernels.catalogue().special(&special).cloned();
        let kernel = kernels.get(name);
        let mut about = Environment {
            name: name.to_owned(),
            variant: variant.map_or_else(String::new, |v| v.says.clone()),
            ..Environment::default()
        };
        match &kernel {
            Err(e) => about.unavailable = Some(format!("{}: {}", e.reason, e.remedy)),
            Ok(kernel) => {
                let kernel = kernel.clone();
                about.config = facts(&kernel);
                if kernel.name.ends_with("-rt") {
                    about.variant = "PREEMPT_RT: a real-time kernel".to_owned();
                }
                (about.name, about.release) = (kernel.name, kernel.release);
                (about.package, about.sources) = (kernel.package, kernel.sources);
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
        let (oldest, newest) = (versions().min(), versions().max());
        for (end, version) in [(End::Oldest, oldest), (End::Newest, newest)] {
            let is_there = |p: &&mut Self| plain(p) && p.version.is_some() && p.version == version;
            let there = places.iter_mut().filter(is_there);
            there.for_each(|place| place.ends.push(end));
        }
    }

    /// The name of the environment.
    pub fn name(&self) -> &str {
        &self.about.name
    }

    /// Whether it is this machine.
    pub fn is_host(&self) -> bool {
        self.about.name == HOST
    }

    /// The probes that tests may skip there, whatever the version.
    pub fn taken(&self) -> &[String] {
        self.special.as_ref().map_or(&[], |(_, found)| &found.skips)
    }
}

/// The kernel release (`uname -r`) of this machine.
pub(super) fn release() -> String {
    nix::sys::utsname::uname()
        .map(|u| u.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn facts(kernel: &Kernel) -> Vec<String> {
    let file = kernel.config.as_ref();
    let text = file.and_then(|f| std::fs::read_to_string(f).ok());
    let is_fact = |line: &&str| {
        let option = line.strip_prefix("CONFIG_").and_then(|o| o.split_once('='));
        option.is_some_and(|(name, _)| OPTIONS.split(' ').any(|o| o == name))
    };
    let text = text.unwrap_or_default();
    text.lines().filter(is_fact).map(str::to_owned).collect()
}
