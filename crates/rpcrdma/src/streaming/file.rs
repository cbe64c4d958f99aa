//! [`FileAt`]: positioned reads and writes of a file, on worker threads.
//!
//! *Buffers.* A read fills a Buffer in place, and a write takes the slices of a result as they are. The kernel copies
//! between them and its cache; nothing else is copied.
//!
//! *Errors.* Those of the system calls. Work that a thread loses is an error of kind [`ErrorKind::Other`].

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::Payload;
use rustix::io::pwritev;

use super::ends::sealed::{Fill, Store};
use super::{wide, write_all};
use crate::workers::Workers;

/// A file for reads and writes at offsets, which are done on worker threads and never on the threads of the runtime.
/// Cheap to clone; the last clone closes the file, on a worker thread too.
///
/// A Buffer of a client's domain that was read from a file travels as payload of a call without a further copy:
///
/// ```no_run
/// # use rpcrdma::{Client, Workers, streaming::FileAt};
/// # async fn example(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let workers = Workers::new("files", 4, 64);
/// let file = FileAt::open("backup.img", &workers).await?;
/// let buffer = client.domain().allocate(1 << 20, 1)?;
/// // One MiB at offset 2 MiB, or less if the file ends before.
/// let data = file.read(2 << 20, buffer).await?.freeze();
/// # drop(data);
/// # Ok(())
/// # }
/// ```
///
/// If a future of this type is dropped, the work that a thread has begun is still done there.
#[derive(Clone)]
pub struct FileAt {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` only while it is dropped.
    file: Option<File>,
    workers: Workers,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // On a network file system a close may wait for data that is written back.
        let file = self.file.take();
        drop(self.workers.run_for(None, move || drop(file)));
    }
}

impl FileAt {
    /// Takes over an open file. `workers` run its system calls.
    #[must_use]
    pub fn new(file: File, workers: &Workers) -> Self {
        Self { shared: Arc::new(Shared { file: Some(file), workers: workers.clone() }) }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`File::open`].
    pub async fn open(path: impl Into<PathBuf>, workers: &Workers) -> io::Result<Self> {
        let path = path.into();
        let file = workers.run(move || File::open(path)).await.map_err(io::Error::other)?;
        Ok(Self::new(file?, workers))
    }

    /// Opens a file for writing and reading. A file that exists is truncated.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    pub async fn create(path: impl Into<PathBuf>, workers: &Workers) -> io::Result<Self> {
        let path = path.into();
        let open = move || File::options().read(true).write(true).create(true).truncate(true).open(path);
        let file = workers.run(open).await.map_err(io::Error::other)?;
        Ok(Self::new(file?, workers))
    }

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// As [`File::metadata`].
    pub async fn size(&self) -> io::Result<u64> {
        Ok(self.run(File::metadata).await??.len())
    }

    /// Truncates the file to `length` bytes, or extends it with zeros.
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub async fn set_size(&self, length: u64) -> io::Result<()> {
        self.run(move |file| file.set_len(length)).await?
    }

    /// Waits until all data written is on stable storage.
    ///
    /// # Errors
    /// As [`File::sync_data`]. Errors of the close are not reported, so this is the place to learn of a loss.
    pub async fn sync(&self) -> io::Result<()> {
        self.run(File::sync_data).await?
    }

    /// Fills a Buffer with the bytes at `offset`, by as many reads as necessary. At the end of the file the Buffer comes
    /// back shorter.
    ///
    /// # Errors
    /// Those of the reads. The Buffer is dropped then.
    pub async fn read(&self, offset: u64, buffer: Buffer) -> io::Result<Buffer> {
        self.read_counted(offset, buffer).await.map_err(|(_, error)| error)
    }

    /// Writes all bytes at `offset`, from the slices in which they lie, by as many writes as necessary.
    ///
    /// # Errors
    /// Those of the writes; some bytes may be written then.
    pub async fn write(&self, offset: u64, data: impl Into<Payload>) -> io::Result<()> {
        self.write_counted(offset, data.into()).await.1
    }

    async fn read_counted(&self, offset: u64, mut buffer: Buffer) -> Result<Buffer, (usize, io::Error)> {
        let read = move |file: &File| {
            let mut filled = 0;
            while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match file.read_at(rest, offset.saturating_add(wide(filled))) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err((filled, error)),
                }
            }
            buffer.truncate(filled);
            Ok(buffer)
        };
        self.run(read).await.map_err(|error| (0, error))?
    }

    async fn write_counted(&self, offset: u64, data: Payload) -> (usize, io::Result<()>) {
        let write = move |file: &File| {
            let slices: Vec<_> = data.iter().map(|slice| IoSlice::new(slice)).collect();
            write_all(&slices, |rest, done| Ok(pwritev(file, rest, offset.saturating_add(wide(done)))?))
        };
        self.run(write).await.unwrap_or_else(|error| (0, Err(error)))
    }

    /// Does this work on a worker thread.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&File) -> T + Send + 'static) -> io::Result<T> {
        let shared = Arc::clone(&self.shared);
        let work = move || shared.file.as_ref().map(work);
        let done = self.shared.workers.run(work).await.map_err(io::Error::other)?;
        done.ok_or_else(|| ErrorKind::Other.into())
    }
}

impl Fill for FileAt {
    async fn fill(&mut self, offset: u64, buffer: Buffer) -> Result<Buffer, (usize, io::Error)> {
        self.read_counted(offset, buffer).await
    }
}

impl Store for FileAt {
    async fn store(&mut self, offset: u64, data: Payload) -> (usize, io::Result<()>) {
        self.write_counted(offset, data).await
    }

    async fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// An empty file without a name.
    fn unnamed(workers: &Workers) -> FileAt {
        FileAt::new(tempfile::tempfile().unwrap(), workers)
    }

    #[tokio::test]
    async fn bytes_are_read_and_written_where_they_lie() {
        let workers = Workers::new("test", 2, 8);
        let file = unnamed(&workers);
        let all: Bytes = (0..100_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let slices: Payload =
            [all.slice(..7), all.slice(7..70_000), all.slice(70_000..)].into_iter().collect();
        file.write(5, slices).await.unwrap();
        assert_eq!(file.size().await.unwrap(), 100_005);
        let buffer = Buffer::adopt(vec![1; 60_000]);
        let address = buffer.as_ptr();
        let buffer = file.read(5, buffer).await.unwrap();
        assert_eq!((&buffer[..], buffer.as_ptr()), (&all[..60_000], address));
        // The end of the file is within this Buffer.
        let buffer = file.read(60_005, buffer).await.unwrap();
        assert_eq!((&buffer[..], buffer.as_ptr()), (&all[60_000..], address));
        assert!(file.read(100_005, buffer).await.unwrap().is_empty());
        file.set_size(3).await.unwrap();
        assert_eq!(&file.read(0, Buffer::adopt(vec![1; 9])).await.unwrap()[..], [0; 3]);
        file.sync().await.unwrap();
    }

    #[tokio::test]
    async fn faults_say_how_many_bytes_came_before() {
        let workers = Workers::new("test", 1, 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let absent = FileAt::open(path.clone(), &workers).await.err().unwrap();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
        FileAt::create(path.clone(), &workers).await.unwrap().write(0, vec![7; 10]).await.unwrap();
        let mut read_only = FileAt::open(path, &workers).await.unwrap();
        let (written, error) = read_only.store(0, vec![8].into()).await;
        assert_eq!((written, error.unwrap_err().raw_os_error()), (0, Some(9)));
        // No file has an offset that large.
        let (read, error) = read_only.fill(u64::MAX, Buffer::adopt(vec![0; 8])).await.err().unwrap();
        assert_eq!((read, error.kind()), (0, ErrorKind::InvalidInput));
        let mut full = FileAt::new(File::options().write(true).open("/dev/full").unwrap(), &workers);
        let (written, error) = full.store(0, vec![8; 100].into()).await;
        assert_eq!((written, error.unwrap_err().kind()), (0, ErrorKind::StorageFull));
    }

    #[tokio::test]
    async fn the_file_is_closed_by_a_worker_thread() {
        // Without threads, the owner of the last clone would do the work.
        let workers = Workers::new("test", 1, 1);
        let (reader, writer) = std::io::pipe().unwrap();
        let file = FileAt::new(File::from(std::os::fd::OwnedFd::from(writer)), &workers);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let busy = workers.run_for(None, move || held.recv());
        drop(file);
        let mut reader = File::from(std::os::fd::OwnedFd::from(reader));
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let open = io::Read::read(&mut reader, &mut [0]).unwrap_err();
        assert_eq!(open.kind(), ErrorKind::WouldBlock, "the only thread is busy");
        release.send(()).unwrap();
        busy.await.unwrap().unwrap();
        // Work is done in the order of its arrival.
        workers.run(|| ()).await.unwrap();
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }
}
