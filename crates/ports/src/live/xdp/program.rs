//! The XDP program, written instruction by instruction.
//!
//! It runs in the kernel for every frame that arrives, before anything else sees the frame, and gives it to the
//! socket of its receive queue:
//!
//! ```text
//! r2 = u32[r1 + 16]        the queue; r1 is the context, struct xdp_md
//! r1 = map                 two slots; the map of sockets by queue
//! r3 = XDP_PASS            what to do if there is no socket for the queue
//! call redirect_map
//! exit
//! ```
//!
//! The numbers are those of the kernel's `struct bpf_insn`, which is a stable interface. The tests decode the
//! program back to text and run it in an interpreter; the kernel's verifier is the last test.

use super::assembler::Register::{R1, R2, R3, R6};
use super::assembler::{Assembler, Slot, Width, XDP_PASS, context, helper};
use super::offload::{self, OffloadMaps};

/// The program for a map of sockets by queue. With `flows`, it first forwards the packets of known flows.
pub(super) fn program(map: i32, flows: Option<&OffloadMaps>) -> Vec<Slot> {
    let mut a = Assembler::default();
    a.copy(R6, R1);
    if let Some(maps) = flows {
        let unknown = a.label();
        offload::forward(&mut a, maps, unknown);
        a.place(unknown);
    }
    a.load(Width::U32, R2, R6, context::QUEUE);
    a.load_map(R1, map);
    a.set(R3, XDP_PASS);
    a.call(helper::REDIRECT_MAP);
    a.exit();
    a.finish()
}

#[cfg(test)]
mod tests;
