//! Guests that die, hang, report an error, or never start.
use super::*;
use std::time::{Duration, Instant};

#[test]
fn a_panic_is_an_error_with_the_console() {
    let Some(mut m) = start() else { return };
    let start = Instant::now();
    let e = m
        .run(&sh("echo c >/proc/sysrq-trigger"), &mut |_, _| {})
        .unwrap_err();
    assert!(
        e.reason
            .contains("Kernel panic - not syncing: sysrq triggered crash"),
        "{e}"
    );
    assert!(e.reason.contains("without a verdict"), "{e}");
    assert!(
        e.remedy.contains("--- console") && e.remedy.contains("Call Trace"),
        "{e}"
    );
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "a panic is not waited for"
    );
}

#[test]
fn a_warning_is_an_error_though_the_program_is_happy() {
    let Some(mut m) = start() else { return };
    let script = sh("echo '------------[ cut here ]------------' >/dev/kmsg");
    let outcome = m.run(&script, &mut |_, _| {}).unwrap();
    assert_eq!(outcome.exit.ending, Ending::Status(0));
    assert_eq!(outcome.kernel_error.unwrap().kind, "warning");
    // The error belongs to that program, not to the next one.
    assert_eq!(run(&mut m, &sh("exit 0")).0, Ending::Status(0));
}

/// The kernel keeps the last 128 KiB of its log, and the agent the first 400 KiB. The lines beyond them fit into the kernel's buffer,
/// because the agent searches each of them, which a program may outrun.
#[test]
fn a_warning_is_an_error_though_the_log_is_long() {
    let warning = "echo '------------[ cut here ]------------'\n";
    let words = "word ".repeat(20);
    let long = format!("n=0; while [ $n -lt 4000 ]; do echo {words}; n=$((n+1)); done\n");
    // The kernel drops most of what a program writes to its log, unless it is told otherwise.
    let all = "echo on >/proc/sys/kernel/printk_devkmsg; exec >/dev/kmsg\n";
    for script in [[warning, &long], [&long, warning]] {
        let Some(mut m) = start() else { return };
        let script = format!("{all}{}", script.concat());
        let outcome = m.run(&sh(&script), &mut |_, _| {}).unwrap();
        assert_eq!(outcome.exit.ending, Ending::Status(0));
        let kind = outcome.kernel_error.unwrap().kind;
        // On a busy machine the program outruns the agent, which is an error of its own.
        let log = &outcome.exit.kernel_log;
        if log.contains("records of the kernel's log are lost") {
            assert!(["warning", "lost log"].contains(&kind), "{kind}");
        } else {
            assert!(log.len() >= 400 << 10);
            assert_eq!(kind, "warning");
        }
    }
}

#[test]
fn a_guest_that_hangs_is_given_up_at_the_hosts_deadline() {
    let Some(kernel) = kernel() else { return };
    let mut options = options();
    options.grace = Duration::from_millis(500);
    let mut m = Machine::start(&cache(), &kernel, &payload(), &options).unwrap();
    let pid = nix::unistd::Pid::from_raw(m.pid().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut run = sh("exit 0");
    run.deadline_ms = 100;
    let e = m.run(&run, &mut |_, _| {}).unwrap_err();
    assert!(e.reason.contains("it hangs"), "{e}");
    drop(m);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_kernel_without_virtio_says_what_it_lacks() {
    let Some(mut kernel) = kernel() else { return };
    let before = kernel.modules.len();
    kernel.modules.retain(|m| m.name != "virtio_console");
    if kernel.modules.len() == before {
        println!("skip: kernel {} has virtio built in", kernel.name);
        return;
    }
    let private = Private::new("novirtio");
    let mut options = options();
    options.is_saved = false;
    let e = Machine::start(&private.0, &kernel, &payload(), &options).unwrap_err();
    assert!(e.to_string().contains("no virtio-serial port"), "{e}");
    assert!(e.remedy.contains("CONFIG_VIRTIO_CONSOLE"), "{e}");
}

#[test]
fn a_file_that_is_no_kernel_is_an_error() {
    let Some(mut kernel) = kernel() else { return };
    kernel.image = "/etc/passwd".into();
    let private = Private::new("nokernel");
    let e = Machine::start(&private.0, &kernel, &payload(), &options()).unwrap_err();
    assert!(e.reason.contains("QEMU says"), "{e}");
    // Neither a partial state nor a scratch directory is left.
    assert!(!fs::read_dir(private.0.scratches()).unwrap().any(|_| true));
}
