//! Listens for routing changes in the node's network namespace (rtnetlink multicast groups).
//!
//! ```text
//! kernel -> socket -> Heard (the latest counters only) -> keep, which heals the node
//! ```
//! Notifications only trigger a comparison, which reads the state itself. None of them is stored: the queue
//! consists of two counters, and lost notifications trigger a full comparison.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::{FutureExt, Stream};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::proto::Connection;
use rtnetlink::sys::SocketAddr;
use rtnetlink::{MulticastGroup, new_multicast_connection};
use tokio::runtime::Handle;
use tokio::sync::watch;
use weir_core::journal::Journal;
use weir_core::journal::ambient::Event;
use weir_netlink::Netns;

/// Delay between attempts to listen: initial and maximum.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The kinds of notifications to receive.
#[derive(Clone, Copy)]
pub enum Of {
    /// Policy rules.
    Rules,
    /// Policy rules, routes, addresses and links.
    All,
}

impl Of {
    fn groups(self) -> &'static [MulticastGroup] {
        use MulticastGroup::{
            Ipv4Ifaddr, Ipv4Route, Ipv4Rule, Ipv6Ifaddr, Ipv6Route, Ipv6Rule, Link,
        };
        match self {
            Self::Rules => &[Ipv4Rule, Ipv6Rule],
            Self::All => &[
                Ipv4Rule, Ipv6Rule, Ipv4Route, Ipv6Route, Ipv4Ifaddr, Ipv6Ifaddr, Link,
            ],
        }
    }
}

/// Counters of notifications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Incremented with each change.
    pub changes: u64,
    /// Incremented when notifications may have been lost: what changed is unknown.
    pub gaps: u64,
}

/// Receives the notifications of one network namespace and publishes the counters.
pub struct Listener {
    netns: Option<PathBuf>,
    of: Of,
    heard: watch::Sender<Heard>,
    journal: Journal,
}

type Message = NetlinkMessage<RouteNetlinkMessage>;
type Messages = UnboundedReceiver<(Message, SocketAddr)>;

/// The socket of a listener.
trait Socket {
    /// Ready when the socket has failed. Each turn takes all received messages, whose number the runtime limits, so that they do
    /// not accumulate in the connection's unbounded channel.
    fn turn(&mut self, context: &mut Context<'_>, listener: &Listener) -> Poll<()>;
}

/// A netlink connection and its messages.
struct Open {
    connection: Connection<RouteNetlinkMessage>,
    messages: Messages,
}

impl Listener {
    /// Creates a listener for the network namespace at this path; `None`: that of this process.
    pub fn new(netns: Option<PathBuf>, of: Of, journal: Journal) -> (Self, watch::Receiver<Heard>) {
        let (heard, receiver) = watch::channel(Heard::default());
        let listener = Self {
            netns,
            of,
            heard,
            journal,
        };
        (listener, receiver)
    }

    /// Listens forever and reopens the socket after failures. Each period without a socket counts as a gap.
    pub async fn run(self) {
        let open = || Open::at(self.netns.as_deref(), self.of.groups());
        self.keep_open(open, tokio::time::sleep).await;
    }

    async fn keep_open<S: Socket, W: Future<Output = ()>>(
        &self,
        open: impl Fn() -> Result<S, String>,
        wait: impl Fn(Duration) -> W,
    ) {
        let mut pause = PAUSES.0;
        let mut told = false;
        loop {
            let why = match open() {
                Ok(mut socket) => {
                    if std::mem::take(&mut told) {
                        let failure = None;
                        self.journal.record(Event::RoutingReports { failure });
                    }
                    pause = PAUSES.0;
                    self.lost();
                    poll_fn(|context| socket.turn(context, self)).await;
                    "the socket cannot be read".to_owned()
                }
                Err(why) => why,
            };
            if !std::mem::replace(&mut told, true) {
                let failure = Some(why);
                self.journal.record(Event::RoutingReports { failure });
            }
            wait(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn lost(&self) {
        self.heard.send_modify(|heard| heard.gaps += 1);
    }

    fn take(&self, message: &Message) {
        match message.payload {
            NetlinkPayload::InnerMessage(_) => {
                self.heard.send_modify(|heard| heard.changes += 1);
            }
            NetlinkPayload::Overrun(_) => {
                self.journal.record(Event::RoutingReportsLost);
                self.lost();
            }
            _ => {}
        }
    }
}

impl Open {
    fn at(netns: Option<&Path>, groups: &[MulticastGroup]) -> Result<Self, String> {
        let runtime = Handle::current();
        let open = || {
            // The thread that enters the network namespace does not belong to the runtime.
            let _entered = runtime.enter();
            new_multicast_connection(groups).map_err(|e| e.to_string())
        };
        let (connection, _, messages) = match netns {
            None => open(),
            Some(path) => Netns::open(path)
                .and_then(|netns| netns.run(open))
                .map_err(|e| e.to_string())
                .and_then(|opened| opened),
        }?;
        Ok(Self {
            connection,
            messages,
        })
    }
}

impl Socket for Open {
    fn turn(&mut self, context: &mut Context<'_>, listener: &Listener) -> Poll<()> {
        let ended = self.connection.poll_unpin(context);
        while let Poll::Ready(Some((message, _))) = Pin::new(&mut self.messages).poll_next(context)
        {
            listener.take(&message);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::{Arc, Mutex};
    use std::time::SystemTime;
    use weir_core::journal::Sink;
    use weir_netlink::route::{PolicyRule, Routing};

    const LONG: Duration = Duration::from_secs(30);

    fn runtime() -> tokio::runtime::Runtime {
        weir_core::thread::runtime::of_one_thread("test").unwrap()
    }

    fn rule(priority: u32) -> PolicyRule {
        PolicyRule::to("192.0.2.1/32".parse().unwrap(), 7).at(priority)
    }

    #[test]
    fn a_change_is_reported_and_one_of_another_kind_is_not() {
        let netns = weir_testing::namespace_or_skip!();
        let (listener, mut heard) =
            Listener::new(Some(netns.path()), Of::Rules, Journal::default());
        runtime().block_on(async {
            tokio::spawn(listener.run());
            let begun = heard.wait_for(|heard| heard.gaps == 1);
            tokio::time::timeout(LONG, begun).await.unwrap().unwrap();
            let routing = Routing::open_in(&netns).unwrap();
            routing.set_up(routing.link("lo").unwrap().index).unwrap();
            routing.add_rule(&rule(7)).unwrap();
            let changed = heard.wait_for(|heard| heard.changes > 0);
            let now = *tokio::time::timeout(LONG, changed).await.unwrap().unwrap();
            assert_eq!(
                now,
                Heard {
                    changes: 1,
                    gaps: 1
                }
            );
        });
    }

    /// A socket whose turns return this value.
    struct Fake(Poll<()>);

    impl Socket for Fake {
        fn turn(&mut self, _: &mut Context<'_>, _: &Listener) -> Poll<()> {
            self.0
        }
    }

    struct Failures(Arc<Mutex<Vec<Option<String>>>>);

    impl Sink for Failures {
        fn record(&self, _: SystemTime, event: &weir_core::journal::Event) {
            if let weir_core::journal::Event::Ambient(Event::RoutingReports { failure }) = event {
                self.0.lock().unwrap().push(failure.clone());
            }
        }
    }

    #[test]
    fn a_listener_that_fails_is_opened_again_with_growing_pauses() {
        let (journal, failures) = (Journal::default(), Arc::default());
        journal.add(Failures(Arc::clone(&failures)));
        let (listener, heard) = Listener::new(None, Of::All, journal);
        let refused = || Err("no".to_owned());
        let ended = || Ok(Fake(Poll::Ready(())));
        let first = std::iter::repeat_with(refused).take(6);
        let answers = first.chain([ended(), refused(), refused(), Ok(Fake(Poll::Pending))]);
        let answers = RefCell::new(answers);
        let pauses = RefCell::new(Vec::new());
        let wait = |pause: Duration| {
            pauses.borrow_mut().push(pause.as_secs());
            std::future::ready(())
        };
        let open = || answers.borrow_mut().next().unwrap();
        assert_eq!(listener.keep_open(open, wait).now_or_never(), None);
        // After a socket was open the delay starts again at the initial value.
        assert_eq!(pauses.into_inner(), [1, 2, 4, 8, 16, 30, 1, 2, 4]);
        // Changes while no socket was open may be lost.
        assert_eq!(heard.borrow().gaps, 2);
        // A failure is recorded once, and so is its end.
        let told = [Some("no"), None, Some("the socket cannot be read"), None];
        assert_eq!(
            *failures.lock().unwrap(),
            told.map(|t| t.map(str::to_owned))
        );
    }

    #[test]
    fn what_does_not_fit_the_socket_is_a_gap() {
        let netns = weir_testing::namespace_or_skip!();
        let (listener, heard) = Listener::new(Some(netns.path()), Of::Rules, Journal::default());
        runtime().block_on(async {
            let mut open = Open::at(Some(&netns.path()), Of::Rules.groups()).unwrap();
            let socket = open.connection.socket_mut();
            rtnetlink::sys::AsyncSocket::socket_mut(socket)
                .set_rx_buf_sz(1_u32)
                .unwrap();
            let routing = Routing::open_in(&netns).unwrap();
            for priority in 1..200 {
                routing.add_rule(&rule(priority)).unwrap();
            }
            let read = poll_fn(|context| open.turn(context, &listener));
            let mut newest = heard.clone();
            let lost = newest.wait_for(|heard| heard.gaps > 0);
            tokio::select! {
                () = read => panic!("the socket ended"),
                lost = tokio::time::timeout(LONG, lost) => { lost.unwrap().unwrap(); }
            }
            assert!(heard.borrow().changes < 199);
        });
    }
}
