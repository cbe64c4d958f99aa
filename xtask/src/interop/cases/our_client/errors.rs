//! Refusals by MOUNT and NFS.

use std::fs;

use super::remote::Remote;
use crate::failure::{Failure, ensure};
use crate::interop::cases::Detail;
use crate::interop::lab::Lab;

pub(super) fn mount_refused(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "mount-refused")?;
    // 192.0.2.0/24 is reserved for documentation.
    lab.guest(
        "mkdir -p /refused && exportfs -o ro,insecure,no_subtree_check,fsid=31 192.0.2.1:/refused",
        &[],
    )?;
    remote.fail(lab, 1, "MNT3ERR_ACCES", &["ls", &remote.url_of("/refused")])?;
    remote.fail(lab, 1, "MNT3ERR_", &["ls", &remote.url_of("/not/exported")])?;
    remote.fail(lab, 1, "NFS3ERR_NOENT", &["ls", &remote.url("missing")])?;
    lab.guest("exportfs -u 192.0.2.1:/refused", &[])?;
    Ok(String::new())
}

pub(super) fn errors(lab: &mut Lab) -> Result<Detail, Failure> {
    let remote = Remote::new(lab, "errors")?;
    let made = "mkdir -p /small /squashed /fixed && mount -t tmpfs -o size=1m small /small && \
                mount -t tmpfs -o size=1m,mode=755 squashed /squashed && mount -t tmpfs -o size=1m fixed /fixed && \
                o=insecure,no_subtree_check && exportfs -o rw,no_root_squash,$o,fsid=41 '*:/small' && \
                exportfs -o rw,root_squash,$o,fsid=42 '*:/squashed' && exportfs -o ro,$o,fsid=43 '*:/fixed' && \
                echo secret >/squashed/secret && chmod 600 /squashed/secret && \
                cd \"$1\" && echo text >file && mkdir -p full/of && echo 1 >other";
    lab.guest(made, &[remote.directory()])?;
    fs::write(lab.folder.join("big"), vec![7; (1 << 20) + 1])?;
    fs::write(lab.folder.join("little"), "x")?;
    let long = "n".repeat(256);
    let url = |path: &str| remote.url(path);
    let at = |path: &str| remote.url_of(path);
    let cases: &[(&str, &[&str])] = &[
        ("NFS3ERR_NOENT", &["cat", &url("missing")]),
        ("NFS3ERR_NOENT", &["rm", &url("missing")]),
        ("NFS3ERR_NOTDIR", &["ls", &url("file/below")]),
        ("NFS3ERR_NOTDIR", &["put", "little", &url("file/below")]),
        ("NFS3ERR_EXIST", &["mkdir", &url("full")]),
        ("NFS3ERR_EXIST", &["ln", &url("file"), &url("other")]),
        ("at most 255 are allowed", &["mkdir", &url(&long)]),
        ("NFS3ERR_INVAL", &["mv", &url("full"), &url("full/of/itself")]),
        ("NFS3ERR_ACCES", &["cat", &at("/squashed/secret")]),
        ("NFS3ERR_ACCES", &["put", "little", &at("/squashed/new")]),
        ("NFS3ERR_ROFS", &["mkdir", &at("/fixed/new")]),
        ("NFS3ERR_NOSPC", &["put", "big", &at("/small/big")]),
    ];
    for (words, arguments) in cases {
        remote.fail(lab, 1, words, arguments)?;
    }
    // A single command, and so a single connection, that continues after an error.
    remote.fail(lab, 4, "NFS3ERR_NOENT", &["get", &url("missing"), &url("other"), "."])?;
    ensure!(fs::read_to_string(lab.folder.join("other"))? == "1\n", "the file after the error has not come");
    lab.guest(
        "exportfs -u '*:/small' && exportfs -u '*:/squashed' && exportfs -u '*:/fixed' && exportfs -f && \
         umount -l /small /squashed /fixed",
        &[],
    )?;
    Ok(format!("{} refusals", cases.len()))
}
