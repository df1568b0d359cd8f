use super::*;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// `llvm-mc -triple=bpfel -mcpu=v3 -filetype=obj X.s` of LLVM 14.0.6, the lines below as X.s, shown by `llvm-objdump -d`.
#[cfg(target_endian = "little")]
const LLVM: &str = "\
bf 16 00 00 00 00 00 00 r6 = r1
b7 00 00 00 ff ff ff ff r0 = -1
57 07 00 00 0f 00 00 00 r7 &= 15
67 07 00 00 02 00 00 00 r7 <<= 2
0f 71 00 00 00 00 00 00 r1 += r7
61 62 10 00 00 00 00 00 r2 = *(u32 *)(r6 + 16)
69 a3 b0 ff 00 00 00 00 r3 = *(u16 *)(r10 - 80)
71 a4 bd ff 00 00 00 00 r4 = *(u8 *)(r10 - 67)
79 65 a8 00 00 00 00 00 r5 = *(u64 *)(r6 + 168)
73 1a ff ff 00 00 00 00 *(u8 *)(r10 - 1) = r1
6b 2a fe ff 00 00 00 00 *(u16 *)(r10 - 2) = r2
63 36 08 00 00 00 00 00 *(u32 *)(r6 + 8) = r3
7b 4a f8 ff 00 00 00 00 *(u64 *)(r10 - 8) = r4
db 10 00 00 00 00 00 00 lock *(u64 *)(r0 + 0) += r1
18 02 00 00 f0 de bc 9a r2 = 1311768467463790320 ll
00 00 00 00 78 56 34 12 (its second half)
15 08 03 00 06 00 00 00 if r8 == 6 goto +3
5d 98 02 00 00 00 00 00 if r8 != r9 goto +2
25 01 fd ff 05 00 00 00 if r1 > 5 goto -3
ad 21 00 00 00 00 00 00 if r1 < r2 goto +0
05 00 fa ff 00 00 00 00 goto -6
85 00 00 00 63 00 00 00 call 99
95 00 00 00 00 00 00 00 exit
";

#[cfg(target_endian = "little")]
#[test]
fn bytes_are_those_of_llvm() {
    let mut asm = Assembler::new();
    asm.mov(R6, R1);
    asm.mov(R0, -1);
    asm.alu(Alu::And, R7, 15);
    asm.alu(Alu::ShiftLeft, R7, 2);
    asm.alu(Alu::Add, R1, R7);
    asm.load(Size::W, R2, R6, 16);
    asm.load(Size::H, R3, R10, -80);
    asm.load(Size::B, R4, R10, -67);
    asm.load(Size::D, R5, R6, 168);
    asm.store(Size::B, R10, -1, R1);
    asm.store(Size::H, R10, -2, R2);
    asm.store(Size::W, R6, 8, R3);
    asm.store(Size::D, R10, -8, R4);
    asm.atomic_add(R0, 0, R1);
    asm.number(R2, 0x1234_5678_9abc_def0);
    let (back, on, here) = (asm.label(), asm.label(), asm.label());
    asm.bind(back);
    asm.jump_if(If::Eq, R8, 6, here);
    asm.jump_if(If::Ne, R8, R9, here);
    asm.jump_if(If::Gt, R1, 5, back);
    asm.jump_if(If::Lt, R1, R2, here);
    asm.bind(here);
    asm.jump(on);
    asm.call(Helper::SkcLookupTcp);
    asm.exit();
    // What the listing has at 20: goto -6 leads to 15, the second half, which only the assembler of LLVM allows.
    asm.bind(on);
    let lines = LLVM.lines().map(|line| {
        let bytes: Vec<u8> = line
            .split(' ')
            .take(8)
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        <[u8; 8]>::try_from(bytes).unwrap()
    });
    let mut expected: Vec<[u8; 8]> = lines.collect();
    assert_eq!(expected[20], [5, 0, 0xfa, 0xff, 0, 0, 0, 0]);
    expected[20] = [5, 0, 2, 0, 0, 0, 0, 0];
    assert_eq!(asm.finish().unwrap().bytes(), expected);
}

/// Documentation/bpf/standardization/instruction-set.rst: JSET is 0x4, ST is 0x02, SUB 0x1, OR 0x4, RSH 0x7, XOR 0xa.
#[test]
fn codes_are_those_of_the_instruction_set() {
    let mut asm = Assembler::new();
    let label = asm.label();
    asm.bind(label);
    asm.jump_if(If::Any, R1, 8, label);
    asm.store(Size::D, R10, -8, 7);
    asm.alu(Alu::Sub, R1, R2);
    asm.alu(Alu::Or, R1, 1);
    asm.alu(Alu::ShiftRight, R1, 1);
    asm.alu(Alu::Xor, R1, R2);
    let code = asm.finish().unwrap();
    let codes: Vec<u8> = code.bytes().iter().map(|insn| insn[0]).collect();
    assert_eq!(codes, [0x45, 0x7a, 0x1f, 0x47, 0x77, 0xaf]);
}

#[test]
fn mistakes_name_the_source_line() {
    let mut asm = Assembler::new();
    let label = asm.label();
    let line = line!() + 1;
    asm.jump(label);
    let error = asm.finish().unwrap_err();
    assert!(
        error.place.contains(&format!("asm/tests.rs:{line}:")),
        "{error}"
    );
    assert!(error.reason.contains("nowhere"), "{error}");
    let mut asm = Assembler::new();
    let label = asm.label();
    asm.jump(label);
    (0..=i16::MAX).for_each(|_| asm.mov(R0, 0));
    asm.bind(label);
    assert!(asm.finish().unwrap_err().reason.contains("too long"));
}

/// The program is refused by the kernel, and the error points here.
#[test]
fn a_refusal_of_the_verifier_names_the_source_line() {
    let mut asm = Assembler::new();
    asm.number(R1, 7);
    asm.mov(R0, 0);
    let line = line!() + 1;
    asm.load(Size::W, R0, R1, 0);
    asm.exit();
    let refused = asm.finish().unwrap().load("weir_test", &[]).unwrap_err();
    if refused.error.raw_os_error() == Some(nix::errno::Errno::EPERM as i32) {
        println!("skipped: {refused}");
        return;
    }
    let (number, place) = refused.at.clone().unwrap();
    assert_eq!(number, 3);
    assert!(place.contains(&format!("asm/tests.rs:{line}:")), "{place}");
    assert!(
        refused.to_string().contains("R1 invalid mem access"),
        "{refused}"
    );
}

#[test]
fn a_digest_differs_with_code_and_with_maps() {
    let code = |number: i32, map: usize| {
        let mut asm = Assembler::new();
        asm.mov(R0, number);
        asm.map(R1, MapRef(map));
        asm.finish().unwrap().digest()
    };
    assert_eq!(code(1, 0), code(1, 0));
    assert!(code(1, 0) != code(2, 0) && code(1, 0) != code(1, 1));
}

#[test]
fn numbers_of_helpers_are_those_of_the_header() {
    let names: Vec<&str> = Helper::ALL.iter().map(|(_, name)| *name).collect();
    let theirs =
        weir_testing::c::values_in_c("#include <stdio.h>\n#include <linux/bpf.h>\n", &names);
    for (helper, name) in Helper::ALL {
        assert_eq!(theirs[name], helper as i64, "{name}");
    }
}
