//! QEMU: the program, its command line, its monitor, and its lifetime, which never exceeds ours.

pub(crate) mod accel;
pub(crate) mod child;
pub(crate) mod line;
pub(crate) mod program;
pub(crate) mod qmp;
