//! The API server: connections and their limits, events, and what is written to it.

pub(crate) mod access;
pub(crate) mod actions;
pub(crate) mod bounded;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod pace;
