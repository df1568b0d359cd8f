//! Watches the pods and namespaces of the API server, for the lifetime of the process.
//!
//! kube's watcher lists and watches. This module decides what the watcher leaves open: the pause after a failure, when to
//! list again, and how to handle servers that do not support streaming lists, which reject them in several ways. Each of
//! these leads to a paginated list.

use super::seen::{SeenNamespace, SeenPod, Watched};
use super::watch_error::WatchError;
use super::{Pods, Writer};
use crate::api::access::Access;
use crate::api::connection::Connection;
use crate::api::pace::Backoff;
use crate::journal::Journal;
use crate::journal::watch::{Event as Told, Kind, News, Objects};
use futures::future::{Either, select};
use futures::stream::{BoxStream, StreamExt};
use kube::Api;
use kube::runtime::watcher::{self, Event};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Objects per page, which is held in memory completely: about 10 KiB per pod, 1 KiB per metadata of a namespace.
const PODS: u32 = 50;
const NAMESPACES: u32 = 500;
/// Time limit for a streaming list. One that is not complete by then never will be: the server may know the request but
/// not send the bookmark that ends the list.
const STREAMED: Duration = Duration::from_secs(15);
/// Time limit for the answer to a watch that continues a complete list: after that the list is not known to be current.
const CONFIRMED: Duration = Duration::from_secs(10);

/// The watch of the node's pods and of all namespaces.
pub struct Watch {
    /// One for pods, one for namespaces.
    connections: [Connection; 2],
    node: String,
    is_ambient: bool,
    pods: Pods,
    writer: Arc<Mutex<Writer>>,
    journal: Journal,
}

impl Watch {
    /// Creates the watch without sending a request. In ambient mode the handling of pods depends on their namespaces, too.
    ///
    /// # Errors
    /// The name of the node or the address of the API server cannot be used.
    pub fn new(
        access: &Access,
        node: &str,
        is_ambient: bool,
        journal: Journal,
    ) -> Result<Self, String> {
        let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'));
        if node.contains(odd) {
            return Err(format!(
                "NODE_NAME is {node:?}, which is not the name of a node; set it from spec.nodeName"
            ));
        }
        let (pods, writer) = Pods::new();
        Ok(Self {
            connections: [
                Connection::of_list(access, SeenPod::LISTS)?,
                Connection::of_list(access, SeenNamespace::LISTS)?,
            ],
            node: node.to_owned(),
            is_ambient,
            pods,
            writer: Arc::new(Mutex::new(writer)),
            journal,
        })
    }

    /// Returns the store that the watch fills.
    pub fn pods(&self) -> Pods {
        self.pods.clone()
    }

    /// Runs forever. Failures are logged, counted and retried.
    pub async fn run(self) {
        let of_node = watcher::Config::default()
            .page_size(PODS)
            .fields(&format!("spec.nodeName={}", self.node));
        let all = watcher::Config::default().page_size(NAMESPACES);
        let [for_pods, for_namespaces] = &self.connections;
        let pods = self.follow::<SeenPod>(for_pods, of_node);
        let namespaces = self.follow::<SeenNamespace>(for_namespaces, all);
        futures::future::join(pods, namespaces).await;
    }

    async fn follow<K: Watched>(&self, connection: &Connection, config: watcher::Config) {
        let of = K::objects(&self.node, self.is_ambient);
        self.journal.record(Told::Begins { of: of.clone() });
        let mut course = Course::<K> {
            watch: self,
            of,
            connection,
            api: Api::all(connection.client()),
            config,
            streaming: true,
            lists: 0,
            complete: false,
            seen: false,
            failing: None,
            backoff: Backoff::default(),
        };
        course.run().await;
    }
}

/// The watch of one kind of object, and its state.
struct Course<'a, K: Watched> {
    watch: &'a Watch,
    of: Objects,
    connection: &'a Connection,
    api: Api<K>,
    config: watcher::Config,
    /// Streaming lists are requested.
    streaming: bool,
    /// Number of lists that the current watcher began.
    lists: u32,
    /// The list of the current watcher is complete.
    complete: bool,
    /// A list has been complete at least once.
    seen: bool,
    /// The last failure, until the next success.
    failing: Option<Kind>,
    backoff: Backoff,
}

/// The next thing to handle: an event of the stream, a watch or an answer on the connection, or the time limit of the list or answer.
enum Next<K> {
    Event(Option<Result<Event<K>, watcher::Error>>),
    Asked,
    Late,
}

impl<K: Watched> Course<'_, K> {
    async fn run(&mut self) {
        loop {
            let stream = self.stream();
            self.until_broken(stream).await;
        }
    }

    fn stream(&mut self) -> BoxStream<'static, Result<Event<K>, watcher::Error>> {
        let config = match self.streaming {
            true => self.config.clone().streaming_lists(),
            false => self.config.clone(),
        };
        (self.lists, self.complete) = (0, false);
        watcher::watcher(self.api.clone(), config).boxed()
    }

    /// Handles events until a new list is needed.
    async fn until_broken(
        &mut self,
        mut stream: BoxStream<'static, Result<Event<K>, watcher::Error>>,
    ) {
        let mut asked = self.connection.unanswered();
        let begun = Instant::now();
        loop {
            let since = *asked.borrow_and_update();
            let deadline = match since {
                Some(since) if self.complete && self.failing.is_none() => {
                    CONFIRMED.saturating_sub(since.elapsed())
                }
                _ if self.streaming && !self.complete => STREAMED.saturating_sub(begun.elapsed()),
                // The connection has its own time limits.
                _ => Duration::MAX,
            };
            let next = {
                let event = tokio::time::timeout(deadline, stream.next());
                match select(pin!(event), pin!(asked.changed())).await {
                    Either::Left((Ok(event), _)) => Next::Event(event),
                    Either::Left((Err(_), _)) => Next::Late,
                    Either::Right(_) => Next::Asked,
                }
            };
            let failure = match next {
                Next::Event(Some(Ok(event))) => match self.event(event) {
                    Ok(()) => continue,
                    Err(failure) => failure,
                },
                Next::Event(Some(Err(e))) => WatchError::of(&e),
                // After a failure that did not end the watch, the server answers again.
                Next::Asked => {
                    if self.complete && asked.borrow().is_none() {
                        self.works();
                    }
                    continue;
                }
                // It may be answered yet: the connection has a longer time limit.
                Next::Late if self.complete => {
                    let why = format!("the next watch is not answered within {CONFIRMED:?}");
                    self.fails(&WatchError::new(Kind::Slow, why));
                    continue;
                }
                Next::Late => {
                    WatchError::refusal(Kind::Slow, format!("no list within {STREAMED:?}"))
                }
                Next::Event(None) => return,
            };
            let listing = !self.complete;
            if self.streaming && listing && failure.refusal {
                self.streaming = false;
                let (of, why) = (self.of.clone(), failure.to_string());
                self.watch.journal.record(Told::Paged { of, why });
                return;
            }
            self.fails(&failure);
            let pause = self.backoff.pause(Instant::now());
            tokio::time::sleep(pause.max(self.connection.held())).await;
            if listing || failure.needs_list() {
                return;
            }
        }
    }

    fn event(&mut self, event: Event<K>) -> Result<(), WatchError> {
        if let Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) = &event {
            let checked = object.check();
            checked.map_err(|why| WatchError::refusal(Kind::Garbage, why))?;
        }
        let watch = self.watch;
        let mut applied = Ok(());
        {
            let mut writer = watch.writer.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                Event::Init => {
                    K::begin(&mut writer);
                    self.lists += 1;
                }
                Event::InitApply(object) | Event::Apply(object) => {
                    applied = object.apply(&mut writer);
                }
                Event::Delete(object) => object.delete(&mut writer),
                Event::InitDone => {
                    K::complete(&mut writer);
                    self.complete = true;
                }
            }
        }
        if let Err(why) = applied {
            watch.journal.record(Told::Unreadable { why });
        }
        if self.complete {
            self.works();
        } else if self.streaming && self.lists > 1 {
            // kube's watcher would restart the list immediately, endlessly.
            return Err(WatchError::refusal(
                Kind::Slow,
                "its list ends before its end",
            ));
        }
        Ok(())
    }

    fn works(&mut self) {
        let news = match (self.failing.take(), std::mem::replace(&mut self.seen, true)) {
            (Some(_), _) => News::Again,
            (None, false) => News::First,
            (None, true) => News::Nothing,
        };
        let writer = &self.watch.writer;
        let left_out = K::left_out(&writer.lock().unwrap_or_else(PoisonError::into_inner));
        self.watch.journal.record(Told::Works {
            of: self.of.clone(),
            known: K::known(&self.watch.pods),
            news,
            left_out,
        });
    }

    fn fails(&mut self, failure: &WatchError) {
        self.watch.journal.record(Told::Fails {
            of: self.of.clone(),
            known: K::known(&self.watch.pods),
            kind: failure.kind,
            why: failure.to_string(),
            repeated: self.failing.replace(failure.kind) == Some(failure.kind),
        });
    }
}
