//! The wire: the real messages of siw and the kernel, and ours, from a recording of the case.

use std::collections::BTreeSet;
use std::time::Duration;

use rpcrdma_capture::exchange::{Exchange, Exchanges};
use rpcrdma_capture::session::Session;
use rpcrdma_capture::tcp::Side;
use rpcrdma_iwarp::wire::fpdu::FpduView;
use rpcrdma_iwarp::wire::mpa::{Enhanced, FLAG_CRC, FLAG_ENHANCED, FrameView};
use rpcrdma_iwarp::wire::rdmap::Opcode;
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::wire::{Body, WriteChunk};

use super::faults::{MANY_READS, READ, pattern_file};
use super::{Case, Detail};
use crate::failure::{Failure, ensure};
use crate::interop::lab::Lab;
use crate::process;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "kernel-client",
        "MPA revision 2, IRD 128, RFC 8797 with 4096 bytes and remote invalidation; CRCs as we ask; \
         Send with Invalidate from us; inline up to 4096",
        kernel_client,
    ),
    Case::new(
        "our-client",
        "knfsd's Reply and our Request agree; CRCs as we request; Send with Invalidate from knfsd",
        our_client,
    ),
    Case::new(
        "credits-filled",
        "The kernel has as many calls in flight as granted, and never more",
        credits_filled,
    )
    .within(90),
    Case::new(
        "crc-off",
        "Without CRCs, as siw prefers: neither side asks, and neither generates any",
        crc_off,
    ),
];

/// Maximum time for a job of these cases.
const LIMIT: Duration = Duration::from_secs(40);

/// The kernel's inline threshold, and ours, in bytes.
pub(super) const INLINE: usize = 4096;
/// The credits that the kernel asks for. A server grants no more (RFC 8166 §3.3.1).
const ASKED: u32 = 128;
/// The default of `serve --credits`.
pub(super) const DEFAULT_CREDITS: u32 = 64;
/// The longest Send of a workload comes as near as this to its threshold, in bytes.
const SPARE: usize = 256;

/// The settings of a server that its clients can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// `--inline`: the size that the server announces in both directions (RFC 8797 §4.2).
    pub(super) inline: usize,
    /// `--credits`: the largest grant of its replies.
    pub(super) credits: u32,
}

/// The settings of a server that a session of the kernel's client shows, and the use that both sides made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    settings: Settings,
    /// Largest number of Calls in flight.
    in_flight: usize,
    /// Length of the longest Call and of the longest Reply, in bytes.
    longest: (usize, usize),
}

impl Used {
    fn of(session: &Session) -> Result<Self, Failure> {
        let (.., kernel) = frame(session, Side::Client)?;
        let (.., ours) = frame(session, Side::Server)?;
        let due = PrivateData { remote_invalidation: true, send_size: INLINE, receive_size: INLINE };
        ensure!(kernel == due, "the kernel announces {kernel:?}");
        ensure!(ours.send_size == ours.receive_size, "we announce {ours:?}");
        let exchanges = Exchanges::of(session);
        let replies = exchanges.all.iter().filter_map(|exchange| exchange.reply.as_ref());
        let calls = exchanges.all.iter().map(|exchange| exchange.call.sent);
        Ok(Self {
            settings: Settings {
                inline: ours.send_size,
                credits: replies.clone().map(|reply| reply.header.credit).max().unwrap_or(0),
            },
            in_flight: exchanges.in_flight.0,
            longest: (calls.max().unwrap_or(0), replies.map(|reply| reply.sent).max().unwrap_or(0)),
        })
    }
}

/// Checks that the sessions show these settings in turn, and that both sides use the resulting thresholds (RFC 8797
/// §4.2). No Send is longer, and some are nearly as long. The kernel offers 4096 bytes.
pub(super) fn check_settings(sessions: &[Session], due: &[Settings]) -> Result<String, Failure> {
    let used: Vec<Used> = sessions.iter().map(Used::of).collect::<Result<_, _>>()?;
    settings_in_turn(&used, due)
}

/// Compares the sessions with the settings; several sessions may have the same ones.
fn settings_in_turn(used: &[Used], due: &[Settings]) -> Result<String, Failure> {
    let mut words = Vec::new();
    let mut seen = used.chunk_by(|one, next| one.settings == next.settings);
    for due in due {
        let sessions = seen.next().unwrap_or_default();
        let shown = sessions.first().map(|one| one.settings);
        let due = Settings { credits: due.credits.min(ASKED), ..*due };
        ensure!(shown == Some(due), "{shown:?} on the wire instead of {due:?}");
        let largest = |of: fn(&Used) -> usize| sessions.iter().map(of).max().unwrap_or(0);
        let (call, reply) = (largest(|used| used.longest.0), largest(|used| used.longest.1));
        let threshold = due.inline.min(INLINE);
        for (what, longest) in [("Call", call), ("Reply", reply)] {
            let room = threshold.checked_sub(longest);
            ensure!(
                room.is_some_and(|room| room <= SPARE),
                "{due:?}: the longest {what} has {longest} bytes; {} to {threshold} were due",
                threshold - SPARE
            );
        }
        let in_flight = largest(|used| used.in_flight);
        let credits = usize::try_from(due.credits).unwrap_or(usize::MAX);
        ensure!(in_flight <= credits, "{due:?}: {in_flight} calls in flight");
        words.push(format!("{}: Sends of {call} and {reply} bytes, {in_flight} in flight", due.inline));
    }
    let rest = seen.next().and_then(|sessions| sessions.first());
    ensure!(rest.is_none(), "{rest:?} on the wire after the last settings");
    Ok(words.join("; "))
}

/// Writes files and lists directories in `$1`, with names that begin with `$2`: the Calls and replies come near the
/// thresholds of 1024 and 4096 bytes.
pub(super) const UP_TO_THRESHOLDS: &str = "cd \"$1\" || exit 1\n\
    for n in $(seq 600 50 1000) $(seq 3600 50 4000); do head -c $n /dev/zero >\"$2-$n\" || exit 1; done\n\
    for n in $(seq 1 6) $(seq 12 22); do mkdir \"$2-list-$n\" && (cd \"$2-list-$n\" && touch $(seq $n)) || exit 1; done\n\
    echo 3 >/proc/sys/vm/drop_caches\n\
    for n in $(seq 1 6) $(seq 12 22); do [ \"$(ls -l \"$2-list-$n\" | wc -l)\" = $((n + 1)) ] || exit 1; done";

/// Checks that every FPDU has a matching CRC.
fn check_crcs(sessions: &[Session]) -> Result<usize, Failure> {
    let mut fpdus = 0;
    for item in sessions.iter().flat_map(Session::fpdus) {
        ensure!(
            FpduView::new(&item.bytes).crc_matches() == Some(true),
            "an FPDU of the {:?} has no valid CRC: {:02x?}",
            item.from,
            item.bytes.get(..20)
        );
        fpdus += 1;
    }
    ensure!(fpdus > 0, "nothing was recorded");
    Ok(fpdus)
}

/// Returns flags, IRD and ORD, and RFC 8797 private data of the MPA frame of one side.
pub(super) fn frame(session: &Session, side: Side) -> Result<(u8, Enhanced, PrivateData), Failure> {
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

fn xids(exchanges: &[Exchange]) -> BTreeSet<u32> {
    exchanges.iter().map(|exchange| exchange.call.header.xid).collect()
}

/// Returns the number of replies that invalidate, each the only handle of its call that can be invalidated.
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

/// Checks that each chunk comes back as offered, filled from the front, and that no Send exceeds the threshold. Returns
/// the lengths of the longest Call and the longest Reply.
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
    ensure!(calls <= INLINE && replies <= INLINE, "Sends of {calls} and {replies} bytes");
    Ok((calls, replies))
}

// requirement: rfc8797-4.1-1
fn kernel_client(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    // Sizes around the threshold, in both directions.
    let script = "cd \"$1\" && for n in 1 100 1000 2000 3000 3800 3900 5000 100000; do head -c $n /dev/urandom >f$n; done; \
                  echo 3 >/proc/sys/vm/drop_caches; cat f1 f100 f1000 f2000 f3000 f3800 f3900 f5000 | wc -c; ls -l >/dev/null";
    let output = lab.guest_within(LIMIT, script, &[&mount.path])?;
    ensure!(output.trim() == "18801", "read {} bytes of 18801", output.trim());
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
    let (ours, theirs) = (xids(&exchanges), recording.xids_by_tshark()?);
    ensure!(theirs == ours, "we see {} calls in the recording, tshark {}", ours.len(), theirs.len());
    Ok(format!(
        "{fpdus} FPDUs, {} calls, {invalidated} remote invalidations, longest Sends {longest} and {longest_reply}",
        exchanges.len()
    ))
}

fn our_client(lab: &mut Lab) -> Result<Detail, Failure> {
    let knfsd = lab.knfsd()?;
    let mountport = knfsd.mountd.to_string();
    let url = format!("nfs://{}/export/memory/wire", knfsd.address());
    let local = lab.folder.join("data");
    pattern_file(&local, 4)?;
    let local = local.display().to_string();
    let back = lab.folder.join("back").display().to_string();
    let put: &[&str] = &["put", "--mountport", &mountport, &local, &url];
    let get: &[&str] = &["get", "--mountport", &mountport, &url, &back];
    for arguments in [put, get] {
        let finished = lab.rpcrdma(LIMIT, arguments)?;
        ensure!(finished.success(), "{arguments:?}: {} {}", finished.ending(), finished.errors);
    }
    ensure!(std::fs::read(&local)? == std::fs::read(&back)?, "the file that came back differs");
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
        let (reply, stated, announced) = frame(session, Side::Server)?;
        ensure!(reply == flags, "flags {reply:02x} in knfsd's Reply to {flags:02x}");
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
    let (ours, theirs) = (xids(&exchanges), recording.xids_by_tshark()?);
    ensure!(
        !theirs.is_empty() && theirs.is_subset(&ours),
        "of the {} calls that tshark sees, we see {}",
        theirs.len(),
        theirs.intersection(&ours).count()
    );
    Ok(format!("{fpdus} FPDUs, {} calls, {invalidated} remote invalidations", exchanges.len()))
}

// requirement: rfc8166-3.3.1-1
fn credits_filled(lab: &mut Lab) -> Result<Detail, Failure> {
    const GRANTS: [usize; 2] = [4, 16];
    let mut said = Vec::new();
    for grant in GRANTS {
        let server = lab.serve(&["--credits", &grant.to_string()])?;
        pattern_file(&server.export.join("data"), 16)?;
        // While the replies are held back, the kernel sends as many calls as the grant allows.
        let proxy = lab.proxy(&server, &[])?;
        let mount = lab.mount_port(proxy.port, server.tcp, "")?;
        let file = format!("{}/data", mount.path);
        proxy.hold_at(READ);
        let job = lab.guest_start(MANY_READS, &[&file, "32", "10", "65536"])?;
        let held = process::until(LIMIT, || Ok((proxy.held() > 0).then_some(())))?;
        ensure!(held.is_some(), "no READ is answered");
        std::thread::sleep(Duration::from_secs(1) * lab.accel().patience());
        proxy.hold(false);
        lab.guest_finish(&job, LIMIT)?;
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

fn crc_off(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&["--no-crc"])?;
    let mount = lab.mount(&server, "")?;
    let script =
        "head -c 300000 /dev/urandom >\"$1/file\" && echo 3 >/proc/sys/vm/drop_caches && wc -c <\"$1/file\"";
    let output = lab.guest_within(LIMIT, script, &[&mount.path])?;
    ensure!(output.trim() == "300000", "read {} bytes of 300000", output.trim());
    lab.umount(&mount)?;
    let recording = lab.recording()?;
    ensure!(!recording.sessions.is_empty(), "no session was recorded");
    let mut fpdus = 0;
    for session in &recording.sessions {
        for side in [Side::Client, Side::Server] {
            let (flags, ..) = frame(session, side)?;
            ensure!(flags == FLAG_ENHANCED, "flags {flags:02x} from the {side:?}");
        }
        for item in session.fpdus() {
            let crc = FpduView::new(&item.bytes).crc();
            ensure!(crc == Some([0; 4]), "the {:?} fills the CRC field with {crc:02x?}", item.from);
            fpdus += 1;
        }
    }
    let calls = exchanges(&recording.sessions);
    check_messages(&calls)?;
    Ok(format!("{fpdus} FPDUs, {} calls", calls.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn settings(inline: usize, credits: u32) -> Settings {
        Settings { inline, credits }
    }

    /// Returns a session with Sends as long as the threshold allows.
    fn used(inline: usize, credits: u32) -> Used {
        let longest = inline.min(INLINE);
        Used { settings: settings(inline, credits), in_flight: 1, longest: (longest, longest - SPARE) }
    }

    fn refused(used: &[Used], due: &[Settings]) -> String {
        settings_in_turn(used, due).unwrap_err().to_string()
    }

    #[test]
    fn a_recorded_session_shows_its_settings() {
        let sessions = rpcrdma_capture::linux::sessions("nfs3-io").unwrap();
        let used = Used::of(&sessions[0]).unwrap();
        assert_eq!(used, Used { settings: settings(4096, 64), in_flight: 2, longest: (3936, 288) });
    }

    #[test]
    fn sessions_show_the_settings_in_turn() {
        let sessions = [used(1024, 8), used(1024, 8), used(8192, 8), used(1024, 8)];
        let due = [settings(1024, 8), settings(8192, 8), settings(1024, 8)];
        assert!(settings_in_turn(&sessions, &due).is_ok());
        assert!(refused(&sessions, &due[..2]).ends_with("on the wire after the last settings"));
        assert!(refused(&sessions[..3], &due).starts_with("None on the wire instead of"));
        let other = [settings(1024, 8), settings(8192, 9), settings(1024, 8)];
        assert!(
            refused(&sessions, &other).contains("credits: 8 }) on the wire instead of Settings"),
            "credits"
        );
        let other = [settings(1024, 8), settings(4096, 8), settings(1024, 8)];
        assert!(refused(&sessions, &other).contains("inline: 8192"), "the announced size");
    }

    #[test]
    fn thresholds_are_kept_and_used() {
        for (call, reply) in [(1025, 1024), (1024, 1025), (1024 - SPARE - 1, 1024), (1024, 0)] {
            let session = Used { longest: (call, reply), ..used(1024, 8) };
            let reason = refused(&[session], &[settings(1024, 8)]);
            assert!(reason.ends_with("768 to 1024 were due"), "{reason}");
        }
        // The kernel asks for no more than 128 credits.
        assert!(settings_in_turn(&[used(1024, 128)], &[settings(1024, 512)]).is_ok());
        // The kernel never sends or takes more than 4096 bytes.
        let session = Used { longest: (4097, 4096), ..used(65536, 8) };
        assert!(refused(&[session], &[settings(65536, 8)]).ends_with("3840 to 4096 were due"));
    }

    #[test]
    fn credits_are_kept() {
        let session = Used { in_flight: 9, ..used(1024, 8) };
        assert!(refused(&[session], &[settings(1024, 8)]).ends_with("9 calls in flight"));
    }
}
