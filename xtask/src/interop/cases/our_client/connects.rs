//! Connections: the race after the MPA Reply, and its effect on the listener.

use std::time::{Duration, Instant};

use rpcrdma_capture::tcp::{Connection, Side};

use super::remote::Remote;
use crate::failure::{Context, Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;

/// Enough connections to show the race: without a nudge, siw leaves every second to tenth first message unread.
const CONNECTS: usize = 200;
/// Maximum time of nearly all first calls, which allows a nudge or two and no wait of seconds. Multiplied by the
/// patience of the guest.
const FIRST_CALL: Duration = Duration::from_millis(250);

pub(super) fn ping(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "ping")?;
    let finished = remote.succeed(lab, &["ping", "--count", "5", "--interval", "0", remote.address()])?;
    Ok(finished.text().lines().last().unwrap_or_default().trim().to_owned())
}

/// Checks the race after the Reply. siw takes over its socket some time after it sent the Reply, and overlooks an FPDU
/// that came before. Our Initiator speaks at once. After 20 ms of silence it sends a zero-length RDMA Write, and
/// repeats it at growing intervals.
pub(super) fn connects(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "connects")?;
    let (mut trips, mut nudged) = (Vec::with_capacity(CONNECTS), 0);
    for connect in 1..=CONNECTS {
        let finished = remote
            .succeed(lab, &["-vv", "--json", "ping", "--count", "1", "--timeout", "10", remote.address()])
            .context(format!("connection {connect}"))?;
        let document: serde_json::Value =
            serde_json::from_slice(&finished.output).context("the JSON of ping")?;
        let trip = document.pointer("/microseconds/max").and_then(serde_json::Value::as_f64);
        let Some(trip) = trip else {
            return Err(Failure::new(format!("connection {connect}: the first call had no reply")));
        };
        trips.push(trip / 1e3);
        nudged += usize::from(finished.errors.contains("nudging"));
    }
    trips.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        trips.get((trips.len() * percent / 100).min(trips.len() - 1)).copied().unwrap_or(0.0)
    };
    let bound = FIRST_CALL * lab.accel().patience();
    ensure!(
        at(99).total_cmp(&(bound.as_secs_f64() * 1e3)).is_lt(),
        "the p99 of first calls is {:.0} ms",
        at(99)
    );
    Ok(format!(
        "first call: median {:.1} ms, p90 {:.0} ms, p99 {:.0} ms, max {:.0} ms; {nudged} of {CONNECTS} nudged",
        at(50),
        at(90),
        at(99),
        at(100)
    ))
}

/// Checks abandoned set-ups. siw (6.1) may close its listener when a connection ends before siw has accepted it. So our
/// connector completes an abandoned set-up, sends its Request at once, never probes a port, and opens one connection at
/// a time.
pub(super) fn given_up(lab: &mut Lab) -> Result<Detail, Failure> {
    give_up(lab).or_else(|failure| {
        // siw frees a listener that it has closed once more when knfsd stops. So the next cases get another kernel.
        let _ = lab.kernel_log();
        lab.renew().context(&failure)?;
        Err(failure)
    })
}

/// Runs clients whose timeout ends before TCP is connected, after it, and around the Reply. The wire shows whether our
/// client has done its part, whatever siw makes of it.
fn give_up(lab: &mut Lab) -> Result<Detail, Failure> {
    const TRIES: u32 = 40;
    let remote = Remote::new(lab, "given-up")?;
    let (mut given_up, start) = (0, Instant::now());
    for attempt in 0..TRIES {
        let patience = Duration::from_micros(u64::from(attempt) * 250 + 100);
        let timeout = format!("{:.6}", patience.as_secs_f64());
        let finished = remote.run(lab, &["ping", "--count", "1", "--timeout", &timeout, remote.address()])?;
        given_up += u32::from(!finished.success());
    }
    let took = start.elapsed();
    ensure!(given_up > 0, "no attempt was given up");
    let answered = remote.succeed(lab, &["ping", "--count", "3", "--interval", "0", remote.address()]);
    // knfsd has a listener for IPv6 too.
    let sockets = lab.guest("ss -4Hltn \"sport = :$1\"", &[&remote.port().to_string()])?;
    let listener = if sockets.trim().is_empty() { "siw has closed its listener" } else { "siw listens" };
    let all = lab.recording()?.connections()?;
    let ours = all.iter().filter(|connection| connection.server.port() == remote.port());
    let ends: Vec<Option<&str>> = ours.map(cut_short).collect();
    let (connections, cut) = (ends.len(), ends.iter().flatten().count());
    let first = ends.iter().zip(1..).find_map(|(end, number)| Some(((*end)?, number)));
    if let Some((how, number)) = first {
        return Err(Failure::new(format!(
            "our client ended {cut} of {connections} connections before the Reply, number {number} first, {how}; {listener}"
        )));
    }
    answered.context(format!("none of our {connections} connections ended before its Reply; {listener}"))?;
    Ok(format!(
        "{given_up} of {TRIES} given up in {:.1} s, each after its Reply; knfsd answers as before",
        took.as_secs_f64()
    ))
}

/// Returns how our client ended a connection before the server had sent a byte, if it did so.
fn cut_short(connection: &Connection) -> Option<&'static str> {
    let first = connection.chunks.iter().find(|chunk| match chunk.from {
        Side::Client => chunk.end.is_some(),
        Side::Server => !chunk.bytes.is_empty(),
    })?;
    let spoke = connection.chunks.iter().any(|chunk| chunk.from == Side::Client && !chunk.bytes.is_empty());
    (first.from == Side::Client).then_some(if spoke { "after the Request" } else { "without a Request" })
}

#[cfg(test)]
mod tests {
    use rpcrdma_capture::tcp::{Chunk, End};

    use super::*;

    fn judged(chunks: &[(Side, &[u8], Option<End>)]) -> Option<&'static str> {
        let address = "127.0.0.1:1".parse().unwrap();
        let chunks =
            chunks.iter().map(|&(from, bytes, end)| Chunk { from, bytes: bytes.to_vec(), end }).collect();
        let connection =
            Connection { client: address, server: address, chunks, behind_holes: 0, out_of_order: 0 };
        cut_short(&connection)
    }

    #[test]
    fn a_connection_that_ends_before_its_reply_is_found() {
        let request = (Side::Client, &b"Request"[..], None);
        let reply = (Side::Server, &b"Reply"[..], None);
        let end = |from, end| (from, &b""[..], Some(end));
        for by in [End::Closed, End::Reset] {
            let (ours, theirs) = (end(Side::Client, by), end(Side::Server, by));
            assert_eq!(judged(&[request, reply, ours, theirs]), None);
            assert_eq!(judged(&[request, ours]), Some("after the Request"));
            assert_eq!(judged(&[request, ours, reply]), Some("after the Request"));
            assert_eq!(judged(&[(Side::Client, b"Request", Some(by)), reply]), Some("after the Request"));
            assert_eq!(judged(&[ours, theirs]), Some("without a Request"));
            // Refused, or still open.
            assert_eq!(judged(&[theirs]), None);
            assert_eq!(judged(&[request]), None);
        }
    }
}
