//! No call waits for an operation on another object, or for the storage behind a directory.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::storage::{Device, Reach};
use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn me() -> Identity {
    Identity::superuser()
}

fn new_file() -> CreateHow {
    CreateHow::Guarded(SetAttributes::default())
}

fn create(fs: &DirectoryFs, directory: &FileId, name: &str, how: &CreateHow) -> Result<Node, FsError> {
    fs.create(&me(), directory, Name::new(name.as_bytes()).unwrap(), how).result
}

/// Runs `job` on a thread of its own, which a failed test leaves behind.
fn apart<T: Send + 'static>(
    fs: &Arc<DirectoryFs>,
    job: impl FnOnce(&DirectoryFs) -> T + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    let fs = Arc::clone(fs);
    std::thread::spawn(move || {
        let _ = sender.send(job(&fs));
    });
    receiver
}

/// More objects than a fixed number of locks could distinguish.
const OTHERS: usize = 256;

#[test]
fn i6_a_write_that_does_not_end_holds_up_its_own_file_only() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let fs = Arc::new(fs);
    let mut files: Vec<_> = (0..=OTHERS)
        .map(|number| create(&fs, &fs.root(), &number.to_string(), &new_file()).unwrap().id)
        .collect();
    let stuck = files.pop().unwrap();
    let held = fs.locks.lock(&stuck).unwrap();
    let written = apart(&fs, move |fs| {
        let write = |id| fs.write(&me(), id, 0, b"data", Stability::Unstable).result.is_ok();
        files.iter().filter(|id| write(id)).count()
    });
    assert_eq!(written.recv_timeout(PATIENCE), Ok(OTHERS));
    drop(held);
}

#[test]
fn i6_a_change_that_does_not_end_holds_up_its_own_directory_only() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let fs = Arc::new(fs);
    let make = |number: usize| {
        let name = number.to_string();
        let name = Name::new(name.as_bytes()).unwrap();
        let made = fs.make(&me(), &fs.root(), name, &Special::Directory, &SetAttributes::default());
        made.result.unwrap().id
    };
    let mut directories: Vec<_> = (0..=OTHERS).map(make).collect();
    let stuck = directories.pop().unwrap();
    let held = fs.locks.lock(&stuck).unwrap();
    let created = apart(&fs, move |fs| {
        directories.iter().filter(|directory| create(fs, directory, "file", &new_file()).is_ok()).count()
    });
    assert_eq!(created.recv_timeout(PATIENCE), Ok(OTHERS));
    drop(held);
}

/// A device whose next sync signals its start, and waits to be released.
#[derive(Debug, Default)]
struct Slow {
    next: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Device for Slow {
    fn sync(&self, _fd: BorrowedFd<'_>, _reach: Reach) -> Result<(), Errno> {
        let next = self.next.lock().unwrap().take();
        if let Some((begun, go)) = next {
            begun.send(()).unwrap();
            let _ = go.recv();
        }
        Ok(())
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        drop(fd);
        Ok(())
    }
}

#[test]
fn i6_a_new_object_that_is_synced_holds_up_no_other_of_its_directory() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let state = StateDirectory::open(places[1].path()).unwrap();
    let device = Arc::new(Slow::default());
    let options = DirectoryOptions::default();
    let storage = Storage::on(Arc::clone(&device) as Arc<_>, options.verifier.clone());
    let fs = Arc::new(DirectoryFs::open_on(storage, places[0].path(), &state, options).unwrap());
    let directory: fn(&DirectoryFs) -> Result<Node, FsError> = |fs| {
        let name = Name::new(b"directory").unwrap();
        fs.make(&me(), &fs.root(), name, &Special::Directory, &SetAttributes::default()).result
    };
    let file: fn(&DirectoryFs) -> Result<Node, FsError> = |fs| create(fs, &fs.root(), "file", &new_file());
    for (number, slow) in [file, directory].into_iter().enumerate() {
        let ((begun, has_begun), (go, may_go)) = (channel(), channel());
        *device.next.lock().unwrap() = Some((begun, may_go));
        let slow = apart(&fs, slow);
        has_begun.recv_timeout(PATIENCE).unwrap();
        let other = apart(&fs, move |fs| create(fs, &fs.root(), &number.to_string(), &new_file()).map(drop));
        assert_eq!(other.recv_timeout(PATIENCE), Ok(Ok(())), "{number}");
        assert!(slow.try_recv().is_err(), "answered before it is stable");
        go.send(()).unwrap();
        slow.recv_timeout(PATIENCE).unwrap().unwrap();
    }
}

#[test]
fn i6_a_create_that_cuts_a_file_holds_up_no_other_of_its_directory() {
    let tree = tempfile::tempdir().unwrap();
    let (_place, fs) = open(tree.path(), HandleSource::Automatic);
    let fs = Arc::new(fs);
    let file = create(&fs, &fs.root(), "file", &new_file()).unwrap();
    let writing = fs.locks.lock(&file.id).unwrap();
    let cut = CreateHow::Unchecked(SetAttributes { size: Some(0), ..SetAttributes::default() });
    let cutting = apart(&fs, move |fs| create(fs, &fs.root(), "file", &cut).map(drop));
    // Until the call waits.
    assert!(cutting.recv_timeout(Duration::from_millis(50)).is_err());
    let other = apart(&fs, |fs| create(fs, &fs.root(), "other", &new_file()).map(drop));
    assert_eq!(other.recv_timeout(PATIENCE), Ok(Ok(())));
    drop(writing);
    assert_eq!(cutting.recv_timeout(PATIENCE), Ok(Ok(())));
}
