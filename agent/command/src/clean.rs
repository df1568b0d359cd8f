//! `weir clean`

use super::args::Target;
use super::failure::Failure;
use super::report::{NO_ENGINE, lines, report};
use super::{ambient, ambient_ebpf};

/// `weir clean`
pub(super) fn clean(target: &Target, json: bool) -> Result<u8, Failure> {
    let sandbox = ambient::known(target, |e| Failure::failed(e))?;
    let lock = ambient::alone(&sandbox, false)?;
    let detached = ambient_ebpf::clean(&sandbox)?;
    let changes = sandbox.clean(None);
    let changes = changes.map_err(|e| ambient_ebpf::after(&detached, e))?;
    drop(lock);
    let changes = lines(&detached, &changes);
    report(&changes, &sandbox, NO_ENGINE, json, false)
}
