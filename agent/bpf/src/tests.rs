use super::*;
use std::os::fd::AsFd;

#[test]
fn names_are_those_that_the_kernel_accepts() {
    assert_eq!(&object_name("weir_e.1").unwrap()[..9], b"weir_e.1\0");
    assert_eq!(
        name_of(&object_name("fifteen_letters").unwrap()),
        "fifteen_letters"
    );
    for name in ["sixteen_letters_", "a-b", "a b", "ä"] {
        assert!(object_name(name).is_err(), "{name}");
    }
}

/// Lengths are checked before the kernel reads or writes memory of ours.
#[test]
fn entries_of_a_map() {
    let spec = MapSpec {
        kind: BPF_MAP_TYPE_HASH,
        key_size: 4,
        value_size: 8,
        max_entries: 2,
        flags: 0,
        name: "weir_test",
        describe: false,
    };
    let map = match Map::new(&spec) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            println!("skipped: {e}");
            return;
        }
        made => made.unwrap(),
    };
    let info = map.info().unwrap();
    assert_eq!(
        (info.key_size, info.value_size, info.max_entries),
        (4, 8, 2)
    );
    assert_eq!(info.name, "weir_test");
    assert_eq!(map.get(&[0; 4]).unwrap(), None);
    assert!(map.add(&[1; 4], &[7; 8]).unwrap() && !map.add(&[1; 4], &[8; 8]).unwrap());
    map.set(&[2; 4], &[9; 8]).unwrap();
    assert_eq!(map.get(&[1; 4]).unwrap(), Some(vec![7; 8]));
    let full = map.set(&[3; 4], &[0; 8]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::E2BIG));
    let first = map.next_key(None).unwrap().unwrap();
    let second = map.next_key(Some(&first)).unwrap().unwrap();
    assert_ne!(first, second);
    assert_eq!(map.next_key(Some(&second)).unwrap(), None);
    assert!(map.delete(&first).unwrap() && !map.delete(&first).unwrap());
    for (key, value) in [(&[1; 3][..], &[0; 8][..]), (&[1; 4], &[0; 9])] {
        let error = map.set(key, value).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
    assert!(
        map.get(&[1; 5]).is_err() && map.delete(&[]).is_err() && map.next_key(Some(&[1])).is_err()
    );
    let again = Map::by_id(info.id).unwrap().unwrap();
    assert_eq!(again.info().unwrap(), info);
    assert_eq!(again.get(&second).unwrap().unwrap().len(), 8);
    // Values of this type are longer than the kernel states: they are read as sums only.
    let per_cpu = Map::create(BPF_MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, 0).unwrap();
    assert!(per_cpu.get(&[0; 4]).is_err() && per_cpu.set(&[0; 4], &[0; 8]).is_err());
    assert!(per_cpu.entries(1).is_err() && per_cpu.set_all(&[(vec![0; 4], vec![0; 8])]).is_err());
    assert_eq!(per_cpu.sum(&[0; 4]).unwrap(), Some(0));
    assert_eq!(per_cpu.sum(&1_u32.to_ne_bytes()).unwrap(), None);
    assert!(per_cpu.sum(&[0; 8]).is_err() && map.sum(&[1; 4]).is_err());
    let wide = Map::create(BPF_MAP_TYPE_PERCPU_ARRAY, 4, 16, 1, 0).unwrap();
    assert!(wide.sum(&[0; 4]).is_err());
    let storage = MapSpec {
        kind: BPF_MAP_TYPE_SK_STORAGE,
        value_size: 4,
        max_entries: 0,
        flags: BPF_F_NO_PREALLOC,
        describe: true,
        ..spec
    };
    assert_eq!(
        Map::new(&storage).unwrap().info().unwrap().kind,
        storage.kind
    );
}

/// Of every type that has them; one of 10,000 entries takes several calls.
#[test]
fn many_entries_of_a_map() {
    let types = [
        (BPF_MAP_TYPE_HASH, 0),
        (BPF_MAP_TYPE_HASH, BPF_F_NO_PREALLOC),
        (BPF_MAP_TYPE_ARRAY, 0),
        (BPF_MAP_TYPE_LRU_HASH, 0),
        (BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC),
    ];
    for (kind, flags) in types {
        let key_size = if kind == BPF_MAP_TYPE_LPM_TRIE { 20 } else { 4 };
        let map = match Map::create(kind, key_size, 8, 10_000, flags) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        // A key of a trie is the length of its prefix in bits, and an address.
        let entry = |number: u32| {
            let mut key = number.to_ne_bytes().to_vec();
            if key_size > 4 {
                key = [&128_u32.to_ne_bytes()[..], &[0; 12], &key].concat();
            }
            (key, u64::from(number).to_ne_bytes().to_vec())
        };
        let wanted: std::collections::BTreeSet<Entry> = (0..10_000).map(entry).collect();
        let list: Vec<Entry> = wanted.iter().cloned().collect();
        map.set_all(&list).unwrap();
        let there = map.entries(10_000).unwrap();
        let distinct: std::collections::BTreeSet<Entry> = there.iter().cloned().collect();
        let mut singly = map.entries_singly(10_000).unwrap();
        let mut all = there.clone();
        singly.sort();
        all.sort();
        assert_eq!(singly, all, "{kind}");
        // A full map of this type evicts entries before it has so many.
        let is_exact = kind != BPF_MAP_TYPE_LRU_HASH;
        assert!(distinct.is_subset(&wanted) && distinct.len() == there.len());
        assert!(!is_exact || distinct == wanted, "{kind}: {}", there.len());
        let few = map.entries(5000).unwrap_err();
        assert_eq!(few.raw_os_error(), Some(libc::E2BIG), "{kind}");
        let (done, error) = map
            .set_all(&[list[0].clone(), (vec![1], vec![2])])
            .unwrap_err();
        assert_eq!((done, error.raw_os_error()), (0, Some(libc::EINVAL)));
        if kind == BPF_MAP_TYPE_HASH {
            let more = [
                list[1].clone(),
                list[2].clone(),
                entry(10_000),
                entry(10_001),
            ];
            let (done, error) = map.set_all(&more).unwrap_err();
            assert_eq!((done, error.raw_os_error()), (2, Some(libc::E2BIG)));
        }
    }
}

/// The kernel's stock of such entries is smaller than this, and is filled up in the background.
#[test]
fn more_entries_than_the_kernel_has_in_stock() {
    for _ in 0..4 {
        let map = match Map::create(BPF_MAP_TYPE_HASH, 16, 4, 65_536, BPF_F_NO_PREALLOC) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                println!("skipped: {e}");
                return;
            }
            made => made.unwrap(),
        };
        let entry = |number: u32| ([number.to_ne_bytes(); 4].concat(), vec![0; 4]);
        let list: Vec<Entry> = (0..65_536).map(entry).collect();
        map.set_all(&list).unwrap();
        assert_eq!(map.entries(65_536).unwrap().len(), list.len());
    }
}

#[test]
fn numbers_of_cpus() {
    for (list, count) in [("0\n", 1), ("0-3\n", 4), ("0-3,8-11", 12), ("0,2", 3)] {
        assert_eq!(map::last_cpu(list), Some(count), "{list}");
    }
    for list in ["", "\n", "0-", "all", "0-99999999", "-"] {
        assert_eq!(map::last_cpu(list), None, "{list:?}");
    }
}

#[test]
fn a_refused_program_has_the_log_of_the_verifier() {
    // exit, without a value in r0
    let spec = ProgramSpec {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        attach_type: 0,
        name: "weir_test",
        license: c"Apache-2.0",
        instructions: &[[0x95, 0, 0, 0, 0, 0, 0, 0]],
    };
    let error = Program::load_with_log(&spec).unwrap_err();
    if error.error.raw_os_error() == Some(libc::EPERM) {
        println!("skipped: {error}");
        return;
    }
    assert!(error.log.contains("R0 !read_ok"), "{error:?}");
    assert!(error.to_string().contains("R0 !read_ok"), "{error}");
    // r0 = 2; exit
    let drop = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let drop = if cfg!(target_endian = "little") {
        drop
    } else {
        [[0xb7, 0, 0, 0, 0, 0, 0, 2], drop[1]]
    };
    let program = Program::load_with_log(&ProgramSpec {
        instructions: &drop,
        ..spec
    })
    .unwrap();
    let info = program.info().unwrap();
    assert_eq!(
        (info.name.as_str(), info.kind, info.maps.len()),
        ("weir_test", 3, 0)
    );
    assert_eq!(
        Program::by_id(info.id).unwrap().unwrap().info().unwrap(),
        info
    );
    let packet = [0x45; 60];
    assert_eq!(program.test_run(&packet).unwrap(), (2, packet.to_vec()));
    assert!(program.test_run(&[0; 5000]).is_err());
    assert!(links().is_ok());
    let error = pin(program.as_fd(), Path::new("/proc/weir")).unwrap_err();
    assert!(error.raw_os_error().is_some(), "{error}");
}
