//! The report of runs that were made by hand.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing)]

mod browser;
use weir_testing::chromium;
mod example;
mod forms;
mod page;
mod program;
mod readme;
