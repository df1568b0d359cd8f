//! Describes the programs attached in a namespace, of weir and of other writers.

mod elsewhere;

use crate::inpod::Role;
use crate::load::has_digest;
use crate::node::{self, NodeRole};
use crate::pins::{self, Bpffs};
use crate::{failed, libc_errno, maps};
use elsewhere::Elsewhere;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_bpf::{
    BPF_NETKIT_PEER, BPF_NETKIT_PRIMARY, BPF_TCX_EGRESS, BPF_TCX_INGRESS, BPF_XDP, LinkInfo,
    LinkTarget, Map, Pinned, Program, open_pin,
};
use weir_netlink::route::{FilterKind, Link, LinkKind, Routing, TcHandle};
use weir_netlink::{Netns, Result};

/// All programs attached to the interfaces of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The programs in the order of the interfaces, and at each hook in the order in which they run.
    pub programs: Vec<Attached>,
    /// Counters of weir's programs; empty without any.
    pub counters: Vec<(&'static str, u64)>,
    /// True if the bpf file system has entries that were not read: pins of other writers may be missing.
    pub has_more_pins: bool,
}

/// A program at a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The interface.
    pub interface: String,
    /// `xdpgeneric`, `tcx ingress`, `netkit peer`, `clsact egress pref 1 handle 0x1`
    pub hook: String,
    /// Its id, unique on this machine while it is loaded.
    pub id: u32,
    /// Its name, as chosen by its writer.
    pub name: String,
    /// The digest of its instructions, as computed by the kernel.
    pub tag: String,
    /// The id of the link; `None` for a filter, and for a program that was attached without a link.
    pub link: Option<u32>,
    /// The pin of the link, or of a filter's program, in the directory of weir: the program belongs to weir.
    pub pin: Option<PathBuf>,
    /// Pins of the program or its link by other writers.
    pub pins: Vec<PathBuf>,
    /// Its maps: names, types, sizes, and pins of other writers.
    pub maps: Vec<String>,
}

impl Attached {
    /// Describes what the program does, if it belongs to weir.
    #[must_use]
    pub fn words(&self) -> Option<&'static str> {
        let _ = self.pin.as_ref()?;
        let of_pod = Role::of_name(&self.name).map(Role::words);
        of_pod.or_else(|| NodeRole::of_name(&self.name).map(NodeRole::words))
    }

    /// True for a link whose program has a name of weir, but no pin in the directory of weir: it is pinned in another bpf file system.
    /// False for a filter, which outlives its pin, and for a link that another writer has pinned in this file system.
    #[must_use]
    pub fn is_pinned_elsewhere(&self) -> bool {
        let is_role =
            Role::of_name(&self.name).is_some() || NodeRole::of_name(&self.name).is_some();
        // A directory of a bpf file system can be named as one: weir's pins may be below another directory.
        let is_of_weir =
            |pin: &PathBuf| pin.ancestors().nth(3).is_some_and(|d| d.ends_with("weir"));
        let is_foreign = !self.pins.is_empty() && !self.pins.iter().any(is_of_weir);
        let is_unpinned = self.pin.is_none() && self.link.is_some() && !is_foreign;
        is_unpinned && is_role && has_digest(&self.name)
    }
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "(no name)"
        } else {
            &self.name
        };
        write!(
            f,
            "{} {}: {name}, program {}, tag {}",
            self.interface, self.hook, self.id, self.tag
        )?;
        if let Some(link) = self.link {
            write!(f, ", link {link}")?;
        }
        match (&self.pin, self.words()) {
            (Some(pin), Some(words)) => write!(f, ", pinned at {}: it {words}", pin.display())?,
            (Some(pin), None) => write!(f, ", pinned at {}", pin.display())?,
            (None, _) if self.is_pinned_elsewhere() => {
                f.write_str(", of weir, pinned elsewhere")?
            }
            (None, _) => f.write_str(", of another writer")?,
        }
        f.write_str(&elsewhere::words(&self.pins))?;
        if !self.maps.is_empty() {
            write!(f, "; maps: {}", self.maps.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for program in &self.programs {
            writeln!(f, "{program}")?;
        }
        for (name, count) in &self.counters {
            writeln!(f, "{count} {name}")?;
        }
        if self.has_more_pins {
            writeln!(
                f,
                "not all of the bpf file system was read: pins of other writers may be missing here"
            )?;
        }
        Ok(())
    }
}

/// Reads any namespace, including the host's. Without a bpf file system no program is known to belong to weir.
///
/// # Errors
/// bpf(2) is not permitted.
pub fn read(netns: &Netns, bpffs: Option<&Bpffs>) -> Result<Shown> {
    let (folders, weir) = of_weir(netns, bpffs)?;
    let mut counters = None;
    for folder in &folders {
        if counters.is_none() {
            counters = maps::counters(folder)?;
        }
        if counters.is_none() {
            counters = node::counters(folder)?;
        }
    }
    let counters = counters.unwrap_or_default();
    let elsewhere = bpffs.map(Elsewhere::read).unwrap_or_default();
    let has_more_pins = elsewhere.is_cut;
    let pins = Pins { weir, elsewhere };
    let programs = at_links(netns, |routing, link| {
        let mut found = xdp_of(link, &pins)?;
        found.extend(links_of(link, &pins)?);
        found.extend(filters_of(routing, link, &pins)?);
        Ok(found)
    })?;
    let has_more_pins = has_more_pins && !programs.is_empty();
    Ok(Shown {
        programs,
        counters,
        has_more_pins,
    })
}

/// Returns the directories of a namespace in all layouts, and the pins there, without those of a namespace that is gone.
fn of_weir(netns: &Netns, bpffs: Option<&Bpffs>) -> Result<(Vec<PathBuf>, OfWeir)> {
    let folders = bpffs.map(|bpffs| bpffs.folders(netns)).transpose()?;
    let folders = folders.unwrap_or_default();
    let mut pins = OfWeir::default();
    for folder in &folders {
        pinned(folder, &mut pins)?;
    }
    Ok((folders, pins))
}

/// Calls `find` for each link of a namespace, inside it, and returns all results.
fn at_links(
    netns: &Netns,
    find: impl Fn(&Routing, &Link) -> Result<Vec<Attached>> + Sync,
) -> Result<Vec<Attached>> {
    netns.run(|| {
        let routing = Routing::open()?;
        let mut found = Vec::new();
        for link in routing.links()? {
            found.extend(find(&routing, &link)?);
        }
        Ok(found)
    })?
}

/// A group of programs of weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Programs of redirection in a pod.
    Pod,
    /// Programs of redirection at the node.
    Node,
}

/// Maximum time for the kernel to detach the programs of a killed process.
const KILLED: Duration = Duration::from_millis(500);

/// Returns the programs of this redirection that are attached here, but pinned in another bpf file system: they can be neither
/// compared nor removed by this process.
///
/// # Errors
/// Those of [`read`].
pub fn elsewhere(netns: &Netns, bpffs: Option<&Bpffs>, of: Of) -> Result<Vec<Attached>> {
    let is_it = |name: &str| match of {
        Of::Pod => Role::of_name(name).is_some(),
        Of::Node => NodeRole::of_name(name).is_some(),
    };
    let find = || -> Result<Vec<Attached>> {
        let (_, weir) = of_weir(netns, bpffs)?;
        let elsewhere = Elsewhere::default();
        let mut pins = Pins { weir, elsewhere };
        let mut all = at_links(netns, |_, link| links_of(link, &pins))?;
        all.retain(|one| one.is_pinned_elsewhere() && is_it(&one.name));
        if !all.is_empty() {
            pins.elsewhere = bpffs.map(Elsewhere::read).unwrap_or_default();
            for one in &mut all {
                one.pins = pins.elsewhere.of_program(one.id, one.link);
            }
            all.retain(Attached::is_pinned_elsewhere);
        }
        Ok(all)
    };
    if find()?.is_empty() {
        return Ok(Vec::new());
    }
    // A program that another process has just attached is pinned before that process releases the lock.
    let bpffs = match bpffs {
        Some(bpffs) if pins::is_folder(&bpffs.weir())? => Some(bpffs),
        _ => None,
    };
    let _lock = bpffs.map(Bpffs::lock).transpose()?;
    let begun = Instant::now();
    loop {
        let found = find()?;
        if found.is_empty() || begun.elapsed() > KILLED {
            return Ok(found);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All pins.
struct Pins {
    weir: OfWeir,
    elsewhere: Elsewhere,
}

/// Pins in the directory of weir.
#[derive(Default)]
struct OfWeir {
    /// By the id of the link.
    links: BTreeMap<u32, PathBuf>,
    /// By the id of the program.
    programs: BTreeMap<u32, PathBuf>,
}

fn pinned(folder: &Path, pins: &mut OfWeir) -> Result<()> {
    for path in pins::entries(folder)? {
        let read = |e: &std::io::Error| failed("read", &path.display().to_string(), e);
        match open_pin(&path) {
            Ok(Pinned::Link(link)) => {
                pins.links
                    .insert(link.info().map_err(|e| read(&e))?.id, path);
            }
            Ok(Pinned::Program(program)) => {
                let id = program.info().map_err(|e| read(&e))?.id;
                pins.programs.insert(id, path);
            }
            Ok(Pinned::Map(_)) => {}
            // Unpinned after it was listed; or a directory, which records a qdisc.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound || path.is_dir() => {}
            Err(e) => return Err(read(&e)),
        }
    }
    Ok(())
}

/// Returns the XDP programs, which run before any other hook.
fn xdp_of(link: &Link, pins: &Pins) -> Result<Vec<Attached>> {
    let at = format!("the programs at the hook of XDP of {}", link.name);
    let programs = link
        .xdp()
        .map_err(|e| failed("read", &at, &std::io::Error::other(e)))?;
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    // A program attached by "ip link set xdp" has no link, and before Linux 5.8 links cannot be listed.
    let links = match weir_bpf::links() {
        Err(e) if e.raw_os_error() == Some(libc_errno::EINVAL) => Vec::new(),
        links => links.map_err(|e| failed("list", "links of programs", &e))?,
    };
    let mut found = Vec::new();
    for (mode, id) in programs {
        let is_its = |one: &&LinkInfo| {
            one.program == id && one.target == LinkTarget::Interface(link.index, BPF_XDP)
        };
        let link_id = links.iter().find(is_its).map(|one| one.id);
        let place = (link.name.as_str(), mode.word().to_owned());
        found.extend(describe(place, (id, link_id), None, &pins.elsewhere)?);
    }
    Ok(found)
}

fn links_of(link: &Link, pins: &Pins) -> Result<Vec<Attached>> {
    let mut hooks = vec![
        ("tcx ingress", BPF_TCX_INGRESS),
        ("tcx egress", BPF_TCX_EGRESS),
    ];
    if matches!(link.kind, Some(LinkKind::Netkit(_))) {
        hooks.extend([
            ("netkit primary", BPF_NETKIT_PRIMARY),
            ("netkit peer", BPF_NETKIT_PEER),
        ]);
    }
    let mut found = Vec::new();
    for (hook, attach_type) in hooks {
        let object = format!("the programs at {hook} of {}", link.name);
        let list = match weir_bpf::attached(link.index, attach_type) {
            Ok(list) => list,
            // The kernel does not support the hook, or only the other end of the pair has it; or the interface is gone.
            Err(e)
                if [libc_errno::EINVAL, libc_errno::EACCES, libc_errno::ENODEV]
                    .contains(&e.raw_os_error().unwrap_or(0)) =>
            {
                continue;
            }
            Err(e) => return Err(failed("list", &object, &e)),
        };
        for one in list {
            let link_id = (one.link != 0).then_some(one.link);
            let pin = link_id.and_then(|id| pins.weir.links.get(&id).cloned());
            let place = (link.name.as_str(), hook.to_owned());
            let ids = (one.program, link_id);
            found.extend(describe(place, ids, pin, &pins.elsewhere)?);
        }
    }
    Ok(found)
}

fn filters_of(routing: &Routing, link: &Link, pins: &Pins) -> Result<Vec<Attached>> {
    let mut found = Vec::new();
    for (hook, parent) in [("ingress", TcHandle::INGRESS), ("egress", TcHandle::EGRESS)] {
        for filter in routing.filters(link.index, parent)? {
            let FilterKind::Bpf(bpf) = &filter.kind else {
                continue;
            };
            let Some(id) = bpf.id else { continue };
            let hook = format!(
                "clsact {hook} pref {} handle {:#x}",
                filter.priority, filter.handle
            );
            let pin = pins.weir.programs.get(&id).cloned();
            let place = (link.name.as_str(), hook);
            found.extend(describe(place, (id, None), pin, &pins.elsewhere)?);
        }
    }
    Ok(found)
}

/// Describes a program. `None`: it was unloaded in the meantime.
fn describe(
    (interface, hook): (&str, String),
    (id, link): (u32, Option<u32>),
    pin: Option<PathBuf>,
    elsewhere: &Elsewhere,
) -> Result<Option<Attached>> {
    let object = format!("program {id}");
    let program = Program::by_id(id).map_err(|e| failed("open", &object, &e))?;
    let Some(program) = program else {
        return Ok(None);
    };
    let info = program.info().map_err(|e| failed("read", &object, &e))?;
    let mut maps = Vec::new();
    for id in info.maps {
        let failed = |e: &std::io::Error| failed("read", &format!("map {id}"), e);
        let Some(map) = Map::by_id(id).map_err(|e| failed(&e))? else {
            continue;
        };
        let map = map.info().map_err(|e| failed(&e))?;
        maps.push(format!(
            "{} (map {}, {}, {} bytes by {}, at most {}{})",
            map.name,
            map.id,
            kind(map.kind),
            map.value_size,
            map.key_size,
            map.max_entries,
            elsewhere::words(elsewhere.of_map(map.id))
        ));
    }
    Ok(Some(Attached {
        interface: interface.to_owned(),
        hook,
        id,
        name: info.name,
        tag: info.tag.iter().map(|byte| format!("{byte:02x}")).collect(),
        link,
        pin,
        pins: elsewhere.of_program(id, link),
        maps,
    }))
}

/// Returns the name of a map type in `bpftool map`.
fn kind(number: u32) -> String {
    let words = [
        (1, "hash"),
        (2, "array"),
        (3, "prog_array"),
        (4, "perf_event_array"),
        (5, "percpu_hash"),
        (6, "percpu_array"),
        (9, "lru_hash"),
        (11, "lpm_trie"),
        (12, "array_of_maps"),
        (13, "hash_of_maps"),
        (15, "sockmap"),
        (24, "sk_storage"),
        (27, "ringbuf"),
    ];
    let word = words.iter().find(|(n, _)| *n == number);
    word.map_or_else(|| format!("type {number}"), |(_, word)| (*word).to_owned())
}
