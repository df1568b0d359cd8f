//! Access to the API server: connections and their limits, events, and writes.

pub mod access;
pub mod actions;
pub mod bounded;
pub mod connection;
mod connector;
pub mod events;
pub mod pace;
