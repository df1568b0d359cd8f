//! Hooks and the ways to attach programs to them: by tcx links, or by filters of a clsact qdisc if the kernel has no tcx.
//!
//! A pin `egress_2` is a link, or the program that the filter runs: the kind of the pinned object tells the way.

use crate::clsact::Filters;
use crate::load::Tag;
use crate::pins::{self, Bpffs};
use crate::{failed, libc_errno};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weir_bpf::{
    Anchor, BPF_TCX_EGRESS, BPF_TCX_INGRESS, Link, LinkInfo, LinkTarget, Pinned, Program, open_pin,
};
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing, TcHandle};
use weir_netlink::{Error, Result};

/// A direction at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => BPF_TCX_INGRESS,
            Self::Egress => BPF_TCX_EGRESS,
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The index of an interface, and the direction.
pub(crate) type Hook = (u32, Direction);

/// The hook that a program is detached from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detached(pub(crate) Hook);

/// Returns the name of a pin: `egress_2`.
pub(crate) fn pin_name((index, direction): Hook) -> String {
    format!("{direction}_{index}")
}

/// Returns the hook of a pin with this name.
fn hook_of(name: &str) -> Option<Hook> {
    let (direction, index) = name.split_once('_')?;
    let direction = match direction {
        "ingress" => Direction::Ingress,
        "egress" => Direction::Egress,
        _ => return None,
    };
    Some((index.parse().ok()?, direction))
}

/// Returns the interfaces that have pins in a directory.
pub(crate) fn interfaces(folder: &Path) -> Result<Vec<u32>> {
    let index = |path: PathBuf| Some(hook_of(path.file_name()?.to_str()?)?.0);
    Ok(pins::entries(folder)?
        .into_iter()
        .filter_map(index)
        .collect())
}

/// Maximum number of links per pod that [`Links`] checks; a pod has about three.
const MOST_LINKS: usize = 64;

/// A snapshot of the links of a pod's programs. While it holds, no link is detached, and none has another program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links(Vec<LinkInfo>);

impl Links {
    /// Reads the links of the hooks that have pins in a directory.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let is_of_hook = |path: &Path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(hook_of).is_some()
        };
        let links = pins::links(folder)?.into_iter();
        let links = links.filter(|(path, _)| is_of_hook(path)).take(MOST_LINKS);
        let read = |(path, link): (PathBuf, Link)| {
            let info = link.info();
            info.map_err(|e| failed("read", &path.display().to_string(), &e))
        };
        links.map(read).collect::<Result<_>>().map(Self)
    }

    /// True if each link is attached and unchanged. Enters no namespace and opens no pin: a few system calls per link. A link that
    /// cannot be read counts as changed, and so does a snapshot without links: each pod has some.
    #[must_use]
    pub fn hold(&self) -> bool {
        !self.0.is_empty()
            && self.0.iter().all(|was| {
                let is_detached = matches!(was.target, LinkTarget::Interface(0, _));
                let link = Link::by_id(was.id).ok().flatten();
                let now = link.and_then(|link| link.info().ok());
                !is_detached && now.as_ref() == Some(was)
            })
    }
}

/// A program of weir at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The name of the program, which contains a digest of the instructions.
    pub(crate) program: String,
    /// The kernel's digest of the instructions.
    pub(crate) tag: Tag,
    /// True if the program is attached there, and not only pinned.
    pub(crate) is_attached: bool,
    /// Description of a foreign program that runs first, which may let packets escape.
    pub(crate) behind: Option<String>,
    /// The ids of the maps that it uses, in the order of their first use.
    pub(crate) maps: Vec<u32>,
}

/// The programs of all writers at an interface, on which depends whether the kernel accepts another program there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Occupants {
    /// The ids of programs in order of execution: at ingress, and at egress.
    Tcx([Vec<u32>; 2]),
    /// The kind of the qdisc, and parent, preference, handle and program of each filter.
    Clsact(Option<String>, Vec<(TcHandle, u16, u32, Option<u32>)>),
}

/// How programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By tcx links. Since 6.6
    Tcx,
    /// By filters of a clsact qdisc. Since 4.5
    Clsact,
}

impl Way {
    /// Detects the way that the kernel supports.
    fn of_kernel() -> Result<Self> {
        match weir_bpf::attached(LOOPBACK_IFINDEX, BPF_TCX_INGRESS) {
            Ok(_) => Ok(Self::Tcx),
            Err(e) if is_without_tcx(&e) => Ok(Self::Clsact),
            Err(e) => Err(failed("list", "the programs at ingress of lo", &e)),
        }
    }
}

/// True if the kernel does not support the command for this kind of hook.
fn is_without_tcx(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc_errno::EINVAL)
}

/// The hooks of the calling thread's network namespace, with their pins.
pub(crate) struct Hooks<'a> {
    folder: &'a Path,
    routing: &'a Routing,
    way: Option<Way>,
}

impl<'a> Hooks<'a> {
    /// Creates the value; `bpffs` may override the way that the kernel supports.
    pub(crate) fn of(bpffs: &Bpffs, folder: &'a Path, routing: &'a Routing) -> Self {
        Self {
            folder,
            routing,
            way: bpffs.way(),
        }
    }

    /// Returns the way to attach programs. It is detected before anything is changed.
    ///
    /// # Errors
    /// bpf(2) is not permitted.
    pub(crate) fn way(&self) -> Result<Way> {
        self.way.map_or_else(Way::of_kernel, Ok)
    }

    fn filters(&self) -> Filters<'_> {
        Filters {
            folder: self.folder,
            routing: self.routing,
        }
    }

    fn path(&self, hook: Hook) -> PathBuf {
        self.folder.join(pin_name(hook))
    }

    /// Returns the pinned programs, with whether each is still attached to one of these interfaces.
    pub(crate) fn held(&self, is_there: impl Fn(u32) -> bool) -> Result<BTreeMap<Hook, Held>> {
        let mut held = BTreeMap::new();
        for path in pins::entries(self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(hook) = name.and_then(hook_of) else {
                continue;
            };
            let object = path.display().to_string();
            let read = |e: &std::io::Error| failed("read", &object, e);
            let (program, place) = match open_pin(&path) {
                Ok(Pinned::Link(link)) => {
                    let info = link.info().map_err(|e| read(&e))?;
                    let program = Program::by_id(info.program).map_err(|e| read(&e))?;
                    let own = LinkTarget::Interface(hook.0, hook.1.attach_type());
                    let is_its = is_there(hook.0) && info.target == own;
                    let place = match is_its {
                        true => place_of(hook, info.id)?,
                        false => Place::Nowhere,
                    };
                    (program, place)
                }
                Ok(Pinned::Program(pinned)) => match is_there(hook.0) {
                    true => self.filters().running(hook, pinned)?,
                    false => (Some(pinned), Place::Nowhere),
                },
                Ok(Pinned::Map(_)) => continue,
                // Unpinned after it was listed: readers take no lock.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                Err(e) => return Err(failed("open", &object, &e)),
            };
            let info = program.map(|program| program.info()).transpose();
            let info = info.map_err(|e| read(&e))?;
            let info = info.map(|i| (i.name, i.tag, i.maps));
            let (program, tag, maps) = info.unwrap_or_default();
            held.insert(
                hook,
                Held {
                    program,
                    tag,
                    is_attached: place != Place::Nowhere,
                    behind: match place {
                        Place::Behind(id) => Some(self.named(hook, id)?),
                        Place::Nowhere | Place::First => None,
                    },
                    maps,
                },
            );
        }
        Ok(held)
    }

    /// Describes a program that runs before that of weir: a foreign one, or one that weir attached but did not pin in place of the
    /// older one because it was killed.
    fn named(&self, hook: Hook, id: u32) -> Result<String> {
        let read = |e| failed("read", &format!("program {id}"), &e);
        let next = match pins::find(&pins::next(self.folder, hook))? {
            Some(Pinned::Link(next)) => next.info().map_err(read)?.program,
            _ => 0,
        };
        let writer = match next == id {
            true => "of an attempt of weir that was not finished",
            false => "of another writer",
        };
        let program = Program::by_id(id).map_err(read)?;
        let info = program.map(|program| program.info()).transpose();
        let name = info.map_err(read)?.map(|info| info.name);
        Ok(match name.unwrap_or_default().as_str() {
            "" => format!("program {id} {writer}"),
            name => format!("program {id} ({name}) {writer}"),
        })
    }

    /// Returns the programs of all writers at an interface.
    pub(crate) fn occupants(&self, index: u32) -> Result<Occupants> {
        if self.way()? == Way::Clsact {
            return self.filters().occupants(index);
        }
        let ids = |direction: Direction| {
            let attached = weir_bpf::attached(index, direction.attach_type());
            let object = format!("the programs at {direction} of interface {index}");
            let attached = attached.map_err(|e| failed("list", &object, &e))?;
            Ok(attached.iter().map(|attached| attached.program).collect())
        };
        let [ingress, egress] = [Direction::Ingress, Direction::Egress].map(ids);
        Ok(Occupants::Tcx([ingress?, egress?]))
    }

    /// Attaches a program before all others of the hook: a program that runs earlier and consumes or redirects packets would let them
    /// escape. The pinned program is detached only afterwards, so that one is attached at any time.
    pub(crate) fn attach(&self, object: &str, hook: Hook, program: &Program) -> Result<()> {
        if self.way()? == Way::Clsact {
            return self.filters().attach(object, hook, program);
        }
        let path = self.path(hook);
        pins::unpin(&pins::next(self.folder, hook))?;
        let older = pins::find(&path)?;
        if let Some(Pinned::Program(program)) = &older {
            self.filters().detach(hook, program)?;
        }
        let attach_type = hook.1.attach_type();
        let attach = || Link::to_interface(program, hook.0, attach_type, Anchor::First);
        let link = match (attach(), &older) {
            // The hook has the maximum number of programs, and one of them is weir's.
            (Err(e), Some(Pinned::Link(older)))
                if e.raw_os_error() == Some(libc_errno::ERANGE) && older.detach().is_ok() =>
            {
                attach()
            }
            (attached, _) => attached,
        };
        let link = link.map_err(|e| failed("attach", object, &e))?;
        pins::pin_next(self.folder, hook, link.as_fd())?;
        pins::rename_next(self.folder, hook)?;
        match older {
            // Detach explicitly: without its pin the link is detached with its last descriptor, but later.
            Some(Pinned::Link(older)) => pins::detach(&older, &path),
            _ => Ok(()),
        }
    }

    /// Replaces the attached program atomically.
    pub(crate) fn replace(&self, object: &str, hook: Hook, program: &Program) -> Result<()> {
        let path = self.path(hook);
        match open_pin(&path) {
            Ok(Pinned::Link(link)) => link
                .replace(program, None)
                .map_err(|e| failed("replace", object, &e)),
            Ok(Pinned::Program(_)) => self.filters().attach(object, hook, program),
            Ok(Pinned::Map(_)) => {
                let reason = format!("{} is the pin of a map", path.display());
                Err(Error::refused("replace", object, reason))
            }
            Err(e) => Err(failed("open", &path.display().to_string(), &e)),
        }
    }

    /// Detaches the program pinned for a hook. A missing pin is not an error.
    pub(crate) fn detach(&self, hook: Hook) -> Result<()> {
        let path = self.path(hook);
        if let Some(Pinned::Program(program)) = pins::find(&path)? {
            self.filters().detach(hook, &program)?;
        }
        pins::unpin(&pins::next(self.folder, hook))?;
        pins::unpin(&path)
    }

    /// Detaches all pinned programs, and deletes the directory.
    pub(crate) fn delete(&self) -> Result<()> {
        self.detach_all()?;
        pins::delete(self.folder)
    }

    /// Detaches all pinned programs; continues after a failure, and returns the first one.
    pub(crate) fn detach_all(&self) -> Result<()> {
        let mut done = Ok(());
        for path in pins::entries(self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(hook) = name.and_then(hook_of) {
                done = done.and(self.detach(hook));
            }
        }
        done.and(self.delete_empty_qdiscs())
    }

    /// Deletes qdiscs that weir created and that have no filter.
    pub(crate) fn delete_empty_qdiscs(&self) -> Result<()> {
        self.filters().delete_empty_qdiscs()
    }
}

/// The position of a program among those of its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Nowhere,
    First,
    /// Not first: the program with this id is.
    Behind(u32),
}

/// Returns the position of the link with this id at the hook.
fn place_of((index, direction): Hook, id: u32) -> Result<Place> {
    let object = format!("the programs at {direction} of interface {index}");
    let list = weir_bpf::attached(index, direction.attach_type());
    let list = list.map_err(|e| failed("list", &object, &e))?;
    Ok(match list.first() {
        Some(first) if first.link == id => Place::First,
        Some(first) if list.iter().any(|attached| attached.link == id) => {
            Place::Behind(first.program)
        }
        _ => Place::Nowhere,
    })
}
