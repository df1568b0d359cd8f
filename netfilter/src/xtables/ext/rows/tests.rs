//! Tests of every row: its offsets are in the structure, and text and bytes convert into each other without loss.

use super::super::blob::{Blob, Place};
use super::super::row::{Extension, Row};
use super::super::{
    All, Context, Form, Part, Revisions, Unknown, match_of, matches, of, target_of, targets,
};
use super::ROWS;
use crate::xtables::sets::Interned;
use crate::xtables::{Match, Rule, Script, Snapshot, Target, XtFamily, plan_restore};
use XtFamily::{Ip, Ip6};
use std::collections::BTreeSet;
use texts::{OTHER_TEXTS, TEXTS, WRONG};

mod layouts;
mod texts;

fn parse(family: XtFamily, text: &str) -> Result<Rule, String> {
    let script = format!("*filter\n-A INPUT {text}\nCOMMIT\n");
    let script = Script::parse(family, &script).map_err(|e| e.to_string())?;
    let planned = plan_restore(&script, &Snapshot::default(), false).unwrap();
    let tables = planned.tables().tables;
    let chains = tables.into_iter().flat_map(|t| t.chains);
    Ok(chains.flat_map(|c| c.rules).next().unwrap())
}

fn extension(family: XtFamily, text: &str) -> Extension {
    let protocol = match text {
        _ if text.starts_with("-m icmp6") => "-p icmpv6 ",
        _ if text.starts_with("-m icmp") => "-p icmp ",
        _ => "",
    };
    let rule =
        parse(family, &format!("{protocol}{text}")).unwrap_or_else(|e| panic!("{text}: {e}"));
    match (rule.matches.first(), rule.target) {
        (Some(Match::Extension(v)), None) => v.clone(),
        (None, Some(Target::Extension(v))) => v,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn places_are_in_the_structure() {
    for row in ROWS.iter().flat_map(|rows| rows.iter()) {
        let extent = row.extent();
        assert!(extent <= row.size, "{}: {extent}", row.name);
        let names: BTreeSet<&str> = row.names().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), row.names().len(), "{}", row.name);
    }
}

/// A kernel that has only this revision of each extension.
struct Only(u8);

impl Revisions for Only {
    fn has(&self, _: XtFamily, _: Part, form: Form) -> weir_netlink::Result<bool> {
        Ok(form.revision == self.0)
    }
}

#[test]
fn every_row_comes_back() {
    let sets = Interned::default();
    let mut seen = BTreeSet::new();
    for (family, text) in TEXTS {
        let value = extension(*family, text);
        let part = match text.starts_with("-m") {
            true => Part::Match,
            false => Part::Target,
        };
        for row in Row::revisions(part, value.name(), *family) {
            let revisions = &Only(row.revision);
            let cx = Context {
                family: *family,
                sets: &sets,
                revisions,
            };
            // An older revision may lack an option.
            let Ok(wire) = value.wire(&cx) else { continue };
            assert_eq!(wire.revision, row.revision);
            let unknown = Unknown {
                name: wire.name.clone(),
                revision: wire.revision,
                data: wire.data.clone(),
            };
            let shown = if part == Part::Match {
                let read = match_of(*family, &unknown);
                assert_eq!(read, Match::Extension(value.clone()), "{text}");
                read.to_string()
            } else {
                let read = target_of(*family, &unknown);
                assert_eq!(read, Target::Extension(value.clone()), "{text}");
                read.to_string()
            };
            assert_eq!(shown, format!(" {text}"));
            seen.insert(std::ptr::from_ref(row).addr());
            // Data of any other length, or that no options can represent, remain an `Unknown`.
            let decode =
                |data: &[u8]| Extension::decode(part, &wire.name, wire.revision, data, *family);
            for len in (0..wire.data.len()).step_by(8) {
                assert_eq!(decode(wire.data.get(..len).unwrap()), None);
            }
            for at in 0..wire.data.len() {
                let mut changed = Blob(wire.data.clone());
                changed.xor(Place { at, width: 1 }, 0x81);
                drop(decode(&changed.0));
            }
        }
    }
    let missing = ROWS.iter().flat_map(|rows| rows.iter());
    let missing: Vec<&str> = missing
        .filter(|row| !seen.contains(&std::ptr::from_ref::<Row>(row).addr()))
        .map(|row| row.name)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

/// The revisions that iptables 1.8.7 to 1.8.11 (Debian 11 to 13) writes on Linux 5.10 to 7.2, of extensions with several.
#[rustfmt::skip]
const WRITTEN: &[(Part, &str, &[u8])] = &[
    (Part::Match, "addrtype", &[1]), (Part::Match, "bpf", &[1]), (Part::Match, "cgroup", &[2]),
    (Part::Match, "connlimit", &[1]), (Part::Match, "connmark", &[1]), (Part::Match, "conntrack", &[3]),
    (Part::Match, "hashlimit", &[3]), (Part::Match, "iprange", &[1]), (Part::Match, "mark", &[1]),
    (Part::Match, "multiport", &[1]), (Part::Match, "nfacct", &[1]), (Part::Match, "owner", &[1]),
    (Part::Match, "recent", &[1]), (Part::Match, "set", &[4]), (Part::Match, "socket", &[3]),
    (Part::Match, "string", &[1]), (Part::Match, "tos", &[1]), (Part::Target, "CONNMARK", &[2]),
    (Part::Target, "CT", &[2]), (Part::Target, "DNAT", &[2]), (Part::Target, "IDLETIMER", &[1]),
    (Part::Target, "MARK", &[2]), (Part::Target, "NFQUEUE", &[3]), (Part::Target, "SECMARK", &[0, 1]),
    (Part::Target, "SET", &[3]), (Part::Target, "TEE", &[1]), (Part::Target, "TOS", &[1]),
    (Part::Target, "TPROXY", &[1]),
];

#[test]
fn every_written_revision_is_known() {
    for (part, name, revisions) in WRITTEN {
        for family in [Ip, Ip6] {
            let mut known: Vec<u8> = Row::revisions(*part, name, family)
                .map(|row| row.revision)
                .collect();
            let forms: Vec<&Form> = match part {
                Part::Match => of(matches::KINDS, family)
                    .flat_map(|k| (k.forms)(family))
                    .collect(),
                Part::Target => of(targets::KINDS, family)
                    .flat_map(|k| (k.forms)(family))
                    .collect(),
            };
            known.extend(forms.iter().filter(|f| f.name == *name).map(|f| f.revision));
            let lacking: Vec<_> = revisions.iter().filter(|r| !known.contains(r)).collect();
            assert!(lacking.is_empty(), "{family} {name}: {lacking:?}");
        }
    }
}

/// The values that weir writes itself.
#[test]
fn made_values_are_those_of_the_text() {
    for (made, family, text) in [
        (
            Extension::not_to_local(Ip6),
            Ip6,
            "-m addrtype ! --dst-type LOCAL",
        ),
        (Extension::icmp_type(Ip, 3), Ip, "-m icmp --icmp-type 3"),
        (
            Extension::icmp_type(Ip6, 128),
            Ip6,
            "-m icmp6 --icmpv6-type 128",
        ),
    ] {
        assert_eq!(made, extension(family, text));
    }
    let socket = extension(Ip, "-m socket --transparent --restore-skmark");
    assert!(socket.has("--restore-skmark") && !socket.has("--nowildcard"));
}

/// What the kernel stores beside the context in revision 0 is no part of the rule.
#[test]
fn an_older_secmark_is_the_same_value() {
    let value = extension(Ip, "-j SECMARK --selctx a:b:c");
    let mut data = Blob::zeros(264);
    data.set(0, &[1]);
    data.put(4, 4, 77);
    data.set(8, b"a:b:c");
    let unknown = Unknown {
        name: "SECMARK".to_owned(),
        revision: 0,
        data: data.0,
    };
    assert_eq!(target_of(Ip, &unknown), Target::Extension(value));
}

/// iptables 1.8.1 to 1.8.8 writes 128 bytes: after the pattern come its other arguments and its environment.
#[test]
fn bytes_after_a_pattern_are_no_part_of_it() {
    let sets = Interned::default();
    let cx = Context {
        family: Ip,
        sets: &sets,
        revisions: &All,
    };
    let text = "-m string --string \"abc\" --algo bm";
    let value = extension(Ip, text);
    let with = |at, bytes: &[u8]| {
        let mut data = Blob(value.wire(&cx).unwrap().data);
        data.set(at, bytes);
        let unknown = Unknown {
            name: "string".to_owned(),
            revision: 1,
            data: data.0,
        };
        match_of(Ip, &unknown)
    };
    let read = with(23, &[b"\0--algo\0bm\0A=", [b'x'; 112].as_slice()].concat());
    assert_eq!(read, Match::Extension(value.clone()));
    assert_eq!(read.to_string(), format!(" {text}"));
    assert_ne!(with(22, b"d"), Match::Extension(value.clone()));
    // The number of bytes, and what follows it.
    assert!(matches!(with(148, &[129]), Match::Unknown(_)));
    assert!(matches!(with(152, &[1]), Match::Unknown(_)));
}

/// The period that another writer chose is kept, although its text is rounded.
#[test]
fn a_rounded_rate_is_kept() {
    let mut data = Blob::zeros(40);
    data.put(0, 4, 199);
    data.put(4, 4, 5);
    let with = |data: &Blob| {
        let unknown = Unknown {
            name: "limit".to_owned(),
            revision: 0,
            data: data.bytes(0, 40).to_vec(),
        };
        match_of(Ip, &unknown)
    };
    let read = with(&data);
    assert_eq!(read.to_string(), " -m limit --limit 50/sec");
    let Match::Extension(value) = &read else {
        panic!("{read:?}");
    };
    let sets = Interned::default();
    let cx = Context {
        family: Ip,
        sets: &sets,
        revisions: &All,
    };
    assert_eq!(value.wire(&cx).unwrap().data, data.bytes(0, 40));
    // A period of 0, and a field that is private to the kernel.
    for (at, value) in [(0, 0), (16, 1)] {
        let mut data = data.clone();
        data.put(at, 4, value);
        assert!(matches!(with(&data), Match::Unknown(_)), "{at}");
    }
}

/// The conditions on the flags of chunks keep their order; one that has no text is shown as bytes.
#[test]
fn flags_of_chunks_in_any_order_are_listed() {
    let text = "-m sctp --chunk-types any ABORT:T,DATA:U";
    let sets = Interned::default();
    let cx = Context {
        family: Ip,
        sets: &sets,
        revisions: &All,
    };
    let wire = extension(Ip, text).wire(&cx).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut data = Blob(wire.data.clone());
        data.set(at, bytes);
        let name = "sctp".to_owned();
        (
            data.clone(),
            match_of(
                Ip,
                &Unknown {
                    name,
                    revision: 0,
                    data: data.0,
                },
            ),
        )
    };
    let (data, read) = with(0, &[]);
    assert_eq!(
        read.to_string(),
        " -m sctp --chunk-types any DATA:U,ABORT:T"
    );
    let Match::Extension(value) = &read else {
        panic!("{read:?}");
    };
    assert_eq!(value.wire(&cx).unwrap().data, data.0);
    // A chunk twice or outside of the set, a flag without a letter or outside of the mask, an entry beyond the count.
    for (at, bytes) in [
        (271, [6, 1, 1]),
        (271, [1, 1, 1]),
        (271, [0, 16, 16]),
        (271, [0, 1, 2]),
        (274, [0, 4, 4]),
    ] {
        assert!(
            matches!(with(at, &bytes).1, Match::Unknown(_)),
            "{at} {bytes:?}"
        );
    }
}

#[test]
fn other_words_mean_the_same() {
    for (family, text, shown) in OTHER_TEXTS {
        assert_eq!(
            parse(*family, text).unwrap().to_string(),
            format!(" {shown}")
        );
    }
}

#[test]
fn an_error_says_what_is_wrong() {
    for (family, text, part) in WRONG {
        let e = parse(*family, text).unwrap_err();
        assert!(e.contains(part), "{text}: {e}");
    }
}
