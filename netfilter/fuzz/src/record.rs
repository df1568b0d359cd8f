//! Records inputs that only a kernel can produce: its answers to requests.

use crate::Conversation;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use weir_netfilter::nft::raw;
use weir_netfilter::nft::wire::{GenAttrs, TableAttrs};
use weir_netfilter::xtables::{self, Script, SocketSets, XtFamily};
use weir_netfilter::{ipset, nft};
use weir_netlink::Netns;
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::{Batch, NFNL_SUBSYS_NFTABLES, Requests, Socket, message_type};

/// The sets that the rules use.
const SETS: &str = "\
create plain hash:ip
create pair hash:ip,port
create timed hash:ip timeout 60
create plain6 hash:ip family inet6
create pair6 hash:ip,port family inet6
create timed6 hash:ip family inet6 timeout 60
";

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;
type Heard = Rc<RefCell<Vec<Vec<u8>>>>;

/// Records the answers of a kernel.
struct Recorder<K> {
    kernel: K,
    heard: Heard,
}

impl<K> Recorder<K> {
    fn hear(&self, answer: &[u8]) {
        self.heard.borrow_mut().push(answer.to_vec());
    }
}

impl weir_netlink::Transport for Recorder<weir_netlink::NetlinkSocket> {
    fn reopen(&self) -> weir_netlink::Result<Self> {
        Ok(Self {
            kernel: self.kernel.reopen()?,
            heard: Rc::clone(&self.heard),
        })
    }

    fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.kernel.send(datagram)
    }

    fn receive(&self, buf: &mut [u8], wait: Duration) -> io::Result<usize> {
        let received = self.kernel.receive(buf, wait);
        match &received {
            Ok(length) => self.hear(buf.get(..*length).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.hear(&[]),
            Err(_) => {}
        }
        received
    }
}

impl xtables::XtTransport for Recorder<xtables::XtSockets> {
    fn names(&mut self, family: XtFamily) -> io::Result<Vec<String>> {
        let names = self.kernel.names(family)?;
        self.hear(names.join("\n").as_bytes());
        Ok(names)
    }

    fn get(&mut self, family: XtFamily, option: i32, value: &mut [u8]) -> io::Result<usize> {
        let length = self.kernel.get(family, option, value)?;
        let before = self.heard.borrow().iter().rev().nth(1).cloned();
        // The second answer about a table equals that before its entries, and `Replay` repeats it.
        if option != xtables::raw::IPT_SO_GET_INFO || before.as_deref() != Some(&*value) {
            self.hear(value);
        }
        Ok(length)
    }

    fn replace(
        &mut self,
        family: XtFamily,
        value: &mut [u8],
        counters: &mut [u8],
    ) -> io::Result<()> {
        self.kernel.replace(family, value, counters)
    }

    fn add_counters(&mut self, family: XtFamily, value: &[u8]) -> io::Result<()> {
        self.kernel.add_counters(family, value)
    }
}

/// Writes the recorded part of the corpus: `netlink`, `attributes`, `nft`, `xtables` and `ipset`.
///
/// `texts` is the folder of the rules and sets to load, `netfilter/tests/kernel`. Needs root, `nft` and `nsenter`.
///
/// # Errors
/// A text cannot be loaded, a request fails, or a file cannot be written.
pub fn record(texts: &Path, corpus: &Path) -> Fallible<()> {
    for entry in std::fs::read_dir(texts.join("listing"))? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .and_then(|n| n.to_str())
            .unwrap_or("listing");
        let ns = Netns::create()?;
        load(&ns, &std::fs::read_to_string(&path)?)?;
        let heard = ns.run(|| listen(|socket| nft::NftEngine::with_socket(socket).read()))??;
        attributes(corpus, name, &heard)?;
        keep(corpus, "nft", name, &heard)?;
    }
    for (family, name) in [(XtFamily::Ip, "rules-ip"), (XtFamily::Ip6, "rules-ip6")] {
        let text = std::fs::read_to_string(texts.join("xtables").join(format!("{name}.txt")))?;
        let script = Script::parse(family, &text).map_err(|e| e.to_string())?;
        let heard = Netns::create()?.run(|| tables(&script))??;
        keep(corpus, "xtables", name, &heard)?;
    }
    for entry in std::fs::read_dir(texts.join("ipset"))? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("sets");
        let text = std::fs::read_to_string(&path)?;
        let heard = Netns::create()?.run(|| {
            ipset::IpsetEngine::open()?.restore(&text, ipset::Existing::Refuse)?;
            listen(|socket| ipset::IpsetEngine::with_socket(socket)?.list(None))
        })??;
        keep(corpus, "ipset", name, &heard)?;
    }
    let ns = Netns::create()?;
    load(&ns, "table inet weir { }\ntable ip theirs { }\n")?;
    for (which, name) in ["dump", "get", "batch", "requests"].iter().enumerate() {
        let heard = ns.run(|| listen(|socket| answers(which, socket)))??;
        let mut input = vec![u8::try_from(which)?];
        input.extend(heard.encode());
        write(corpus, "netlink", name, &input)?;
    }
    Ok(())
}

fn write(corpus: &Path, target: &str, name: &str, input: &[u8]) -> io::Result<()> {
    let folder = corpus.join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), input)
}

fn keep(corpus: &Path, target: &str, name: &str, heard: &Conversation) -> io::Result<()> {
    write(corpus, target, name, &heard.encode())
}

/// Runs `nft -f -` in a network namespace.
fn load(ns: &Netns, text: &str) -> Fallible<()> {
    let mut nft = Command::new("nsenter")
        .arg(format!("--net={}", ns.path().display()))
        .args(["nft", "-f", "-"])
        .stdin(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = nft.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    match nft.wait()?.success() {
        true => Ok(()),
        false => Err("nft refuses a text of netfilter/tests/kernel/listing".into()),
    }
}

/// Records the answers of the kernel during `ask`, and drops its result.
fn listen<T>(
    ask: impl FnOnce(Socket<Recorder<weir_netlink::NetlinkSocket>>) -> weir_netlink::Result<T>,
) -> weir_netlink::Result<Conversation> {
    let heard = Heard::default();
    let kernel = weir_netlink::NetlinkSocket::open::<Netfilter>()?;
    ask(Socket::with_transport(Recorder {
        kernel,
        heard: Rc::clone(&heard),
    }))?;
    Ok(Conversation {
        answers: heard.take(),
    })
}

fn tables(script: &Script) -> weir_netlink::Result<Conversation> {
    ipset::IpsetEngine::open()?.restore(SETS, ipset::Existing::Refuse)?;
    xtables::XtEngine::open()?.restore(script, false)?;
    let heard = Heard::default();
    let recorder = Recorder {
        kernel: xtables::XtSockets::open()?,
        heard: Rc::clone(&heard),
    };
    xtables::XtEngine::with_transport(recorder, Box::new(SocketSets::open()?)).read()?;
    Ok(Conversation {
        answers: heard.take(),
    })
}

/// Sends the requests of the target `netlink`. If a request can be refused, it is, because refusals contain the most attributes.
fn answers(
    which: usize,
    mut socket: Socket<Recorder<weir_netlink::NetlinkSocket>>,
) -> weir_netlink::Result<()> {
    let absent = TableAttrs {
        name: Some("absent".to_owned()),
        ..TableAttrs::default()
    };
    let kind = |message| message_type(NFNL_SUBSYS_NFTABLES, message);
    match which {
        0 => drop(socket.dump(
            kind(raw::NFT_MSG_GETTABLE),
            0,
            &TableAttrs::default(),
            "tables",
        )?),
        1 => drop(socket.get(
            kind(raw::NFT_MSG_GETGEN),
            0,
            &GenAttrs::default(),
            "generation",
        )?),
        2 => {
            let mut batch = Batch::new(NFNL_SUBSYS_NFTABLES, None);
            batch.push(raw::NFT_MSG_DELTABLE, 0, 1, &absent);
            batch.push(raw::NFT_MSG_DELTABLE, 0, 1, &absent);
            drop(socket.commit(batch)?);
        }
        _ => {
            let mut requests = Requests::new(NFNL_SUBSYS_NFTABLES);
            requests.push(raw::NFT_MSG_GETTABLE, 0, 1, &absent);
            requests.push(raw::NFT_MSG_GETTABLE, 0, 1, &absent);
            drop(socket.exchange(requests, "requests")?);
        }
    }
    Ok(())
}

/// Writes the attributes of one object of each kind, after the number that selects their declaration in the target.
fn attributes(corpus: &Path, name: &str, heard: &Conversation) -> Fallible<()> {
    let kinds = [
        (raw::NFT_MSG_NEWTABLE, 0),
        (raw::NFT_MSG_NEWCHAIN, 1),
        (raw::NFT_MSG_NEWRULE, 2),
        (raw::NFT_MSG_NEWSET, 3),
        (raw::NFT_MSG_NEWSETELEM, 4),
        (raw::NFT_MSG_NEWOBJ, 11),
    ];
    for (message, which) in kinds {
        let wanted = message_type(NFNL_SUBSYS_NFTABLES, message).to_ne_bytes();
        let is_it = |d: &&Vec<u8>| d.get(4..6) == Some(&wanted);
        let Some(datagram) = heard.answers.iter().find(is_it) else {
            continue;
        };
        let length = datagram.first_chunk().map_or(0, |l| u32::from_ne_bytes(*l));
        let end = usize::try_from(length)?.min(datagram.len());
        let mut input = vec![which];
        // The attributes follow `struct nlmsghdr` and `struct nfgenmsg`.
        input.extend(datagram.get(20..end).unwrap_or_default());
        write(corpus, "attributes", &format!("{name}-{which}"), &input)?;
    }
    Ok(())
}
