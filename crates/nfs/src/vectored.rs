//! Writes of data that lies in several slices, without joining them.

use std::io::IoSlice;

use rustix::io::Errno;

/// Most slices of one system call: `UIO_MAXIOV` of Linux.
const SLICES_MAX: usize = 1024;

/// Writes slices, one after the other, by as many calls as necessary. `write` gets the slices that are left
/// and the number of bytes written before. Returns the number of bytes written, and the error that ended the
/// work before its end.
pub(crate) fn write_all(
    data: &[IoSlice<'_>],
    mut write: impl FnMut(&[IoSlice<'_>], usize) -> Result<usize, Errno>,
) -> (usize, Result<(), Errno>) {
    // Empty slices do not tell an end of the data from an end of the space.
    let mut slices: Vec<_> = data.iter().filter(|slice| !slice.is_empty()).copied().collect();
    let (mut rest, mut done) = (slices.as_mut_slice(), 0);
    while !rest.is_empty() {
        match retry(|| write(rest.get(..SLICES_MAX).unwrap_or(rest), done)) {
            Ok(0) => return (done, Err(Errno::IO)),
            // The written part may end within a slice.
            Ok(count) => {
                done += count;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(errno) => return (done, Err(errno)),
        }
    }
    (done, Ok(()))
}

/// Repeats a call that a signal interrupted.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
