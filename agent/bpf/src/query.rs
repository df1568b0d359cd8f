//! Queries of attached programs.

use super::info::next;
use super::numbers::{BPF_LINK_GET_NEXT_ID, BPF_PROG_QUERY};
use super::{Link, LinkInfo, call, too_big};
use std::io;
use std::mem::offset_of;

/// `BPF_MPROG_MAX`: the maximum number of programs at one hook of an interface (`include/linux/bpf_mprog.h`).
const MOST_AT_A_HOOK: usize = 64;
/// Maximum number of links that are read; a node with a thousand pods has a few thousand.
const MOST_LINKS: usize = 65_536;

/// The prefix that `BPF_PROG_QUERY` reads.
#[repr(C)]
#[derive(Default)]
struct Query {
    target: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    count: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, query.attach_type)",
        offset_of!(Query, attach_type) as i64,
    ),
    (
        "offsetof(union bpf_attr, query.prog_ids)",
        offset_of!(Query, prog_ids) as i64,
    ),
    (
        "offsetof(union bpf_attr, query.prog_cnt)",
        offset_of!(Query, count) as i64,
    ),
    (
        "offsetof(union bpf_attr, query.prog_attach_flags)",
        offset_of!(Query, prog_attach_flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, query.link_ids)",
        offset_of!(Query, link_ids) as i64,
    ),
    (
        "offsetof(union bpf_attr, query.revision)",
        offset_of!(Query, revision) as i64,
    ),
];

/// A program at a hook of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The id of the program.
    pub program: u32,
    /// The id of the link; 0 if the program was attached without one.
    pub link: u32,
}

/// Returns all links of this machine that still exist when they are read. Since 5.8
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`; `E2BIG`: there are more than 65,536.
pub fn links() -> io::Result<Vec<LinkInfo>> {
    let (mut found, mut id) = (Vec::new(), 0);
    while let Some(after) = next(BPF_LINK_GET_NEXT_ID, id)? {
        id = after;
        let Some(link) = Link::by_id(id)? else {
            continue;
        };
        found.push(link.info()?);
        if found.len() > MOST_LINKS {
            return Err(too_big(()));
        }
    }
    Ok(found)
}

/// `bpf(BPF_PROG_QUERY)`: returns the programs at a hook of an interface of the calling thread's namespace, in the order in which
/// they run. Attach types are those of tcx and netkit. Since 6.6
///
/// # Errors
///
/// `EINVAL`: the kernel does not know the attach type; `ENODEV`: no such interface; `EPERM`.
pub fn attached(index: u32, attach_type: u32) -> io::Result<Vec<Attached>> {
    let mut programs = [0u32; MOST_AT_A_HOOK];
    let mut links = [0u32; MOST_AT_A_HOOK];
    let mut attr = Query {
        target: index,
        attach_type,
        prog_ids: programs.as_mut_ptr() as u64,
        link_ids: links.as_mut_ptr() as u64,
        count: u32::try_from(MOST_AT_A_HOOK).map_err(too_big)?,
        ..Query::default()
    };
    // SAFETY: `prog_ids` and `link_ids` are owned by this function and `count` numbers long; the other pointers are null,
    // which the kernel reads as "not wanted". The command does not return a descriptor.
    match unsafe { call(BPF_PROG_QUERY, &mut attr) } {
        Ok(_) => {}
        // No program was ever attached to the hook.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    }
    let count = usize::try_from(attr.count).map_err(too_big)?;
    let pairs = programs.iter().zip(&links).take(count);
    Ok(pairs
        .map(|(program, link)| Attached {
            program: *program,
            link: *link,
        })
        .collect())
}
