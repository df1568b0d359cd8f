//! An assembler for eBPF: `struct bpf_insn` (`linux/bpf.h`, Documentation/bpf/standardization/instruction-set.rst).
//!
//! Each method of [`Assembler`] appends one instruction and is named after it; jumps go to [`Label`]s. Mistakes that
//! can only be detected at the end (an unbound label, a jump over more than 32,767 instructions) are errors of
//! [`Assembler::finish`]. The source line of every instruction is kept, to map the verifier's log to the source.

mod code;
mod helper;
mod insn;
#[cfg(test)]
mod tests;

pub use code::{Code, MapRef};
pub use helper::Helper;
use insn::*;
pub use insn::{Alu, If, Operand, Reg, Size};

use std::fmt;
use std::panic::Location;

/// The target of jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// An assembly error: a mistake in weir's own source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsmError {
    /// The mistake.
    pub reason: &'static str,
    /// The source line that appended the instruction.
    pub place: String,
}

impl fmt::Display for AsmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}

impl std::error::Error for AsmError {}

/// Instructions under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Insn>,
    places: Vec<&'static Location<'static>>,
    /// The instruction before which each label is bound.
    labels: Vec<Option<usize>>,
    /// Instructions that jump, and the label they jump to.
    jumps: Vec<(usize, Label)>,
    /// Instructions that load the address of a map.
    maps: Vec<(usize, MapRef)>,
}

impl Assembler {
    #[track_caller]
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.places.push(Location::caller());
        self.code.push(Insn {
            code,
            dst,
            src,
            off,
            imm,
        });
    }

    /// Creates an assembler without instructions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an unbound label.
    #[must_use = "a label is for jumps"]
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds the label before the next instruction.
    pub fn bind(&mut self, label: Label) {
        let here = self.code.len();
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(here);
        }
    }

    /// `dst = src`
    #[track_caller]
    pub fn mov(&mut self, dst: Reg, src: impl Into<Operand>) {
        let (source, src, imm) = split(src.into());
        self.push(BPF_ALU64 | BPF_MOV | source, dst as u8, src, 0, imm);
    }

    /// `dst = dst OP src`
    #[track_caller]
    pub fn alu(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        let (source, src, imm) = split(src.into());
        self.push(BPF_ALU64 | op.bits() | source, dst as u8, src, 0, imm);
    }

    /// `dst = *(size *)(src + off)`
    #[track_caller]
    pub fn load(&mut self, size: Size, dst: Reg, src: Reg, off: i16) {
        let code = BPF_LDX | BPF_MEM | size.bits();
        self.push(code, dst as u8, src as u8, off, 0);
    }

    /// `*(size *)(dst + off) = src`
    #[track_caller]
    pub fn store(&mut self, size: Size, dst: Reg, off: i16, src: impl Into<Operand>) {
        let (class, src, imm) = match src.into() {
            Operand::Reg(reg) => (BPF_STX, reg as u8, 0),
            Operand::Imm(number) => (BPF_ST, 0, number),
        };
        self.push(class | BPF_MEM | size.bits(), dst as u8, src, off, imm);
    }

    /// `*(u64 *)(dst + off) += src`, atomic.
    #[track_caller]
    pub fn atomic_add(&mut self, dst: Reg, off: i16, src: Reg) {
        let code = BPF_STX | BPF_ATOMIC | Size::D.bits();
        self.push(code, dst as u8, src as u8, off, 0);
    }

    /// `dst = number`, of 64 bits: two instructions.
    #[track_caller]
    pub fn number(&mut self, dst: Reg, number: u64) {
        let half = |n: u64| (n & 0xffff_ffff) as u32;
        self.pair(
            dst,
            0,
            half(number).cast_signed(),
            half(number >> 32).cast_signed(),
        );
    }

    /// `dst = &map`: two instructions.
    #[track_caller]
    pub fn map(&mut self, dst: Reg, map: MapRef) {
        self.maps.push((self.code.len(), map));
        self.pair(dst, BPF_PSEUDO_MAP_FD, 0, 0);
    }

    #[track_caller]
    fn pair(&mut self, dst: Reg, src: u8, low: i32, high: i32) {
        self.push(BPF_LD | BPF_IMM | Size::D.bits(), dst as u8, src, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    /// `goto label`
    #[track_caller]
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(BPF_JMP | BPF_JA, 0, 0, 0, 0);
    }

    /// `if dst CONDITION src goto label`
    #[track_caller]
    pub fn jump_if(&mut self, condition: If, dst: Reg, src: impl Into<Operand>, label: Label) {
        let (source, src, imm) = split(src.into());
        self.jumps.push((self.code.len(), label));
        let code = BPF_JMP | condition.bits() | source;
        self.push(code, dst as u8, src, 0, imm);
    }

    /// `call HELPER`: arguments in `R1` to `R5`, which are clobbered, and the result in `R0`.
    #[track_caller]
    pub fn call(&mut self, helper: Helper) {
        self.push(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32);
    }

    /// `exit`: returns `R0`.
    #[track_caller]
    pub fn exit(&mut self) {
        self.push(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }

    /// Resolves the labels of jumps.
    ///
    /// # Errors
    /// An unbound label, or a jump over more than 32,767 instructions.
    pub fn finish(mut self) -> Result<Code, AsmError> {
        for (at, label) in &self.jumps {
            let place = self.places.get(*at);
            let fail = |reason| AsmError {
                reason,
                place: place.map(ToString::to_string).unwrap_or_default(),
            };
            let target = self.labels.get(label.0).copied().flatten();
            let target = target.ok_or_else(|| fail("the label of this jump stands nowhere"))?;
            // Relative to the next instruction.
            let distance = i64::try_from(target).ok().zip(i64::try_from(*at).ok());
            let distance = distance.and_then(|(to, from)| i16::try_from(to - from - 1).ok());
            let distance = distance.ok_or_else(|| fail("this jump is too long"))?;
            if let Some(insn) = self.code.get_mut(*at) {
                insn.off = distance;
            }
        }
        let code = self.code.iter().map(|insn| insn.bytes()).collect();
        Ok(Code::new(code, self.places, self.maps))
    }
}
