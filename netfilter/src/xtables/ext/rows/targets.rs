//! Targets whose structures consist of a few numbers.

use super::prelude::*;

const AUDIT: &[(&str, u64)] = &[("accept", 0), ("drop", 1), ("reject", 2)];

/// `MAJOR:MINOR`, in hexadecimal, as in the handle of a qdisc.
const CLASS: Code = Code {
    show: |b, _, _| {
        Some(vec![format!(
            "{:04x}:{:04x}",
            b.uint(0, 4) >> 16,
            b.uint(0, 4) & 0xffff
        )])
    },
    read: |o, b, _, _| {
        let part = |text: &str| u16::from_str_radix(text, 16).ok();
        let parts = o
            .word(0)
            .split_once(':')
            .and_then(|(major, minor)| part(major).zip(part(minor)));
        let (major, minor) =
            parts.ok_or_else(|| o.wrong("is no class; give MAJOR:MINOR in hexadecimal"))?;
        b.put(0, 4, u64::from(major) << 16 | u64::from(minor));
        Ok(())
    },
    ..Code::WORD
};

/// `FIRST:LAST`: the first queue is at 0, their count at 2.
const BALANCE: Code = Code {
    show: |b, _, _| {
        let (first, count) = (b.uint(0, 2), b.uint(2, 2));
        (count > 1).then(|| vec![format!("{first}:{}", first + count - 1)])
    },
    read: |o, b, _, _| {
        let (first, last) = range_of(o, o.word(0), 2)?;
        if first == last || last == 0xffff {
            return Err(o.wrong("is no range of queues; give FIRST:LAST with LAST up to 65534"));
        }
        b.put(0, 2, first);
        b.put(2, 2, last - first + 1);
        Ok(())
    },
    ..Code::WORD
};

const CLAMP: u64 = 0xffff;

const MSS: Code = Code {
    show: |b, _, _| (b.uint(0, 2) != CLAMP).then(|| vec![b.uint(0, 2).to_string()]),
    read: |o, b, _, family| {
        let mss = number_of(o, o.word(0), 2)?;
        // The limits of iptables: 65535 bytes minus the IP header of 20 or 40 bytes.
        let most = match family {
            Ip => 65_515,
            Ip6 => 65_495,
        };
        if mss > most {
            return Err(o.wrong(&format!("is out of range; give 0 to {most}")));
        }
        b.put(0, 2, mss);
        Ok(())
    },
    ..Code::WORD
};

/// `--hmark-tuple`: each name selects a part of the packet with a mask of all bits. Only `ct`, which has no option of its own, is printed.
const TUPLE: Code = Code {
    show: |b, _, _| b.has(HMARK, 1 << 12).then(|| vec!["ct".to_owned()]),
    read: |o, b, _, family| {
        let address = union_of(mask_of(max_length(family), family));
        let parts: [(&str, u64, usize, &[u8]); 7] = [
            ("ct", 12, 0, &[]),
            ("src", 0, 0, &address),
            ("dst", 1, 16, &address),
            ("sport", 6, 32, &[0xff; 2]),
            ("dport", 7, 34, &[0xff; 2]),
            ("proto", 8, 44, &[0xff; 2]),
            ("spi", 3, 32, &[0xff; 4]),
        ];
        for word in o.word(0).split(',') {
            let Some((_, flag, at, mask)) = parts.iter().find(|part| begins(part.0, word)) else {
                return Err(
                    o.wrong("has an unknown part; give src, dst, sport, dport, spi, proto or ct")
                );
            };
            if b.has(HMARK, 1 << flag) {
                return Err(o.wrong(&format!("gives {word} once more; leave one out")));
            }
            b.or(HMARK, 1 << flag);
            b.set(*at, mask);
        }
        Ok(())
    },
    ..Code::WORD
};

/// `ipt_ECN_info.operation`: `IPT_ECN_OP_SET_ECE`, and the next bit for CWR.
const ECN: Place = Place { at: 0, width: 1 };
const ECE: u64 = 0x10;
const BOTH: u64 = 0x30;

/// Both operations, without a flag.
const REMOVE: Code = Code {
    words: 0,
    show: |b, _, _| ((b.uint(0, 1), b.uint(2, 1)) == (BOTH, 0)).then(Vec::new),
    read: |_, b, _, _| {
        b.or(ECN, BOTH);
        Ok(())
    },
    ..Code::WORD
};

/// The flag with this number.
const fn ecn<const FLAG: u32>() -> Code {
    Code {
        show: |b, at, family| {
            let is_given = b.has(ECN, ECE << FLAG) && (REMOVE.show)(b, at, family).is_none();
            is_given.then(|| vec![(b.uint(at, 1) >> FLAG & 1).to_string()])
        },
        read: |o, b, at, _| {
            let value = number_of(o, o.word(0), 1)?;
            if value > 1 {
                return Err(o.wrong("is out of range; give 0 to 1"));
            }
            if b.has(ECN, ECE << FLAG) {
                return Err(o.wrong("excludes --ecn-tcp-remove; give one of them"));
            }
            b.or(ECN, ECE << FLAG);
            b.or(Place { at, width: 1 }, value << FLAG);
            Ok(())
        },
        ..Code::WORD
    }
}

/// `xt_hmark_info.flags`
const HMARK: Place = Place { at: 40, width: 4 };

const fn hmark(names: &'static [&'static str], value: Value, at: usize, flag: u32) -> Field {
    field(names, value, at).when(When::Set(HMARK, 1 << flag))
}

/// `IPT_TTL_*` and `IP6T_HL_*` in the first byte: 0 sets, 1 adds, 2 subtracts the second byte.
const fn mode(names: &'static [&'static str], mode: u64) -> Field {
    field(names, Number(1), 1).is(0, 1, mode)
}

const TCPMSS: &[&str] = &["--set-mss", "--clamp-mss-to-pmtu"];

rows! {
    TARGET "AUDIT" { size: 1 } [field(&["--type"], Choice(1, AUDIT), 0).need()]
    TARGET "CHECKSUM" { size: 1 } [flag(&["--checksum-fill"], 0, 1, 1).need()]
    TARGET "CLASSIFY" { size: 4 } [field(&["--set-class"], Value::Code(&CLASS), 0).need()]
    TARGET "CONNSECMARK" { size: 1, one_of: &["--save", "--restore"] } [
        field(&["--save"], Value::Nothing, 0).is(0, 1, 1),
        field(&["--restore"], Value::Nothing, 0).is(0, 1, 2),
    ]
    TARGET "ECN" { family: Some(Ip), size: 3,
        one_of: &["--ecn-tcp-remove", "--ecn-tcp-ece", "--ecn-tcp-cwr", "--ecn-ip-ect"] } [
        field(&["--ecn-tcp-remove"], Value::Code(&REMOVE), 2),
        field(&["--ecn-tcp-ece"], Value::Code(&const { ecn::<0>() }), 2),
        field(&["--ecn-tcp-cwr"], Value::Code(&const { ecn::<1>() }), 2),
        field(&["--ecn-ip-ect"], Number(1), 1).set(0, 1, 1).within(0, 3),
    ]
    TARGET "TTL" { family: Some(Ip), size: 2, one_of: &["--ttl-set", "--ttl-inc", "--ttl-dec"] } [
        mode(&["--ttl-set"], 0),
        mode(&["--ttl-inc"], 1).within(1, 255),
        mode(&["--ttl-dec"], 2).within(1, 255),
    ]
    TARGET "HL" { family: Some(Ip6), size: 2, one_of: &["--hl-set", "--hl-inc", "--hl-dec"] } [
        mode(&["--hl-set"], 0),
        mode(&["--hl-inc"], 1).within(1, 255),
        mode(&["--hl-dec"], 2).within(1, 255),
    ]
    TARGET "HMARK" { size: 60, unused: &[4..16, 20..32] } [
        hmark(&["--hmark-src-prefix"], PrefixMask, 0, 0),
        hmark(&["--hmark-dst-prefix"], PrefixMask, 16, 1),
        hmark(&["--hmark-sport-mask"], BigHex(2, 4), 32, 6),
        hmark(&["--hmark-dport-mask"], BigHex(2, 4), 34, 7),
        hmark(&["--hmark-spi-mask"], BigHex(4, 8), 32, 3),
        hmark(&["--hmark-sport"], BigHex(2, 4), 36, 4),
        hmark(&["--hmark-dport"], BigHex(2, 4), 38, 5),
        hmark(&["--hmark-spi"], BigHex(4, 8), 36, 2),
        hmark(&["--hmark-proto-mask"], Hex(2, 2), 44, 8),
        hmark(&["--hmark-rnd"], Hex(4, 8), 48, 9),
        hmark(&["--hmark-mod"], Number(4), 52, 10).need().within(1, u64::MAX),
        hmark(&["--hmark-offset"], Number(4), 56, 11),
        field(&["--hmark-tuple"], Value::Code(&TUPLE), 0),
    ]
    TARGET "IDLETIMER" { revision: 1, size: 48 } [
        field(&["--timeout"], Number(4), 0).need(),
        field(&["--label"], Text(28, Quote::Never), 4).need(),
        flag(&["--alarm"], 33, 1, 1),
    ]
    TARGET "NFQUEUE" { revision: 3, size: 6, initial: &[(2, &1u16.to_ne_bytes())] } [
        field(&["--queue-num"], Number(2), 0).is(2, 2, 1),
        field(&["--queue-balance"], Value::Code(&BALANCE), 0),
        flag(&["--queue-bypass"], 4, 2, 1),
        flag(&["--queue-cpu-fanout"], 4, 2, 2),
    ]
    TARGET "SECMARK" { revision: 1, size: 264, initial: &[(0, &[1])] } [
        field(&["--selctx"], Text(256, Quote::Never), 1).need(),
    ]
    // Before Linux 5.13. The kernel stores its number of the context at 4, and lists it.
    TARGET "SECMARK" { size: 264, rounded: 4..8, initial: &[(0, &[1])] } [
        field(&["--selctx"], Text(256, Quote::Never), 8).need(),
    ]
    TARGET "SYNPROXY" { size: 4 } [
        flag(&["--sack-perm"], 0, 1, 4),
        flag(&["--timestamp"], 0, 1, 8),
        field(&["--wscale"], Number(1), 1).set(0, 1, 2),
        field(&["--mss"], Number(2), 2).set(0, 1, 1),
        flag(&["--ecn"], 0, 1, 0x10),
    ]
    TARGET "TCPMSS" { size: 2, one_of: TCPMSS, exclude: TCPMSS } [
        field(&["--set-mss"], Value::Code(&MSS), 0),
        field(&["--clamp-mss-to-pmtu"], Value::Nothing, 0).is(0, 2, CLAMP),
    ]
    TARGET "TEE" { revision: 1, size: 40 } [
        field(&["--gateway"], Address, 0).need(),
        field(&["--oif"], Text(16, Quote::Never), 16).unless(&[0]),
    ]
    TARGET "TRACE" {}
}
