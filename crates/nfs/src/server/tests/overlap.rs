//! Exports whose directories lie in one another, or are equal.

use std::fs;

use super::super::ExportError;
use super::flaky::FlakyFs;
use super::*;
use crate::fs::{FsError, testing};
use crate::mount::MountStatus;

/// An address that the inner export admits.
const INSIDER: &str = "203.0.113.1:700";

/// A tree exported as `/`, with the directory `secret` in it, which is exported as `/inner`.
pub(super) struct Trees {
    handles: HandleSource,
    places: (TempDir, TempDir),
    state: StateDirectory,
}

impl Trees {
    pub(super) fn new(handles: HandleSource) -> Self {
        let places = places();
        let state = StateDirectory::open(places.1.path()).unwrap();
        let trees = Self { handles, places, state };
        fs::create_dir_all(trees.path("secret/deep")).unwrap();
        fs::create_dir_all(trees.path("open/below")).unwrap();
        fs::write(trees.path("secret/file"), "classified").unwrap();
        fs::write(trees.path("open/file"), "public").unwrap();
        trees
    }

    /// Returns trees with the kernel's handles, if available, and with the map.
    pub(super) fn all() -> Vec<Self> {
        [HandleSource::Automatic, HandleSource::Map].map(Self::new).into()
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.places.0.path().join(below)
    }

    fn directory(&self, below: &str) -> Arc<DirectoryFs> {
        self.directory_at(&self.path(below))
    }

    fn directory_at(&self, path: &Path) -> Arc<DirectoryFs> {
        let options =
            DirectoryOptions { handles: self.handles, sync_metadata: false, ..DirectoryOptions::default() };
        Arc::new(DirectoryFs::open(path, &self.state, options).unwrap())
    }

    fn outer(&self) -> Export {
        Export { squash: Squash::Nobody, ..Export::new("/", self.directory("")) }
    }

    fn inner(&self) -> Export {
        let allow = vec!["203.0.113.0/24".parse().unwrap()].into();
        Export { squash: Squash::Nobody, allow, ..Export::new("/inner", self.directory("secret")) }
    }

    fn serve(&self, exports: Vec<Export>) -> Bed {
        let name = if self.handles == HandleSource::Map { "map" } else { "directory" };
        Bed::serving(name, exports, HandleKey::from_state(&self.state))
    }

    /// Serves both exports, with a change to the inner one.
    pub(super) fn serve_with(&self, tune: impl FnOnce(&mut Export)) -> Bed {
        let mut inner = self.inner();
        tune(&mut inner);
        self.serve(vec![self.outer(), inner])
    }
}

impl Bed {
    pub(super) async fn entry(&self, dir: FileHandle, name: &str) -> DirEntryPlus {
        let arguments =
            ReaddirplusArgs { dir, cookie: 0, verifier: [0; 8], dircount: 1 << 14, maxcount: 1 << 14 };
        let listed = self.call(&arguments).await.unwrap();
        listed.reply.entries.into_iter().find(|entry| entry.name.as_bytes() == name.as_bytes()).unwrap()
    }

    async fn text(&self, file: FileHandle) -> Result<String, Status> {
        self.read(file, 0, 100).await.map(|read| String::from_utf8(read.data.join().0.into()).unwrap())
    }

    pub(super) async fn mounted_at(&self, path: &str) -> Result<FileHandle, MountStatus> {
        match self.mnt(path).await {
            MountResult::Ok(mounted) => Ok(mounted.handle),
            MountResult::Fail(status) => Err(status),
        }
    }
}

#[tokio::test]
async fn an_export_inside_of_another_is_closed_from_there_too() {
    for trees in Trees::all() {
        let mut bed = trees.serve_with(|_| {});
        let name = bed.name;
        assert_eq!(bed.lookup(bed.root, "secret").await, Err(Status::Acces), "{name}");
        let entry = bed.entry(bed.root, "secret").await;
        assert_eq!((entry.handle, entry.attributes), (None, None), "{name}");
        for path in ["/secret", "/secret/deep", "/inner", "/inner/deep"] {
            assert_eq!(bed.mounted_at(path).await, Err(MountStatus::Acces), "{name} {path}");
        }
        // For admitted callers, every name leads from the outer export to the inner one.
        bed.peer = INSIDER.parse().unwrap();
        let inner = bed.server.root_handle("/inner").unwrap();
        assert_eq!(bed.lookup(bed.root, "secret").await, Ok(inner), "{name}");
        let entry = bed.entry(bed.root, "secret").await;
        assert_eq!(entry.handle, Some(inner), "{name}");
        let fsid = bed.getattr(inner).await.unwrap().fsid;
        assert_eq!(entry.attributes.map(|attributes| attributes.fsid), Some(fsid), "{name}");
        assert_ne!(bed.getattr(bed.root).await.unwrap().fsid, fsid, "{name}");
        let deep = bed.lookup(inner, "deep").await.unwrap();
        for (path, handle) in
            [("/secret", inner), ("/inner", inner), ("/secret/deep", deep), ("/inner/deep", deep)]
        {
            assert_eq!(bed.mounted_at(path).await, Ok(handle), "{name} {path}");
        }
        // The root of the inner export is a root: nothing leads upwards.
        assert_eq!(bed.lookup(inner, "..").await, Ok(inner), "{name}");
        assert_eq!(bed.lookup(deep, "..").await, Ok(inner), "{name}");
        let file = bed.lookup(inner, "file").await.unwrap();
        assert_eq!(bed.text(file).await.unwrap(), "classified", "{name}");
        bed.peer = "192.0.2.1:700".parse().unwrap();
        for handle in [inner, deep, file] {
            assert_eq!(bed.getattr(handle).await, Err(Status::Acces), "{name}");
        }
    }
}

/// The inner export is given by a path that does not lie in the outer export.
#[tokio::test]
async fn an_export_is_found_inside_of_another_through_a_bind_mount() {
    let test = "server::tests::overlap::an_export_is_found_inside_of_another_through_a_bind_mount";
    let (tree, shown) = places();
    fs::create_dir(tree.path().join("secret")).unwrap();
    let Some((hidden, shown)) = testing::with_bind_mount(test, &tree.path().join("secret"), shown.path())
    else {
        return;
    };
    for handles in [HandleSource::Automatic, HandleSource::Map] {
        let trees = Trees::new(handles);
        let outer = Export { file_system: trees.directory_at(hidden.parent().unwrap()), ..trees.outer() };
        let open = trees.serve(vec![outer.clone()]);
        let secret = open.lookup(open.root, "secret").await.unwrap();
        let inner = Export { file_system: trees.directory_at(&shown), ..trees.inner() };
        let bed = trees.serve(vec![outer, inner]);
        assert_eq!(bed.lookup(bed.root, "secret").await, Err(Status::Acces), "{}", bed.name);
        assert_eq!(bed.getattr(secret).await, Err(Status::Stale), "{}", bed.name);
    }
}

/// The kernel opens handles for the server only, not for callers.
#[tokio::test]
async fn a_listing_shows_what_is_above_to_callers_who_are_not_root() {
    if !super::objects::acts_as_callers() {
        println!("skipped: callers do not act as themselves here");
        return;
    }
    for trees in Trees::all() {
        fs::set_permissions(trees.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let bed = trees.serve_with(|inner| inner.allow = Admitted::Everybody).by(1000, 1000);
        let name = bed.name;
        let open = bed.lookup(bed.root, "open").await.unwrap();
        let below = bed.lookup(open, "below").await.unwrap();
        let inner = bed.lookup(bed.root, "secret").await.unwrap();
        let deep = bed.lookup(inner, "deep").await.unwrap();
        for (directory, above) in [(below, open), (open, bed.root), (deep, inner), (inner, inner)] {
            let entry = bed.entry(directory, "..").await;
            assert_eq!(entry.handle, Some(above), "{name}");
            assert_eq!(entry.attributes.map(|shown| shown.fileid), Some(entry.fileid), "{name}");
        }
    }
}

#[tokio::test]
async fn what_is_read_only_stays_so_by_way_of_the_export_around_it() {
    for trees in Trees::all() {
        let bed = trees.serve_with(|inner| {
            inner.allow = Admitted::Everybody;
            inner.read_only = true;
        });
        let name = bed.name;
        let secret = bed.lookup(bed.root, "secret").await.unwrap();
        let file = bed.lookup(secret, "file").await.unwrap();
        assert_eq!(bed.write(file, 0, b"x").await.unwrap_err(), Status::Rofs, "{name}");
        assert_eq!(bed.remove(secret, "file").await, Some(Status::Rofs), "{name}");
        let open = bed.lookup(bed.root, "open").await.unwrap();
        bed.make_file(open, "new", 0o600).await;
    }
}

#[tokio::test]
async fn callers_are_squashed_as_the_inner_export_says() {
    for trees in Trees::all() {
        let bed = trees.serve_with(|inner| {
            inner.allow = Admitted::Everybody;
            inner.squash = Squash::Everybody;
        });
        if !super::objects::acts_as_callers() {
            return;
        }
        fs::set_permissions(trees.path("secret"), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let secret = bed.lookup(bed.root, "secret").await.unwrap();
        let made = bed.make_file(secret, "new", 0o600).await;
        assert_eq!(bed.getattr(made).await.unwrap().uid, NOBODY, "{}", bed.name);
    }
}

// requirement: rfc1813-3.3.14-2, rfc1813-3.3.15-1
#[tokio::test]
async fn nothing_goes_from_one_export_to_another() {
    for trees in Trees::all() {
        let bed = trees.serve_with(|inner| inner.allow = Admitted::Everybody);
        let name = bed.name;
        let secret = bed.lookup(bed.root, "secret").await.unwrap();
        let open = bed.lookup(bed.root, "open").await.unwrap();
        let (public, file) =
            (bed.lookup(open, "file").await.unwrap(), bed.lookup(secret, "file").await.unwrap());
        for (from, to) in [((secret, "file"), (open, "x")), ((open, "file"), (secret, "x"))] {
            assert_eq!(bed.rename(from, to).await, Some(Status::Xdev), "{name}");
        }
        for (file, place) in [(file, place(open, "x")), (public, place(secret, "x"))] {
            assert_eq!(bed.status(&LinkArgs { file, link: place }).await, Some(Status::Xdev), "{name}");
        }
    }
}

#[tokio::test]
async fn the_root_of_an_export_is_not_changed_by_way_of_another() {
    for trees in Trees::all() {
        fs::remove_dir_all(trees.path("secret/deep")).unwrap();
        fs::remove_file(trees.path("secret/file")).unwrap();
        let bed = trees.serve_with(|_| {});
        let (name, root) = (bed.name, bed.root);
        assert_eq!(
            bed.status(&RmdirArgs { object: place(root, "secret") }).await,
            Some(Status::Acces),
            "{name}"
        );
        assert_eq!(bed.rename((root, "secret"), (root, "other")).await, Some(Status::Acces), "{name}");
        bed.make_directory(root, "empty", 0o755).await;
        assert_eq!(bed.rename((root, "empty"), (root, "secret")).await, Some(Status::Acces), "{name}");
        assert!(trees.path("secret").is_dir() && trees.path("empty").is_dir(), "{name}");
        // A directory above the inner export may be moved: the border moves with it.
        bed.make_directory(root, "above", 0o755).await;
        fs::rename(trees.path("secret"), trees.path("above/secret")).unwrap();
        assert_eq!(bed.rename((root, "above"), (root, "moved")).await, None, "{name}");
        let moved = bed.lookup(root, "moved").await.unwrap();
        assert_eq!(bed.lookup(moved, "secret").await, Err(Status::Acces), "{name}");
    }
}

/// The root of an export also stays if the file system cannot identify the object of its name now.
#[tokio::test]
async fn the_root_of_an_export_is_safe_from_look_ups_that_fail() {
    for trees in Trees::all() {
        fs::remove_dir_all(trees.path("secret/deep")).unwrap();
        fs::remove_file(trees.path("secret/file")).unwrap();
        fs::create_dir(trees.path("empty")).unwrap();
        let flaky = Arc::new(FlakyFs::new(trees.directory("")));
        let outer = Export { squash: Squash::Nobody, ..Export::new("/", flaky.clone()) };
        let bed = trees.serve(vec![outer, trees.inner()]);
        let (name, root) = (bed.name, bed.root);
        let errors =
            [FsError::TryLater, FsError::AccessDenied, FsError::Io, FsError::ServerFault, FsError::Stale];
        for error in errors {
            let expected = Some(Status::from(error));
            flaky.fail_once("secret", error);
            assert_eq!(bed.status(&RmdirArgs { object: place(root, "secret") }).await, expected, "{name}");
            assert!(flaky.has_failed(), "{name}");
            flaky.fail_once("secret", error);
            assert_eq!(bed.remove(root, "secret").await, expected, "{name}");
            for (from, to) in [("secret", "other"), ("empty", "secret")] {
                flaky.fail_once("secret", error);
                assert_eq!(bed.rename((root, from), (root, to)).await, expected, "{name} {from}");
                assert!(flaky.has_failed(), "{name}");
            }
            assert!(trees.path("secret").is_dir() && trees.path("empty").is_dir(), "{name}");
        }
        // No new object takes its place, and a missing name is no border.
        let open = bed.lookup(root, "open").await.unwrap();
        let file = bed.lookup(open, "file").await.unwrap();
        let exists = Some(Status::Exist);
        assert_eq!(bed.status(&LinkArgs { file, link: place(root, "secret") }).await, exists, "{name}");
        assert_eq!(bed.rename((root, "empty"), (root, "other")).await, None, "{name}");
        assert_eq!(bed.remove(root, "none").await, Some(Status::NoEnt), "{name}");
    }
}

/// Their rules could not be enforced, so the server does not start.
#[test]
fn exports_whose_overlap_cannot_be_seen_are_refused_at_the_start() {
    for trees in Trees::all() {
        let (whole, part) = (trees.directory(""), trees.directory("secret"));
        let (outer, inner) = (Export::new("/", whole.clone()), Export::new("/inner", part.clone()));
        let lost = |export: &Export, directory: &Arc<DirectoryFs>| Export {
            file_system: Arc::new(FlakyFs::without_location(directory.clone())),
            ..export.clone()
        };
        let (lost_outer, lost_inner) = (lost(&outer, &whole), lost(&inner, &part));
        let start = |exports: &[&Export]| {
            let key = HandleKey::from_state(&trees.state);
            let exports = exports.iter().copied().cloned().collect();
            NfsServer::new(key, exports, ServerOptions::default()).map(drop)
        };
        let refused = |first: &str, second: &str| {
            Err(ExportError::Overlap { first: first.to_owned(), second: second.to_owned() })
        };
        assert_eq!(start(&[&lost_outer, &inner]), refused("/", "/inner"));
        assert_eq!(start(&[&inner, &lost_outer]), refused("/inner", "/"));
        assert_eq!(start(&[&outer, &lost_inner]), refused("/", "/inner"));
        // A single export overlaps nothing, nor does a directory under two names.
        assert_eq!(start(&[&lost_inner]), Ok(()));
        let again = Export { name: "/again".to_owned(), ..lost_inner.clone() };
        assert_eq!(start(&[&lost_inner, &again]), Ok(()));
    }
}

/// Each export on a path decides whether the database is asked for the caller's groups.
#[tokio::test]
async fn a_path_into_an_export_needs_the_groups_that_this_one_asks_for() {
    for trees in Trees::all() {
        fs::set_permissions(trees.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut outer = trees.outer();
        outer.squash = Squash::Everybody;
        let (server, users) =
            super::users::serve_all(vec![outer, Export { allow: Admitted::Everybody, ..trees.inner() }]);
        let bed = Bed::calling(&server, "/", "192.0.2.1", 0);
        for (path, asked) in [("/", 0), ("/open/below", 0), ("/secret/deep", 1)] {
            assert!(bed.mounted_at(path).await.is_ok(), "{path}");
            assert_eq!(users.asked(), asked, "{path}");
        }
    }
}

#[tokio::test]
async fn handles_from_before_an_export_was_inside_are_stale() {
    for trees in Trees::all() {
        let bed = trees.serve(vec![trees.outer()]);
        let name = bed.name;
        let secret = bed.lookup(bed.root, "secret").await.unwrap();
        let file = bed.lookup(secret, "file").await.unwrap();
        assert_eq!(bed.text(file).await.unwrap(), "classified", "{name}");
        drop(bed);
        let bed = trees.serve_with(|_| {});
        for handle in [secret, file] {
            assert_eq!(bed.getattr(handle).await, Err(Status::Stale), "{name}");
            assert_eq!(bed.text(handle).await, Err(Status::Stale), "{name}");
        }
        // Current handles outlive the server, whatever the order of the exports.
        let open = bed.lookup(bed.root, "open").await.unwrap();
        drop(bed);
        let bed = trees.serve(vec![trees.inner(), trees.outer()]);
        assert!(bed.getattr(open).await.is_ok(), "{name}");
    }
}

#[tokio::test]
async fn an_export_beside_another_has_no_part_in_it() {
    for trees in Trees::all() {
        let open = || Export { squash: Squash::Nobody, ..Export::new("/", trees.directory("open")) };
        let bed = trees.serve(vec![open()]);
        let file = bed.lookup(bed.root, "file").await.unwrap();
        drop(bed);
        let bed = trees.serve(vec![open(), trees.inner()]);
        assert!(bed.getattr(file).await.is_ok(), "{}", bed.name);
        assert!(
            bed.server.shared.exports().iter().all(|served| !served.overlaps()),
            "no border to look after"
        );
    }
}

#[tokio::test]
async fn a_directory_that_was_moved_over_the_border_takes_no_handle_with_it() {
    for trees in Trees::all() {
        let mut bed = trees.serve_with(|_| {});
        let name = bed.name;
        let open = bed.lookup(bed.root, "open").await.unwrap();
        let below = bed.lookup(open, "below").await.unwrap();
        fs::rename(trees.path("open"), trees.path("secret/open")).unwrap();
        for handle in [open, below] {
            assert_eq!(bed.getattr(handle).await, Err(Status::Stale), "{name}");
            let read = ReadlinkArgs { symlink: handle };
            assert_eq!(bed.status(&read).await, Some(Status::Stale), "{name}");
            for path in ["..", "file"] {
                assert_eq!(bed.lookup(handle, path).await, Err(Status::Stale), "{name} {path}");
            }
            let made = create(handle, "new", CreateHow::Unchecked(SetAttributes::default()));
            assert_eq!(bed.status(&made).await, Some(Status::Stale), "{name}");
            let moved = bed.rename((bed.root, "x"), (handle, "x")).await;
            assert_eq!(moved, Some(Status::Stale), "{name}");
        }
        // A handle of the inner export does not lead out either.
        bed.peer = INSIDER.parse().unwrap();
        let inner = bed.server.root_handle("/inner").unwrap();
        let deep = bed.lookup(inner, "deep").await.unwrap();
        fs::rename(trees.path("secret/deep"), trees.path("deep")).unwrap();
        for path in ["..", "."] {
            assert_eq!(bed.lookup(deep, path).await, Err(Status::Stale), "{name} {path}");
        }
    }
}

/// The place of a directory was checked before its parent was found.
#[tokio::test]
async fn a_parent_that_is_moved_over_the_border_meanwhile_is_not_shown() {
    for trees in Trees::all() {
        // Some of these names stand behind `..` in the listing, others before it.
        let names: Vec<_> = (0..20).map(|number| format!("file{number}")).collect();
        for name in &names {
            fs::write(trees.path(&format!("open/below/{name}")), "").unwrap();
        }
        let files = Arc::new(FlakyFs::new(trees.directory("")));
        let outer = Export { squash: Squash::Nobody, ..Export::new("/", files.clone()) };
        let bed = trees.serve(vec![outer, trees.inner()]);
        let open = bed.lookup(bed.root, "open").await.unwrap();
        let below = bed.lookup(open, "below").await.unwrap();
        assert_eq!(bed.lookup(below, "..").await, Ok(open), "{}", bed.name);
        assert_eq!(bed.entry(below, "..").await.handle, Some(open), "{}", bed.name);
        let exports = bed.server.shared.exports();
        let (_, parent) = exports.open(&open).unwrap();
        files.move_away(parent);
        assert_eq!(bed.lookup(below, "..").await, Err(Status::Stale), "{}", bed.name);
        let entry = bed.entry(below, "..").await;
        assert_eq!((entry.handle, entry.attributes), (None, None), "{}", bed.name);
        for name in &names {
            assert!(bed.entry(below, name).await.handle.is_some(), "{} {name}", bed.name);
        }
        // What is found below a directory was in its place with it.
        assert_eq!(bed.lookup(bed.root, "open").await, Ok(open), "{}", bed.name);
    }
}

#[tokio::test]
async fn a_tree_of_unknown_location_may_stand_beside_another_file_system() {
    for trees in Trees::all() {
        let tree = Export::new("/", Arc::new(FlakyFs::without_location(trees.directory(""))));
        let memory = Export::new("/memory", Arc::new(MemoryFs::new(MemoryOptions::default())));
        let bed = trees.serve(vec![tree, memory]);
        assert!(bed.getattr(bed.root).await.is_ok(), "{}", bed.name);
    }
}

#[tokio::test]
async fn one_directory_under_two_names_has_the_rules_of_each() {
    for trees in Trees::all() {
        let directory = trees.directory("");
        let door = |name: &str| Export { squash: Squash::Nobody, ..Export::new(name, directory.clone()) };
        let read_only = Export { read_only: true, ..door("/ro") };
        let bed = trees.serve(vec![door("/"), read_only]);
        let [write, read] = ["/", "/ro"].map(|export| bed.server.root_handle(export).unwrap());
        assert_eq!(bed.lookup(write, "..").await, Ok(write));
        assert_eq!(bed.lookup(read, ".").await, Ok(read));
        let [written, shown] = [bed.lookup(write, "open").await, bed.lookup(read, "open").await];
        bed.make_file(written.unwrap(), "new", 0o600).await;
        assert_eq!(bed.remove(shown.unwrap(), "new").await, Some(Status::Rofs));
    }
}

#[tokio::test]
async fn of_two_exports_of_an_inner_directory_the_first_that_admits_is_entered() {
    for trees in Trees::all() {
        let closed = trees.inner();
        let open = Export { read_only: true, ..Export::new("/public", closed.file_system.clone()) };
        let mut bed = trees.serve(vec![trees.outer(), closed, open]);
        let [inner, public] = ["/inner", "/public"].map(|export| bed.server.root_handle(export).unwrap());
        assert_eq!(bed.lookup(bed.root, "secret").await, Ok(public), "{}", bed.name);
        bed.peer = INSIDER.parse().unwrap();
        assert_eq!(bed.lookup(bed.root, "secret").await, Ok(inner), "{}", bed.name);
    }
}

#[tokio::test]
async fn a_file_with_a_name_in_both_trees_follows_the_export_of_the_name() {
    for trees in Trees::all() {
        fs::hard_link(trees.path("secret/file"), trees.path("open/shared")).unwrap();
        let mut bed = trees.serve_with(|inner| inner.read_only = true);
        let open = bed.lookup(bed.root, "open").await.unwrap();
        let shared = bed.lookup(open, "shared").await.unwrap();
        assert_eq!(bed.text(shared).await.unwrap(), "classified", "{}", bed.name);
        assert_eq!(bed.write(shared, 0, b"x").await.unwrap().count, 1, "{}", bed.name);
        bed.peer = INSIDER.parse().unwrap();
        let inner = bed.server.root_handle("/inner").unwrap();
        let file = bed.lookup(inner, "file").await.unwrap();
        assert_eq!(bed.write(file, 0, b"y").await.unwrap_err(), Status::Rofs, "{}", bed.name);
    }
}
