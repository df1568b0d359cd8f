use super::*;
use crate::asm::{Alu, Assembler, Code, Helper, MapRef, Reg, Size};
use Reg::{R1, R2, R3, R4, R10};
use std::time::Duration;
use weir_bpf::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF, Map, Program, Ring};

/// Writes a record of so many bytes: a number, and zeros.
fn writes(length: i16, number: i32) -> Code {
    let mut asm = Assembler::new();
    for at in (8..=length).step_by(8) {
        asm.store(Size::D, R10, -at, 0);
    }
    asm.store(Size::W, R10, -length, number);
    asm.map(R1, MapRef(0));
    asm.mov(R2, R10);
    asm.alu(Alu::Add, R2, -i32::from(length));
    asm.mov(R3, i32::from(length));
    asm.mov(R4, 0);
    asm.call(Helper::RingbufOutput);
    asm.exit();
    asm.finish().unwrap()
}

fn ring() -> Option<Map> {
    match Map::create(BPF_MAP_TYPE_RINGBUF, 0, 0, 64 << 10, 0) {
        Ok(map) => Some(map),
        // EINVAL: before 5.8.
        Err(e) if e.raw_os_error() == Some(22) => {
            weir_testing::lacks::skip("map ringbuf", "5.8", e);
            None
        }
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn run(program: &Program) -> i32 {
    program.test_run(&[0; 60]).unwrap().0.cast_signed()
}

/// Records come out as they went in, whatever their lengths, many times around the ring; a full ring takes no more.
#[test]
fn records_are_read_in_their_order() {
    let Some(map) = ring() else { return };
    let load = |length, number| {
        let code = writes(length, number);
        code.load("weir_test", &[&map]).unwrap()
    };
    let lengths = [8, 24, 88, 168];
    let programs: Vec<Program> = (0..).zip(lengths).map(|(n, l)| load(l, n)).collect();
    let mut ring = Ring::of(Map::by_id(map.info().unwrap().id).unwrap().unwrap()).unwrap();
    assert!(!ring.wait(Duration::ZERO).unwrap());
    let mut read = |most| {
        let mut records = Vec::new();
        let taken = ring.read(most, |record| records.push(record.to_vec()));
        assert_eq!(taken.unwrap(), records.len());
        records
    };
    assert!(read(9).is_empty());
    for _ in 0..400 {
        for program in &programs {
            assert_eq!(run(program), 0);
        }
        let all = read(3).into_iter().chain(read(9));
        for (record, (number, length)) in all.zip((0_u8..).zip(lengths)) {
            let mut expected = vec![0; usize::try_from(length).unwrap()];
            expected[0] = number;
            assert_eq!(record, expected);
        }
        assert!(read(9).is_empty());
    }
    let full = (0..2000).position(|_| run(&programs[2]) != 0).unwrap();
    assert_eq!(full, (64 << 10) / 96);
    assert_eq!(read(2000).len(), full);
    assert_eq!(run(&programs[2]), 0);
    assert_eq!(read(9).len(), 1);
}

#[test]
fn only_a_ring_is_read_as_one() {
    let Ok(map) = Map::create(BPF_MAP_TYPE_ARRAY, 4, 4096, 1, 0) else {
        return;
    };
    assert_eq!(Ring::of(map).unwrap_err().raw_os_error(), Some(22));
}

/// Another thread waits, as long as nothing is written.
#[test]
fn waiting_ends_with_a_record() {
    let Some(map) = ring() else { return };
    let program = writes(8, 7).load("weir_test", &[&map]).unwrap();
    let ring = Ring::of(map).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || ring.wait(Duration::from_secs(20)).unwrap());
        assert_eq!(run(&program), 0);
        assert!(waits.join().unwrap());
    });
}

fn record(reason: i32, role: char, packet: &[u8]) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(4_026_531_840_u64.to_ne_bytes());
    record.extend(reason.to_ne_bytes());
    record.extend(7_u32.to_ne_bytes());
    record.extend(u32::from(role).to_ne_bytes());
    record.extend(74_u32.to_ne_bytes());
    let mut there = packet.to_vec();
    there.resize(60, 0);
    record.extend(there);
    record.extend(u32::try_from(packet.len()).unwrap().to_ne_bytes());
    record
}

fn v4(options: usize, offset: u16, protocol: u8) -> Vec<u8> {
    let mut packet = vec![0; 20 + options];
    packet[0] = 0x45 + u8::try_from(options / 4).unwrap();
    packet[6..8].copy_from_slice(&offset.to_be_bytes());
    packet[9] = protocol;
    packet[12..20].copy_from_slice(&[10, 0, 0, 9, 192, 0, 2, 7]);
    packet.extend([0x9c, 0x40, 0x1f, 0x90]);
    packet
}

#[test]
fn events_are_told_in_words() {
    let says = |record: &[u8]| Event::of(record).unwrap().to_string();
    let no_proxy = Count::NoProxy as i32;
    assert_eq!(
        says(&record(no_proxy, 'o', &v4(0, 0, 6))),
        "10.0.0.9:40000 to 192.0.2.7:8080 was dropped: no proxy of the node is ready"
    );
    assert_eq!(
        says(&record(Pass::Excluded as i32, 't', &v4(8, 0, 6))),
        "10.0.0.9:40000 to 192.0.2.7:8080 was passed: the peer or the port is excluded"
    );
    // What is no first fragment, and no TCP or UDP, has no ports.
    for packet in [v4(0, 5, 6), v4(0, 0, 1)] {
        assert_eq!(
            says(&record(Count::Fragment as i32, 'e', &packet)),
            "10.0.0.9 to 192.0.2.7 was dropped: it is a fragment of TCP or of a DNS query"
        );
    }
    let mut v6 = vec![0; 44];
    (v6[0], v6[6]) = (0x60, 17);
    (v6[8], v6[23], v6[24], v6[39]) = (0xfd, 9, 0xfd, 7);
    v6[40..].copy_from_slice(&[0, 80, 0, 81]);
    assert_eq!(
        says(&record(Count::Inbound as i32, 'i', &v6)),
        "[fd00::9]:80 to [fd00::7]:81 was captured: inbound connection"
    );
    assert_eq!(
        says(&record(Count::Malformed as i32, 'e', &[])),
        "a frame of 74 bytes was dropped: its headers cannot be read"
    );
}

#[test]
fn the_end_of_the_pod_is_known_by_the_program() {
    let own = |reason, role| {
        let event = Event::of(&record(reason, role, &v4(0, 0, 6))).unwrap();
        event.own().unwrap().address.to_string()
    };
    let (outbound, inbound) = ("10.0.0.9", "192.0.2.7");
    for role in ['e', 'g', 'l', 'o', 'f'] {
        assert_eq!(own(Count::NoProxy as i32, role), outbound, "{role}");
    }
    for role in ['i', 't'] {
        assert_eq!(own(Count::NoProxy as i32, role), inbound, "{role}");
    }
    assert_eq!(own(Count::NoOutboundListener as i32, 'p'), outbound);
    assert_eq!(own(Count::NoInboundListener as i32, 'p'), inbound);
}

/// Records of another version of weir, and packets that end anywhere.
#[test]
fn any_record_is_an_event_or_none() {
    let whole = record(Count::NoProxy as i32, 'o', &v4(0, 0, 6));
    for length in 0..whole.len() {
        assert_eq!(Event::of(&whole[..length]), None);
    }
    assert_eq!(Event::of(&[whole.clone(), vec![0]].concat()), None);
    assert_eq!(Event::of(&record(99, 'o', &[])), None);
    let mut longer = whole;
    longer[84..88].copy_from_slice(&61_u32.to_ne_bytes());
    assert_eq!(Event::of(&longer), None);
    for packet in [v4(0, 0, 6), vec![0x4f; 60], vec![0x60; 60], vec![0xff; 60]] {
        for length in 0..packet.len() {
            drop(
                Event::of(&record(0, 'e', &packet[..length]))
                    .unwrap()
                    .to_string(),
            );
        }
    }
}

#[test]
fn every_reason_has_one_number_and_one_word() {
    for (at, row) in REASONS.iter().enumerate() {
        assert!((0..64).contains(&row.0));
        for other in &REASONS[..at] {
            assert!(row.0 != other.0 && row.2 != other.2, "{row:?} {other:?}");
        }
    }
}
