use super::*;
use proptest::prelude::*;

crate::attributes! {
    /// An inner set.
    struct Inner {
        code: I32Be = NFTA_VERDICT_CODE 1,
        chain: Str = NFTA_VERDICT_CHAIN 2,
    }
    /// An outer set.
    struct Outer {
        late: Bytes = NFTA_RULE_USERDATA 7,
        handle: Be64 = NFTA_RULE_HANDLE 3,
        host: Ne32 = X_HOST 9,
        verdict: Nest<Inner> = NFTA_DATA_VERDICT 2,
        list: ListOf<Inner> = NFTA_RULE_EXPRESSIONS 4,
    }
}

fn encoded(set: &impl AttrSet) -> Vec<u8> {
    let mut w = Writer::new();
    set.encode(&mut w);
    w.finish().unwrap()
}

#[test]
fn bytes_are_those_of_the_header() {
    let set = Outer {
        handle: Some(0x0102),
        late: Some(vec![9]),
        ..Outer::default()
    };
    // Declared order, not the order of the numbers; the length includes the header, not the padding.
    let late = [5, 0, 7, 0, 9, 0, 0, 0];
    let handle = [12, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2];
    if cfg!(target_endian = "little") {
        assert_eq!(encoded(&set), [&late[..], &handle[..]].concat());
    }
}

#[test]
fn a_path_names_every_level() {
    let inner = Inner {
        code: Some(-3),
        chain: Some("abc".into()),
        ..Inner::default()
    };
    let set = Outer {
        list: Some(vec![Inner::default(), inner]),
        ..Outer::default()
    };
    let bytes = encoded(&set);
    let at = bytes.windows(3).position(|w| w == b"abc").unwrap();
    let path = |target| Outer::path(&bytes, target).map(|p| p.to_string());
    let chain = "NFTA_RULE_EXPRESSIONS > [1] > NFTA_VERDICT_CHAIN";
    assert_eq!(path(Target::byte(at)).as_deref(), Some(chain));
    let list = Some("NFTA_RULE_EXPRESSIONS");
    assert_eq!(path(Target::byte(0)).as_deref(), list);
    assert_eq!(path(Target::byte(4000)), None);
    let steps = Outer::path(&bytes, Target::byte(at)).unwrap();
    assert_eq!(steps.steps()[1], Step::Element(1));
}

#[test]
fn what_is_missing_is_named_where_it_is_missing() {
    let set = Outer {
        handle: Some(1),
        verdict: Some(Inner::default()),
        ..Outer::default()
    };
    let bytes = encoded(&set);
    let missing = |offset, number| {
        let target = Target {
            offset,
            missing: Some(number),
        };
        Outer::path(&bytes, target).unwrap().to_string()
    };
    assert_eq!(missing(None, 9), "missing X_HOST");
    assert_eq!(missing(None, 70_000), "missing attribute 70000");
    // The nest begins after the handle.
    let nested = "NFTA_DATA_VERDICT > missing NFTA_VERDICT_CHAIN";
    assert_eq!(missing(Some(12), 2), nested);
    assert_eq!(
        missing(Some(0), 2),
        "NFTA_RULE_HANDLE > missing attribute 2"
    );
}

#[test]
fn unknown_attributes_survive() {
    let bytes = [&[8u8, 0, 77, 0, 1, 2, 3, 4][..], &[5, 0, 7, 0, 9, 0, 0, 0]].concat();
    let set = Outer::decode(&bytes).unwrap();
    assert_eq!(set.unknown, vec![(77, vec![1, 2, 3, 4])]);
    assert_eq!(Outer::decode(&encoded(&set)).unwrap(), set);
    // The flags of the type are kept: they determine the encoding of the payload.
    for flags in [NLA_F_NESTED, NLA_F_NET_BYTEORDER] {
        let number = (77 | flags).to_ne_bytes();
        let bytes = [8, 0, number[0], number[1], 1, 2, 3, 4];
        let flagged = Outer::decode(&bytes).unwrap();
        assert_ne!(flagged.unknown, set.unknown);
        assert_eq!(encoded(&flagged), bytes);
    }
}

#[test]
fn an_attribute_never_wraps() {
    let set = Outer {
        late: Some(vec![0; 65_532]),
        ..Outer::default()
    };
    let mut w = Writer::new();
    set.encode(&mut w);
    assert_eq!(
        w.finish(),
        Err(EncodeError {
            attribute: 7,
            length: 65_536
        })
    );
}

#[test]
fn a_wrong_length_names_the_attribute() {
    let error = Outer::decode(&[6, 0, 3, 0, 1, 2, 0, 0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "NFTA_RULE_HANDLE: 2 bytes where 8 are expected"
    );
}

proptest! {
    #[test]
    #[cfg(feature = "testing")]
    fn decode_of_encode_is_the_value(set in Outer::arbitrary()) {
        prop_assert_eq!(Outer::decode(&encoded(&set)).unwrap(), set);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..300) {
        if let Ok(set) = Outer::decode(&bytes) {
            prop_assert_eq!(Outer::decode(&encoded(&set)).unwrap(), set);
        }
        let _ = Outer::path(&bytes, Target::byte(at));
    }
}

/// A kind and a set of another crate, which has no generators.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Foreign(u8);

impl AttrKind for Foreign {
    type Value = u8;
    fn encode(value: &u8, w: &mut Writer) {
        w.put(&[*value; 4]);
    }
    fn decode(bytes: &[u8]) -> Result<u8, DecodeError> {
        let first = bytes.first().filter(|_| bytes.len() == 4);
        first.copied().ok_or_else(|| "4 bytes are expected".into())
    }
}

impl AttrSet for Foreign {
    const CONSTANTS: &'static [(&'static str, u16)] = &[];
    fn encode(&self, w: &mut Writer) {
        w.put(&[]);
    }
    fn decode(_: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self(7))
    }
    fn path(_: &[u8], _: Target) -> Option<Path> {
        None
    }
}

crate::attributes! {
    /// A set with both.
    struct OfForeign {
        kind: Foreign = FOREIGN_KIND 1,
        set: Nest<Foreign> = FOREIGN_SET 2,
    }
}

/// The feature `testing` requires nothing of other implementors.
#[test]
fn kinds_and_sets_of_others_need_no_generators() {
    let set = OfForeign {
        kind: Some(3),
        set: Some(Foreign(7)),
        ..OfForeign::default()
    };
    let mut w = Writer::new();
    set.encode(&mut w);
    assert_eq!(OfForeign::decode(&w.finish().unwrap()).unwrap(), set);
}

#[cfg(feature = "testing")]
#[test]
fn by_default_any_value_is_one_that_is_decoded() {
    use proptest::strategy::{Strategy as _, ValueTree as _};
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut kinds = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let set = OfForeign::arbitrary().new_tree(&mut runner).unwrap();
        let set = set.current();
        assert!(set.set.is_none_or(|set| set == Foreign(7)));
        kinds.insert(set.kind);
    }
    assert!(kinds.len() > 10, "{kinds:?}");
}
