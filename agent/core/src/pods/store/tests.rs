//! Lists and single changes, and what there is no room for.

use super::*;
use crate::pods::REDIRECTION;

fn view(name: &str, version: &str) -> PodView {
    let mut view = PodView {
        resource_version: version.into(),
        ..PodView::default()
    };
    view.pod.metadata.namespace = "shop".into();
    view.pod.metadata.name = name.into();
    view
}

fn names(pods: &Pods) -> Vec<String> {
    pods.all().iter().map(|p| p.name().to_owned()).collect()
}

#[test]
fn a_list_is_seen_as_a_whole() {
    let (pods, mut writer) = Pods::new();
    let mut changes = pods.subscribe();
    writer.begin();
    writer.apply(view("a", "1")).unwrap();
    writer.apply(view("b", "1")).unwrap();
    assert!(pods.is_empty() && !pods.synced() && !changes.has_changed().unwrap());
    writer.complete();
    assert_eq!(names(&pods), ["a", "b"]);
    assert!(pods.synced() && changes.has_changed().unwrap());
    changes.borrow_and_update();
    // The next one names other pods; until it is complete, the old ones stay.
    writer.begin();
    writer.apply(view("b", "2")).unwrap();
    writer.apply(view("c", "2")).unwrap();
    writer.delete("shop", "c", None);
    assert_eq!(names(&pods), ["a", "b"]);
    assert!(!changes.has_changed().unwrap());
    // And it may be broken off.
    writer.begin();
    writer.apply(view("b", "3")).unwrap();
    writer.complete();
    assert_eq!(names(&pods), ["b"]);
    assert_eq!(pods.get("shop", "b").unwrap().resource_version, "3");
    assert_eq!(pods.get("other", "b"), None);
}

#[test]
fn single_changes_are_seen_at_once() {
    let (pods, mut writer) = Pods::new();
    let changes = pods.subscribe();
    writer.apply(view("a", "1")).unwrap();
    writer.apply(view("a", "2")).unwrap();
    assert_eq!(pods.get("shop", "a").unwrap().resource_version, "2");
    writer.delete("shop", "a", None);
    writer.delete("shop", "absent", None);
    assert_eq!((pods.len(), *changes.borrow()), (0, 4));
    // No list was complete yet.
    writer.complete();
    assert!(!pods.synced());
}

#[test]
fn an_endless_list_has_an_end_here() {
    let (pods, mut writer) = Pods::new();
    let mut told = Vec::new();
    writer.begin();
    for n in 0..PODS + 3 {
        told.extend(writer.apply(view(&n.to_string(), "1")).err());
    }
    // One that is known may change.
    writer.apply(view("0", "2")).unwrap();
    writer.complete();
    assert_eq!(pods.len(), PODS);
    assert_eq!(pods.get("shop", "0").unwrap().resource_version, "2");
    assert!(told.len() == 1 && told[0].contains("4096"), "{told:?}");
    writer.delete("shop", "0", None);
    writer.apply(view("new", "1")).unwrap();
    assert!(writer.apply(view("newer", "1")).is_ok(), "it was told");
    assert!(pods.get("shop", "new").is_some() && pods.get("shop", "newer").is_none());
}

fn of(name: &str, phase: &str) -> PodView {
    PodView {
        phase: phase.into(),
        ..view(name, "1")
    }
}

fn annotated(name: &str, phase: &str) -> PodView {
    let mut view = of(name, phase);
    let annotations = &mut view.pod.metadata.annotations;
    annotations.insert(REDIRECTION.into(), "enabled".into());
    view
}

/// The API server deletes ended pods when there are 12,500 of them, and its list is sorted by name.
#[test]
fn ended_pods_take_no_room_from_others() {
    let (pods, mut writer) = Pods::new();
    let known = |name: &str| pods.get("shop", name).is_some();
    for _ in 0..2 {
        writer.begin();
        for n in 0..PODS * 3 {
            writer.apply(of(&format!("job{n}"), "Failed")).unwrap();
        }
        writer.apply(of("web", "Running")).unwrap();
        // Something is to be removed of it.
        writer.apply(annotated("worker", "Succeeded")).unwrap();
        writer.complete();
        assert!(known("web") && known("worker"));
        assert_eq!((pods.len(), writer.left_out()), (PODS + 2, None));
    }
    writer.apply(of("new", "Pending")).unwrap();
    writer.apply(of("job", "Failed")).unwrap();
    assert!(known("new") && !known("job"));
    // One that is known ends.
    writer.apply(of("new", "Succeeded")).unwrap();
    assert!(pods.get("shop", "new").unwrap().ended());
}

#[test]
fn what_is_cut_off_is_not_taken_for_gone() {
    let (pods, mut writer) = Pods::new();
    let known = |name: &str| pods.get("shop", name).is_some();
    writer.begin();
    writer.apply(annotated("web", "Running")).unwrap();
    writer.complete();
    assert_eq!(writer.left_out(), None);
    for _ in 0..2 {
        let mut told = 0;
        writer.begin();
        for n in 0..PODS + 5 {
            told += usize::from(writer.apply(of(&format!("a{n}"), "Running")).is_err());
        }
        writer.apply(of("web", "Running")).unwrap();
        writer.complete();
        assert!(known("web") && told <= 1);
        assert_eq!(pods.len(), PODS);
        assert!(writer.left_out().unwrap().contains("4096"));
    }
    writer.begin();
    writer.apply(of("a0", "Running")).unwrap();
    writer.complete();
    assert_eq!((pods.len(), writer.left_out()), (1, None));
    assert!(!known("web"), "gone");
}

#[test]
fn namespaces() {
    let (pods, mut writer) = Pods::new();
    let view = |name: &str| NamespaceView {
        name: name.into(),
        labels: [("istio-injection".to_owned(), "enabled".to_owned())].into(),
        ..NamespaceView::default()
    };
    writer.begin_namespaces();
    writer.apply_namespace(view("a")).unwrap();
    assert_eq!(pods.namespace("a"), None);
    writer.complete_namespaces();
    writer.apply_namespace(view("b")).unwrap();
    writer.delete_namespace("a");
    assert_eq!(pods.namespace("a"), None);
    assert_eq!(pods.namespace("b").unwrap().labels.len(), 1);
    assert!(!pods.synced(), "pods and namespaces are listed apart");
}

/// That pods are too many is told, too.
#[test]
fn more_namespaces_than_there_is_room_for_are_told_once_and_shown() {
    let (pods, mut writer) = Pods::new();
    let view = |n: usize| NamespaceView {
        name: n.to_string(),
        ..NamespaceView::default()
    };
    let mut told = Vec::new();
    for n in 0..=PODS {
        told.extend(writer.apply(of(&n.to_string(), "Running")).err());
    }
    for _ in 0..2 {
        writer.begin_namespaces();
        for n in 0..NAMESPACES {
            writer.apply_namespace(view(n)).unwrap();
        }
        assert_eq!(writer.namespaces_left_out(), None);
        for n in 0..3 {
            told.extend(writer.apply_namespace(view(NAMESPACES + n)).err());
        }
        writer.complete_namespaces();
        assert_eq!(pods.namespaces(), NAMESPACES);
        assert!(writer.namespaces_left_out().unwrap().contains("16384"));
    }
    assert!(told.len() == 2 && told[1].contains("16384"), "{told:?}");
    // One that is known may change.
    writer.apply_namespace(view(0)).unwrap();
    writer.begin_namespaces();
    writer.complete_namespaces();
    assert_eq!(writer.namespaces_left_out(), None);
}
