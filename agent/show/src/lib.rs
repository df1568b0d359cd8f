//! What is shown of the node agent: metrics for Prometheus, and the state of the agent and its node for people and programs.
//!
//! Both are sinks of the journal of [`weir_core`] and find nothing out for a question; who serves them is the agent's matter.
#![forbid(unsafe_code)]

pub mod metrics;
pub mod status;
