//! Third-party workloads, and storage that fails: demands on a server beyond the protocol.

use std::fs;
use std::time::Duration;

use super::{Case, Detail};
use crate::failure::{Failure, ensure};
use crate::interop::lab::Lab;
use crate::interop::tools::PJDFSTEST;

pub(super) const CASES: &[Case] = &[
    Case::new(
        "pjdfstest",
        "Every test of pjdfstest passes, except those that NFS version 3 itself cannot pass",
        pjdfstest,
    )
    .within(300)
    .unseen()
    .with(&PJDFSTEST),
    Case::new(
        "fio-buffered",
        "fio writes at random through the page cache from four processes and verifies every block",
        fio_buffered,
    )
    .within(120)
    .unseen()
    .thorough(),
    Case::new(
        "fio-direct",
        "fio writes and reads at random with O_DIRECT, 16 requests in flight, and verifies every block",
        fio_direct,
    )
    .within(120)
    .unseen(),
    Case::new("dbench", "dbench runs the load of four file-server clients without an error", dbench)
        .within(120)
        .unseen()
        .thorough(),
    Case::new(
        "two-users",
        "A user who may write another user's file can overwrite it and touch it; a refused change leaves it unchanged",
        two_users,
    ),
    Case::new(
        "failing-device",
        "Data that a failing device loses is never committed: COMMIT fails, or the write verifier changes",
        failing_device,
    )
    .within(120),
];

/// The tests that no NFS version 3 server can pass, with the reason.
const BEYOND_NFS: &[(&str, &str)] = &[
    // The client renames an open file that is unlinked, so its link count stays 1.
    ("unlink::open_file_not_freed", "an open file that is unlinked has another name"),
    // Times are unsigned 32-bit seconds (RFC 1813 §2.6, nfstime3).
    ("utimensat::y2038", "times after 2106 do not fit"),
];

/// Minimum number of passed tests: fewer mean that the suite was cut short.
const LEAST_PASSED: usize = 370;

const RUN_PJDFSTEST: &str = "set -e\n\
    grep -q ^tests: /etc/passwd || {\n\
        echo 'tests:x:2001:' >>/etc/group; echo 'tests:x:2001:2001::/:/usr/sbin/nologin' >>/etc/passwd; }\n\
    mkdir \"$1/posix\"\n\
    NO_COLOR=1 /job/pjdfstest -c /job/pjdfstest.toml -p \"$1/posix\" || :";

/// The features of Linux over NFS version 3. Pauses exceed the granularity of times.
const PJDFSTEST_SETTINGS: &str = "[features]\n\
    utimensat = {}\n\
    utime_now = {}\n\
    rename_ctime = {}\n\
    [settings]\n\
    naptime = 0.05\n\
    allow_remount = false\n\
    [dummy_auth]\n\
    entries = [[\"nobody\", \"nogroup\"], [\"tests\", \"tests\"]]\n";

fn pjdfstest(lab: &mut Lab) -> Result<Detail, Failure> {
    fs::copy(PJDFSTEST.program(lab.target()), lab.shared().join("pjdfstest"))?;
    fs::write(lab.shared().join("pjdfstest.toml"), PJDFSTEST_SETTINGS)?;
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let output = lab.guest_within(Duration::from_secs(280), RUN_PJDFSTEST, &[&mount.path])?;
    fs::write(lab.folder.join("pjdfstest.txt"), &output)?;
    let results = Results::of(&output);
    let beyond = |name: &str| BEYOND_NFS.iter().any(|(beyond, _)| *beyond == name);
    let unexpected: Vec<&str> = results.failed.iter().copied().filter(|name| !beyond(name)).collect();
    ensure!(unexpected.is_empty(), "{} tests fail: {unexpected:?}", unexpected.len());
    ensure!(results.passed >= LEAST_PASSED, "only {} tests passed", results.passed);
    Ok(format!("{} pass, {} skipped, {} beyond NFSv3", results.passed, results.skipped, results.failed.len()))
}

/// The results that pjdfstest printed: one line for each test, with its result at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Results<'a> {
    passed: usize,
    skipped: usize,
    failed: Vec<&'a str>,
}

impl<'a> Results<'a> {
    fn of(output: &'a str) -> Self {
        let mut results = Self::default();
        for line in output.lines().filter(|line| !line.starts_with([' ', '\t'])) {
            let mut words = line.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(_), Some("ok"), None) => results.passed += 1,
                (Some(_), Some("skipped"), None) => results.skipped += 1,
                (Some(name), Some("FAILED"), None) => results.failed.push(name),
                _ => {}
            }
        }
        results
    }
}

const FIO: &str = "cd \"$1\" && shift && exec fio --name=verified --directory=. --end_fsync=1 --verify=crc32c \
    --do_verify=1 --verify_fatal=1 --verify_state_save=0 --randseed=1 --output-format=terse --minimal \"$@\"";

fn fio(lab: &mut Lab, options: &[&str]) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let arguments = [&[mount.path.as_str()], options].concat();
    let output = lab.guest_within(Duration::from_secs(100), FIO, &arguments)?;
    ensure!(!output.contains("verify:"), "fio found wrong data: {output}");
    Ok(String::new())
}

fn fio_buffered(lab: &mut Lab) -> Result<Detail, Failure> {
    fio(lab, &["--rw=randwrite", "--bsrange=512-128k", "--size=12m", "--numjobs=4", "--ioengine=psync"])
}

fn fio_direct(lab: &mut Lab) -> Result<Detail, Failure> {
    let direct = ["--direct=1", "--ioengine=libaio", "--iodepth=16"];
    fio(lab, &[&["--rw=randrw", "--bsrange=4k-256k", "--blockalign=4k", "--size=32m"][..], &direct].concat())
}

fn dbench(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    let script = "dbench -c /usr/share/dbench/client.txt -D \"$1\" -t 20 4";
    let output = lab.guest_within(Duration::from_secs(100), script, &[&mount.path])?;
    let throughput = output.lines().find(|line| line.starts_with("Throughput"));
    let throughput = throughput.ok_or_else(|| Failure::new(format!("no result: {output}")))?;
    // Operations that fail are reported with the line of the load file; children exit with their own status.
    let complaint = output.lines().find(|line| line.starts_with('[') || line.contains("Child failed"));
    ensure!(complaint.is_none(), "{}: {output}", complaint.unwrap_or_default());
    Ok(throughput.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

fn two_users(lab: &mut Lab) -> Result<Detail, Failure> {
    let server = lab.serve(&[])?;
    let mount = lab.mount(&server, "")?;
    lab.workload(Duration::from_secs(45), "two-users", &[&mount.path])?;
    Ok(String::new())
}

fn failing_device(lab: &mut Lab) -> Result<Detail, Failure> {
    fs::copy(&lab.rpcrdma, lab.shared().join("rpcrdma"))?;
    let said = lab.guest_within(Duration::from_secs(100), "exec bash /job/guest/failing_device.sh", &[])?;
    // The kernel names the device that failed.
    let others: Vec<String> =
        lab.take_complaints()?.into_iter().filter(|line| !line.contains("dm-0")).collect();
    ensure!(others.is_empty(), "the kernel complains: {}", others.join(" | "));
    let result =
        said.lines().find(|line| line.contains("COMMITs")).ok_or_else(|| Failure::new("no result"))?;
    Ok(result.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_the_last_word_of_each_line() {
        let output = "chmod::changes_mode        ok\nchflags::x   skipped\n\trequires features: ok\n\
                      utimensat::y2038      FAILED\n\tassertion failed\n\nSummary: 1 failed, 1 skipped, 1 passed\n";
        let wanted = Results { passed: 1, skipped: 1, failed: vec!["utimensat::y2038"] };
        assert_eq!(Results::of(output), wanted);
    }
}
