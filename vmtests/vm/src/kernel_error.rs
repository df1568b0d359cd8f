//! Finds reports of errors in a kernel's log.

/// The line of a guest's log in place of records that the kernel overwrote before they were read: a warning may be among them.
pub(crate) const LOST: &str = "(some records of the kernel's log are lost)";

/// Texts that no healthy kernel prints, and their kinds.
const SIGNS: &[(&str, &str)] = &[
    ("Kernel panic - not syncing", "panic"),
    ("Oops", "oops"),
    // "general protection fault: 0000 [#1]", "int3: 0000 [#1]": every fatal exception prints its count.
    ("0000 [#", "oops"),
    ("BUG: ", "bug"),
    ("kernel BUG at ", "bug"),
    ("soft lockup", "lockup"),
    ("hard LOCKUP", "lockup"),
    ("self-detected stall", "lockup"),
    ("detected stalls on CPUs", "lockup"),
    ("blocked for more than", "hung task"),
    // Every WARN() begins with this line; the format of the WARNING line itself changed in 6.19.
    ("------------[ cut here ]------------", "warning"),
    ("WARNING: CPU: ", "warning"),
    ("WARNING: possible circular locking", "warning"),
    ("WARNING: suspicious RCU usage", "warning"),
    ("Call Trace:", "trace"),
    ("UBSAN: ", "warning"),
    ("refcount_t: ", "warning"),
    ("Out of memory: Killed process", "out of memory"),
    ("invoked oom-killer", "out of memory"),
    ("page allocation failure", "out of memory"),
    ("the agent gave up", "agent"),
    (LOST, "lost log"),
];

/// A line of a kernel's log that reports an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// One word: `panic`, `oops`, `bug`, `lockup`, `hung task`, `warning`, `trace`, `out of memory`, `agent`, `lost log`.
    pub kind: &'static str,
    /// The line.
    pub line: String,
}

/// Finds the first error in a console log or in `dmesg`.
pub fn first_kernel_error(log: &str) -> Option<KernelError> {
    log.lines().find_map(|line| {
        let (_, kind) = SIGNS.iter().find(|(sign, _)| line.contains(sign))?;
        let line = line.trim().to_owned();
        Some(KernelError { kind, line })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found() {
        for (line, kind) in [
            (
                "[    3.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
                "panic",
            ),
            ("[    1.0] Oops: 0002 [#1] PREEMPT SMP NOPTI", "oops"),
            (
                "[    1.0] general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
                "oops",
            ),
            (
                "[    1.0] BUG: kernel NULL pointer dereference, address: 0000000000000000",
                "bug",
            ),
            (
                "[    1.0] BUG: unable to handle page fault for address: ffff888000000000",
                "bug",
            ),
            (
                "[    1.0] BUG: scheduling while atomic: swapper/0/1/0x00000002",
                "bug",
            ),
            ("[    1.0] kernel BUG at mm/slub.c:379!", "bug"),
            (
                "[   30.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [test:42]",
                "bug",
            ),
            (
                "[   30.0] rcu: INFO: rcu_preempt self-detected stall on CPU",
                "lockup",
            ),
            (
                "[   30.0] INFO: task test:42 blocked for more than 120 seconds.",
                "hung task",
            ),
            ("[    1.0] ------------[ cut here ]------------", "warning"),
            (
                "[    1.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:10835 register_netdevice",
                "warning",
            ),
            ("[    1.0] Call Trace:", "trace"),
            (
                "[    1.0] refcount_t: underflow; use-after-free.",
                "warning",
            ),
            (
                "[    1.0] Out of memory: Killed process 99 (test) total-vm:1kB",
                "out of memory",
            ),
            ("weir-vm: the agent gave up: no port", "agent"),
        ] {
            let found = first_kernel_error(&format!("[    0.0] fine\n{line}\r\n[    9.0] later"))
                .expect(line);
            assert_eq!((found.kind, found.line.as_str()), (kind, line));
        }
    }

    #[test]
    fn what_a_healthy_kernel_prints_is_no_error() {
        let log = "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on\n\
             [    0.2] clocksource: timekeeping watchdog on CPU0: Marking clocksource 'tsc' as unstable\n\
             [    0.3] nf_conntrack: default automatic helper assignment has been turned off\n\
             [    0.4] debug: unmapping init memory\n\
             [    0.5] traps: test[42] general protection fault ip:55 sp:7f error:0\n\
             [    0.6] test[43]: segfault at 0 ip 0000000000000000 sp 00007ffd error 14\n";
        assert_eq!(first_kernel_error(log), None);
    }
}
