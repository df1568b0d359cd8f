//! An assembler for eBPF: `struct bpf_insn` (`linux/bpf.h`, Documentation/bpf/standardization/instruction-set.rst).
//!
//! Each method of [`Assembler`] appends one instruction and is named by what it does; jumps go to [`Label`]s. Mistakes that
//! can only be seen at the end (a label that stands nowhere, a jump over more than 32,767 instructions) are errors of
//! [`Assembler::finish`]. The source line of every instruction is kept, so that the verifier's log can be read against it.

mod code;
mod helper;
#[cfg(test)]
mod tests;

pub use code::{Code, MapRef};
pub use helper::Helper;

use std::fmt;
use std::panic::Location;

/// A register. Calls take arguments in `R1` to `R5`, return in `R0`, and keep `R6` to `R9`; `R10` is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// What is loaded from memory or stored there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One byte.
    B,
    /// Two bytes.
    H,
    /// Four bytes.
    W,
    /// Eight bytes.
    D,
}

/// `BPF_ADD` and its like, of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Alu {
    Add,
    Sub,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Xor,
}

/// When a jump is made. Comparisons are of 64 bits without a sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum If {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `>`
    Gt,
    /// `<`
    Lt,
    /// `&` is not zero
    Any,
}

/// A register or a number of 32 bits, which is extended with its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A number.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Imm(number)
    }
}

/// A place in the code that jumps go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Why code cannot be assembled: a mistake in weir's own source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsmError {
    /// What is wrong.
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

/// `struct bpf_insn`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Insn {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: i32,
}

impl Insn {
    /// In the order of the machine; the two registers are bit fields.
    fn bytes(self) -> [u8; 8] {
        let registers = match cfg!(target_endian = "little") {
            true => self.src << 4 | self.dst,
            false => self.dst << 4 | self.src,
        };
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        [self.code, registers, o0, o1, i0, i1, i2, i3]
    }
}

/// Instructions under construction.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Insn>,
    places: Vec<&'static Location<'static>>,
    /// Where each label stands.
    labels: Vec<Option<usize>>,
    /// Instructions that jump, and the label they jump to.
    jumps: Vec<(usize, Label)>,
    /// Instructions that load the address of a map.
    maps: Vec<(usize, MapRef)>,
}

// Instruction classes, sources and modes of linux/bpf_common.h and linux/bpf.h.
const BPF_LD: u8 = 0x00;
const BPF_LDX: u8 = 0x01;
const BPF_ST: u8 = 0x02;
const BPF_STX: u8 = 0x03;
const BPF_JMP: u8 = 0x05;
const BPF_ALU64: u8 = 0x07;
const BPF_K: u8 = 0x00;
const BPF_X: u8 = 0x08;
const BPF_IMM: u8 = 0x00;
const BPF_MEM: u8 = 0x60;
const BPF_ATOMIC: u8 = 0xc0;
const BPF_MOV: u8 = 0xb0;
const BPF_JA: u8 = 0x00;
const BPF_CALL: u8 = 0x80;
const BPF_EXIT: u8 = 0x90;
const BPF_PSEUDO_MAP_FD: u8 = 1;

impl Size {
    const fn bits(self) -> u8 {
        match self {
            Self::W => 0x00,
            Self::H => 0x08,
            Self::B => 0x10,
            Self::D => 0x18,
        }
    }
}

impl Alu {
    const fn bits(self) -> u8 {
        match self {
            Self::Add => 0x00,
            Self::Sub => 0x10,
            Self::Or => 0x40,
            Self::And => 0x50,
            Self::ShiftLeft => 0x60,
            Self::ShiftRight => 0x70,
            Self::Xor => 0xa0,
        }
    }
}

impl If {
    const fn bits(self) -> u8 {
        match self {
            Self::Eq => 0x10,
            Self::Gt => 0x20,
            Self::Any => 0x40,
            Self::Ne => 0x50,
            Self::Lt => 0xa0,
        }
    }
}

/// The source bit, the register and the number of an operand.
fn split(operand: Operand) -> (u8, u8, i32) {
    match operand {
        Operand::Reg(reg) => (BPF_X, reg as u8, 0),
        Operand::Imm(number) => (BPF_K, 0, number),
    }
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

    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A label that stands nowhere yet.
    #[must_use = "a label is for jumps"]
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label stands before the next instruction.
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

    /// `call HELPER`: arguments in `R1` to `R5`, which are lost, and the result in `R0`.
    #[track_caller]
    pub fn call(&mut self, helper: Helper) {
        self.push(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32);
    }

    /// `exit`: returns `R0`.
    #[track_caller]
    pub fn exit(&mut self) {
        self.push(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }

    /// Joins jumps with their labels.
    ///
    /// # Errors
    /// A label that stands nowhere, or a jump over more than 32,767 instructions.
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
