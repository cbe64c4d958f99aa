//! Many calls, long replies, and remote invalidation.

use std::collections::BTreeSet;

use super::remote::{Remote, travelled};
use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;

/// Number of credits that knfsd grants (svcrdma's own choice in 6.1).
const KNFSD_CREDITS: u32 = 64;

pub(super) fn credits(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "credits")?;
    let script = "cd \"$1\" && mkdir many && for n in $(seq 400); do printf '%0*d' $((65536 - n)) $n >many/$n; done; cat many/* | wc -c";
    let bytes = lab.guest(script, &[remote.directory()])?;
    let options = ["--credits", "256", "--files", "256"];
    // Several threads of knfsd could answer as fast as a client on a busy machine calls. So could one, if READs were short.
    lab.guest("rpc.nfsd 1", &[])?;
    let get =
        remote.succeed(lab, &[&["-vv", "get", "-r"][..], &options, &[&remote.url("many"), "back"]].concat());
    lab.guest("rpc.nfsd 4", &[])?;
    let get = get?;
    let mut most = 0;
    let (mut granted, mut calls) = (0, 0);
    for line in get.errors.lines() {
        if let (Some(in_flight), Some(grant)) = (number(line, " in_flight="), number(line, " granted=")) {
            // The first call leaves before there is a grant.
            ensure!(in_flight <= grant.max(1), "{in_flight} calls in flight with a grant of {grant}");
            most = most.max(in_flight);
            granted = granted.max(grant);
            calls += 1;
        }
    }
    ensure!(granted == KNFSD_CREDITS, "knfsd grants {granted} credits, {KNFSD_CREDITS} were due");
    ensure!(most == granted, "{most} calls in flight at most, {granted} were possible");
    let mut total = 0;
    for entry in std::fs::read_dir(lab.folder.join("back"))? {
        total += entry?.metadata()?.len();
    }
    ensure!(bytes.trim().parse() == Ok(total), "{total} bytes have come, {} were due", bytes.trim());
    Ok(format!("{most} of {granted} credits in use, {calls} calls"))
}

fn number(line: &str, before: &str) -> Option<u32> {
    let (_, rest) = line.split_once(before)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

pub(super) fn listing(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "listing")?;
    let script = "cd \"$1\" && for n in $(seq 1500); do : >plain-$n; printf -v long '%0200d' $n; : >$long-ünïcödé; done; ls -A";
    let there = lab.guest(script, &[remote.directory()])?;
    let there: BTreeSet<&str> = there.lines().collect();
    ensure!(there.len() == 3000, "the guest has {} entries", there.len());
    let list = remote.succeed(lab, &["-v", "ls", &remote.url("")])?;
    let here = list.text();
    ensure!(here.lines().count() == 3000, "ls shows {} entries", here.lines().count());
    ensure!(here.lines().collect::<BTreeSet<_>>() == there, "ls shows other names");
    let long = remote.succeed(lab, &["ls", "-l", &remote.url("")])?.text();
    ensure!(long.lines().count() == 3000, "ls -l shows {} entries", long.lines().count());
    let (mut calls, mut by_chunk) = (0, 0);
    for how in travelled(&list.errors, "READDIRPLUS") {
        calls += 1;
        by_chunk += u32::from(how.contains("by Reply chunk"));
    }
    ensure!(calls > 1 && by_chunk == calls, "{by_chunk} of {calls} READDIRPLUS replies came by Reply chunk");
    Ok(format!("{calls} READDIRPLUS, each reply by Reply chunk"))
}

/// Checks invalidation: svcrdma uses Send with Invalidate if all chunks of a call together have one key.
pub(super) fn invalidation(lab: &mut Lab) -> Result<Detail, Failure> {
    let mut counted = Vec::new();
    for Keys { procedure, registered, invalidated } in invalidated_keys(lab)? {
        ensure!(
            invalidated == registered,
            "knfsd invalidated {invalidated} of {registered} keys of {procedure}"
        );
        counted.push(format!("{procedure} {invalidated}/{registered}"));
    }
    Ok(counted.join(", "))
}

/// Keys of the calls of a procedure that have exactly one.
pub(in crate::interop::cases) struct Keys {
    pub(in crate::interop::cases) procedure: &'static str,
    pub(in crate::interop::cases) registered: u32,
    /// Number of keys that knfsd invalidated.
    pub(in crate::interop::cases) invalidated: u32,
}

/// Makes READs, WRITEs and READDIRPLUSes, each with one key, and counts the invalidated keys.
pub(in crate::interop::cases) fn invalidated_keys(lab: &mut Lab) -> Result<Vec<Keys>, Failure> {
    let remote = Remote::new(lab, "invalidation")?;
    let script = "cd \"$1\" && head -c 1000000 /dev/urandom >file && for n in $(seq 40); do cp file $n; done && ls -A | wc -l";
    lab.guest(script, &[remote.directory()])?;
    let get = remote.succeed(lab, &["-v", "get", "-r", &remote.url(""), "back"])?;
    let put = remote.succeed(lab, &["-v", "put", "-r", "back", &remote.url("")])?;
    let mut counted = Vec::new();
    for (events, procedure, path) in [
        (&get.errors, "READ", "by Write chunk"),
        (&put.errors, "WRITE", "by RDMA Read"),
        (&get.errors, "READDIRPLUS", "by Reply chunk"),
    ] {
        let (mut registered, mut invalidated) = (0, 0);
        for how in travelled(events, procedure).filter(|how| how.contains(path)) {
            registered += 1;
            invalidated += u32::from(how.contains("invalidated by the responder"));
        }
        ensure!(registered > 0, "no {procedure} travelled {path}");
        counted.push(Keys { procedure, registered, invalidated });
    }
    Ok(counted)
}
