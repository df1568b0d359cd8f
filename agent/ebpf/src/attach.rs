//! Programs of a pod: their names, loading, and the links that attach them.

use crate::inpod::{Role, Traits, assemble};
use crate::maps::Maps;
use crate::plan::{Attachment, Desired, Direction, Hook};
use crate::{failed, libc_errno};
use std::os::fd::AsFd;
use std::path::Path;
use weir_bpf::{Anchor, BPF_TCX_EGRESS, BPF_TCX_INGRESS, Link, Pinned, Program, open_pin, pin};
use weir_netlink::{Error, Result};

/// Digits of a digest in the name of a program, which has at most 15 characters.
const DIGEST_BITS: u32 = 36;

/// `weir_e0123456789`: the role, and a digest of the instructions.
pub(crate) fn program_name(role: Role, traits: &Traits) -> Result<String> {
    let code = assemble(role, traits).map_err(|e| mistake(role, &e))?;
    let digest = code.digest() & ((1 << DIGEST_BITS) - 1);
    Ok(format!("weir_{}{digest:09x}", role.letter()))
}

pub(crate) fn mistake(role: Role, error: &crate::asm::AsmError) -> Error {
    Error::refused(
        "assemble",
        format!("the program for {role:?}"),
        error.to_string(),
    )
}

impl Direction {
    pub(crate) fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => BPF_TCX_INGRESS,
            Self::Egress => BPF_TCX_EGRESS,
        }
    }
}

/// Whether a link with this id is at the hook.
pub(crate) fn is_listed((index, direction): Hook, id: u32) -> Result<bool> {
    let object = format!("the programs at {direction} of interface {index}");
    match weir_bpf::attached(index, direction.attach_type()) {
        Ok(list) => Ok(list.iter().any(|attached| attached.link == id)),
        Err(e) if e.raw_os_error() == Some(libc_errno::EINVAL) => Err(Error::unsupported(
            "list",
            object,
            "tcx links need Linux 6.6; use netfilter (--engine auto)",
        )),
        Err(e) => Err(failed("list", &object, &e)),
    }
}

pub(crate) fn load(a: &Attachment, desired: &Desired, maps: &Maps) -> Result<Program> {
    let code = assemble(a.role, &desired.traits).map_err(|e| mistake(a.role, &e))?;
    code.load(&a.program, &maps.list()).map_err(|refused| {
        let error = failed("load", &format!("program {}", a.program), &refused.error);
        match refused.log.is_empty() {
            true => error,
            false => Error::refused(
                "load",
                format!("program {}", a.program),
                refused.to_string(),
            ),
        }
    })
}

/// Before all other programs of the hook: one that consumes or redirects packets would let them escape.
pub(crate) fn attach(a: &Attachment, program: &Program, path: &Path) -> Result<()> {
    let object = a.to_string();
    let (index, direction) = a.hook;
    let link = Link::to_interface(program, index, direction.attach_type(), Anchor::First);
    let link = link.map_err(|e| failed("attach", &object, &e))?;
    pin(link.as_fd(), path).map_err(|e| failed("pin", &path.display().to_string(), &e))
}

pub(crate) fn replace(path: &Path, program: &Program) -> Result<()> {
    let object = path.display().to_string();
    match open_pin(path) {
        Ok(Pinned::Link(link)) => link
            .replace(program, None)
            .map_err(|e| failed("replace", &object, &e)),
        Ok(_) => Err(Error::refused(
            "replace",
            object,
            "it is not the pin of a link",
        )),
        Err(e) => Err(failed("open", &object, &e)),
    }
}
