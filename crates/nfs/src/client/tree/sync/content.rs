//! Comparison of the content of a local file and a file at the server.

use std::fs::File as LocalFile;
use std::path::PathBuf;

use super::super::local::{blocking, read_at};
use crate::client::{Error, File};

/// Returns whether both files have the same content. Reads both up to the first difference. `size` is the length
/// of both, in bytes.
pub(super) async fn is_same(
    file: &File,
    local: LocalFile,
    size: u64,
    path: impl Fn() -> PathBuf,
) -> Result<bool, Error> {
    let mut stream = file.read_all(0, size);
    let mut local = local;
    let mut end = 0;
    while let Some((offset, data)) = stream.next_at().await? {
        let length = data.len();
        let compare = move || {
            let here = read_at(&local, offset, length)?;
            let mut rest = here.as_ref();
            let same = here.len() == length
                && data.iter().all(|slice| {
                    let (start, after) = rest.split_at(slice.len().min(rest.len()));
                    rest = after;
                    start == &slice[..]
                });
            Ok((local, same))
        };
        let same;
        (local, same) = blocking(&path, compare).await?;
        if !same {
            return Ok(false);
        }
        end = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
    }
    // A file that is shorter or longer by now is another one.
    Ok(end == size)
}
