//! Proxies that are not ready while their pods run: open connections stay with the proxy that has them.

use crate::scene::{
    OUTSIDE, POD, PROXY, SECOND, Scene, Servers, ask, connect, connects, inside, set,
};
use crate::{carrier, each, up};
use std::net::{SocketAddr, TcpStream};
use weir_node_ambient::{apply, compare, remove};

/// Connections from the pod and to it, over both families.
fn open(scene: &Scene) -> Vec<TcpStream> {
    let ways = [(&scene.pod, OUTSIDE), (&scene.outside, POD)];
    let all = [false, true]
        .into_iter()
        .flat_map(|v6| ways.map(|(from, to)| (from, SocketAddr::new(inside(to, v6), 8080))));
    all.map(|(from, to)| connect(from, to).unwrap()).collect()
}

/// Each connection is answered through the proxy whose names begin so.
fn pass(streams: &mut [TcpStream], who: &str) {
    let answers = ["outbound|outside|x", "inbound|pod|x"].repeat(2);
    for (stream, answer) in streams.iter_mut().zip(answers) {
        let said = ask(stream, "x").unwrap_or_else(|e| e.to_string());
        assert_eq!(said, format!("{who}{answer}"));
    }
}

/// The older proxy drains, and the newer one misses a readiness probe.
#[test]
fn two_proxies_that_are_not_ready_keep_their_connections() {
    each(&["veth"], |scene, engine, name| {
        let servers = Servers::start(scene);
        let names = ["second outbound", "second inbound", "second hbone"];
        servers.proxy(&scene.second, names);
        // As systemd sets it for new links.
        for device in ["v2", "v3"] {
            let key = format!("ipv4/conf/{device}/rp_filter");
            set(&scene.node, &key, "2");
        }
        let more = carrier(name);
        if !up(scene, engine, &more) {
            return;
        }
        let switch = |ready: [bool; 2]| {
            let mut config = scene.config(&[(PROXY, 1), (SECOND, 2)], &more);
            for (proxy, ready) in config.proxies.iter_mut().zip(ready) {
                proxy.ready = ready;
            }
            apply(&config, &scene.node, Some(engine), false).unwrap();
            let left = compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
        };
        let mut first = open(scene);
        pass(&mut first, "");
        switch([false, true]);
        let mut second = open(scene);
        pass(&mut first, "");
        pass(&mut second, "second ");
        switch([false, false]);
        pass(&mut first, "");
        pass(&mut second, "second ");
        let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
        assert!(!connects(&scene.pod, to));
        switch([false, true]);
        pass(&mut first, "");
        pass(&mut second, "second ");
        pass(&mut open(scene), "second ");
        // Its pod has ended.
        let config = scene.config(&[(SECOND, 2)], &more);
        apply(&config, &scene.node, Some(engine), false).unwrap();
        pass(&mut second, "second ");
        remove(&scene.node, Some(&config)).unwrap();
    });
}
