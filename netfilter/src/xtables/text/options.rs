//! The options of one match or target as they were given, and the notations of their arguments.

use super::shorten;
use crate::text::{is_octal, number};
use crate::xtables::{Interface, Network, Not, PortRange, Protocol, XtFamily};
use ipnet::IpNet;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use weir_netlink::attr::bytes_of;

/// An error in a line, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) column: usize,
    pub(crate) message: String,
}

pub(super) fn complain(column: usize, message: impl Into<String>) -> Complaint {
    let message = message.into();
    Complaint { column, message }
}

/// The options given for one `-m` or `-j`.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) family: XtFamily,
    /// `-m tcp`, for messages.
    pub(super) name: String,
    pub(super) column: usize,
    pub(super) options: Vec<Opt>,
    /// The protocol of the rule; without a rule nothing is known about it.
    pub(super) protocol: Option<Option<(Not, Protocol)>>,
}

/// One option and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Opt {
    pub(crate) not: Not,
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// Column of the option's name.
    pub(super) column: usize,
}

impl Given {
    /// Printed options, for parsing them again.
    pub(crate) fn of(family: XtFamily, name: &str, options: Vec<Opt>) -> Self {
        Self {
            family,
            name: name.to_owned(),
            column: 1,
            options,
            protocol: None,
        }
    }

    /// Refuses options of a rule without one of these protocols: the kernel returns `EINVAL` without a reason.
    pub(crate) fn of_protocol(&self, of: &[Protocol], names: &str) -> Result<(), Complaint> {
        match self.protocol {
            None => Ok(()),
            Some(Some((Not(false), protocol))) if of.contains(&protocol) => Ok(()),
            Some(_) => Err(self.lacks(&format!("-p {names}"))),
        }
    }

    /// Refuses ports without a protocol that has them in either family: the kernel would translate only the addresses.
    pub(crate) fn with_ports(&self) -> Result<(), Complaint> {
        let has_ports = |(_, protocol): (Not, Protocol)| [6, 17, 132, 33, 1].contains(&protocol.0);
        match self.protocol {
            Some(protocol) if !protocol.is_some_and(has_ports) => {
                Err(self.lacks("-p tcp, udp, sctp or dccp for its ports"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.options.is_empty()
    }

    /// Whether an option with one of these names was given.
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.options
            .iter()
            .any(|o| names.contains(&o.name.as_str()))
    }

    /// Takes all options in the order in which they were given.
    pub(crate) fn take_all(&mut self) -> Vec<Opt> {
        std::mem::take(&mut self.options)
    }

    /// Takes the option with one of these names; at most one may be given.
    pub(crate) fn take(&mut self, names: &[&str]) -> Option<Opt> {
        let at = self
            .options
            .iter()
            .position(|o| names.contains(&o.name.as_str()))?;
        Some(self.options.remove(at))
    }

    /// As [`Given::take`], for a mandatory option.
    pub(crate) fn need(&mut self, names: &[&str]) -> Result<Opt, Complaint> {
        self.take(names)
            .ok_or_else(|| self.lacks(names.first().copied().unwrap_or_default()))
    }

    /// Takes an option without arguments that cannot be inverted.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Complaint> {
        self.take(&[name])
            .map_or(Ok(false), |o| o.plain().map(|_| true))
    }

    /// `P` or `P:Q`, possibly inverted; either end may be omitted.
    pub(crate) fn ports(&mut self, names: &[&str]) -> Result<Option<(Not, PortRange)>, Complaint> {
        self.take(names)
            .map(|o| Ok((o.not, o.range(o.word(0))?)))
            .transpose()
    }

    pub(crate) fn conflict(&self, names: &str) -> Complaint {
        complain(
            self.column,
            format!(
                "{}: {names} exclude each other; give one of them",
                self.name
            ),
        )
    }

    pub(crate) fn lacks(&self, what: &str) -> Complaint {
        complain(self.column, format!("{} needs {what}; add it", self.name))
    }
}

impl Opt {
    pub(crate) fn new(not: Not, name: &str, words: Vec<String>) -> Self {
        Self {
            not,
            name: name.to_owned(),
            words,
            column: 1,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is(&self, name: &str) -> bool {
        self.name == name
    }

    pub(crate) fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// The n-th argument; the parser has checked the number of arguments.
    pub(crate) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    /// Refuses `!` before this option.
    pub(crate) fn plain(&self) -> Result<&Self, Complaint> {
        match self.not {
            Not(false) => Ok(self),
            Not(true) => Err(complain(
                self.column,
                format!("{} cannot be inverted; leave the ! out", self.name),
            )),
        }
    }

    /// An error about the arguments; `why` is the reason, with the remedy.
    pub(crate) fn wrong(&self, why: &str) -> Complaint {
        let words = self.words.join(" ");
        let message = format!("{} `{}`: {why}", self.name, shorten(&words));
        complain(self.column, message)
    }

    /// Parses the n-th argument as a number: decimal, or hexadecimal with `0x`.
    pub(crate) fn number<T: TryFrom<u64>>(&self, n: usize) -> Result<T, Complaint> {
        self.number_in(
            self.word(n),
            "is no number, or too large; give a smaller one",
        )
    }

    /// Parses a part of an argument as a number; `why` is the error for any other text.
    pub(crate) fn number_in<T: TryFrom<u64>>(&self, text: &str, why: &str) -> Result<T, Complaint> {
        if is_octal(text) {
            let why = format!("iptables reads {text} as octal; write it in decimal, or with 0x");
            return Err(self.wrong(&why));
        }
        let value = number(text).and_then(|v| T::try_from(v).ok());
        value.ok_or_else(|| self.wrong(why))
    }

    /// `VALUE` or `VALUE/MASK`; all bits without a mask.
    pub(crate) fn masked(&self, n: usize) -> Result<(u32, u32), Complaint> {
        let word = self.word(n);
        let (value, mask) = word.split_once('/').unwrap_or((word, "0xffffffff"));
        let why = "is no mark; give VALUE or VALUE/MASK of 32 bits";
        Ok((self.number_in(value, why)?, self.number_in(mask, why)?))
    }

    pub(crate) fn port(&self, text: &str) -> Result<u16, Complaint> {
        let why = "has no port from 0 to 65535; names of services are not looked up, give numbers";
        self.number_in(text, why)
    }

    /// `P`, `P:Q`, `P:`, `:Q` or `:`
    pub(crate) fn range(&self, text: &str) -> Result<PortRange, Complaint> {
        let PortRange(ports) = self.ends(text)?;
        self.ordered(*ports.start(), *ports.end()).map(PortRange)
    }

    /// The same, without the condition that the first port does not exceed the last.
    pub(crate) fn ends(&self, text: &str) -> Result<PortRange, Complaint> {
        let (first, last) = match text.split_once(':') {
            None => (self.port(text)?, self.port(text)?),
            Some(("", "")) => (0, u16::MAX),
            Some(("", last)) => (0, self.port(last)?),
            Some((first, "")) => (self.port(first)?, u16::MAX),
            Some((first, last)) => (self.port(first)?, self.port(last)?),
        };
        Ok(PortRange(first..=last))
    }

    /// `P` or `P-Q`
    pub(crate) fn dashed(&self, text: &str) -> Result<RangeInclusive<u16>, Complaint> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        self.ordered(self.port(first)?, self.port(last)?)
    }

    fn ordered(&self, first: u16, last: u16) -> Result<RangeInclusive<u16>, Complaint> {
        if first > last {
            return Err(self.wrong("ends before it begins; swap the two ports"));
        }
        Ok(first..=last)
    }

    pub(crate) fn protocol(&self, n: usize) -> Result<Protocol, Complaint> {
        let word = self.word(n);
        let why = "is not a known protocol name; give its number";
        Protocol::parse(word).map_or_else(|| self.number_in(word, why).map(Protocol), Ok)
    }

    pub(crate) fn interface(&self, n: usize) -> Result<Interface, Complaint> {
        let word = self.word(n);
        let fits = !word.is_empty() && bytes_of(word).len() < 16 && !word.contains(' ');
        fits.then(|| Interface::from(word))
            .ok_or_else(|| self.wrong("is no interface; give a name of 1 to 15 bytes"))
    }

    pub(crate) fn address(&self, n: usize, family: XtFamily) -> Result<IpAddr, Complaint> {
        self.address_in(self.word(n), family)
    }

    pub(crate) fn address_in(&self, text: &str, family: XtFamily) -> Result<IpAddr, Complaint> {
        IpAddr::from_str(text)
            .ok()
            .filter(|a| a.is_ipv4() == (family == XtFamily::Ip))
            .ok_or_else(|| {
                let version = match family {
                    XtFamily::Ip => "IPv4",
                    XtFamily::Ip6 => "IPv6",
                };
                self.wrong(&format!(
                    "has no {version} address; give all of it, host names are not resolved"
                ))
            })
    }

    /// `ADDRESS`, `ADDRESS/LENGTH` or `ADDRESS/MASK`, with a mask that is a prefix. The host bits are kept.
    pub(crate) fn network(&self, n: usize, family: XtFamily) -> Result<IpNet, Complaint> {
        let (address, mask) = self.address_and_mask(self.word(n), family, false)?;
        IpNet::with_netmask(address, mask)
            .map_err(|_| self.wrong("has no mask that is a prefix; give ADDRESS/LENGTH"))
    }

    /// The same with any mask, for `-s` and `-d`.
    pub(crate) fn masked_network(
        &self,
        text: &str,
        family: XtFamily,
    ) -> Result<Network, Complaint> {
        let (address, mask) = self.address_and_mask(text, family, true)?;
        Network::new(address, mask).ok_or_else(|| self.wrong("has a mask of another family"))
    }

    /// Only `-s` and `-d` (`completes`) complete a partial IPv4 address with zeros, as in `10/8`. In other options iptables parses
    /// `10/8` as 0.0.0.10/8, and weir refuses it. A partial address whose last number is 0 has the same meaning in all options.
    fn address_and_mask(
        &self,
        text: &str,
        family: XtFamily,
        completes: bool,
    ) -> Result<(IpAddr, IpAddr), Complaint> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        let completes = completes || address == "0" || address.ends_with(".0");
        let more = match address.split('.').count() {
            n @ 1..=3 if family == XtFamily::Ip && completes => ".0".repeat(4 - n),
            _ => String::new(),
        };
        let address = self.address_in(&format!("{address}{more}"), family)?;
        let longer = "is longer than an address; give ADDRESS/LENGTH";
        let net = match mask {
            None => Ok(IpNet::from(address)),
            Some(mask) if mask.contains(['.', ':']) => {
                return Ok((address, self.address_in(mask, family)?));
            }
            Some(length) => IpNet::new(address, self.number_in(length, longer)?),
        };
        let net = net.map_err(|_| self.wrong(longer))?;
        Ok((address, net.netmask()))
    }
}
