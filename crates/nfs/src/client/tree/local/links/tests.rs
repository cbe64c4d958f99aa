use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::client::tree::local::spot_of;
use crate::wire::NfsTime;

/// The owner of the directory gives the name of a new link to another file, before or after the open.
#[test]
fn i6_a_file_in_the_place_of_a_new_link_keeps_its_attributes() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::write(at("victim"), "precious").unwrap();
    let before = fs::metadata(at("victim")).unwrap();
    let kept = Kept { mode: 0o777, mtime: NfsTime { seconds: 7, nanoseconds: 0 }, uid: 12, gid: 12 };
    let spot = spot_of(&at("link")).unwrap();
    std::os::unix::fs::symlink("target", at("link")).unwrap();
    let link = open_symlink(b"target", &spot).unwrap();
    fs::rename(at("link"), at("moved")).unwrap();
    fs::hard_link(at("victim"), at("link")).unwrap();
    keep_symlink(&link, &kept);
    open_symlink(b"target", &spot).unwrap_err();
    let after = fs::metadata(at("victim")).unwrap();
    assert_eq!((after.uid(), after.gid(), after.mtime()), (before.uid(), before.gid(), before.mtime()));
    let moved = fs::symlink_metadata(at("moved")).unwrap();
    assert_eq!(moved.mtime(), 7);
    if rustix::process::geteuid().is_root() {
        assert_eq!((moved.uid(), moved.gid()), (12, 12));
    }
    // Another link, and a link with a second name.
    for name in ["other", "second"] {
        fs::remove_file(at("link")).unwrap();
        match name {
            "other" => std::os::unix::fs::symlink(name, at("link")).unwrap(),
            _ => fs::hard_link(at("moved"), at("link")).unwrap(),
        }
        open_symlink(b"target", &spot).unwrap_err();
    }
}
