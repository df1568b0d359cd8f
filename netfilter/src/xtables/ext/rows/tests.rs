//! Tests of every row: its offsets are in the structure, and text and bytes convert into each other without loss.

use super::super::blob::Blob;
use super::super::row::{Extension, Row};
use super::super::{All, Context, Part, Unknown, match_of, target_of};
use super::ROWS;
use crate::xtables::sets::Interned;
use crate::xtables::{Match, Rule, Script, Snapshot, Target, XtFamily, plan_restore};
use XtFamily::Ip;
use std::collections::BTreeSet;
use texts::{OTHER_TEXTS, TEXTS, WRONG};

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
    let rule = parse(family, text).unwrap_or_else(|e| panic!("{text}: {e}"));
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

#[test]
fn every_row_comes_back() {
    let sets = Interned::default();
    let mut seen = BTreeSet::new();
    for (family, text) in TEXTS {
        let value = extension(*family, text);
        let cx = Context {
            family: *family,
            sets: &sets,
            revisions: &All,
        };
        let wire = value.wire(&cx).unwrap();
        let unknown = Unknown {
            name: wire.name.clone(),
            revision: wire.revision,
            data: wire.data.clone(),
        };
        let (part, shown) = if text.starts_with("-m") {
            let read = match_of(*family, &unknown);
            assert_eq!(read, Match::Extension(value.clone()), "{text}");
            (Part::Match, read.to_string())
        } else {
            let read = target_of(*family, &unknown);
            assert_eq!(read, Target::Extension(value.clone()), "{text}");
            (Part::Target, read.to_string())
        };
        assert_eq!(shown, format!(" {text}"));
        let row: &Row = Row::find(part, value.name(), *family).unwrap();
        seen.insert(std::ptr::from_ref(row).addr());
        // Data of any other length, or that no options can represent, remain an `Unknown`.
        for len in (0..wire.data.len()).step_by(8) {
            let cut = wire.data.get(..len).unwrap();
            assert_eq!(
                Extension::decode(part, &wire.name, wire.revision, cut, *family),
                None
            );
        }
        for at in 0..wire.data.len() {
            let mut changed = Blob(wire.data.clone());
            changed.xor(super::super::blob::Place { at, width: 1 }, 0x81);
            drop(Extension::decode(
                part,
                &wire.name,
                wire.revision,
                changed.bytes(0, wire.data.len()),
                *family,
            ));
        }
    }
    let missing = ROWS.iter().flat_map(|rows| rows.iter());
    let missing: Vec<&str> = missing
        .filter(|row| !seen.contains(&std::ptr::from_ref::<Row>(row).addr()))
        .map(|row| row.name)
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
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
