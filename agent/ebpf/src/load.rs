//! Names of programs, and loading.

use crate::asm::Code;
use crate::change::Attachment;
use crate::failed;
use crate::inpod::{Role, Traits, assemble};
use crate::maps::Maps;
use crate::plan::Desired;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_bpf::{Map, Program};
use weir_netlink::{Error, Result};

/// Bits of the digest in the name of a program, which has at most 15 characters.
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

/// True if a name has the form of [`name_of`].
pub(crate) fn has_digest(name: &str) -> bool {
    let digest = name.strip_prefix("weir_").and_then(|rest| rest.get(1..));
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    digest.is_some_and(|digest| digest.len() == 9 && digest.bytes().all(is_digit))
}

pub(crate) fn mistake(role: impl fmt::Debug, error: &crate::asm::AsmError) -> Error {
    Error::refused(
        "assemble",
        format!("the program for {role:?}"),
        error.to_string(),
    )
}

pub(crate) fn load(a: &Attachment, desired: &Desired, maps: &Maps) -> Result<Program> {
    let code = assemble(a.role, &desired.traits).map_err(|e| mistake(a.role, &e))?;
    load_code(&code, &a.program, &maps.list())
}

pub(crate) fn load_code(code: &Code, name: &str, maps: &[&Map]) -> Result<Program> {
    crate::allow_locked_memory();
    let loaded = code.load(name, maps).map_err(|refused| {
        let object = format!("program {name}");
        match refused.log.is_empty() {
            true => failed("load", &object, &refused.error),
            false => Error::refused("load", object, refused.to_string()),
        }
    });
    let program = loaded?;
    remember(code, &program)?;
    Ok(program)
}

/// The kernel's digest of a program's instructions, without the addresses of maps.
pub(crate) type Tag = [u8; 8];

/// The tags of weir's programs, by [`Code::digest`], for the life of this process.
static TAGS: Mutex<BTreeMap<u64, Tag>> = Mutex::new(BTreeMap::new());

fn tags() -> MutexGuard<'static, BTreeMap<u64, Tag>> {
    TAGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(code: &Code, program: &Program) -> Result<Tag> {
    let info = program.info();
    let info = info.map_err(|e| failed("read", "a program of weir", &e))?;
    tags().insert(code.digest(), info.tag);
    Ok(info.tag)
}

/// Returns the tag that this kernel gives to the code. Every writer may give its program the name of weir's, but a tag follows from
/// the instructions. Kernels compute it in different ways, so the code is loaded with maps of the same form, unless this process
/// has done so.
///
/// # Errors
/// The kernel refuses the code, so it is unknown whether an attached program is weir's.
pub(crate) fn tag<M>(
    code: &Code,
    create: impl FnOnce() -> Result<M>,
    list: impl FnOnce(&M) -> Vec<&Map>,
) -> Result<Tag> {
    let known = tags().get(&code.digest()).copied();
    if let Some(tag) = known {
        return Ok(tag);
    }
    let maps = create()?;
    remember(code, &load_code(code, "weir_compare", &list(&maps))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// It is the same with other maps, and maps are listed in the order of their use.
    #[test]
    fn a_tag_follows_from_the_instructions() {
        let events = match crate::events::is_supported() {
            Ok(events) => events,
            Err(e) => return println!("skipped: {e}"),
        };
        let traits = Traits {
            dual: true,
            dns: true,
            // No other test has these programs, so they are not loaded yet.
            probe4: Ipv4Addr::new(192, 0, 2, 77),
            probe6: Ipv6Addr::LOCALHOST,
            events,
        };
        let create = || Maps::create(true, events);
        let mut found = std::collections::BTreeSet::new();
        for role in [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback] {
            let code = assemble(role, &traits).unwrap();
            let first = tag(&code, create, Maps::list).unwrap();
            let maps = create().unwrap();
            let program = load_code(&code, "weir_test", &maps.list()).unwrap();
            let info = program.info().unwrap();
            assert_eq!(info.tag, first, "{role:?}");
            let id = |map: crate::asm::MapRef| maps.list()[map.0].info().unwrap().id;
            let used: Vec<u32> = code.used_maps().into_iter().map(id).collect();
            assert_eq!(info.maps, used, "{role:?}");
            found.insert(first);
        }
        assert_eq!(found.len(), 4);
    }
}
