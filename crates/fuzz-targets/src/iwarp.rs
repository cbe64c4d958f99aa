//! The bytes of an iWARP peer: start-up frames, the views of a dissector, and a stream of FPDUs.
//!
//! | module | contents |
//! | --- | --- |
//! | `drive` | an endpoint that reads a stream, and the account of its work and memory |
//! | `spoken` | what an endpoint sent, taken apart |
//! | `model` | the effects that the documents give to a stream of FPDUs |
//! | `startup` | MPA set-up, and the views |

mod drive;
mod model;
mod spoken;
mod startup;

use rpcrdma_iwarp::wire::fpdu::{FpduView, MAX_ULPDU, seal};

use self::drive::{Pump, Setup, drive};
pub(crate) use self::drive::{readable_window, writable_window};

/// Bytes of a stream up to which FPDUs are made longer.
const STRETCHED_MAX: usize = 1 << 17;

/// The bytes of an iWARP peer, at start-up (RFC 5044 §7.1, RFC 6581 §6) and after it (FPDUs, DDP, RDMAP). The first
/// byte selects the stage and the properties of the endpoint, the second one how the bytes are cut.
///
/// * For any bytes every request completes once, no memory is lost, and no more is used.
/// * The effects do not depend on the cuts.
/// * What the endpoint sends is a valid stream of FPDUs. A Terminate is its last message.
/// * Without work in between, the endpoint delivers what `model` delivers, places what that places, answers
///   Reads with the memory that they name, and sends the Terminate that the documents name.
pub fn iwarp_receive(data: &[u8]) {
    let Some((&[how, cut], bytes)) = data.split_first_chunk() else { return };
    match how % 4 {
        0 => startup::frames(bytes, usize::from(cut)),
        1 => startup::views(bytes),
        kind => receive(&stream(bytes), cut, Setup(how >> 2 << 1 | u8::from(kind == 2))),
    }
}

/// Returns the FPDUs of `bytes` with a correct CRC, except those whose CRC field begins with 0xFF. The next byte of
/// the field makes the FPDU longer by multiples of 512 bytes, so that few bytes make an FPDU of any length.
fn stream(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let Some(length) = FpduView::new(bytes).fpdu_len()
        && let Some((fpdu, rest)) = bytes.split_at_checked(length)
    {
        bytes = rest;
        let view = FpduView::new(fpdu);
        let (Some(field), Some(ulpdu)) = (view.crc(), view.ulpdu()) else { break };
        let mut ulpdu = ulpdu.to_vec();
        if stream.len() < STRETCHED_MAX {
            ulpdu.resize((ulpdu.len() + usize::from(field[1]) * 512).min(MAX_ULPDU), 0x5A);
        }
        stream.extend(seal(&ulpdu, true).expect("a ULPDU of possible length"));
        if field[0] == 0xFF
            && let Some(last) = stream.last_mut()
        {
            *last ^= 1;
        }
    }
    stream.extend_from_slice(bytes);
    stream
}

fn receive(stream: &[u8], cut: u8, setup: Setup) {
    // Single bytes of a long stream would take too long.
    let step = (usize::from(cut >> 1) * 8 + 1).max(stream.len() / 1024);
    if setup.goes_on() {
        drive(stream, step, Pump::Each, setup);
        return;
    }
    let pump = if cut & 1 == 0 { Pump::Boundary } else { Pump::Start };
    let run = drive(stream, step, pump, setup);
    let whole = drive(stream, usize::MAX, pump, setup);
    assert_eq!(run, whole, "cut into {step} bytes, and not cut");
    if pump == Pump::Boundary {
        model::check(stream, setup, &run);
    }
}
