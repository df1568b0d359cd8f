//! Names at the limits of the API server and of ztunnel, beside other pods, which arrive unchanged.

use crate::support::{LONG, Scene, id, pod};
use prost::Message;
use std::fs::File;
use std::sync::Arc;
use weir_testing::ztunnel::Ztunnel;
use weir_zds::Workload;
use weir_zds::message::{AddWorkload, Request, WorkloadInfo, WorkloadRequest};

/// The maximum number of bytes of a request: ztunnel reads 1024, and refuses a packet that fills the buffer.
const MOST: usize = 1023;

fn named(netns: &Arc<File>, [uid, name, namespace, account]: [&str; 4]) -> Workload {
    Workload {
        name: name.into(),
        namespace: namespace.into(),
        service_account: account.into(),
        ..pod(uid, Some(netns))
    }
}

/// The length of the request that adds the pod.
fn length(pod: &Workload) -> usize {
    let info = WorkloadInfo {
        name: pod.name.to_string(),
        namespace: pod.namespace.to_string(),
        service_account: pod.service_account.to_string(),
    };
    let add = AddWorkload {
        uid: pod.uid.to_string(),
        workload_info: Some(info),
    };
    let payload = Some(Request::Add(add));
    WorkloadRequest { payload }.encoded_len()
}

/// Pods with unusual names, each with its own UID.
fn odd(netns: &Arc<File>) -> Vec<Workload> {
    let (n, z) = ("n".repeat(253), "z".repeat(63));
    let uid = "0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f";
    // As many bytes as fit, in one of the fields.
    let filled = |uid: &str, more: usize, letter: &str| {
        let mut pod = named(netns, [uid, &n, "shop", &n]);
        while length(&pod) + letter.len() <= MOST + more {
            pod.namespace = format!("{}{letter}", pod.namespace).into();
        }
        pod
    };
    vec![
        named(netns, [uid, &n, &z, &n]),
        named(netns, ["u-name-254", &format!("{n}n"), &z, &n]),
        named(netns, ["u-namespace-64", &n, &format!("{z}z"), &n]),
        named(netns, [&"u".repeat(253), &n, &z, &n]),
        named(netns, [&"u".repeat(1000), "p", "shop", "web"]),
        named(netns, [&"u".repeat(1100), "p", "shop", "web"]),
        named(netns, ["u-umlauts", "pöd-ñame", "名前空間", "имя"]),
        named(netns, ["ü-🦀-\u{202e}", "p", "shop", "web"]),
        named(netns, ["u-euros", &"€".repeat(253), &"é".repeat(63), "web"]),
        named(
            netns,
            ["u-crabs", &"🦀".repeat(253), &"🦀".repeat(63), "web"],
        ),
        named(netns, ["u-control", "a\0b\n\u{7f}", "s/h/o/p", " "]),
        named(netns, ["u-empty", "", "", ""]),
        filled("u-full", 0, "x"),
        filled("u-one-more", 1, "x"),
        filled("u-full-of-euros", 0, "€"),
        filled("u-euros-over", 3, "€"),
        named(netns, ["u-huge", &"n".repeat(1 << 20), "shop", "web"]),
    ]
}

/// Checks that all pods arrive with their names, and that exactly those that do not fit are reported.
fn arrives(scene: &Scene, ztunnel: &Ztunnel, netns: &Arc<File>, pods: &[Workload]) {
    let (fit, others): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| length(pod) <= MOST);
    scene.node.says(&format!("snapshot {} 0", fit.len()));
    let carried = ztunnel.pods();
    assert_eq!(carried.len(), fit.len(), "{:?}", carried.keys());
    for pod in fit {
        let found = &carried[&*pod.uid];
        assert_eq!(found.name, format!("{}/{}", pod.namespace, pod.name));
        assert_eq!(found.netns, id(netns), "{}", pod.uid);
    }
    let refused = scene.node.said("refused");
    assert_eq!(refused.len(), others.len(), "{refused:?}");
    for pod in others {
        let told = format!("refused {}: its names take {} bytes", pod.uid, length(pod));
        assert!(refused.iter().any(|said| said.starts_with(&told)), "{told}");
    }
    assert_eq!(scene.node.said("closed"), Vec::<String>::new());
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn names_at_the_limits_leave_the_others_of_the_snapshot_intact() {
    let netns = crate::namespace_or_skip!();
    let odd = odd(&netns);
    let fit = odd.iter().filter(|pod| length(pod) <= MOST).count();
    assert!(fit >= 9 && odd.len() - fit >= 5, "{fit} of {}", odd.len());
    assert!(odd.iter().any(|pod| length(pod) == MOST));
    assert!(odd.iter().any(|pod| length(pod) == MOST + 1));
    let plain = ["first", "between", "last"].map(|uid| pod(uid, Some(&netns)));
    let [first, between, last] = plain;
    let (some, more) = odd.split_at(odd.len() / 2);
    let pods = [&[first], some, &[between], more, &[last]].concat();
    let scene = Scene::new();
    scene.node.set(&pods);
    let ztunnel = Ztunnel::connect(&scene.path());
    arrives(&scene, &ztunnel, &netns, &pods);
}

/// Each pod is sent between two others, so that no other failure can hide its own, and then alone.
#[test]
fn each_odd_name_is_added_and_removed_beside_others() {
    let netns = crate::namespace_or_skip!();
    let scene = Scene::new();
    scene.node.set(&[pod("other", Some(&netns))]);
    let ztunnel = Ztunnel::connect(&scene.path());
    scene.node.says("snapshot 1 0");
    let handle = scene.handle();
    for odd in odd(&netns) {
        let added = handle.add(&odd, LONG);
        assert_eq!(added.is_ok(), length(&odd) <= MOST, "{added:?} {}", odd.uid);
        let found = ztunnel.pods().get(&*odd.uid).map(|pod| pod.name.clone());
        let name = format!("{}/{}", odd.namespace, odd.name);
        assert_eq!(found, added.is_ok().then_some(name), "{}", odd.uid);
        assert_eq!(handle.remove(&odd.uid, LONG), Ok(()), "{}", odd.uid);
        assert_eq!(Vec::from_iter(ztunnel.pods().into_keys()), ["other"]);
    }
    assert_eq!(scene.node.said("closed"), Vec::<String>::new());
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}
