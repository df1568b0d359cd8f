//! The environment of a program in a guest, and its results.
use super::*;
use std::time::{Duration, Instant, SystemTime};

#[test]
fn output_status_signal_and_environment_come_back() {
    let Some(mut m) = start() else { return };
    let (ending, out, err) = run(
        &mut m,
        &sh("echo $GREETING from $(pwd) >&2; cat /proc/version; exit 7"),
    );
    assert_eq!(ending, Ending::Status(7));
    assert!(out.starts_with("Linux version "), "{out}");
    assert_eq!(err, "hello from /made/on/demand\n");
    assert_eq!(run(&mut m, &sh("kill -SEGV $$")).0, Ending::Signal(11));
    let (ending, out, _) = run(
        &mut m,
        &sh("dd if=/dev/zero bs=1024 count=3000 2>/dev/null"),
    );
    assert_eq!((ending, out.len()), (Ending::Status(0), 3000 * 1024));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(mut m) = start() else { return };
    let mut missing = sh("");
    missing.argv = vec!["/bin/nonexistent".into()];
    let e = m.run(&missing, &mut |_, _| {}).unwrap_err();
    assert!(
        e.input.contains("/bin/nonexistent") && e.reason.contains("No such file"),
        "{e}"
    );
    // The guest remains usable.
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

#[test]
fn a_deadline_ends_the_program_and_all_that_it_started() {
    let Some(mut m) = start() else { return };
    let mut slow = sh("sleep 1000 & echo started; sleep 1000");
    // Long enough for the program to begin, also in an emulated guest on a busy machine.
    slow.deadline_ms = 5000;
    let start = Instant::now();
    let (ending, out, _) = run(&mut m, &slow);
    assert_eq!((ending, out.as_str()), (Ending::TimedOut, "started\n"));
    assert!(start.elapsed() < Duration::from_secs(60));
    // An orphan that keeps the output open does not delay the result, and is killed.
    let orphan = sh("sleep 1000 & exit 3");
    assert_eq!(run(&mut m, &orphan).0, Ending::Status(3));
    let (_, out, _) = run(&mut m, &sh("cat /proc/[0-9]*/comm"));
    assert!(!out.contains("sleep"), "{out}");
}

#[test]
fn files_come_out() {
    let Some(mut m) = start() else { return };
    // The file needs more than one piece.
    let script =
        "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); echo line $i; done >/file; cat /file";
    let (ending, out, _) = run(&mut m, &sh(script));
    assert_eq!((ending, out.len()), (Ending::Status(0), 318_894));
    assert_eq!(m.get(Path::new("/file")).unwrap(), out.as_bytes());
    let e = m.get(Path::new("/nonexistent")).unwrap_err();
    assert!(e.reason.contains("/nonexistent"), "{e}");
}

#[test]
fn copies_have_the_time_of_now_and_random_numbers_of_their_own() {
    let Some(mut one) = start() else { return };
    let mut two = start().unwrap();
    let script = sh("date +%s; cat /proc/sys/kernel/random/uuid");
    let draw = |m: &mut Machine| {
        let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let before = now();
        let (_, out, _) = run(m, &script);
        let (seconds, uuid) = out.split_once('\n').unwrap();
        let meanwhile = before.saturating_sub(3)..=now() + 3;
        let is_now = meanwhile.contains(&seconds.parse().unwrap());
        assert!(is_now, "{seconds}, not in {meanwhile:?}");
        uuid.to_owned()
    };
    let drawn = [draw(&mut one), draw(&mut two)];
    assert_ne!(drawn[0], drawn[1]);
    // Restored machines do not see each other's writes.
    let cat = sh("cat /dev/null");
    run(&mut one, &sh("echo gone >/bin/cat"));
    assert_ne!(run(&mut one, &cat).0, Ending::Status(0));
    assert_eq!(run(&mut two, &cat).0, Ending::Status(0));
    drop((one, two));
    assert_eq!(run(&mut start().unwrap(), &cat).0, Ending::Status(0));
}
