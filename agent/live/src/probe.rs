//! `run_validation`: checks that a connection of the proxy to a port without a listener is redirected.
//!
//! The same check as upstream's `istio-validation` container: sockets at the proxy's ports on the loopback
//! address, and connections to the probe's port at the passthrough address, `127.0.0.6` or `::6`. They are opened
//! as the proxy's user: the rules do not redirect traffic of other users on `lo`. The probe succeeds if one of the
//! listeners accepts a connection whose original destination is the probe's port.

use crate::Owner;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Timeout of one connection; then another one is made.
const ROUND: Duration = Duration::from_secs(1);

/// Parameters of the probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Owner of the sockets.
    pub owner: Owner,
    /// Use IPv6: the pod's first address is IPv6.
    pub ipv6: bool,
    /// The proxy's outbound and inbound ports.
    pub listen: [u16; 2],
    /// `iptables_probe_port`
    pub port: u16,
    /// `probe_timeout`
    pub limit: Duration,
}

impl Probe {
    /// Probes in the network namespace of the calling thread, on a separate thread.
    ///
    /// # Errors
    /// The reason why the check failed: no listener could be opened, or no connection arrived within the limit.
    pub fn run(self) -> Result<(), String> {
        // The owner of a thread's sockets is not restored, so the thread must end.
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.owner.become_it().map_err(|e| e.to_string())?;
                self.here()
            });
            thread
                .join()
                .unwrap_or_else(|_| Err("the probe broke off".to_owned()))
        })
    }

    fn here(self) -> Result<(), String> {
        let deadline = Instant::now() + self.limit;
        let (from, to): (IpAddr, IpAddr) = match self.ipv6 {
            true => (
                Ipv6Addr::LOCALHOST.into(),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6).into(),
            ),
            false => (
                Ipv4Addr::LOCALHOST.into(),
                Ipv4Addr::new(127, 0, 0, 6).into(),
            ),
        };
        let to = SocketAddr::new(to, self.port);
        let [outbound, inbound] = self.listen;
        let (mut listeners, mut refused) = (Vec::new(), Vec::new());
        for port in [outbound, inbound] {
            let at = SocketAddr::new(from, port);
            match listen(at) {
                Ok(listener) => listeners.push(listener),
                Err(e) => refused.push(format!("{at}: {e}")),
            }
        }
        if listeners.is_empty() {
            return Err(format!(
                "nothing can listen where the proxy would: {}; the probe runs before the proxy does",
                refused.join(", ")
            ));
        }
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(format!(
                    "no connection from {from} to {to} by user and group {} arrived at ports {outbound} or \
                     {inbound} within {:?}",
                    self.owner, self.limit
                ));
            }
            let round = deadline.min(now + ROUND);
            // A failure is retried: an address may still be tentative.
            let client = connect(from, to);
            if self.accepts(&listeners, round)? {
                return Ok(());
            }
            drop(client);
        }
    }

    /// Whether a connection for the probe's port arrives before `until`; other connections are answered and closed.
    fn accepts(self, listeners: &[Socket], until: Instant) -> Result<bool, String> {
        let failed = |e: &dyn std::fmt::Display| format!("cannot wait for a connection: {e}");
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut fds: Vec<PollFd<'_>> = listeners
                .iter()
                .map(|l| PollFd::new(l.as_fd(), PollFlags::POLLIN))
                .collect();
            let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1))
                .unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(failed(&e)),
            }
            for listener in listeners {
                while let Ok((accepted, _)) = listener.accept() {
                    if answer(accepted).is_some_and(|port| port == self.port) {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// Sends the client its original destination port, as upstream's listener does.
fn answer(accepted: Socket) -> Option<u16> {
    let local = accepted.local_addr().ok()?.as_socket()?;
    let port = original_destination(&accepted, local).port();
    let mut stream = TcpStream::from(accepted);
    // Only the port matters; the client may have disconnected.
    let _ = stream.write_all(port.to_string().as_bytes());
    Some(port)
}

/// The original destination before it was rewritten, from connection tracking:
/// `getsockopt(SO_ORIGINAL_DST)`. Without an entry, the socket's local address.
pub fn original_destination(socket: &impl AsFd, local: SocketAddr) -> SocketAddr {
    let found = if local.is_ipv6() {
        getsockopt(socket, sockopt::Ip6tOriginalDst).map(|raw| {
            let address = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            SocketAddr::new(address.into(), u16::from_be(raw.sin6_port))
        })
    } else {
        getsockopt(socket, sockopt::OriginalDst).map(|raw| {
            let address = Ipv4Addr::from(u32::from_be(raw.sin_addr.s_addr));
            SocketAddr::new(address.into(), u16::from_be(raw.sin_port))
        })
    };
    found.unwrap_or(local)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen(at: SocketAddr) -> io::Result<Socket> {
    let socket = open(at)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&at.into())?;
    socket.listen(16)?;
    Ok(socket)
}

/// Starts a non-blocking connection; the kernel completes it in the background.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<Socket> {
    let socket = open(to)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(e),
        _ => Ok(socket),
    }
}
