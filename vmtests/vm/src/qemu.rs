//! QEMU: where it is, how it is called, how it is spoken to, and that it never outlives us.

pub(crate) mod accel;
pub(crate) mod child;
pub(crate) mod line;
pub(crate) mod program;
pub(crate) mod qmp;
