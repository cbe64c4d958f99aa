//! Calls that a file system answers from memory need no I/O thread.

use std::fs;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::watched::{Step, Watch, WatchedFs};
use super::*;
use crate::fs::{FileSystem, FsError, Name, RECHECK_HERE};

/// Counts the operations of I/O threads.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Watch for Counting {
    fn before(&self, _: Step) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn before_lookup(&self, _: &Name<'_>) -> Result<(), FsError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn lets_try(&self) -> bool {
        true
    }
}

type CountingFs = WatchedFs<Counting>;

/// A directory tree whose root is known to the file system, and the places of tree and state.
fn counted() -> Option<(Arc<CountingFs>, (TempDir, TempDir))> {
    let places = places();
    fs::write(places.0.path().join("file"), "text").unwrap();
    fs::create_dir(places.0.path().join("inner")).unwrap();
    let state = StateDirectory::open(places.1.path()).unwrap();
    let options = DirectoryOptions::default();
    let directory = DirectoryFs::open(places.0.path(), &state, options).unwrap();
    let root = directory.root();
    directory.attributes(&root).unwrap();
    if directory.try_attributes(&root).is_none() {
        println!("skipped: the file system of {} answers nothing from memory", places.0.path().display());
        return None;
    }
    Some((Arc::new(WatchedFs::over(Arc::new(directory), Counting::default())), places))
}

fn exported(name: &str, file_system: &Arc<CountingFs>) -> Export {
    Export { squash: Squash::Nobody, ..Export::new(name, Arc::clone(file_system) as Arc<dyn FileSystem>) }
}

/// Returns the results of some calls.
async fn calls(bed: &Bed) -> impl PartialEq + std::fmt::Debug {
    let what = |name: &str| LookupArgs { what: DirOpArgs { dir: bed.root, name: name.into() } };
    let file = bed.call(&what("file")).await.unwrap();
    (
        bed.getattr(file.object).await,
        bed.call(&AccessArgs { object: file.object, access: 0x3f }).await,
        bed.call(&AccessArgs { object: bed.root, access: 0x3f }).await,
        file,
    )
}

#[tokio::test]
async fn what_is_in_memory_needs_no_thread_and_has_equal_results() {
    let Some((file_system, places)) = counted() else { return };
    let bed = Bed::serving("counted", vec![exported("/", &file_system)], HandleKey::random());
    // The thread of this test is that of the connection. Its speed does not matter.
    RECHECK_HERE.set(Duration::from_secs(3600));
    let needed = || file_system.watch.0.load(Ordering::Relaxed);
    let first = calls(&bed).await;
    let needed_first = needed();
    assert!(needed_first > 0);
    assert_eq!(calls(&bed).await, first);
    assert_eq!(needed(), needed_first);
    // What changes shows at once.
    fs::write(places.0.path().join("file"), "longer").unwrap();
    let file = bed.lookup(bed.root, "file").await.unwrap();
    assert_eq!(bed.getattr(file).await.unwrap().size, 6);
    assert_eq!(needed(), needed_first);
    // A missing name has the attributes of the directory, whoever finds that.
    let missing = LookupArgs { what: DirOpArgs { dir: bed.root, name: "missing".into() } };
    let directory = bed.getattr(bed.root).await.unwrap();
    for _ in 0..2 {
        assert_eq!(bed.call(&missing).await, Err((Status::NoEnt, Some(directory))));
    }
}

/// A check whether an object is still in its export may wait.
#[tokio::test]
async fn exports_that_overlap_are_not_answered_from_memory() {
    let Some((file_system, places)) = counted() else { return };
    let state = StateDirectory::open(places.1.path()).unwrap();
    let inner =
        DirectoryFs::open(&places.0.path().join("inner"), &state, DirectoryOptions::default()).unwrap();
    let exports = vec![exported("/", &file_system), Export::new("/inner", Arc::new(inner))];
    let bed = Bed::serving("overlap", exports, HandleKey::random());
    let needed = || file_system.watch.0.load(Ordering::Relaxed);
    for _ in 0..2 {
        let before = needed();
        bed.getattr(bed.root).await.unwrap();
        bed.lookup(bed.root, "file").await.unwrap();
        assert_eq!(needed(), before + 2);
    }
}
