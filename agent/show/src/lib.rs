//! The visible state of the node agent: metrics for Prometheus, a status page, and the same facts as JSON.
//!
//! [`metrics`] and [`status`] (the page and the JSON) are sinks of the journal of [`weir_core`]: a request reads recorded state and
//! triggers no work. The agent serves them.
#![forbid(unsafe_code)]

pub mod metrics;
pub mod status;
