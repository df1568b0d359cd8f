//! Network and mount namespaces of a program's own.
use super::setup::mount_all;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use weir_netlink::route::Routing;

/// `ip link set lo up` in the namespace of this thread. Nothing answers on 127.0.0.1 before, and a connection to it
/// does not fail but wait.
pub(super) fn loopback_up() -> Result<(), String> {
    let up = || {
        let routing = Routing::open()?;
        let lo = routing.link("lo")?;
        routing.set_up(lo.index)
    };
    up().map_err(|e| format!("lo: {e}"))
}

/// `unshare -nm` for this thread and what it starts; `lo` is up, and `/sys` shows the new network namespace.
pub(super) fn isolate() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|e| format!("unshare -nm: {e}"))?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|e| format!("mount --make-rprivate /: {e}"))?;
    umount2("/sys", MntFlags::MNT_DETACH).map_err(|e| format!("umount /sys: {e}"))?;
    let mut notes = Vec::new();
    mount_all("/sys", &mut notes);
    if let Some(note) = notes.into_iter().next() {
        return Err(note);
    }
    loopback_up()
}
