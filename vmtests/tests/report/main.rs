//! The report of runs that were made by hand.
#![forbid(unsafe_code)]

mod browser;
mod chromium;
mod example;
mod forms;
mod page;
mod readme;
