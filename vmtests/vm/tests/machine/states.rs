//! Saved states that are damaged, and concurrent requests for one state.
use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use weir_vm::Origin;

#[test]
fn a_damaged_state_is_made_anew() {
    if kernel().is_none() {
        return;
    }
    let private = Private::new("damaged");
    assert_eq!(private.start().origin, Origin::Saved);
    assert_eq!(private.start().origin, Origin::Restored);
    // A truncated file is detected at once.
    File::options()
        .write(true)
        .open(private.state_file("memory"))
        .unwrap()
        .set_len(4096)
        .unwrap();
    let m = private.start();
    assert!(
        matches!(&m.origin, Origin::Renewed(why) if why.contains("memory has 4096")),
        "{:?}",
        m.origin
    );
    // A file of the right size with wrong content: the guest does not answer.
    let memory = File::options()
        .write(true)
        .open(private.state_file("memory"))
        .unwrap();
    let size = memory.metadata().unwrap().len();
    memory.set_len(0).unwrap();
    memory.set_len(size).unwrap();
    memory.write_all_at(&[0xff; 4096], 0).unwrap();
    let mut m = private.start();
    assert!(matches!(&m.origin, Origin::Renewed(_)), "{:?}", m.origin);
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

#[test]
fn two_runs_at_once_save_one_state() {
    if kernel().is_none() {
        return;
    }
    let private = Private::new("twice");
    let origins: Vec<Origin> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| private.start().origin.clone()))
            .collect();
        starts.into_iter().map(|s| s.join().unwrap()).collect()
    });
    assert_eq!(
        origins.iter().filter(|o| **o == Origin::Saved).count(),
        1,
        "{origins:?}"
    );
    assert_eq!(
        origins.iter().filter(|o| **o == Origin::Restored).count(),
        2,
        "{origins:?}"
    );
}
