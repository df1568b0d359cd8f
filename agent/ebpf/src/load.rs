//! Names of programs, and loading.

use crate::asm::Code;
use crate::change::Attachment;
use crate::failed;
use crate::inpod::{Role, Traits, assemble};
use crate::maps::Maps;
use crate::plan::Desired;
use std::fmt;
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
    code.load(name, maps).map_err(|refused| {
        let object = format!("program {name}");
        match refused.log.is_empty() {
            true => failed("load", &object, &refused.error),
            false => Error::refused("load", object, refused.to_string()),
        }
    })
}
