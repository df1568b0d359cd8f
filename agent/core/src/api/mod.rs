//! The API server: connections and their limits, events, and what is written to it.

pub mod access;
pub mod actions;
pub mod bounded;
pub mod connection;
pub mod events;
pub mod pace;
