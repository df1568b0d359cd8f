//! From one desired state to another.

use crate::scene::{NEIGHBOUR, POD, PROXY, SECOND, Scene};
use weir_ebpf::node::Wanted;

/// Names are captured no more while the proxy is the same; what comes after that is captured, and names again.
#[test]
fn the_capture_of_names_is_switched_off_and_on() {
    for scene in Scene::builds() {
        scene.serve();
        let wanted = |pods: &[u8], proxy, dns| Wanted {
            dns,
            ..scene.wanted(pods, proxy)
        };
        scene.apply(&wanted(&[POD], PROXY, true));
        scene.apply(&wanted(&[POD], PROXY, false));
        scene.apply(&wanted(&[POD, NEIGHBOUR], PROXY, false));
        assert_eq!([POD, NEIGHBOUR].map(|n| scene.asked_by(n)), ["first"; 2]);
        scene.apply(&wanted(&[POD], SECOND, false));
        scene.apply(&wanted(&[POD], SECOND, true));
        assert_eq!(scene.asked_by(POD), "second");
    }
}
