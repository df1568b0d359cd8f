//! Programs as filters of a clsact qdisc, for kernels without tcx links (before 6.6).
//!
//! A filter keeps its program alive, and its program is pinned: a filter is weir's if its program is the pinned one. It has
//! the first preference and one of two handles of its own there, so that it runs beside filters of other writers with the same
//! preference, of which the newest comes first: to come first again it is added with the other handle. A folder `qdisc_2` among the pins says that weir created the qdisc of that interface, which it
//! deletes when no filter is left.

use crate::failed;
use crate::hook::{Direction, Hook, Occupants, Place};
use crate::node::NodeRole;
use crate::pins;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weir_bpf::{Pinned, Program, open_pin};
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_netlink::{Error, Result};

/// The preference: filters of the lowest one run first.
const PREFERENCE: u16 = 1;
/// The handles: "weir", and the one behind it.
const HANDLES: [u32; 2] = [0x7765_6972, 0x7765_6973];

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
    /// Handles and programs of the filters of weir's preference, in the order in which they run.
    fn all(&self, (index, direction): Hook) -> Result<Vec<(u32, u32)>> {
        let filters = self.routing.filters(index, parent(direction))?;
        let first = filters
            .iter()
            .filter(|f| f.priority == PREFERENCE && f.chain.is_none_or(|chain| chain == 0));
        let program = |f: &Filter| match &f.kind {
            FilterKind::Bpf(bpf) => Some((f.handle, bpf.id?)),
            _ => None,
        };
        Ok(first.filter_map(program).collect())
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

    /// The pinned program of a hook, and where a filter runs it. If weir was killed while it replaced a program, it is
    /// the next one that runs.
    pub(crate) fn running(&self, hook: Hook, pinned: Program) -> Result<(Option<Program>, Place)> {
        let all = self.all(hook)?;
        let place = |handle| match all.first() {
            Some((first, other)) if *first != handle => Place::Behind(*other),
            _ => Place::First,
        };
        let own = all.iter().find(|(handle, _)| HANDLES.contains(handle));
        let Some((handle, running)) = own.copied() else {
            return Ok((Some(pinned), Place::Nowhere));
        };
        if running == id(&pinned)? {
            return Ok((Some(pinned), place(handle)));
        }
        if let Ok(Pinned::Program(next)) = open_pin(&pins::next(self.folder, hook))
            && running == id(&next)?
        {
            return Ok((Some(next), place(handle)));
        }
        Ok((Some(pinned), Place::Nowhere))
    }

    /// Adds the filter, or gives the filter of weir another program; before those of other writers with the same preference.
    pub(crate) fn attach(&self, object: &str, hook: Hook, program: &Program) -> Result<()> {
        let (index, direction) = hook;
        self.add_qdisc(object, index)?;
        let all = self.all(hook)?;
        self.must_be_weirs(object, &all)?;
        let handle = self.free_handle(hook, &all)?;
        pins::pin_next(self.folder, hook, program.as_fd())?;
        let info = program.info().map_err(|e| failed("read", object, &e))?;
        let filter = Filter {
            handle,
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
            self.routing.replace_filter(&filter)?;
        }
        // Before the pin by which the older one is known to be weir's is gone.
        let handles = all.iter().map(|(of, _)| *of);
        let mut older = handles.filter(|of| HANDLES.contains(of) && *of != handle);
        older.try_for_each(|of| self.delete(hook, of))?;
        pins::rename_next(self.folder, hook)
    }

    /// That of weir's filter if it comes first, and another one otherwise. An older one that weir was killed before it deleted goes.
    fn free_handle(&self, hook: Hook, all: &[(u32, u32)]) -> Result<u32> {
        let mut own = all.iter().map(|(handle, _)| *handle);
        if let Some(first) = own.next().filter(|first| HANDLES.contains(first)) {
            return Ok(first);
        }
        let [one, other] = HANDLES;
        Ok(match own.find(|handle| HANDLES.contains(handle)) {
            Some(used) => {
                let free = if used == one { other } else { one };
                if own.any(|handle| handle == free) {
                    self.delete(hook, free)?;
                }
                free
            }
            None => one,
        })
    }

    fn delete(&self, (index, direction): Hook, handle: u32) -> Result<()> {
        let kind = FilterKind::Bpf(Default::default());
        let filter = Filter {
            handle,
            ..Filter::new(index, parent(direction), PREFERENCE, kind)
        };
        self.routing.delete_filter(&filter).map(drop)
    }

    /// Filters with weir's handles run programs of weir, by the form of their names: of a version with another layout of pins, too.
    fn must_be_weirs(&self, object: &str, all: &[(u32, u32)]) -> Result<()> {
        for (handle, id) in all.iter().filter(|(handle, _)| HANDLES.contains(handle)) {
            let there = Program::by_id(*id);
            let info = there.and_then(|program| program.map(|p| p.info()).transpose());
            let info = info.map_err(|e| failed("read", object, &e))?;
            if info.is_some_and(|info| NodeRole::of_name(&info.name).is_none()) {
                let reason = format!(
                    "a filter of another writer has preference {PREFERENCE} and handle {handle:#x} there"
                );
                return Err(Error::refused("attach", object, reason));
            }
        }
        Ok(())
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
        let next = pins::next(self.folder, hook);
        let mut own = vec![id(pinned)?];
        if let Ok(Pinned::Program(next)) = open_pin(&next) {
            own.push(id(&next)?);
        }
        for (handle, running) in self.all(hook)? {
            if HANDLES.contains(&handle) && own.contains(&running) {
                self.delete(hook, handle)?;
            }
        }
        pins::unpin(&next)?;
        self.delete_qdisc(hook.0)
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
