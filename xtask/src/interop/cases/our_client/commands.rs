//! All commands of ours that work on paths of a server.

use std::fs;

use super::remote::Remote;
use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;

pub(super) fn commands(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "commands")?;
    let text = "one\ntwo\n";
    fs::write(lab.folder.join("file"), text)?;
    let url = |path: &str| remote.url(path);

    let exports = remote.succeed(lab, &["exports", remote.address()])?.text();
    for export in ["/export", "/export/memory"] {
        ensure!(
            exports.lines().any(|line| line.split(' ').next() == Some(export)),
            "no {export} in {exports:?}"
        );
    }
    remote.succeed(lab, &["mkdir", "-p", &url("a/b/c")])?;
    remote.succeed(lab, &["mkdir", "-m", "700", &url("private")])?;
    remote.succeed(lab, &["put", "file", &url("a/file")])?;
    remote.succeed(lab, &["ln", &url("a/file"), &url("hard")])?;
    remote.succeed(lab, &["ln", "-s", "a/file", &url("soft")])?;
    expect(lab, &remote, &["cat", &url("hard")], text)?;
    expect(lab, &remote, &["cat", &url("soft")], text)?;
    expect(lab, &remote, &["ls", &url("")], "a\nhard\nprivate\nsoft\n")?;
    let long = remote.succeed(lab, &["ls", "-l", &url("")])?.text();
    ensure!(
        long.lines().any(|line| line.starts_with("drwx------") && line.ends_with("private"))
            && long.lines().any(|line| line.starts_with("-rw-r--r-- 2 ") && line.ends_with("hard"))
            && long.lines().any(|line| line.starts_with('l') && line.ends_with("soft -> a/file")),
        "ls -l shows {long:?}"
    );
    let stat: serde_json::Value =
        serde_json::from_slice(&remote.succeed(lab, &["--json", "stat", &url("a/file")])?.output)
            .map_err(|error| Failure::new(format!("stat --json: {error}")))?;
    ensure!(stat.to_string().contains("\"size\":8"), "stat prints {stat}");
    remote.succeed(lab, &["mv", &url("hard"), &url("a/b/c")])?;
    remote.succeed(lab, &["mv", &url("a/file"), &url("a/renamed")])?;
    expect(lab, &remote, &["cat", &url("a/b/c/hard")], text)?;
    remote.succeed(lab, &["get", &url("a/renamed"), "back"])?;
    ensure!(fs::read_to_string(lab.folder.join("back"))? == text, "get gives another file");
    remote.succeed(lab, &["rm", &url("soft")])?;
    remote.succeed(lab, &["rm", "-f", &url("soft")])?;
    let seen = lab.guest(
        "cd \"$1\" && find . -printf '%y %m %n %s %p\\n' | grep -v '^d.* \\.$' | sort -k5",
        &[remote.directory()],
    )?;
    // The file system chooses the sizes of directories.
    let seen: Vec<&str> = seen.lines().filter(|line| line.starts_with('f')).collect();
    ensure!(seen == ["f 644 2 8 ./a/b/c/hard", "f 644 2 8 ./a/renamed"], "the guest has {seen:?}");
    remote.succeed(lab, &["rm", "-r", &url("a"), &url("private")])?;
    expect(lab, &remote, &["ls", &url("")], "")?;
    Ok(String::new())
}

fn expect(lab: &mut Lab, remote: &Remote, arguments: &[&str], output: &str) -> Result<(), Failure> {
    let finished = remote.succeed(lab, arguments)?;
    ensure!(finished.output == output.as_bytes(), "rpcrdma {}: {:?}", arguments.join(" "), finished.text());
    Ok(())
}
