//! Client of EXTENTS, which reports where a file has data ([`crate::extents`]).

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rpcrdma::Procedure;

use super::transport::carry;
use super::{Client, Error, Procedures, Violation};
use crate::extents::{ExtentsArgs, ExtentsOk, ExtentsResult, MAX_EXTENTS};
use crate::wire::FileHandle;

/// Longest wait for the answer. Another server may not answer at all, and the whole file can be read without
/// it.
const EXTENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Ranges of a file that have data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Ranges in the order of their offsets, within the file.
    pub(super) ranges: Vec<Range<u64>>,
    /// Whether the rest of the file is a hole.
    pub(super) complete: bool,
}

impl Client {
    /// Returns the ranges with data from `offset` to the end of the file at `size`, or `None` if the server
    /// does not report them. The caller then reads everything. After a refusal or a bad answer the client
    /// does not ask this server again. Neither is a failure, because READ will report any fault.
    pub(super) async fn extents(&self, file: FileHandle, offset: u64, size: u64) -> Option<Found> {
        if self.inner.no_extents.load(Ordering::Relaxed) {
            return None;
        }
        let asked = self.ask_extents(file, offset).await;
        match asked.and_then(|found| found.map(|found| check(found, offset, size)).transpose()) {
            Ok(found) => found,
            Err(error) => {
                self.inner.no_extents.store(true, Ordering::Relaxed);
                tracing::debug!(%error, "the server does not report where files have data");
                None
            }
        }
    }

    /// Calls EXTENTS. Returns `None` if the server has no answer for this file.
    async fn ask_extents(&self, file: FileHandle, offset: u64) -> Result<Option<ExtentsOk>, Error> {
        let count = u32::try_from(MAX_EXTENTS).unwrap_or(u32::MAX);
        let arguments = ExtentsArgs { file, offset, count };
        let Procedures { transport, credential, timeout, .. } = self.procedures();
        let timeout = timeout.unwrap_or(EXTENTS_TIMEOUT).min(EXTENTS_TIMEOUT);
        match carry::<ExtentsArgs>(&**transport, &arguments, credential.clone(), Some(timeout)).await? {
            ExtentsResult::Ok(found) => Ok(Some(found)),
            ExtentsResult::Fail { status, .. } => {
                tracing::debug!(status = status.name(), "the server does not report where the file has data");
                Ok(None)
            }
        }
    }
}

/// Checks that the ranges advance, and truncates them at the end of the file.
fn check(found: ExtentsOk, offset: u64, size: u64) -> Result<Found, Error> {
    let broken =
        || Error::Protocol { operation: ExtentsArgs::NAME, violation: Violation::Extents { offset } };
    let mut ranges = Vec::with_capacity(found.extents.len());
    let mut behind = offset;
    for extent in found.extents {
        if extent.length == 0 || extent.offset < behind {
            return Err(broken());
        }
        behind = extent.offset.saturating_add(extent.length);
        if extent.offset < size {
            ranges.push(extent.offset..behind.min(size));
        }
    }
    let complete = found.complete || behind >= size;
    if ranges.is_empty() && !complete {
        return Err(broken());
    }
    Ok(Found { ranges, complete })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::Extent;

    fn checked(extents: &[(u64, u64)], complete: bool) -> Result<Found, Error> {
        let extents = extents.iter().map(|&(offset, length)| Extent { offset, length }).collect();
        check(ExtentsOk { extents, complete }, 100, 1000)
    }

    #[test]
    fn ranges_end_with_the_file() {
        let found = checked(&[(100, 1), (101, 9), (500, u64::MAX), (u64::MAX, 1)], false).unwrap();
        assert_eq!(found, Found { ranges: vec![100..101, 101..110, 500..1000], complete: true });
        let found = checked(&[(100, 1)], false).unwrap();
        assert_eq!(found, Found { ranges: std::iter::once(100..101).collect(), complete: false });
        assert_eq!(checked(&[], true).unwrap(), Found { ranges: vec![], complete: true });
    }

    #[test]
    fn i6_ranges_that_do_not_go_on_are_refused() {
        for extents in [&[(99, 5)][..], &[(100, 0)], &[(100, 10), (105, 10)], &[(300, 10), (200, 10)], &[]] {
            let error = checked(extents, false).unwrap_err();
            assert!(
                matches!(error, Error::Protocol { violation: Violation::Extents { offset: 100 }, .. }),
                "{extents:?}"
            );
        }
    }
}
