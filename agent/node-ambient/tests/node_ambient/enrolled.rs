//! Configurations with a second enrolled pod, and with exclusions of the first one.

use crate::scene::{SECOND, Scene, inside};
use weir_node_ambient::{Config, Exclude, Pod};

/// Adds exclusions of the first pod alone to those of all pods.
pub(crate) fn excluding(mut config: Config, exclude: &str) -> Config {
    let text = format!("{{{exclude}}}");
    config.pods[0].exclude = Exclude::from_annotation(&text, "test").unwrap();
    config
}

/// The namespace of the second proxy becomes that of an enrolled pod.
pub(crate) fn with_second(mut config: Config, scene: &Scene) -> Config {
    config.pods.push(Pod {
        uid: "pod-b".to_owned(),
        addresses: [false, true].map(|v6| inside(SECOND, v6)).to_vec(),
        netns: Some(scene.second.path()),
        ..Pod::default()
    });
    config
}
