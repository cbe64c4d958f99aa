//! The map of names when its log cannot be written, as on a full disk.

use super::*;

/// The server answers that the operation is done, and its handles are valid.
#[test]
fn i8_what_is_done_is_answered_so_although_the_log_cannot_be_written() {
    let tree = tempfile::tempdir().unwrap();
    let (place, fs) = open(tree.path(), HandleSource::Map);
    let Ids::Map(map) = &fs.ids else { panic!("the map was asked for") };
    let fill = || map.replace_log(fs::File::options().write(true).open("/dev/full").unwrap());
    let (who, root) = (Identity::superuser(), fs.root());
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let none = SetAttributes::default();
    fill();
    let directory = fs.make(&who, &root, name("directory"), &Special::Directory, &none).result.unwrap().id;
    fill();
    let file = fs.create(&who, &directory, name("file"), &CreateHow::Guarded(none)).result.unwrap().id;
    fill();
    fs.link(&who, &file, &root, name("link")).result.unwrap();
    fill();
    fs.rename(&who, &root, name("directory"), &root, name("moved")).result.unwrap();
    fill();
    fs.create(&who, &root, name("replaced"), &CreateHow::Guarded(none)).result.unwrap();
    fill();
    fs.rename(&who, &root, name("link"), &root, name("replaced")).result.unwrap();
    fill();
    fs.remove(&who, &root, name("replaced")).result.unwrap();
    fill();
    fs.make(&who, &root, name("empty"), &Special::Directory, &none).result.unwrap();
    fill();
    fs.remove_directory(&who, &root, name("empty")).result.unwrap();
    fill();
    fs::write(tree.path().join("found"), "").unwrap();
    let found = fs.lookup(&who, &root, LookupName::new(b"found").unwrap()).unwrap().node.id;
    for id in [directory, file, found] {
        fs.attributes(&id).unwrap();
    }
    // With space again, all records are written: ids survive the process.
    assert!(map.is_lacking());
    map.repair_now();
    assert!(!map.is_lacking());
    drop(fs);
    let state = StateDirectory::open(place.path()).unwrap();
    let options = DirectoryOptions { handles: HandleSource::Map, ..DirectoryOptions::default() };
    let fs = crate::fs::testing::reopened(|| DirectoryFs::open(tree.path(), &state, options.clone()));
    for id in [directory, file, found] {
        fs.attributes(&id).unwrap();
    }
}
