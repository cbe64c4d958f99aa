//! Incomplete files that a later copy continues.
//!
//! *Names.* The incomplete file of `NAME` is `.NAME.HASH.rpcrdma-partial`, beside it. `HASH` is of the name, and of
//! length, time of change and number of the source. So a source that has changed has another incomplete file, and
//! its copy starts over. A long `NAME` is cut so that the whole name has at most 255 bytes.
//!
//! *Data that counts.* A local file grows from its beginning to its end, so all up to its length is there. At the
//! server WRITEs arrive in any order, and a server that restarts loses those without COMMIT. So the copy sends
//! COMMIT before the first WRITE beyond each multiple of [`CopyOptions::partial_step`]. A later copy continues at
//! the multiple below the last byte, whatever happened to the bytes behind it.
//!
//! *Trust.* An incomplete file is continued only if it is a regular file with one name. Its owner must be that of new
//! files of this caller, or that of the file that it will replace. Any other object of its name is removed.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::CopyOptions;
use super::identity::Identity;
use crate::wire::MAX_NAME;

/// End of the names of incomplete files.
const SUFFIX: &str = ".rpcrdma-partial";

/// Returns the name of the incomplete file for the name `name` and this source.
pub(super) fn part_name(name: &[u8], source: &Identity, options: &CopyOptions) -> Vec<u8> {
    // Without keys, so that every run and every version finds the same name.
    let mut hash = SipHasher13::new();
    hash.write(name);
    let mtime = source.mtime();
    for number in [
        source.size(),
        u64::from(mtime.seconds),
        u64::from(mtime.nanoseconds),
        source.number(),
        options.partial_step,
    ] {
        hash.write_u64(number.to_le());
    }
    let rest = format!(".{:016x}{SUFFIX}", hash.finish());
    let room = MAX_NAME.saturating_sub(rest.len() + 1);
    let mut shown = name.get(..name.len().min(room)).unwrap_or_default();
    // No letter is cut in two.
    while shown.len() < name.len() && shown.last().is_some_and(|byte| !byte.is_ascii()) {
        let Some((last, before)) = shown.split_last() else { break };
        shown = before;
        if last & 0xc0 == 0xc0 {
            break;
        }
    }
    [b".", shown, rest.as_bytes()].concat()
}

/// Returns the offset at which a copy continues an incomplete file of this length at the server.
pub(super) const fn resume_at(length: u64, step: u64) -> u64 {
    match length.checked_sub(1) {
        Some(last) if step > 0 => last - last % step,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(size: u64, fileid: u64) -> Identity {
        let zero = crate::wire::NfsTime::default();
        Identity::from(&crate::wire::Attributes {
            file_type: crate::wire::FileType::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: 0,
            rdev: Default::default(),
            fsid: 0,
            fileid,
            atime: zero,
            mtime: zero,
            ctime: zero,
        })
    }

    /// Another version of the command has to find the file, so the name is fixed.
    #[test]
    fn the_name_is_of_the_source_and_fits() {
        let options = CopyOptions::default();
        let name = |name: &[u8], source| {
            let part = part_name(name, &source, &options);
            assert!(part.len() <= MAX_NAME && part.starts_with(b".") && part.ends_with(SUFFIX.as_bytes()));
            String::from_utf8(part).unwrap()
        };
        let first = name(b"a.iso", source(5, 1));
        assert_eq!(first, name(b"a.iso", source(5, 1)));
        assert!(first.starts_with(".a.iso."), "{first}");
        let others =
            [name(b"b.iso", source(5, 1)), name(b"a.iso", source(6, 1)), name(b"a.iso", source(5, 2))];
        assert!(others.iter().all(|other| *other != first), "{others:?}");
        for letter in ["x", "é", "雪"] {
            let long = letter.repeat(MAX_NAME / letter.len());
            name(long.as_bytes(), source(5, 1));
        }
        let step = CopyOptions { partial_step: 1, ..CopyOptions::default() };
        assert_ne!(part_name(b"a.iso", &source(5, 1), &step), first.into_bytes());
    }

    #[test]
    fn a_copy_continues_at_a_step_below_the_last_byte() {
        for (length, expected) in
            [(0, 0), (1, 0), (10, 0), (11, 10), (20, 10), (21, 20), (u64::MAX, u64::MAX / 10 * 10)]
        {
            assert_eq!(resume_at(length, 10), expected, "{length}");
        }
        assert_eq!(resume_at(5, 0), 0);
    }
}
