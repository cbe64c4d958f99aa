//! Attributes for display: as `ls -l` shows them, and as JSON.

use rpcrdma_nfs::wire::{Attributes, FileType, NfsTime};
use serde::Serialize;

/// Part of `--help` about [`EntryDocument`].
pub(crate) const ENTRY_HELP: &str = "{url, name, type, mode, links, uid, gid, size, used, fsid, fileid, fsid_text, fileid_text, \
atime, mtime, ctime, atime_exact, mtime_exact, ctime_exact, target}";

/// JSON document of a file.
#[derive(Debug, Serialize)]
pub(crate) struct EntryDocument {
    /// URL of the file. It is exact for names of any bytes.
    pub(crate) url: String,
    /// Name of the file; bytes that are not UTF-8 are replaced.
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) file_type: &'static str,
    /// Permissions in octal, such as `0644`.
    pub(crate) mode: String,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Length of the content, in bytes.
    pub(crate) size: u64,
    /// Storage used, in bytes.
    pub(crate) used: u64,
    pub(crate) fsid: u64,
    pub(crate) fileid: u64,
    /// The same numbers as text, for readers whose numbers are exact to 53 bits only.
    pub(crate) fsid_text: String,
    pub(crate) fileid_text: String,
    /// Time of the last access, as RFC 3339 in UTC, to the second; so are the other times.
    pub(crate) atime: String,
    pub(crate) mtime: String,
    pub(crate) ctime: String,
    /// These times to the nanosecond.
    pub(crate) atime_exact: String,
    pub(crate) mtime_exact: String,
    pub(crate) ctime_exact: String,
    /// Text of a symbolic link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
}

impl EntryDocument {
    /// Creates the document of the entry `name` with these attributes.
    pub(crate) fn new(url: String, name: &[u8], attributes: &Attributes, target: Option<&[u8]>) -> Self {
        Self {
            url,
            name: String::from_utf8_lossy(name).into_owned(),
            file_type: type_name(attributes.file_type),
            mode: format!("{:04o}", attributes.mode & 0o7777),
            links: attributes.nlink,
            uid: attributes.uid,
            gid: attributes.gid,
            size: attributes.size,
            used: attributes.used,
            fsid: attributes.fsid,
            fileid: attributes.fileid,
            fsid_text: attributes.fsid.to_string(),
            fileid_text: attributes.fileid.to_string(),
            atime: time(attributes.atime),
            mtime: time(attributes.mtime),
            ctime: time(attributes.ctime),
            atime_exact: exact_time(attributes.atime),
            mtime_exact: exact_time(attributes.mtime),
            ctime_exact: exact_time(attributes.ctime),
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
        }
    }
}

/// Returns the name of a file type.
pub(crate) const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block device",
        FileType::CharacterDevice => "character device",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
        FileType::Fifo => "pipe",
    }
}

/// Returns type and permissions as `ls -l` shows them.
pub(crate) fn mode_text(attributes: &Attributes) -> String {
    let mode = attributes.mode;
    let file_type = match attributes.file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        FileType::Fifo => 'p',
    };
    let mut text = String::from(file_type);
    // Shift of the class, its special bit, and the letter of that bit.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let class = mode >> shift;
        text.push(if class & 4 != 0 { 'r' } else { '-' });
        text.push(if class & 2 != 0 { 'w' } else { '-' });
        text.push(match (class & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Returns a time as RFC 3339 in UTC, to the second.
pub(crate) fn time(time: NfsTime) -> String {
    let seconds = u64::from(time.seconds);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Returns a time as RFC 3339 in UTC, to the nanosecond.
pub(crate) fn exact_time(exact: NfsTime) -> String {
    let whole = time(exact);
    format!("{}.{:09}Z", whole.trim_end_matches('Z'), exact.nanoseconds)
}

/// Returns year, month and day of a number of days since 1970-01-01. Years are counted from March, so that
/// the leap day is the last day of a year.
const fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let era = days / DAYS_OF_400_YEARS;
    let day_of_era = days % DAYS_OF_400_YEARS;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (u32::MAX, "2106-02-07T06:28:15Z"),
        ] {
            assert_eq!(time(NfsTime { seconds, nanoseconds: 0 }), text);
        }
        let exact = exact_time(NfsTime { seconds: 951_782_400, nanoseconds: 7_000_001 });
        assert_eq!(exact, "2000-02-29T00:00:00.007000001Z");
    }

    #[test]
    fn modes() {
        let text = |file_type, mode| {
            let zero = NfsTime::default();
            mode_text(&Attributes {
                file_type,
                mode,
                nlink: 1,
                uid: 0,
                gid: 0,
                size: 0,
                used: 0,
                rdev: Default::default(),
                fsid: 0,
                fileid: 0,
                atime: zero,
                mtime: zero,
                ctime: zero,
            })
        };
        assert_eq!(text(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(text(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(text(FileType::Regular, 0o6750), "-rwsr-s---");
        assert_eq!(text(FileType::Regular, 0o7000), "---S--S--T");
        assert_eq!(text(FileType::Symlink, 0o777), "lrwxrwxrwx");
    }
}
