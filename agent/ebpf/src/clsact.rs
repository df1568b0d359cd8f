//! Programs as filters of a clsact qdisc, for kernels without tcx links (before 6.6).
//!
//! A filter keeps its program alive, and its program is pinned: a filter belongs to weir if its program is the pinned one. It has
//! the first preference and one of two handles that only weir uses, so that it coexists with foreign filters of the same
//! preference. The kernel runs the newest of those first, so to be first again weir adds its filter with the other handle. A
//! directory `qdisc_2` among the pins records that weir created the qdisc of that interface; weir deletes the qdisc when no filter
//! is left.

use crate::failed;
use crate::hook::{Direction, Hook, Occupants, Place};
use crate::node::NodeRole;
use crate::pins;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weir_bpf::{Pinned, Program};
use weir_netlink::route::{Filter, FilterKind, Qdisc, Routing, TcHandle};
use weir_netlink::{Error, Result};

/// The preference: filters of the lowest one run first.
const PREFERENCE: u16 = 1;
/// The handles: "weir" in ASCII, and the next number.
const HANDLES: [u32; 2] = [0x7765_6972, 0x7765_6973];

/// The filters of the calling thread's network namespace, with their pins.
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

/// Prefix of the directory among the pins that records that weir created the qdisc.
const MARK: &str = "qdisc_";

fn mark_name(index: u32) -> String {
    format!("{MARK}{index}")
}

/// Returns the interfaces whose qdiscs weir created.
fn marked(folder: &Path) -> Result<Vec<u32>> {
    let index = |path: PathBuf| path.file_name()?.to_str()?.strip_prefix(MARK)?.parse().ok();
    Ok(pins::entries(folder)?
        .into_iter()
        .filter_map(index)
        .collect())
}

/// Moves the records of created qdiscs from the pins of a version with another layout: filters of this version replace the older
/// ones, and the qdisc must stay when those are removed.
pub(crate) fn take_over(older: &Path, folder: &Path) -> Result<()> {
    for index in marked(older)? {
        let [from, to] = [older, folder].map(|folder| folder.join(mark_name(index)));
        let moved = match pins::is_folder(&to)? {
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
    /// Returns handles and programs of the filters with weir's preference, in the order in which they run.
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

    /// Returns the qdisc and the filters of an interface.
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

    /// Returns the program of a hook, and the place of its filter. If weir was killed while it replaced the program, this is the next
    /// program instead of the pinned one.
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
        if let Some(Pinned::Program(next)) = pins::find(&pins::next(self.folder, hook))?
            && running == id(&next)?
        {
            return Ok((Some(next), place(handle)));
        }
        Ok((Some(pinned), Place::Nowhere))
    }

    /// Adds weir's filter before foreign filters of the same preference, or replaces its program.
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
        // Delete older filters while the pin that identifies them as weir's still exists.
        let handles = all.iter().map(|(of, _)| *of);
        let mut older = handles.filter(|of| HANDLES.contains(of) && *of != handle);
        older.try_for_each(|of| self.delete(hook, of))?;
        pins::rename_next(self.folder, hook)
    }

    /// Returns the handle of weir's filter if that is the first, otherwise a free one of the two handles. Deletes an older filter that
    /// is left because weir was killed.
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

    /// Checks that filters with weir's handles run programs of weir, by the form of their names, which includes versions with another
    /// layout of pins.
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

    /// Adds the qdisc. The record is created first, so that the qdisc is removed later even if weir is killed.
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

    /// Checks the kind of the qdisc: an ingress qdisc also accepts a filter for egress, and runs it for ingress.
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
        if let Some(Pinned::Program(next)) = pins::find(&next)? {
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
        if !pins::is_folder(&mark)? {
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
