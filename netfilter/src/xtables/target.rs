//! Targets (`-j`).

use super::ext::targets::{
    ct::{Ct, Notrack},
    log::Log,
    nat::{self, Nat},
    nflog::Nflog,
    reject::{self, RejectWith},
    set::SetTarget,
};
use super::ext::{Extension, Unknown};
use crate::address::Address;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The action for a packet that all conditions of a rule match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// `ACCEPT`: continue with the next table or hook.
    Accept,
    /// `DROP`: drop the packet.
    Drop,
    /// `RETURN`: continue in the calling chain, or with the policy.
    Return,
    /// `-j CHAIN`: continue in a chain, and after its end with the next rule.
    Jump(String),
    /// `-g CHAIN`: continue in a chain without returning.
    Goto(String),
    /// `QUEUE`: to a program that listens on queue 0.
    Queue,
    /// `REDIRECT --to-ports` (revision 0): to this machine, on another port. Only in `nat`, for protocols with ports.
    Redirect(RangeInclusive<u16>),
    /// `TPROXY` (revision 1): to a local socket, unchanged. Only in `mangle PREROUTING`, for TCP and UDP.
    Tproxy {
        /// `--on-port`; 0 keeps the packet's own.
        on_port: u16,
        /// `--on-ip`; the unspecified address of the table's family keeps the packet's own.
        on_ip: IpAddr,
        /// `--tproxy-mark VALUE/`: the mark that is set.
        mark: u32,
        /// `--tproxy-mark /MASK`: bits that are set.
        mask: u32,
    },
    /// `MARK --set-xmark VALUE/MASK` (revision 2): the packet's mark becomes `(mark & ~MASK) ^ VALUE`.
    SetXmark {
        /// Inverted after the mask's bits are cleared.
        value: u32,
        /// Bits that are cleared.
        mask: u32,
    },
    /// `CONNMARK --set-xmark VALUE/MASK` (revision 2): the same for the connection's mark.
    SetConnXmark {
        /// Inverted after the mask's bits are cleared.
        value: u32,
        /// Bits that are cleared.
        mask: u32,
    },
    /// `CONNMARK --save-mark` (revision 2): packet's mark to connection's mark.
    SaveMark {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
    /// `CONNMARK --restore-mark` (revision 2): connection's mark to packet's mark. Only in `mangle`.
    RestoreMark {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
    /// `CT --zone` (revision 2): the conntrack zone of both directions. Only in `raw`.
    CtZone(u16),
    /// `SNAT`, `DNAT`, `MASQUERADE`, and `REDIRECT` with other options.
    Nat(Nat),
    /// `CT` with other options, and `NOTRACK`.
    Ct(Ct),
    /// `LOG`: a line in the kernel's log.
    Log(Log),
    /// `NFLOG`: a copy to an nfnetlink_log group.
    Nflog(Nflog),
    /// `REJECT --reject-with`: rejected with an answer.
    Reject(RejectWith),
    /// `SET`: changes sets.
    Set(SetTarget),
    /// A target that has no type of its own here.
    Extension(Extension),
    /// Any other target, as raw bytes.
    Unknown(Unknown),
}

impl Target {
    /// The user chain that it jumps to.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(chain) | Self::Goto(chain) => Some(chain),
            _ => None,
        }
    }

    /// The name of the extension, as after `-j`. `None` for verdicts and chains.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        Some(match self {
            Self::Accept | Self::Drop | Self::Return | Self::Queue => return None,
            Self::Jump(_) | Self::Goto(_) => return None,
            Self::Redirect(_) => "REDIRECT",
            Self::Tproxy { .. } => "TPROXY",
            Self::SetXmark { .. } => "MARK",
            Self::SetConnXmark { .. } | Self::SaveMark { .. } | Self::RestoreMark { .. } => {
                "CONNMARK"
            }
            Self::CtZone(_) => "CT",
            Self::Nat(v) => v.kind.name(),
            Self::Ct(v) if v.notrack == Notrack::Alias => "NOTRACK",
            Self::Ct(_) => "CT",
            Self::Log(_) => "LOG",
            Self::Nflog(_) => "NFLOG",
            Self::Reject(_) => "REJECT",
            Self::Set(_) => "SET",
            Self::Extension(v) => v.name(),
            Self::Unknown(v) => &v.name,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str(" -j ACCEPT"),
            Self::Drop => f.write_str(" -j DROP"),
            Self::Return => f.write_str(" -j RETURN"),
            Self::Jump(chain) => write!(f, " -j {chain}"),
            Self::Goto(chain) => write!(f, " -g {chain}"),
            Self::Queue => f.write_str(" -j QUEUE"),
            Self::Redirect(ports) => {
                f.write_str(" -j REDIRECT --to-ports ")?;
                nat::range(f, ports)
            }
            Self::Tproxy {
                on_port,
                on_ip,
                mark,
                mask,
            } => {
                let on_ip = Address(*on_ip);
                write!(f, " -j TPROXY --on-port {on_port} --on-ip {on_ip}")?;
                write!(f, " --tproxy-mark {mark:#x}/{mask:#x}")
            }
            Self::SetXmark { value, mask } => {
                write!(f, " -j MARK --set-xmark {value:#x}/{mask:#x}")
            }
            Self::SetConnXmark { value, mask } => {
                write!(f, " -j CONNMARK --set-xmark {value:#x}/{mask:#x}")
            }
            Self::SaveMark { nfmask, ctmask } => {
                write!(
                    f,
                    " -j CONNMARK --save-mark --nfmask {nfmask:#x} --ctmask {ctmask:#x}"
                )
            }
            Self::RestoreMark { nfmask, ctmask } => {
                write!(
                    f,
                    " -j CONNMARK --restore-mark --nfmask {nfmask:#x} --ctmask {ctmask:#x}"
                )
            }
            Self::CtZone(zone) => write!(f, " -j CT --zone {zone}"),
            Self::Nat(v) => write!(f, " -j {}{v}", v.kind),
            Self::Ct(v) if v.notrack == Notrack::Alias => f.write_str(" -j NOTRACK"),
            Self::Ct(v) => write!(f, " -j CT{v}"),
            Self::Log(v) => write!(f, " -j LOG{v}"),
            Self::Nflog(v) => write!(f, " -j NFLOG{v}"),
            Self::Reject(v) => write!(f, " -j REJECT --reject-with {}", reject::name(*v)),
            Self::Set(v) => write!(f, " -j SET{v}"),
            Self::Extension(v) => write!(f, " -j {}{v}", v.name()),
            Self::Unknown(v) => write!(f, " -j {v}"),
        }
    }
}
