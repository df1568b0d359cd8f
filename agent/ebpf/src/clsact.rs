//! Programs as filters of a clsact qdisc, for kernels without tcx links (before 6.6).
//!
//! A filter keeps its program alive, and its program is pinned: a filter is weir's if its program is the pinned one. It has
//! the first preference and a handle of its own there, so that it runs before filters of other writers and beside those
//! with the same preference. A folder `qdisc_2` among the pins says that weir created the qdisc of that interface, which it
//! deletes when no filter is left.

use crate::failed;
use crate::hook::{Direction, Hook, Occupants, pin_name};
use crate::node::NodeRole;
use crate::pins;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weir_bpf::{Pinned, Program, open_pin, pin};
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_netlink::{Error, Result};

/// The preference: filters of the lowest one run first.
const PREFERENCE: u16 = 1;
/// The handle: "weir".
const HANDLE: u32 = 0x7765_6972;
/// What begins the name of a pin until the filter runs its program. A bpf file system allows no dot in names.
const NEXT: &str = "next_";

/// Filters of the namespace that the calling thread is in, with their pins.
pub(crate) struct Filters<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) routing: &'a Routing,
}

fn parent(direction: Direction) -> TcHandle {
    match direction {
        Direction::Ingress => TcHandle::INGRESS,
        Direction::Egress => TcHandle::EGRESS,
    }
}

/// What begins the name of the folder among the pins that says that weir created the qdisc.
const MARK: &str = "qdisc_";

fn mark_name(index: u32) -> String {
    format!("{MARK}{index}")
}

/// Interfaces whose qdiscs weir created.
fn marked(folder: &Path) -> Result<Vec<u32>> {
    let index = |path: PathBuf| path.file_name()?.to_str()?.strip_prefix(MARK)?.parse().ok();
    Ok(pins::entries(folder)?
        .into_iter()
        .filter_map(index)
        .collect())
}

/// What a version with another layout wrote down of qdiscs is of this one now: its filters take the place of the older ones, so
/// that the qdisc stays when those are removed.
pub(crate) fn take_over(older: &Path, folder: &Path) -> Result<()> {
    for index in marked(older)? {
        let [from, to] = [older, folder].map(|folder| folder.join(mark_name(index)));
        let moved = match to.is_dir() {
            true => std::fs::remove_dir(&from),
            false => std::fs::rename(&from, &to),
        };
        moved.map_err(|e| failed("move", &from.display().to_string(), &e))?;
    }
    Ok(())
}

fn id(program: &Program) -> Result<u32> {
    let info = program.info();
    let info = info.map_err(|e| failed("read", "a program of weir", &e))?;
    Ok(info.id)
}

impl Filters<'_> {
    /// The id of the program that the filter at weir's place runs.
    fn at(&self, (index, direction): Hook) -> Result<Option<u32>> {
        let filters = self.routing.filters(index, parent(direction))?;
        let own = |f: &Filter| (f.priority, f.handle) == (PREFERENCE, HANDLE);
        Ok(filters.iter().find(|f| own(f)).and_then(|f| match &f.kind {
            FilterKind::Bpf(bpf) => bpf.id,
            _ => None,
        }))
    }

    /// What is attached to an interface.
    pub(crate) fn occupants(&self, index: u32) -> Result<Occupants> {
        let at = |q: &Qdisc| q.link == index && q.parent == TcHandle::INGRESS_QDISC;
        let qdisc = self.routing.qdiscs()?.into_iter().find(at);
        let mut filters = Vec::new();
        if qdisc.is_some() {
            for parent in [TcHandle::INGRESS, TcHandle::EGRESS] {
                filters.extend(self.routing.filters(index, parent)?);
            }
        }
        let program = |f: &Filter| match &f.kind {
            FilterKind::Bpf(bpf) => bpf.id,
            _ => None,
        };
        let filters = filters.iter();
        let filters = filters.map(|f| (f.parent, f.priority, f.handle, program(f)));
        Ok(Occupants::Clsact(qdisc.map(|q| q.kind), filters.collect()))
    }

    fn next(&self, hook: Hook) -> PathBuf {
        self.folder.join(format!("{NEXT}{}", pin_name(hook)))
    }

    /// The pinned program of a hook, and whether a filter runs it. If weir was killed while it replaced a program, it is
    /// the next one that runs.
    pub(crate) fn running(&self, hook: Hook, pinned: Program) -> Result<(Option<Program>, bool)> {
        let running = self.at(hook)?;
        if running == Some(id(&pinned)?) {
            return Ok((Some(pinned), true));
        }
        if let Ok(Pinned::Program(next)) = open_pin(&self.next(hook))
            && running == Some(id(&next)?)
        {
            return Ok((Some(next), true));
        }
        Ok((Some(pinned), false))
    }

    /// Adds the filter, or gives the filter of weir another program.
    pub(crate) fn attach(&self, object: &str, hook: Hook, program: &Program) -> Result<()> {
        let (index, direction) = hook;
        self.add_qdisc(object, index)?;
        let (path, next) = (self.folder.join(pin_name(hook)), self.next(hook));
        // What is pinned first is known to be weir's, whenever weir is killed.
        pins::unpin(&next)?;
        let pinned = pin(program.as_fd(), &next);
        pinned.map_err(|e| failed("pin", &next.display().to_string(), &e))?;
        let info = program.info().map_err(|e| failed("read", object, &e))?;
        let filter = Filter {
            handle: HANDLE,
            ..Filter::new(
                index,
                parent(direction),
                PREFERENCE,
                FilterKind::bpf(program.as_fd(), &info.name),
            )
        };
        let added = self.routing.add_filter(&filter);
        let added = added.map_err(|e| match e.is_not_found() {
            true => {
                let reason = "this kernel has no bpf filters (CONFIG_NET_CLS_BPF); use netfilter (--engine auto)";
                Error::unsupported("attach", object, reason)
            }
            false => e,
        });
        if !added? {
            self.must_be_weir(object, hook)?;
            self.routing.replace_filter(&filter)?;
        }
        std::fs::rename(&next, &path).map_err(|e| failed("pin", &path.display().to_string(), &e))
    }

    /// The filter that is in the way runs a program of weir, by the form of its name: of a version with another layout of pins.
    fn must_be_weir(&self, object: &str, hook: Hook) -> Result<()> {
        let there = self.at(hook)?.map(Program::by_id).transpose();
        let name = there.and_then(|program| program.flatten().map(|p| p.info()).transpose());
        let name = name.map_err(|e| failed("read", object, &e))?;
        match name {
            Some(info) if NodeRole::of_name(&info.name).is_some() => Ok(()),
            _ => {
                let reason = format!(
                    "a filter of another writer has preference {PREFERENCE} and handle {HANDLE:#x} there"
                );
                Err(Error::refused("attach", object, reason))
            }
        }
    }

    /// What is written down first can be removed, whenever weir is killed.
    fn add_qdisc(&self, object: &str, index: u32) -> Result<()> {
        let mark = self.folder.join(mark_name(index));
        let is_new = match std::fs::create_dir(&mark) {
            Ok(()) => true,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(failed("create", &mark.display().to_string(), &e)),
        };
        let added = self.routing.add_qdisc(&Qdisc::clsact(index));
        if is_new && !matches!(added, Ok(true)) {
            remove_mark(&mark)?;
        }
        match added {
            Ok(true) => Ok(()),
            Ok(false) => self.must_be_clsact(object, index),
            Err(e) if e.is_not_found() => Err(Error::unsupported(
                "attach",
                object,
                "this kernel has neither tcx links (6.6) nor the clsact qdisc (CONFIG_NET_SCH_INGRESS); use netfilter \
                 (--engine auto)",
            )),
            Err(e) => Err(e),
        }
    }

    /// The kernel takes a filter for what is sent also at an ingress qdisc, and runs it for what arrives.
    fn must_be_clsact(&self, object: &str, index: u32) -> Result<()> {
        let at = |q: &Qdisc| q.link == index && q.parent == TcHandle::INGRESS_QDISC;
        match self.routing.qdiscs()?.into_iter().find(at) {
            Some(qdisc) if qdisc.kind != "clsact" => {
                let reason = format!(
                    "another writer's qdisc {} is there, which has no filters for what is sent; delete it, or use \
                     netfilter (--engine auto)",
                    qdisc.kind
                );
                Err(Error::refused("attach", object, reason))
            }
            _ => Ok(()),
        }
    }

    /// Deletes the filter if it runs a pinned program, and the qdisc if weir created it and no filter is left.
    pub(crate) fn detach(&self, hook: Hook, pinned: &Program) -> Result<()> {
        let (index, direction) = hook;
        let next = self.next(hook);
        let running = self.at(hook)?;
        let is_next = || match open_pin(&next) {
            Ok(Pinned::Program(next)) => Ok(running == Some(id(&next)?)),
            _ => Ok(false),
        };
        if running.is_some() && (running == Some(id(pinned)?) || is_next()?) {
            let kind = FilterKind::Bpf(Default::default());
            let filter = Filter {
                handle: HANDLE,
                ..Filter::new(index, parent(direction), PREFERENCE, kind)
            };
            self.routing.delete_filter(&filter)?;
        }
        pins::unpin(&next)?;
        self.delete_qdisc(index)
    }

    /// Deletes qdiscs that weir created and that have no filter.
    pub(crate) fn delete_empty_qdiscs(&self) -> Result<()> {
        let mut marked = marked(self.folder)?.into_iter();
        marked.try_for_each(|index| self.delete_qdisc(index))
    }

    fn delete_qdisc(&self, index: u32) -> Result<()> {
        let mark = self.folder.join(mark_name(index));
        if !mark.is_dir() {
            return Ok(());
        }
        for parent in [TcHandle::INGRESS, TcHandle::EGRESS] {
            if !self.routing.filters(index, parent)?.is_empty() {
                return Ok(());
            }
        }
        let own = Qdisc::clsact(index);
        let is_it = |q: &Qdisc| (q.link, &q.kind) == (index, &own.kind);
        if self.routing.qdiscs()?.iter().any(is_it) {
            self.routing.delete_qdisc(&own)?;
        }
        remove_mark(&mark)
    }
}

fn remove_mark(mark: &Path) -> Result<()> {
    match std::fs::remove_dir(mark) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("delete", &mark.display().to_string(), &e))
        }
        _ => Ok(()),
    }
}
