//! A QEMU that dies with us, however we die.
//!
//! The kernel kills a process when its parent ends if it asked for that (`PR_SET_PDEATHSIG`), and execve(2) keeps the
//! wish. Only the process itself can ask, so QEMU is started through this program, called by another name.
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `argv[1]` of the program when it is to become QEMU; then come the parent's process id, QEMU and its arguments.
pub(crate) const LAUNCH: &str = "launch-qemu";

/// When the arguments say so, becomes QEMU and does not return; else does nothing.
pub(crate) fn become_qemu_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new(LAUNCH)) {
        let arguments: Vec<OsString> = arguments.collect();
        let reason = become_qemu(&arguments);
        eprintln!("{} {LAUNCH}: {reason}", crate::program::name());
        std::process::exit(3);
    }
}

fn become_qemu(arguments: &[OsString]) -> String {
    let [parent, qemu, rest @ ..] = arguments else {
        return "to be called by the program itself".into();
    };
    if let Err(reason) = crate::process::die_with(parent) {
        return reason;
    }
    let e = Command::new(qemu).args(rest).exec();
    format!("{}: {e}", qemu.display())
}
