//! The wire: what siw and the kernel really send, and what we send them, from a recording of the case.

use std::collections::BTreeSet;
use std::time::Duration;

use rpcrdma_capture::exchange::{Exchange, Exchanges};
use rpcrdma_capture::message::{Event, events};
use rpcrdma_capture::session::Session;
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::mpa::{Enhanced, FLAG_CRC, FLAG_ENHANCED, FrameView};
use rpcrdma_iwarp::wire::rdmap::Opcode;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::{Body, WriteChunk};

use super::faults::{MANY_READS, pattern_file};
use super::{Case, Detail};
use crate::interop::failure::{Failure, ensure};
use crate::interop::lab::Lab;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "kernel-client",
        "MPA revision 2, IRD 128, RFC 8797 with 4096 octets and remote invalidation; CRCs as we ask; \
         Send with Invalidate from us; inline up to 4096",
        kernel_client,
    ),
    Case::new(
        "our-client",
        "knfsd's Reply and ours fit; CRCs as we ask; Send with Invalidate from knfsd",
        our_client,
    ),
    Case::new(
        "credits-filled",
        "The kernel has as many calls in flight as it is granted, and never more",
        credits_filled,
    )
    .within(90),
    Case::new(
        "first-message",
        "200 connections to siw, whose first message it may overlook: each is answered at once",
        first_message,
    )
    .within(120),
];

/// How long a job of these cases may take.
const LIMIT: Duration = Duration::from_secs(40);

/// The kernel's inline threshold, and ours.
const INLINE: usize = 4096;

/// Every FPDU has a CRC that matches.
fn check_crcs(sessions: &[Session]) -> Result<usize, Failure> {
    let mut fpdus = 0;
    for item in sessions.iter().flat_map(Session::fpdus) {
        ensure!(
            FpduView::new(&item.octets).crc_matches() == Some(true),
            "an FPDU of the {:?} has no valid CRC: {:02x?}",
            item.from,
            item.octets.get(..20)
        );
        fpdus += 1;
    }
    ensure!(fpdus > 0, "nothing was recorded");
    Ok(fpdus)
}

/// The MPA frame of one side: flags, IRD and ORD, RFC 8797.
fn frame(session: &Session, side: Side) -> Result<(u8, Enhanced, PrivateData), Failure> {
    let missing = || Failure::new(format!("no valid MPA frame of the {side:?}"));
    let view = FrameView::new(session.frame(side).ok_or_else(missing)?);
    ensure!(view.revision() == Some(2), "MPA revision {:?} from the {side:?}", view.revision());
    let enhanced = view.enhanced().ok_or_else(missing)?;
    let announced = view.private_data().and_then(PrivateData::find).ok_or_else(missing)?;
    Ok((view.flags().ok_or_else(missing)?, enhanced, announced))
}

fn exchanges(sessions: &[Session]) -> Vec<Exchange> {
    sessions.iter().flat_map(|session| Exchanges::of(session).all).collect()
}

/// Replies that invalidate, each the only handle of its call that there is to invalidate.
fn invalidations(exchanges: &[Exchange]) -> Result<usize, Failure> {
    let mut seen = 0;
    for exchange in exchanges {
        let Some(reply) = &exchange.reply else { continue };
        let Some(handle) = reply.invalidate else { continue };
        ensure!(
            reply.opcode == Opcode::SendInvalidate,
            "the reply to {:#010x} is a {:?}",
            reply.header.xid,
            reply.opcode
        );
        let named = exchange.call.lists().is_some_and(|lists| lists.handles().any(|known| known == handle));
        ensure!(named, "{handle:#010x} is invalidated, which the call did not name");
        seen += 1;
    }
    Ok(seen)
}

/// Each chunk comes back as it was offered, filled from the front, and no Send is longer than the threshold. Gives the lengths
/// of the longest Call and the longest Reply.
fn check_messages(exchanges: &[Exchange]) -> Result<(usize, usize), Failure> {
    let (mut calls, mut replies) = (0, 0);
    for exchange in exchanges {
        let xid = exchange.call.header.xid;
        let Some(reply) = &exchange.reply else {
            return Err(Failure::new(format!("call {xid:#010x} has no reply")));
        };
        let (Some(offered), Some(returned)) = (exchange.call.lists(), reply.lists()) else {
            return Err(Failure::new(format!("the reply to {xid:#010x} is {:?}", reply.header.body)));
        };
        let as_offered =
            |offered: &WriteChunk, returned: &WriteChunk| offered.filled(returned.total()) == *returned;
        let write = offered.write.len() == returned.write.len()
            && offered
                .write
                .iter()
                .zip(&returned.write)
                .all(|(offered, returned)| as_offered(offered, returned));
        let reply_chunk = match (&offered.reply, &returned.reply) {
            (Some(offered), Some(returned)) => as_offered(offered, returned),
            (offered, None) => offered.is_none() || matches!(reply.header.body, Body::Message(_)),
            (None, Some(_)) => false,
        };
        ensure!(
            write && reply_chunk && returned.read.is_empty(),
            "{xid:#010x}: chunks {offered:?} come back as {returned:?}"
        );
        calls = calls.max(exchange.call.sent);
        replies = replies.max(reply.sent);
    }
    ensure!(calls <= INLINE && replies <= INLINE, "Sends of {calls} and {replies} octets");
    Ok((calls, replies))
}

fn kernel_client(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    // Names as long as they may be, so that calls and replies without chunks come close to the threshold.
    let script = "cd \"$1\" && for n in 1 100 1000 2000 3000 3800 3900 5000 100000; do head -c $n /dev/urandom >f$n; done; \
                  echo 3 >/proc/sys/vm/drop_caches; cat f* | wc -c; \
                  dd if=f100000 of=/dev/null iflag=direct bs=100000 2>/dev/null; ls -l >/dev/null";
    let output = lab.guest_within(LIMIT, script, &[&mount.path])?;
    ensure!(output.trim() == "118801", "read {} octets of 118801", output.trim());
    lab.umount(&mount)?;
    let recording = lab.recording()?;
    let sessions = &recording.sessions;
    ensure!(!sessions.is_empty(), "no session was recorded");
    for session in sessions {
        let (flags, asked, announced) = frame(session, Side::Client)?;
        ensure!(flags & !FLAG_CRC == FLAG_ENHANCED, "flags {flags:02x} in the kernel's Request");
        ensure!(
            (asked.ird, asked.ord) == (128, 0),
            "IRD {} and ORD {} in the kernel's Request",
            asked.ird,
            asked.ord
        );
        let kernel = PrivateData { remote_invalidation: true, send_size: INLINE, receive_size: INLINE };
        ensure!(announced == kernel, "the kernel announces {announced:?}");
        let (flags, stated, announced) = frame(session, Side::Server)?;
        ensure!(flags == FLAG_ENHANCED | FLAG_CRC, "flags {flags:02x} in our Reply");
        ensure!(stated.ird == 0 && (1..=128).contains(&stated.ord), "our Reply states {stated:?}");
        ensure!(
            (announced.send_size, announced.receive_size) == (INLINE, INLINE),
            "we announce {announced:?}"
        );
    }
    let fpdus = check_crcs(sessions)?;
    let exchanges = exchanges(sessions);
    let invalidated = invalidations(&exchanges)?;
    ensure!(invalidated > 0, "our server has invalidated nothing remotely");
    let (longest, longest_reply) = check_messages(&exchanges)?;
    ensure!(
        longest > 3000 && longest_reply > 1024,
        "the threshold is not made use of: longest Call {longest}, longest Reply {longest_reply}"
    );
    let forms = exchanges.iter().filter_map(|exchange| exchange.call.lists());
    let (mut read, mut write) = (0, 0);
    for lists in forms {
        read += usize::from(!lists.read.is_empty());
        write += usize::from(!lists.write.is_empty());
    }
    ensure!(read > 0 && write > 0, "{read} calls with Read chunks, {write} with Write chunks");
    recording.compare_with_tshark(exchanges.len())?;
    Ok(format!(
        "{fpdus} FPDUs, {} calls, {invalidated} remote invalidations, longest Sends {longest} and {longest_reply}",
        exchanges.len()
    ))
}

fn our_client(lab: &mut Lab) -> Result<Detail, Failure> {
    let knfsd = lab.knfsd()?;
    let mountport = knfsd.mountd.to_string();
    let url = format!("nfs://127.0.0.1:{}/export/memory/wire", knfsd.rdma);
    let local = lab.folder.join("data");
    pattern_file(&local, 4)?;
    let local = local.display().to_string();
    let back = lab.folder.join("back").display().to_string();
    for arguments in [["put", &local, &url], ["get", &url, &back]] {
        let finished =
            lab.rpcrdma(LIMIT, &[&arguments[..1], &["--mountport", &mountport], &arguments[1..]].concat())?;
        ensure!(finished.success(), "{}: {} {}", arguments[0], finished.ending(), finished.errors);
    }
    ensure!(std::fs::read(&local)? == std::fs::read(&back)?, "what came back differs");
    lab.guest("rm /export/memory/wire", &[])?;
    let recording = lab.recording()?;
    ensure!(!recording.sessions.is_empty(), "no session was recorded");
    for session in &recording.sessions {
        let (flags, asked, announced) = frame(session, Side::Client)?;
        ensure!(
            flags == FLAG_ENHANCED | FLAG_CRC && asked.ird >= 1,
            "our Request: flags {flags:02x}, {asked:?}"
        );
        ensure!(announced.remote_invalidation, "we do not announce remote invalidation");
        let (flags, stated, announced) = frame(session, Side::Server)?;
        ensure!(flags == FLAG_ENHANCED | FLAG_CRC, "flags {flags:02x} in knfsd's Reply");
        ensure!(
            (stated.ird, stated.ord) == (asked.ord, asked.ird.min(128)),
            "knfsd states {stated:?} to our {asked:?}"
        );
        let kernel = PrivateData { remote_invalidation: false, send_size: INLINE, receive_size: INLINE };
        ensure!(announced == kernel, "knfsd announces {announced:?}");
    }
    let fpdus = check_crcs(&recording.sessions)?;
    let exchanges = exchanges(&recording.sessions);
    let invalidated = invalidations(&exchanges)?;
    ensure!(invalidated > 0, "knfsd has invalidated nothing remotely");
    check_messages(&exchanges)?;
    recording.compare_with_tshark(exchanges.len())?;
    Ok(format!("{fpdus} FPDUs, {} calls, {invalidated} remote invalidations", exchanges.len()))
}

fn credits_filled(lab: &mut Lab) -> Result<Detail, Failure> {
    const GRANTS: [usize; 2] = [4, 16];
    let mut said = Vec::new();
    for grant in GRANTS {
        let server = lab.serve(&["--credits", &grant.to_string()])?;
        pattern_file(&server.export.join("data"), 16)?;
        let mount = lab.mount(&server, "")?;
        let file = format!("{}/data", mount.path);
        lab.guest_within(LIMIT, MANY_READS, &[&file, "32", "20", "65536"])?;
        lab.umount(&mount)?;
        lab.stop(&server)?;
    }
    let recording = lab.recording()?;
    let mut filled = BTreeSet::new();
    for session in &recording.sessions {
        let exchanges = Exchanges::of(session);
        let granted =
            exchanges.all.iter().filter_map(|exchange| Some(exchange.reply.as_ref()?.header.credit)).max();
        let granted = usize::try_from(granted.unwrap_or(0)).unwrap_or(0);
        let in_flight = exchanges.in_flight.0;
        ensure!(in_flight <= granted, "{in_flight} calls in flight with {granted} credits");
        if in_flight == granted {
            filled.insert(granted);
        }
        said.push(format!("{in_flight} of {granted}"));
    }
    ensure!(GRANTS.iter().all(|grant| filled.contains(grant)), "in flight: {}", said.join(", "));
    Ok(said.join(", "))
}

fn first_message(lab: &mut Lab) -> Result<Detail, Failure> {
    const CONNECTIONS: usize = 200;
    /// A call that was overlooked is found by the nudge, which goes out after 20 ms; without it, it would wait for the timeout.
    const LONGEST: Duration = Duration::from_secs(2);
    let knfsd = lab.knfsd()?;
    let address = format!("127.0.0.1:{}", knfsd.rdma);
    let mut longest = Duration::ZERO;
    for number in 0..CONNECTIONS {
        let started = std::time::Instant::now();
        let finished = lab.rpcrdma(LIMIT, &["ping", "--count", "1", &address])?;
        ensure!(finished.success(), "ping {number}: {} {}", finished.ending(), finished.errors);
        longest = longest.max(started.elapsed());
    }
    let patience = lab.accel().patience();
    ensure!(longest < LONGEST * patience, "a ping took {longest:?}");
    let recording = lab.recording()?;
    let nudged = recording.sessions.iter().filter(|session| {
        let mut events = events(session).into_iter();
        events.any(|event| matches!(event, Event::Write(write) if write.from == Side::Client && write.octets.is_empty()))
    });
    let nudged = nudged.count();
    let connections = recording.sessions.len();
    ensure!(connections >= CONNECTIONS, "{connections} connections were recorded");
    Ok(format!("{connections} connections, {nudged} of them nudged, longest {} ms", longest.as_millis()))
}
