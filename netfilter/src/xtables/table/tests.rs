//! Tests of blobs without a kernel: encoding and decoding lose nothing, and no input causes a panic.

use super::*;
use crate::xtables::ext::{All, Context};
use crate::xtables::sets::Interned;
use crate::xtables::{Script, Snapshot, engine::plan_restore};
use proptest::prelude::*;

const TEXTS: [(XtFamily, &str); 2] = [
    (
        XtFamily::Ip,
        include_str!("../../../tests/kernel/xtables/rules-ip.txt"),
    ),
    (
        XtFamily::Ip6,
        include_str!("../../../tests/kernel/xtables/rules-ip6.txt"),
    ),
];

/// The tables of the oracle's texts, encoded for a kernel with all extensions.
fn tables() -> Vec<Layout> {
    TEXTS
        .iter()
        .flat_map(|(family, text)| {
            let script = Script::parse(*family, text).unwrap();
            let transaction = plan_restore(&script, &Snapshot::default(), false).unwrap();
            transaction
                .changes
                .into_iter()
                .map(|c| c.new)
                .collect::<Vec<_>>()
        })
        .collect()
}

fn info_of(table: &Layout, blob: &Blob) -> Info {
    let hooks = table
        .chains
        .iter()
        .filter_map(|c| c.builtin.map(|(hook, _)| hook));
    Info {
        valid_hooks: hooks.fold(0, |all, hook| all | 1 << hook),
        hook_entry: blob.hook_entry,
        underflow: blob.underflow,
        entries: blob.old.len(),
        size: blob.bytes.len(),
    }
}

#[test]
fn what_is_written_is_read_alike() {
    let sets = Interned::default();
    for table in tables() {
        let cx = Context {
            family: table.family,
            sets: &sets,
            revisions: &All,
        };
        let blob = table.encode(&cx).unwrap();
        let info = info_of(&table, &blob);
        let read = Layout::decode(&table.name, info, blob.bytes.clone(), &cx).unwrap();
        assert_eq!(read.table().to_string(), table.table().to_string());
        assert_eq!(read.table(), table.table());
        let info = info_of(&table, &blob);
        let (written, ended) = written(&table.name, &info, &blob.bytes, &cx);
        ended.unwrap();
        assert_eq!(written, table.table().to_string());
        // Encoding the decoded table gives the same bytes, and every entry refers to its old one.
        let again = read.encode(&cx).unwrap();
        assert_eq!(again.bytes, blob.bytes);
        let all: Vec<Option<usize>> = (0..blob.old.len()).map(Some).collect();
        assert_eq!(again.old, all);
    }
}

#[test]
fn loops_and_dead_ends_are_refused() {
    let check = |text: &str| {
        let script = Script::parse(
            XtFamily::Ip,
            &format!("*filter\n:A -\n:B -\n{text}COMMIT\n"),
        );
        plan_restore(&script.unwrap(), &Snapshot::default(), false)
    };
    let e = check("-A INPUT -j A\n-A A -j B\n-A B -g A\n")
        .unwrap_err()
        .to_string();
    assert!(e.contains("A -> B -> A"), "{e}");
    assert!(check("-A INPUT -j A\n-A A -j A\n").is_err());
    let e = check("-A INPUT -j NOWHERE\n").unwrap_err().to_string();
    assert!(e.contains("no chain NOWHERE"), "{e}");
    assert!(check("-A A -j INPUT\n").is_err());
    // The kernel accepts a loop that no packet reaches, so it must not prevent writing.
    assert!(check("-A A -j B\n-A B -j A\n").is_ok());
    assert!(check("-A INPUT -j A\n-A INPUT -j B\n-A A -j B\n").is_ok());
}

/// The time of a check grows with the length of a chain of jumps, not with its square.
#[test]
fn a_long_chain_of_jumps_is_checked_in_linear_time() {
    let time = |n: usize| {
        let declared: String = (0..n).map(|i| format!(":c{i} -\n")).collect();
        let jumps: String = (1..n).map(|i| format!("-A c{} -j c{i}\n", i - 1)).collect();
        let text = format!("*filter\n{declared}-A INPUT -j c0\n{jumps}COMMIT\n");
        let script = Script::parse(XtFamily::Ip, &text).unwrap();
        let plan = plan_restore(&script, &Snapshot::default(), false).unwrap();
        let table = &plan.changes.first().unwrap().new;
        let once = || {
            let start = weir_testing::effort::cpu_time();
            table.check().unwrap();
            weir_testing::effort::cpu_time() - start
        };
        (0..3).map(|_| once()).min().unwrap()
    };
    // Linear: 16 times the time; quadratic: 256 times.
    let (short, long) = (time(2_000), time(32_000));
    assert!(
        long < short * 120,
        "{short:?} for 2,000 chains, {long:?} for 32,000"
    );
}

/// Tables, their blobs, and the descriptions of the blobs.
fn blobs() -> Vec<(Layout, Info, Vec<u8>)> {
    let sets = Interned::default();
    let encode = |table: Layout| {
        let cx = Context {
            family: table.family,
            sets: &sets,
            revisions: &All,
        };
        let blob = table.encode(&cx).unwrap();
        let info = info_of(&table, &blob);
        (table, info, blob.bytes)
    };
    tables().into_iter().map(encode).collect()
}

/// The text of a table as it is printed in pieces, and the result.
fn written(
    name: &str,
    info: &Info,
    blob: &[u8],
    cx: &Context<'_>,
) -> (String, std::io::Result<()>) {
    let mut all = String::new();
    let mut take = |piece: &str| {
        all.push_str(piece);
        Ok(())
    };
    let mut out = Pieces::new(&mut take);
    let ended = text(name, info, blob, cx, &mut out).and_then(|()| out.end());
    (all, ended)
}

/// Checks that any input gives an error, or values that can be printed and encoded again.
fn survives(table: &Layout, info: Info, bytes: Vec<u8>) {
    let sets = Interned::default();
    let cx = Context {
        family: table.family,
        sets: &sets,
        revisions: &All,
    };
    let (written, ended) = written(&table.name, &info, &bytes, &cx);
    let read = Layout::decode(&table.name, info, bytes, &cx);
    let why = ended.err().map(|e| e.to_string());
    assert_eq!(why, read.as_ref().err().map(ToString::to_string));
    if let Ok(read) = read {
        assert_eq!(written, read.table().to_string());
        let _ = read.encode(&cx);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn flipped_bits_never_panic(
        which in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let blobs = blobs();
        let (table, info, mut bytes) = which.get(&blobs).clone();
        for (at, value) in flips {
            *at.get_mut(&mut bytes) = value;
        }
        survives(&table, info, bytes);
    }

    #[test]
    fn cut_and_grown_blobs_never_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        more in proptest::collection::vec(any::<u8>(), 0..64),
        hooks in any::<([u32; 5], [u32; 5], u32)>(),
        entries in 0usize..200,
    ) {
        let blobs = blobs();
        let (table, info, mut bytes) = which.get(&blobs).clone();
        bytes.truncate(cut.index(bytes.len()));
        bytes.extend(&more);
        survives(&table, info.clone(), bytes.clone());
        let wild = Info { hook_entry: hooks.0, underflow: hooks.1, valid_hooks: hooks.2, entries, ..info };
        survives(&table, wild, bytes);
    }

    #[test]
    fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), v6 in any::<bool>()) {
        let family = if v6 { XtFamily::Ip6 } else { XtFamily::Ip };
        let table = Layout::untouched(family, "filter").unwrap();
        survives(&table, Info { entries: 1, valid_hooks: 0xe, ..Info::default() }, bytes);
    }

    #[test]
    fn texts_never_panic(text in "\\*filter\n(-[AIDRPNXF] |:|[!a-zA-Z0-9 \"\\\\/.,:=-]{0,12} ?|-m [a-z]{3,9} |--[a-z-]{3,12} ){0,8}\nCOMMIT\n") {
        let _ = Script::parse(XtFamily::Ip, &text);
        let _ = Script::parse(XtFamily::Ip6, &text);
    }
}
