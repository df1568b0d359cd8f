//! Stateful objects and flowtables as `nft` lists them; objects of other kinds as raw attributes.

use super::numbers;
use super::ruleset::priority_text;
use super::value::{duration, hex};
use crate::nft::expr::{Counter, Limit, Quota, Synproxy};
use crate::nft::model::{Hook, Object, ObjectKind, TableFamily};
use crate::nft::raw;
use crate::nft::wire::{
    CtExpectAttrs, CtHelperAttrs, CtTimeoutAttrs, FlowtableAttrs, SecmarkAttrs, device_names,
};
use crate::protocols::PROTOCOLS;
use std::fmt;
use std::time::Duration;
use weir_netlink::attr::{AttrSet, Attrs};

/// `counter c { ... }`
pub(super) fn object_text(o: &Object) -> String {
    let mut text = format!("\t{} {} {{\n", o.kind.word(), o.name);
    if let Some(comment) = &o.comment {
        text += &format!("\t\tcomment \"{comment}\"\n");
    }
    let inside = inside(o).unwrap_or_else(|| format!("\t\topaque({})\n", hex(&o.data)));
    text + &inside + "\t}\n"
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&object_text(self))
    }
}

/// The text between the braces; `None` if the object has none.
fn inside(o: &Object) -> Option<String> {
    match o.kind {
        ObjectKind::Stateful(raw::NFT_OBJECT_COUNTER) => {
            let c = Counter::decode(&o.data).ok()?;
            let (packets, bytes) = (c.packets.unwrap_or(0), c.bytes.unwrap_or(0));
            Some(format!("\t\tpackets {packets} bytes {bytes}\n"))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_QUOTA) => {
            Some(format!("\t\t{}\n", Quota::decode(&o.data).ok()?.text()?))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_LIMIT) => {
            let limit = Limit::decode(&o.data).ok()?;
            Some(format!("\t\trate {}\n", limit.text()?))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_SYNPROXY) => {
            Some(lines(&Synproxy::decode(&o.data).ok()?.parts()))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_CT_HELPER) => {
            let h = CtHelperAttrs::decode(&o.data).ok()?;
            let (name, protocol) = (h.name?, protocol(h.l4proto?));
            let first = format!("type \"{name}\" protocol {protocol}");
            Some(lines(&[first, format!("l3proto {}", family(h.l3proto?)?)]))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_CT_TIMEOUT) => {
            let t = CtTimeoutAttrs::decode(&o.data).ok()?;
            let first = format!("protocol {}", protocol(t.l4proto?));
            let policy = policy(t.l4proto?, t.data.as_deref().unwrap_or_default())?;
            let policy = format!("policy = {{ {policy} }}");
            Some(lines(&[
                first,
                format!("l3proto {}", family(t.l3proto?)?),
                policy,
            ]))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_CT_EXPECT) => {
            let e = CtExpectAttrs::decode(&o.data).ok()?;
            let timeout = Duration::from_millis(u64::from(e.timeout?));
            Some(lines(&[
                format!("protocol {}", protocol(e.l4proto?)),
                format!("dport {}", e.dport?),
                format!("timeout {}", duration(timeout)),
                format!("size {}", e.size?),
                format!("l3proto {}", family(e.l3proto?)?),
            ]))
        }
        ObjectKind::Stateful(raw::NFT_OBJECT_SECMARK) => {
            let s = SecmarkAttrs::decode(&o.data).ok()?;
            Some(lines(&[format!("\"{}\"", s.ctx?)]))
        }
        ObjectKind::Stateful(_) => None,
        ObjectKind::Flowtable => {
            let f = FlowtableAttrs::decode(&o.data).ok()?;
            if !f.unknown.is_empty() {
                return None;
            }
            let hook = f.hook?;
            let priority = priority_text(
                hook.priority.unwrap_or(0),
                Hook::Ingress,
                TableFamily::Netdev,
            );
            let mut text = format!("\t\thook ingress priority {priority}\n");
            let devices = device_names(hook.devs.as_deref().unwrap_or_default());
            if !devices.is_empty() {
                text += &format!("\t\tdevices = {{ {} }}\n", devices.join(", "));
            }
            let flags = f.flags.unwrap_or(0);
            if flags & 1 != 0 {
                text += "\t\tflags offload\n";
            }
            if flags & 2 != 0 {
                text += "\t\tcounter\n";
            }
            Some(text)
        }
    }
}

fn lines(lines: &[String]) -> String {
    lines.iter().map(|l| format!("\t\t{l}\n")).collect()
}

fn protocol(n: u8) -> String {
    numbers::name(PROTOCOLS, u64::from(n)).map_or_else(|| n.to_string(), str::to_owned)
}

fn family(n: u16) -> Option<TableFamily> {
    Some(TableFamily::from(u8::try_from(n).ok()?))
}

/// The timeouts of a protocol's states that differ from the default. `None` if a state has no name.
fn policy(protocol: u8, data: &[u8]) -> Option<String> {
    let states = match protocol {
        raw::IPPROTO_TCP => TCP,
        raw::IPPROTO_UDP => UDP,
        _ => return None,
    };
    let mut texts = Vec::new();
    for attr in Attrs::new(data) {
        let attr = attr.ok()?;
        let (name, default) = states.get(usize::from(attr.number).checked_sub(1)?)?;
        let seconds = u32::from_be_bytes(attr.payload.try_into().ok()?);
        if seconds != *default {
            texts.push(format!("{name} : {seconds}"));
        }
    }
    Some(texts.join(", "))
}

/// `enum ctattr_timeout_tcp`, linux/netfilter/nfnetlink_cttimeout.h, with nft's defaults in seconds
const TCP: &[(&str, u32)] = &[
    ("syn_sent", 120),
    ("syn_recv", 60),
    ("established", 432_000),
    ("fin_wait", 120),
    ("close_wait", 60),
    ("last_ack", 30),
    ("time_wait", 120),
    ("close", 10),
    ("syn_sent2", 120),
    ("retrans", 300),
    ("unack", 300),
];

/// `enum ctattr_timeout_udp`
const UDP: &[(&str, u32)] = &[("unreplied", 30), ("replied", 120)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nft::wire::FlowtableHookAttrs;
    use weir_netlink::attr::Writer;

    /// As `nft` 1.0.6 lists it; the attributes as a kernel lists them (6.1, one device).
    #[test]
    fn a_flowtable_has_words() {
        let attrs = FlowtableAttrs {
            table: Some("t".into()),
            name: Some("f".into()),
            hook: Some(FlowtableHookAttrs {
                num: Some(0),
                priority: Some(-5),
                // NFTA_DEVICE_NAME "lo"
                devs: Some(b"\x07\x00\x01\x00lo\x00\x00".to_vec()),
                ..FlowtableHookAttrs::default()
            }),
            flags: Some(2),
            ..FlowtableAttrs::default()
        };
        let mut w = Writer::default();
        attrs.encode(&mut w);
        let mut table = Object {
            kind: ObjectKind::Flowtable,
            name: "f".into(),
            comment: None,
            data: w.finish().unwrap(),
        };
        let want = "\tflowtable f {\n\t\thook ingress priority filter - 5\n\
                    \t\tdevices = { lo }\n\t\tcounter\n\t}\n";
        assert_eq!(table.to_string(), want);
        // An unknown attribute is displayed too.
        table.data.extend([5, 0, 99, 0, 1, 0, 0, 0]);
        assert!(table.to_string().contains("opaque(0x"), "{table}");
    }
}
