//! Writes of data that lies in several slices, without joining them.

use std::io::{self, ErrorKind, IoSlice};

/// Most slices of one system call: `UIO_MAXIOV` of Linux.
const SLICES_MAX: usize = 1024;

/// Writes slices, one after the other, by as many calls of `write` as necessary. `write` gets the slices that are left,
/// at most 1024 of them, and the number of bytes written before. A call that a signal interrupted
/// ([`ErrorKind::Interrupted`]) is repeated.
///
/// Returns the number of bytes written, and the error that ended the work before its end: [`ErrorKind::WriteZero`] if a
/// call wrote nothing.
pub fn write_all(
    data: &[IoSlice<'_>],
    mut write: impl FnMut(&[IoSlice<'_>], usize) -> io::Result<usize>,
) -> (usize, io::Result<()>) {
    // Empty slices do not tell an end of the data from an end of the space.
    let mut slices: Vec<_> = data.iter().filter(|slice| !slice.is_empty()).copied().collect();
    let (mut rest, mut done) = (slices.as_mut_slice(), 0);
    while !rest.is_empty() {
        match write(rest.get(..SLICES_MAX).unwrap_or(rest), done) {
            Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
            // The written part may end within a slice.
            Ok(count) => {
                done += count;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests;
