//! Large segments: segments that an interface would split or merge arrive intact, whatever its offload settings are.

use crate::ebpf::{applied, builds, web};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, connect, socket, tool};
use crate::{each, up};
use socket2::Socket;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_testing::{BpfFs, sockets};

const LENGTH: usize = 2 << 20;

/// Runs `ethtool -K` for every interface of the scene. Prints the reason and returns false without the tool.
fn offload(scene: &Scene, gro: &str, tso: &str) -> bool {
    for netns in scene.all() {
        let set = || {
            let names = std::fs::read_dir("/proc/sys/net/ipv4/conf").unwrap();
            let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
            for name in names.filter(|n| n == "eth0" || (n.starts_with('v') && n.len() == 2)) {
                let args = ["-K", &name, "gro", gro, "tso", tso];
                let Some(run) = tool("ethtool", &args) else {
                    return false;
                };
                assert!(run.status.success(), "{args:?}: {run:?}");
            }
            true
        };
        if !netns.run(set).unwrap() {
            return false;
        }
    }
    true
}

fn any(v6: bool, port: u16) -> SocketAddr {
    let ip: IpAddr = if v6 { "::" } else { "0.0.0.0" }.parse().unwrap();
    SocketAddr::new(ip, port)
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// Another socket may have listened here before.
fn listen(netns: &Netns, at: SocketAddr, transparent: bool) -> Socket {
    let open = || {
        let listener = socket(at, transparent);
        listener.bind(&at.into())?;
        listener.listen(4)?;
        Ok::<_, std::io::Error>(listener)
    };
    netns.run(|| sockets::bound(open)).unwrap().unwrap()
}

/// Accepts one connection as the proxy does, and forwards it to its original destination.
fn proxy(netns: &Netns, v6: bool, port: u16) -> thread::JoinHandle<SocketAddr> {
    let (listener, netns) = (
        listen(netns, any(v6, port), true),
        netns.try_clone().unwrap(),
    );
    thread::spawn(move || {
        let (taken, peer) = listener.accept().unwrap();
        let to = taken.local_addr().unwrap().as_socket().unwrap();
        let from = peer.as_socket().unwrap().ip();
        let upstream = || {
            let socket = socket(to, true);
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            TcpStream::from(socket)
        };
        let upstream = netns.run(upstream).unwrap();
        let taken = TcpStream::from(taken);
        let (back, there) = (upstream.try_clone().unwrap(), taken.try_clone().unwrap());
        let answers = thread::spawn(move || copy(back, there));
        copy(taken, upstream);
        answers.join().unwrap();
        to
    })
}

/// Sends back everything that one connection sends.
fn echo(netns: &Netns, v6: bool) -> thread::JoinHandle<()> {
    let listener = listen(netns, any(v6, 8080), false);
    thread::spawn(move || {
        let taken = TcpStream::from(listener.accept().unwrap().0);
        copy(taken.try_clone().unwrap(), taken);
    })
}

/// Both directions, in both families, with each combination of offloads.
fn check(scene: &Scene) {
    for (gro, tso) in [("on", "off"), ("off", "on"), ("off", "off"), ("on", "on")] {
        if !offload(scene, gro, tso) {
            return;
        }
        transfer(scene, &format!("gro {gro} tso {tso}"));
    }
}

/// Transfers many bytes through the proxy and back, in both directions and both families.
fn transfer(scene: &Scene, what: &str) {
    let text: Vec<u8> = (0..LENGTH).map(|n| ((n * 31) >> 3) as u8).collect();
    for v6 in [false, true] {
        for (from, at, to, port) in [
            (&scene.pod, &scene.outside, web(OUTSIDE, v6), 15001),
            (&scene.outside, &scene.pod, web(POD, v6), 15006),
        ] {
            let (server, taken) = (echo(at, v6), proxy(&scene.proxy, v6, port));
            let mut stream = connect(from, to).unwrap();
            let mut got = Vec::new();
            let mut sends = stream.try_clone().unwrap();
            thread::scope(|scope| {
                scope.spawn(|| sends.write_all(&text).unwrap());
                let read = (&mut stream).take(LENGTH as u64).read_to_end(&mut got);
                read.unwrap_or_else(|e| panic!("{what} {to}: {e} after {} bytes", got.len()));
            });
            assert!(got == text, "{what} {to}: other bytes");
            stream.shutdown(Shutdown::Write).unwrap();
            drop((stream, sends));
            assert_eq!(taken.join().unwrap(), to, "{what}");
            server.join().unwrap();
        }
    }
}

/// Acceptance check 4 of eBPF mode.
#[test]
fn check_4_offloads_change_nothing() {
    for (scene, mounted) in builds() {
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        check(&scene);
    }
}

#[test]
fn offloads_change_nothing_for_rules_either() {
    each(&["geneve", "veth"], |scene, engine, carrier| {
        if up(scene, engine, &crate::carrier(carrier)) {
            check(scene);
        }
    });
}

/// The node's errors about too large segments have the pod's address as destination, and must reach the proxy.
// matrix: every
#[test]
fn the_proxy_learns_the_size_of_the_path_from_programs() {
    for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
        let Some(scene) = Scene::narrow() else {
            return;
        };
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        transfer(&scene, "a narrow path");
    }
}

#[test]
fn the_proxy_learns_the_size_of_the_path_from_rules() {
    for engine in [Engine::Nft, Engine::Xtables] {
        for carrier in crate::CARRIERS {
            let Some(scene) = Scene::narrow() else {
                return;
            };
            if up(&scene, engine, &crate::carrier(carrier)) {
                transfer(&scene, carrier);
            }
        }
    }
}
