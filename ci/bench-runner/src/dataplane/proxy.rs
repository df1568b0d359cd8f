//! A server, and a proxy that copies bytes as ztunnel does.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use weir_demo::{PROXY_OUTBOUND_PORT, ZTUNNEL_MARK, original_destination};
use weir_netlink::Netns;

/// The first byte of a connection: the server sends everything back.
pub(super) const ECHO: u8 = 1;
/// The first byte of a connection: the server sends one byte at the end.
pub(super) const SINK: u8 = 2;
const PATIENCE: Duration = Duration::from_secs(30);

/// A listener that accepts connections until it is dropped.
pub(super) struct Accepting {
    ends: Arc<AtomicBool>,
    netns: Netns,
    at: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        let at = self.at;
        let _ = self
            .netns
            .run(move || TcpStream::connect_timeout(&at, PATIENCE));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a listener; that of the proxy is transparent and has ztunnel's mark.
fn listen(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None)?;
    if at.port() == PROXY_OUTBOUND_PORT {
        socket.set_ip_transparent_v4(true)?;
        socket.set_mark(ZTUNNEL_MARK)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(1024)?;
    Ok(socket.into())
}

fn accept(
    netns: &Netns,
    at: SocketAddr,
    serve: fn(TcpStream) -> std::io::Result<()>,
) -> weir_netlink::Result<Accepting> {
    let failed = |e: &std::io::Error| weir_netlink::Error::io("listen", at.to_string(), e);
    let listener = netns.run(|| listen(at))?.map_err(|e| failed(&e))?;
    let ends = Arc::new(AtomicBool::new(false));
    let (end, inside) = (Arc::clone(&ends), netns.try_clone()?);
    let thread = std::thread::spawn(move || {
        // One thread per connection; it starts in the network namespace of this thread.
        let _ = inside.run(|| {
            for stream in listener.incoming().map_while(Result::ok) {
                if end.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::spawn(move || serve(stream));
            }
        });
    });
    Ok(Accepting {
        ends,
        netns: netns.try_clone()?,
        at,
        thread: Some(thread),
    })
}

pub(super) fn serve(netns: &Netns, at: SocketAddr) -> weir_netlink::Result<Accepting> {
    accept(netns, at, |mut stream| {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        let mut block = vec![0; 128 << 10];
        loop {
            match stream.read(&mut block)? {
                0 if kind == [SINK] => return stream.write_all(&[1]),
                0 => return Ok(()),
                n if kind == [ECHO] => stream.write_all(&block[..n])?,
                _ => {}
            }
        }
    })
}

pub(super) fn forward(netns: &Netns) -> weir_netlink::Result<Accepting> {
    let at = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PROXY_OUTBOUND_PORT);
    let mut accepting = accept(netns, at, |client| {
        let to = original_destination(&client, client.local_addr()?);
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.set_mark(ZTUNNEL_MARK)?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        let server = TcpStream::from(socket);
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        let (from, back) = (server.try_clone()?, client.try_clone()?);
        let answers = std::thread::spawn(move || copy(from, back));
        copy(client, server)?;
        answers.join().expect("no panic")
    })?;
    accepting.at.set_ip(Ipv4Addr::LOCALHOST.into());
    Ok(accepting)
}

fn copy(mut from: TcpStream, mut to: TcpStream) -> std::io::Result<()> {
    let mut block = vec![0; 128 << 10];
    loop {
        match from.read(&mut block)? {
            0 => return to.shutdown(Shutdown::Write),
            n => to.write_all(&block[..n])?,
        }
    }
}
