//! Links that lose and reorder packets, and links of other MTUs.
//!
//! TCP hides a loss, but not its consequences. Data arrives in other pieces and at other times, and much of it at once when
//! the missing segment comes. The MTU decides how long the FPDUs of both sides are (RFC 5044 §4.5).

use std::fs;
use std::time::Duration;

use rpcrdma_capture::tcp::Side;
use serde::Deserialize;

use super::our_client::copies::{copy, there_and_back};
use super::our_client::remote::Remote;
use super::wire::frame;
use super::{Case, Detail};
use crate::failure::{Context, Failure, ensure};
use crate::interop::lab::Lab;
use crate::interop::link::Link;
use crate::interop::tools::SOAK;
use crate::page::Markers;
use crate::process;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "lossy-kernel-client",
        "The guest's packets are delayed, lost and reordered: what the kernel's client writes and reads is complete",
        lossy_kernel_client,
    )
    .within(180)
    .over(Link::LOSSY)
    .unseen(),
    Case::new(
        "lossy-our-client",
        "Over such a link a tree comes back from knfsd as our client has put it",
        lossy_our_client,
    )
    .within(180)
    .over(Link::LOSSY)
    .unseen(),
    Case::new(
        "lossy-soak",
        "Our client and server on such a link, with connections that are cut: no call is lost or executed twice, and all data is right",
        lossy_soak,
    )
    .within(180)
    .unseen()
    .with(&SOAK),
    Case::new(
        "lossy-bench",
        "rpcrdma bench wire measures each of its wires, the one with delay and loss too",
        lossy_bench,
    )
    .within(240)
    .unseen()
    .thorough(),
    Case::new(
        "bench-limits",
        "rpcrdma bench HOST names what limits between two network namespaces: a processor, a slow link by netem, few credits",
        bench_limits,
    )
    .within(180)
    .unseen()
    .thorough(),
    Case::new("mtu-576", "Both directions with FPDUs for an MTU of 576", mtu)
        .within(120)
        .over(Link::of_mtu(576))
        .thorough(),
    Case::new("mtu-9000", "Both directions with FPDUs for an MTU of 9000", mtu)
        .within(120)
        .over(Link::of_mtu(9000)),
    Case::new("mtu-65000", "Both directions with FPDUs for an MTU of 65000", mtu)
        .within(120)
        .over(Link::of_mtu(65_000))
        .thorough(),
];

/// Maximum time of a workload, multiplied by the patience of the guest.
const LIMIT: Duration = Duration::from_secs(120);
/// Sizes of files: inline, one chunk, and several calls of the largest size.
const SIZES: [usize; 5] = [1000, 5000, 100_000, 1 << 20, 5 << 20];
/// Octets of headers in a TCP segment: IPv4 (20), TCP (20) and its time stamps (12).
const HEADERS: usize = 52;

fn sizes() -> Vec<String> {
    SIZES.iter().map(usize::to_string).collect()
}

/// Writes files by the kernel's client, reads them back, and checks them at the server.
fn kernel_client(lab: &mut Lab) -> Result<(), Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let sizes = sizes();
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    lab.workload(LIMIT, "write-read-sizes", &[&[mount.path.as_str()], &sizes[..]].concat())?;
    lab.umount(&mount)?;
    lab.server_workload(&server, "check-sizes", &sizes)?;
    Ok(())
}

fn lossy_kernel_client(lab: &mut Lab) -> Result<Detail, Failure> {
    kernel_client(lab)?;
    dropped(lab)
}

fn lossy_our_client(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "lossy")?;
    let files = there_and_back(lab, &remote, &[])?;
    copy(lab, &remote, &SIZES)?;
    Ok(format!("{files} files; {}", dropped(lab)?))
}

/// A queueing discipline, as `tc -s -j qdisc` describes it.
#[derive(Debug, Deserialize)]
struct Discipline {
    kind: String,
    packets: u64,
    drops: u64,
}

/// Returns the losses in words. Without any, the case has tested nothing.
fn dropped(lab: &mut Lab) -> Result<Detail, Failure> {
    let text = lab.guest("tc -s -j qdisc show", &[])?;
    let (packets, drops) = lost(&text)?;
    ensure!(drops > 0, "the link has lost none of {packets} packets");
    Ok(format!("{drops} of {packets} packets lost"))
}

/// Returns the packets and drops that netem counts.
fn lost(text: &str) -> Result<(u64, u64), Failure> {
    let disciplines: Vec<Discipline> = serde_json::from_str(text).context("the output of tc")?;
    let netem = disciplines.iter().find(|discipline| discipline.kind == "netem");
    netem
        .map(|netem| (netem.packets, netem.drops))
        .ok_or_else(|| Failure::new(format!("tc shows no netem: {}", text.trim())))
}

/// Runs the soak program on a loopback interface of its own, whose link loses packets in both directions.
fn lossy_soak(lab: &mut Lab) -> Result<Detail, Failure> {
    fs::copy(SOAK.program(lab.target()), lab.shared().join("soak"))?;
    let script = "modprobe sch_netem\n\
        exec unshare --net bash -c '\n\
        ip link set lo mtu 1500 gso_max_segs 1 up && tc qdisc add dev lo root netem \"$@\" &&\n\
        /job/soak calls --count 3000 --calls-per-cut 150 && tc -s -j qdisc show dev lo' bash \"$@\"";
    let outcome = lab.guest_outcome(LIMIT, script, Link::LOSSY.disturbance)?;
    ensure!(
        outcome.status == Some(0),
        "soak: {:?}: {}",
        outcome.status,
        process::last_lines(&outcome.output, 12)
    );
    let (report, counts) = outcome.output.trim_end().rsplit_once('\n').unwrap_or_default();
    let (packets, drops) = lost(counts)?;
    ensure!(drops > 0, "the link has lost none of {packets} packets");
    let calls = report.lines().find_map(|line| line.strip_prefix("calls ")).unwrap_or_default();
    Ok(format!("calls: {}; {drops} of {packets} packets lost", calls.trim()))
}

/// The document of `rpcrdma bench wire`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Wires {
    netem_note: Option<String>,
    settings: Vec<Wire>,
}

#[derive(Debug, Deserialize)]
struct Wire {
    loss_percent: f64,
    result: WireResult,
}

#[derive(Debug, Deserialize)]
struct WireResult {
    rows: Vec<WireRow>,
}

#[derive(Debug, Deserialize)]
struct WireRow {
    value: f64,
}

fn lossy_bench(lab: &mut Lab) -> Result<Detail, Failure> {
    fs::copy(&lab.rpcrdma, lab.shared().join("rpcrdma"))?;
    let script = "exec /job/rpcrdma bench wire --seconds 1 --delay 1 --loss 0.5 --json 2>/job/bench.err";
    let outcome = lab.guest_outcome(LIMIT, script, &[])?;
    let errors = process::tail(&lab.shared().join("bench.err"), 5);
    ensure!(outcome.status == Some(0), "bench wire: {:?}: {errors}", outcome.status);
    let text = outcome.output;
    let wires: Wires = serde_json::from_str(&text).context("the document of bench wire")?;
    ensure!(wires.netem_note.is_none(), "bench wire has no netem: {:?}", wires.netem_note);
    let disturbed = wires.settings.iter().filter(|wire| wire.loss_percent > 0.0).count();
    ensure!(
        (disturbed, wires.settings.len()) == (1, 5),
        "{} wires, {disturbed} of them disturbed",
        wires.settings.len()
    );
    let rows = || wires.settings.iter().flat_map(|wire| &wire.result.rows);
    ensure!(rows().count() > 0 && rows().all(|row| row.value > 0.0), "a row has no value: {text}");
    Ok(format!("{} rows", rows().count()))
}

/// The place of the script's output in its page.
const LIMITS: Markers =
    Markers { begin: "<!-- limits of a link: begin -->", end: "<!-- limits of a link: end -->" };

/// Runs the script of the repository in the guest, whose kernel has netem. Both of its processors are emulated, so the
/// slow link is slower than that of the script.
fn bench_limits(lab: &mut Lab) -> Result<Detail, Failure> {
    let script = lab.project.join("scripts/bench-namespaces.sh");
    fs::copy(script, lab.shared().join("bench-namespaces.sh")).context("the script")?;
    fs::copy(&lab.rpcrdma, lab.shared().join("rpcrdma"))?;
    let run = "modprobe -a sch_netem veth && mkdir -p /tmp/limits && cp /job/bench-namespaces.sh /tmp/limits &&\n\
        RPCRDMA=/job/rpcrdma RATE=50mbit bash /tmp/limits/bench-namespaces.sh";
    let outcome = lab.guest_outcome(LIMIT, run, &[])?;
    let lines = || outcome.output.lines();
    ensure!(
        outcome.status == Some(0),
        "the script: {:?}: {}",
        outcome.status,
        process::last_lines(&outcome.output, 12)
    );
    ensure!(lines().any(|line| line == "== delay"), "the delay was skipped: {}", outcome.output.trim());
    let text = format!(
        "{}, in the guest: its processors are emulated, so the rates are low.\n\n{}\n\n```text\n{}\n```\n",
        lab.description(),
        lab.origin(),
        outcome.output.trim()
    );
    lab.page("docs/performance.md", LIMITS, text);
    Ok(limits(lines()).join("; "))
}

/// Returns what limits WRITE in each setting, from the lines of the script.
fn limits<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut setting = "";
    let mut found = Vec::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("== ") {
            setting = name;
        } else if let Some((_, rest)) =
            line.strip_prefix("write over rdma: ").and_then(|rest| rest.split_once("MB/s. "))
        {
            let by = rest.split(':').next().unwrap_or_default();
            found.push(format!("{setting}: {by}"));
        }
    }
    found
}

/// The senders of FPDUs in the cases of the MTU.
const SENDERS: [&str; 4] = ["the kernel's client", "our server", "our client", "knfsd"];
/// RDMA Reads that the Request of the kernel's client offers, and that of ours does not.
const KERNEL_IRD: u16 = 128;

const fn sender(by_kernel: bool, from: Side) -> &'static str {
    match (by_kernel, from) {
        (true, Side::Client) => SENDERS[0],
        (true, Side::Server) => SENDERS[1],
        (false, Side::Client) => SENDERS[2],
        (false, Side::Server) => SENDERS[3],
    }
}

fn mtu(lab: &mut Lab) -> Result<Detail, Failure> {
    let mtu = usize::from(lab.link()?.mtu);
    kernel_client(lab)?;
    let remote = Remote::new(lab, "mtu")?;
    copy(lab, &remote, &SIZES)?;
    let recording = lab.recording()?;
    let mut longest = SENDERS.map(|sender| (sender, 0));
    for session in &recording.sessions {
        let (_, asked, _) = frame(session, Side::Client)?;
        for item in session.fpdus() {
            let sender = sender(asked.ird == KERNEL_IRD, item.from);
            for (_, longest) in longest.iter_mut().filter(|(known, _)| *known == sender) {
                *longest = (*longest).max(item.bytes.len());
            }
        }
    }
    // Each has sent bulk data. Our side cuts messages into even parts: five of 51 KiB for a WRITE of 256 KiB, and not four.
    // TCP of Linux keeps segments to half of the peer's window, and siw follows it.
    let segment = mtu - HEADERS;
    for (sender, longest) in longest {
        let quarters = if sender.starts_with("our ") { 3 } else { 1 };
        ensure!(
            longest <= segment && longest * 4 > segment * quarters,
            "the longest FPDU of {sender} has {longest} octets; more than {quarters} quarters of {segment} were due"
        );
    }
    Ok(longest.map(|(sender, longest)| format!("{sender} {longest}")).join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_netem() {
        let text = r#"[{"kind":"noqueue","packets":0,"drops":0},
            {"kind":"netem","handle":"8001:","packets":812,"drops":9,"overlimits":0}]"#;
        assert_eq!(lost(text).unwrap(), (812, 9));
        assert!(lost("[]").unwrap_err().to_string().contains("shows no netem"));
    }
}
