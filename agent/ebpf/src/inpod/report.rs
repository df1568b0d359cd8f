//! Parts of programs: verdicts, counters and events.
//!
//! An event is a record in a ring buffer that all namespaces of a node share. A reader sets the bits of reported reasons in the
//! map `weir_watch`; each namespace reports at most a few events per second. Events that are lost, also for lack of space, are counted.

use super::layout::*;
use super::packet::Builder;
use crate::asm::{Alu, AsmError, Code, Helper, If, Label, MapRef, Reg, Size};
use Reg::{R0, R1, R2, R3, R4, R6, R10};

/// The destination of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Events {
    /// The first of three maps, in this order: the ring, the watch map, and the pace map of the namespace.
    pub(crate) first: MapRef,
    /// The letter of the program's role.
    pub(crate) role: char,
}

impl Events {
    fn map(self, place: usize) -> MapRef {
        MapRef(self.first.0 + place)
    }
}

/// Lengths to copy from a packet: the first one that the packet has.
const LENGTHS: [i16; 4] = [EVENT_HEADERS, 40, 28, 20];

impl Builder {
    /// Appends the final blocks that most jumps lead to.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Result<Code, AsmError> {
        let (passed, passes) = (self.asm.label(), std::mem::take(&mut self.passed));
        let is_reported = !passes.is_empty();
        for (label, why) in passes {
            let pass = self.pass;
            self.asm.bind(label);
            self.is_first();
            self.asm.jump_if(If::Eq, R1, 0, pass);
            self.asm.store(Size::W, R10, INDEX, why as i32);
            self.asm.jump(passed);
        }
        if is_reported {
            self.asm.bind(passed);
            self.report();
        }
        self.end(self.pass, NEXT);
        self.asm.bind(self.refused);
        self.add_one();
        self.report();
        self.end(self.drop, DROP);
        self.asm.finish()
    }

    #[track_caller]
    fn end(&mut self, label: Label, verdict: i32) {
        self.asm.bind(label);
        self.asm.mov(R0, verdict);
        self.asm.exit();
    }

    /// Increments a counter. Clobbers `R0` to `R5`.
    #[track_caller]
    pub(crate) fn count(&mut self, what: Count) {
        self.asm.store(Size::W, R10, INDEX, what as i32);
        self.add_one();
    }

    /// Counts and reports the first packet of a captured connection. Clobbers `R0` to `R5`.
    #[track_caller]
    pub(crate) fn captured(&mut self, what: Count) {
        self.count(what);
        self.report();
    }

    #[track_caller]
    fn add_one(&mut self) {
        self.look_up(COUNTS, INDEX);
        let asm = &mut self.asm;
        let absent = asm.label();
        asm.jump_if(If::Eq, R0, 0, absent);
        asm.mov(R1, 1);
        asm.atomic_add(R0, 0, R1);
        asm.bind(absent);
    }

    /// Counts, reports and drops the packet.
    #[track_caller]
    pub(crate) fn refuse(&mut self, why: Count) {
        self.asm.store(Size::W, R10, INDEX, why as i32);
        self.asm.jump(self.refused);
    }

    /// Returns the label for TCP that passes for this reason, which is reported if it opens a connection. The TCP header is on the stack.
    pub(crate) fn pass_for(&mut self, why: Pass) -> Label {
        if self.events.is_none() {
            return self.pass;
        }
        if let Some((label, _)) = self.passed.iter().find(|(_, other)| *other == why) {
            return *label;
        }
        let label = self.asm.label();
        self.passed.push((label, why));
        label
    }

    /// Writes an event about the packet with the number at `INDEX`, if that is watched. Clobbers `R0` to `R5`.
    #[track_caller]
    fn report(&mut self) {
        let Some(events) = self.events else { return };
        let [same, lost, read, over] = [(); 4].map(|()| self.asm.label());
        self.asm.store(Size::W, R10, FLAGS, 0);
        self.look_up(events.map(1), FLAGS);
        let asm = &mut self.asm;
        asm.jump_if(If::Eq, R0, 0, over);
        asm.load(Size::D, R1, R0, WATCH_MASK);
        asm.load(Size::W, R2, R10, INDEX);
        asm.alu(Alu::ShiftRight, R1, R2);
        asm.alu(Alu::And, R1, 1);
        asm.jump_if(If::Eq, R1, 0, over);
        asm.store(Size::D, R10, WATCH_AT, R0);
        self.look_up(events.map(2), FLAGS);
        let asm = &mut self.asm;
        asm.jump_if(If::Eq, R0, 0, over);
        asm.store(Size::D, R10, PACE_AT, R0);
        asm.call(Helper::KtimeGetNs);
        asm.alu(Alu::ShiftRight, R0, 30);
        asm.load(Size::D, R1, R10, PACE_AT);
        asm.load(Size::D, R2, R1, PACE_SECOND);
        asm.jump_if(If::Eq, R2, R0, same);
        asm.store(Size::D, R1, PACE_SECOND, R0);
        asm.store(Size::D, R1, PACE_COUNT, 0);
        asm.bind(same);
        asm.load(Size::D, R2, R1, PACE_COUNT);
        asm.jump_if(If::Gt, R2, EVENTS_IN_A_SECOND - 1, lost);
        asm.mov(R2, 1);
        asm.atomic_add(R1, PACE_COUNT, R2);
        asm.load(Size::D, R2, R1, PACE_NETNS);
        asm.store(Size::D, R10, EVENT + EVENT_NETNS, R2);
        for (field, at) in [(SKB_IFINDEX, EVENT_IFINDEX), (SKB_LEN, EVENT_LENGTH)] {
            asm.load(Size::W, R2, R6, field);
            asm.store(Size::W, R10, EVENT + at, R2);
        }
        asm.load(Size::W, R2, R10, INDEX);
        asm.store(Size::W, R10, EVENT + EVENT_REASON, R2);
        let role = i32::from(u8::try_from(events.role).unwrap_or(b'?'));
        asm.store(Size::W, R10, EVENT + EVENT_ROLE, role);
        // Bytes that are not read stay zero.
        for at in (EVENT_PACKET..EVENT_SIZE).step_by(8) {
            asm.store(Size::D, R10, EVENT + at, 0);
        }
        for length in LENGTHS {
            let shorter = self.asm.label();
            self.read(0, EVENT + EVENT_PACKET, length.into(), shorter);
            let asm = &mut self.asm;
            asm.store(Size::W, R10, EVENT + EVENT_THERE, i32::from(length));
            asm.jump(read);
            asm.bind(shorter);
        }
        let asm = &mut self.asm;
        asm.bind(read);
        asm.map(R1, events.map(0));
        asm.mov(R2, R10);
        asm.alu(Alu::Add, R2, i32::from(EVENT));
        asm.mov(R3, i32::from(EVENT_SIZE));
        asm.mov(R4, 0);
        asm.call(Helper::RingbufOutput);
        asm.jump_if(If::Eq, R0, 0, over);
        asm.bind(lost);
        asm.load(Size::D, R1, R10, WATCH_AT);
        asm.mov(R2, 1);
        asm.atomic_add(R1, WATCH_LOST, R2);
        asm.bind(over);
    }
}
