//! One instruction: registers, sizes, operations, and its bytes.

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

/// The size of a load or store.
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

/// Operations on 64 bits, such as `BPF_ADD`.
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

/// The condition of a jump. Comparisons are unsigned, on 64 bits.
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

/// A register, or a 32-bit number, which is sign-extended.
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

/// `struct bpf_insn`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Insn {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i16,
    pub(super) imm: i32,
}

impl Insn {
    /// Returns the bytes in host order; the two registers are bit fields.
    pub(super) fn bytes(self) -> [u8; 8] {
        let registers = match cfg!(target_endian = "little") {
            true => self.src << 4 | self.dst,
            false => self.dst << 4 | self.src,
        };
        let [o0, o1] = self.off.to_ne_bytes();
        let [i0, i1, i2, i3] = self.imm.to_ne_bytes();
        [self.code, registers, o0, o1, i0, i1, i2, i3]
    }
}

// Instruction classes, sources and modes of linux/bpf_common.h and linux/bpf.h.
pub(super) const BPF_LD: u8 = 0x00;
pub(super) const BPF_LDX: u8 = 0x01;
pub(super) const BPF_ST: u8 = 0x02;
pub(super) const BPF_STX: u8 = 0x03;
pub(super) const BPF_JMP: u8 = 0x05;
pub(super) const BPF_ALU64: u8 = 0x07;
pub(super) const BPF_K: u8 = 0x00;
pub(super) const BPF_X: u8 = 0x08;
pub(super) const BPF_IMM: u8 = 0x00;
pub(super) const BPF_MEM: u8 = 0x60;
pub(super) const BPF_ATOMIC: u8 = 0xc0;
pub(super) const BPF_MOV: u8 = 0xb0;
pub(super) const BPF_JA: u8 = 0x00;
pub(super) const BPF_CALL: u8 = 0x80;
pub(super) const BPF_EXIT: u8 = 0x90;
pub(super) const BPF_PSEUDO_MAP_FD: u8 = 1;

impl Size {
    pub(super) const fn bits(self) -> u8 {
        match self {
            Self::W => 0x00,
            Self::H => 0x08,
            Self::B => 0x10,
            Self::D => 0x18,
        }
    }
}

impl Alu {
    pub(super) const fn bits(self) -> u8 {
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
    pub(super) const fn bits(self) -> u8 {
        match self {
            Self::Eq => 0x10,
            Self::Gt => 0x20,
            Self::Any => 0x40,
            Self::Ne => 0x50,
            Self::Lt => 0xa0,
        }
    }
}

/// Returns the source bit, the register and the number of an operand.
pub(super) fn split(operand: Operand) -> (u8, u8, i32) {
    match operand {
        Operand::Reg(reg) => (BPF_X, reg as u8, 0),
        Operand::Imm(number) => (BPF_K, 0, number),
    }
}
