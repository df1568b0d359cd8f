//! Tests with captured bytes, and with answers that no kernel can be made to give.
use super::codec::{check_entry, from_entry, from_header, to_entry, to_options};
use super::model::*;
use super::wire::{CommandAttrs, EntryAttrs};
use super::{error, raw};
use ipnet::IpNet;
use std::net::IpAddr;
use weir_netlink::attr::{AttrSet, Writer};

fn hardware(mac: [u8; 6]) -> Key {
    Key::Parts(vec![KeyPart::Mac(Some(mac))])
}

fn bytes(attrs: &impl AttrSet) -> Vec<u8> {
    let mut w = Writer::new();
    attrs.encode(&mut w);
    w.finish().unwrap()
}

/// `ipset add x 1.2.3.4 comment hello packets 3 timeout 4` by ipset 7.17 (without its line number).
#[test]
fn an_entry_has_the_bytes_of_the_tool() {
    let entry = Entry {
        timeout: Some(4),
        comment: Some("hello".into()),
        ..Entry::new(Key::from(IpAddr::from([1, 2, 3, 4])))
    };
    let mut attrs = to_entry(&entry);
    attrs.packets = Some(3);
    let want: &[u8] = &[
        0x0c, 0, 0x01, 0x80, // IPSET_ATTR_IP, nested
        0x08, 0, 0x01, 0x40, // IPSET_ATTR_IPADDR_IPV4, network order
        1, 2, 3, 4, //
        0x08, 0, 0x06, 0x40, // IPSET_ATTR_TIMEOUT
        0, 0, 0, 4, //
        0x0c, 0, 0x19, 0x40, // IPSET_ATTR_PACKETS
        0, 0, 0, 0, 0, 0, 0, 3, //
        0x0a, 0, 0x1a, 0, // IPSET_ATTR_COMMENT
        b'h', b'e', b'l', b'l', b'o', 0, 0, 0,
    ];
    assert_eq!(bytes(&attrs), want);
}

/// `ipset create x hash:ip comment counters timeout 5`
#[test]
fn options_have_the_bytes_of_the_tool() {
    let mut h = Header::new("x", SetType::HashIp, SetFamily::Inet);
    (h.comment, h.counters, h.timeout) = (true, true, Some(5));
    let want = [8, 0, 6, 0x40, 0, 0, 0, 5, 8, 0, 8, 0x40, 0, 0, 0, 0x18];
    assert_eq!(bytes(&to_options(&h)), want);
}

/// The answer of Linux 6.18 to `ipset save x`.
#[test]
fn a_list_of_the_kernel_is_read() {
    let data: &[u8] = b"\x05\0\x01\0\x07\0\0\0\x06\0\x02\0x\0\0\0\x0c\0\x03\0hash:ip\0\x05\0\x05\0\x02\0\0\0\
        \x05\0\x04\0\x06\0\0\0\x06\0\x0b\x40\0\0\0\0\x4c\0\x07\x80\x08\0\x12\x40\0\0\x04\0\x08\0\x13\x40\0\x01\0\0\
        \x05\0\x15\0\x0c\0\0\0\x08\0\x11\x40\x33\x74\x92\x65\x08\0\x19\x40\0\0\0\0\x08\0\x1a\x40\0\0\x01\x5e\
        \x08\0\x18\x40\0\0\0\x01\x08\0\x06\x40\0\0\0\x05\x08\0\x08\x40\0\0\0\x18\
        \x40\0\x08\x80\x3c\0\x07\x80\x0c\0\x01\x80\x08\0\x01\0\x01\x02\x03\x04\x08\0\x06\x40\0\0\0\x03\
        \x0c\0\x18\x40\0\0\0\0\0\0\0\0\x0c\0\x19\x40\0\0\0\0\0\0\0\x03\x0a\0\x1a\0hello\0\0\0";
    let attrs = CommandAttrs::decode(data).unwrap();
    assert!(attrs.unknown.is_empty());
    let header = from_header(&attrs);
    let entry = from_entry(&header.kind, attrs.entries.unwrap().remove(0));
    let set = Set {
        header,
        entries: vec![entry],
    };
    assert_eq!(
        set.to_string(),
        "create x hash:ip family inet hashsize 1024 maxelem 65536 timeout 5 counters comment \
         bucketsize 12 initval 0x33749265\nadd x 1.2.3.4 timeout 3 packets 3 bytes 0 comment \"hello\"\n"
    );
    // With any bit flipped, and for any prefix: an error or another value, and no panic.
    for i in 0..data.len() {
        let _ = CommandAttrs::decode(&data[..i]);
        for bit in 0..8 {
            let mut damaged = data.to_vec();
            damaged[i] ^= 1 << bit;
            if let Ok(a) = CommandAttrs::decode(&damaged) {
                let header = from_header(&a);
                for e in a.entries.unwrap_or_default() {
                    let _ = from_entry(&header.kind, e).to_string();
                }
            }
        }
    }
}

#[test]
fn hardware_addresses() {
    let entry = Entry::new(hardware([0, 0x11, 0x22, 0xaa, 0xbb, 0xcc]));
    assert_eq!(
        bytes(&to_entry(&entry)),
        [10, 0, 17, 0, 0, 0x11, 0x22, 0xaa, 0xbb, 0xcc, 0, 0]
    );
    assert_eq!(from_entry(&SetType::HashMac, to_entry(&entry)), entry);
    // Too short for a hardware address.
    let short = EntryAttrs {
        ether: Some(vec![1, 2]),
        ..EntryAttrs::default()
    };
    assert!(matches!(
        from_entry(&SetType::HashMac, short).key,
        Key::Opaque(_)
    ));
}

#[test]
fn what_is_not_known_is_never_ignored() {
    let known = to_entry(&Entry::new(Key::Port(80)));
    let newer = EntryAttrs {
        unknown: vec![(31, vec![1])],
        ..known.clone()
    };
    assert!(matches!(
        from_entry(&SetType::BitmapPort, newer).key,
        Key::Opaque(_)
    ));
    let flag = EntryAttrs {
        flags: Some(raw::IPSET_FLAG_NOMATCH | 1 << 9),
        ..known.clone()
    };
    assert!(matches!(
        from_entry(&SetType::BitmapPort, flag).key,
        Key::Opaque(_)
    ));
    assert_eq!(
        from_entry(&SetType::BitmapPort, known),
        Entry::new(Key::Port(80))
    );
}

#[test]
fn the_same_number_means_what_the_type_says() {
    let name = |class| error::words(4352, class).map(|(name, _)| name);
    assert_eq!(name(error::Class::Hash), Some("IPSET_ERR_HASH_FULL"));
    assert_eq!(name(error::Class::Bitmap), Some("IPSET_ERR_BITMAP_RANGE"));
    assert_eq!(name(error::Class::List), Some("IPSET_ERR_NAME"));
    assert_eq!(name(error::Class::Any), Some("unknown"));
    assert_eq!(error::words(libc::EPERM, error::Class::Any), None);
}

#[test]
fn entries_of_unknown_types_are_kept_whole_and_never_written() {
    let attrs = EntryAttrs {
        port: Some(7),
        ..EntryAttrs::default()
    };
    let entry = from_entry(&SetType::from("hash:weir"), attrs.clone());
    assert_eq!(entry.key, Key::Opaque(Box::new(attrs.clone())));
    assert_eq!(to_entry(&entry), attrs);
    let e = check_entry("add", "x", &entry).unwrap_err();
    assert!(e.to_string().contains("only be listed"), "{e}");
    // A flag of an interface has no meaning for a network without an interface.
    let attrs = EntryAttrs {
        flags: Some(raw::IPSET_FLAG_PHYSDEV),
        ..to_entry(&Entry::new(Key::from(
            "10.0.0.0/8".parse::<IpNet>().unwrap(),
        )))
    };
    let entry = from_entry(&SetType::HashNet, attrs);
    assert!(matches!(entry.key, Key::Opaque(_)));
}

#[test]
fn every_type_has_its_name_back() {
    for kind in SetType::all() {
        assert_eq!(&SetType::from(kind.name()), kind);
        assert!(!kind.dimensions().is_empty() && kind.since().is_some());
    }
}

/// The kernel always lists the mask of marks, and stores only the bits of a mark that are in the mask. The test uses no kernel,
/// because the running one may lack the type.
#[test]
fn a_mask_of_marks_that_is_not_given_is_that_of_all_bits() {
    let with = |mask: Option<u32>, mark: u32| {
        let mut set = Set::new(Header::new("a", SetType::HashIpMark, SetFamily::Inet6));
        set.header.mark_mask = mask;
        let ip = KeyPart::Ip("fd00::1".parse().unwrap());
        set.entries = vec![Entry::new(Key::Parts(vec![ip, KeyPart::Mark(mark)]))];
        set
    };
    let is_same = |desired: Set, listed: Set| {
        super::plan(&[desired], &[listed], &["a".to_owned()]).is_empty()
    };
    assert!(is_same(with(None, 0x1234), with(Some(u32::MAX), 0x1234)));
    assert!(is_same(with(Some(0xff), 0x1234), with(Some(0xff), 0x34)));
    assert!(!is_same(with(None, 0x1234), with(Some(0xff), 0x34)));
}
