//! The node agent: puts the plugin and its configuration on the node, and keeps them there.
//!
//! Takes the place of Istio's `install-cni`: the same settings, files, sockets, metrics and answers. [`settings`]
//! is what it was told; [`install`] is what it does to the node, usable without a process around it;
//! [`pods`] is what the API server says of the node's pods; `run` joins them with the servers, which have threads of their
//! own because files are written synchronously; `installing` keeps the plugin there, woken by signals and watches of
//! directories, and `ending` is what is done when a signal asks to end; `status` is what all of these report, for the page, metrics and `/readyz`.

pub mod cri;
mod ending;
pub mod install;
mod installing;
pub(crate) mod log;
pub(crate) mod metrics;
mod notices;
mod owner;
mod parts;
pub mod pods;
pub(crate) mod privilege;
pub mod repair;
pub(crate) mod run;
mod runtime;
pub(crate) mod serve;
pub mod settings;
pub(crate) mod status;
pub(crate) mod throttle;
pub(crate) mod watch;

/// The level at which the plugin logs: that of its scope in `--log_output_level`.
///
/// # Errors
/// An item of the flag has no level.
pub(crate) fn plugin_log_level(
    settings: &settings::Settings,
) -> Result<weir_cni::log::Level, String> {
    let parsed = log::Levels::parse(&settings.log_levels);
    parsed
        .map(|(levels, _)| levels.plugin)
        .map_err(|e| format!("--log_output_level: {e}"))
}
