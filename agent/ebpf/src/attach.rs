//! Programs of a pod: their names, loading, and the links that attach them.

use crate::asm::Code;
use crate::inpod::{Role, Traits, assemble};
use crate::maps::Maps;
use crate::pins;
use crate::plan::{Attachment, Desired, Direction, Held, Hook};
use crate::{failed, libc_errno};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;
use weir_bpf::{
    Anchor, BPF_TCX_EGRESS, BPF_TCX_INGRESS, Link, LinkTarget, Map, Pinned, Program, open_pin, pin,
};
use weir_netlink::{Error, Result};

/// Digits of a digest in the name of a program, which has at most 15 characters.
const DIGEST_BITS: u32 = 36;

/// `weir_e0123456789`: the role, and a digest of the instructions.
pub(crate) fn program_name(role: Role, traits: &Traits) -> Result<String> {
    let code = assemble(role, traits).map_err(|e| mistake(role, &e))?;
    Ok(name_of(role.letter(), &code))
}

pub(crate) fn name_of(letter: char, code: &Code) -> String {
    let digest = code.digest() & ((1 << DIGEST_BITS) - 1);
    format!("weir_{letter}{digest:09x}")
}

pub(crate) fn mistake(role: impl fmt::Debug, error: &crate::asm::AsmError) -> Error {
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

/// The pinned links of a folder, and whether each is still attached to one of these interfaces.
pub(crate) fn held(folder: &Path, is_there: impl Fn(u32) -> bool) -> Result<BTreeMap<Hook, Held>> {
    let mut held = BTreeMap::new();
    for (path, link) in pins::links(folder)? {
        let object = path.display().to_string();
        let info = link.info().map_err(|e| failed("read", &object, &e))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(hook) = name.and_then(hook_of) else {
            continue;
        };
        let program = Program::by_id(info.program).map_err(|e| failed("open", &object, &e))?;
        let program = program.map(|program| program.info()).transpose();
        let program = program.map_err(|e| failed("read", &object, &e))?;
        let is_its = info.target == LinkTarget::Interface(hook.0, hook.1.attach_type());
        let is_attached = is_there(hook.0) && is_its && is_listed(hook, info.id)?;
        let program = program.map_or_else(String::new, |program| program.name);
        held.insert(
            hook,
            Held {
                program,
                is_attached,
            },
        );
    }
    Ok(held)
}

/// The hook of a pin of this name: [`crate::plan::pin_name`].
fn hook_of(name: &str) -> Option<Hook> {
    let (direction, index) = name.split_once('_')?;
    let direction = match direction {
        "ingress" => Direction::Ingress,
        "egress" => Direction::Egress,
        _ => return None,
    };
    Some((index.parse().ok()?, direction))
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
    load_code(&code, &a.program, &maps.list())
}

pub(crate) fn load_code(code: &Code, name: &str, maps: &[&Map]) -> Result<Program> {
    code.load(name, maps).map_err(|refused| {
        let object = format!("program {name}");
        match refused.log.is_empty() {
            true => failed("load", &object, &refused.error),
            false => Error::refused("load", object, refused.to_string()),
        }
    })
}

/// Before all other programs of the hook: one that consumes or redirects packets would let them escape.
pub(crate) fn attach(
    object: &str,
    (index, direction): Hook,
    program: &Program,
    path: &Path,
) -> Result<()> {
    let link = Link::to_interface(program, index, direction.attach_type(), Anchor::First);
    let link = link.map_err(|e| failed("attach", object, &e))?;
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
