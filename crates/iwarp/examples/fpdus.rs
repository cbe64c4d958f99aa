//! Sends or receives RDMA Writes of 1 MiB on an engine without a socket. The run does nothing but the work of the engine, for
//! tools that count instructions (`cargo xtask measures`). `cargo run --release -p rpcrdma-iwarp --example fpdus --
//! send|receive EMSS COUNT`

use std::error::Error;
use std::io::IoSliceMut;
use std::time::Instant;

use bytes::Bytes;
use rpcrdma_iwarp::engine::{Engine, Parameters, Timeouts};
use rpcrdma_iwarp::startup::{Negotiated, Role};
use rpcrdma_verbs::{Buffer, ProtectionDomain, RemoteSegment, WindowMemory, WorkRequest, WrId};

const MIB: usize = 1 << 20;
/// Most bytes that a call of the driver moves.
const CALL: usize = 256 << 10;

type AnyResult<T> = Result<T, Box<dyn Error>>;

fn main() -> AnyResult<()> {
    const USAGE: &str = "usage: fpdus send|receive EMSS COUNT";
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or(USAGE)?;
    let emss: usize = arguments.next().ok_or(USAGE)?.parse()?;
    let count: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    let now = Instant::now();
    let mut receiver = engine(Role::Responder, emss, now);
    let target = receiver.reserve_window(WindowMemory::Write(Buffer::adopt(vec![0; MIB])))?;
    receiver.post(WrId(0), WorkRequest::BindWindow { key: target.key }).map_err(|error| error.kind)?;
    let mut sender = engine(Role::Initiator, emss, now);
    match what.as_str() {
        "send" => send_all(&mut sender, target, count, now, |_| ()),
        "receive" => {
            let mut stream = Vec::with_capacity(2 * MIB);
            send_all(&mut sender, target, 1, now, |bytes| stream.extend_from_slice(bytes))?;
            (0..count).try_for_each(|_| receive(&mut receiver, &stream, now))?;
            println!("{} FPDUs", receiver.counters().segments_received);
            Ok(())
        }
        _ => Err(USAGE.into()),
    }
}

fn engine(role: Role, emss: usize, now: Instant) -> Engine {
    let negotiated = Negotiated {
        role,
        crc: true,
        markers: false,
        large_fpdu: None,
        ird: 1,
        ord: 1,
        rtr: None,
        rtr_send_expected: false,
        private_data: Bytes::new(),
    };
    let parameters = Parameters {
        negotiated,
        domain: ProtectionDomain::new(16 * MIB),
        max_send_wr: 16,
        max_recv_wr: 16,
        max_windows: 16,
        strict_crc: false,
        timeouts: Timeouts::default(),
        emss,
        // Every run is alike.
        seed: [7; 32],
    };
    Engine::new(parameters, &[], now)
}

/// Sends this many Writes to the target. `sent` gets the bytes, as a socket would.
fn send_all(
    engine: &mut Engine,
    target: RemoteSegment,
    count: u64,
    now: Instant,
    mut sent: impl FnMut(&[u8]),
) -> AnyResult<()> {
    let data = Bytes::from(vec![7; MIB]);
    for number in 0..count {
        let request = WorkRequest::Write { gather: vec![data.clone()], targets: vec![target] };
        engine.post(WrId(number), request).map_err(|error| error.kind)?;
        loop {
            engine.prepare(now);
            if !engine.has_output() {
                break;
            }
            let count = engine.with_transmit_slices(|slices, _| {
                slices.iter().fold(0, |count, slice| {
                    sent(slice);
                    count + slice.len()
                })
            });
            engine.transmitted(count, now);
        }
        while engine.poll_completion().is_some() {}
    }
    Ok(())
}

/// Gives the stream to the engine, as a socket with this much input would.
fn receive(engine: &mut Engine, mut stream: &[u8], now: Instant) -> AnyResult<()> {
    while !stream.is_empty() {
        let count = engine.with_receive_slices(|slices| {
            let mut room = CALL;
            for slice in slices {
                room -= take(&mut stream, slice, room);
            }
            CALL - room
        });
        engine.received(count, now);
        if let Some(reason) = engine.end() {
            return Err(format!("the engine ended: {reason}").into());
        }
    }
    Ok(())
}

/// Moves bytes from the stream to a slice, up to a limit. Returns their number.
fn take(stream: &mut &[u8], slice: &mut IoSliceMut<'_>, limit: usize) -> usize {
    let count = slice.len().min(stream.len()).min(limit);
    let (now, later) = stream.split_at(count);
    if let Some(room) = slice.get_mut(..count) {
        room.copy_from_slice(now);
    }
    *stream = later;
    count
}
