//! FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.18 to §3.3.20).

use super::{At, Serve, Served3, convert};
use crate::wire::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, FileHandle, FsinfoArgs, FsinfoOk, FsstatArgs,
    FsstatOk, PathconfArgs, PathconfOk,
};

/// Preferred multiple of READ and WRITE sizes in bytes: a page.
const MULTIPLE: u32 = 4096;
/// Preferred size of a READDIR in bytes.
const DIRECTORY_PREFERRED: u32 = 64 << 10;

impl Serve for FsstatArgs {
    fn handle(&self) -> &FileHandle {
        &self.root
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let statistics = at.fs().statistics(&at.id).map_err(|error| (error.into(), at.post_op()))?;
        Ok(FsstatOk {
            attributes: at.post_op(),
            total_bytes: statistics.total_bytes,
            free_bytes: statistics.free_bytes,
            available_bytes: statistics.available_bytes,
            total_files: statistics.total_files,
            free_files: statistics.free_files,
            available_files: statistics.available_files,
            // RFC 1813 §3.3.18: the values may change at any time.
            invariant_seconds: 0,
        })
    }
}

impl Serve for FsinfoArgs {
    fn handle(&self) -> &FileHandle {
        &self.root
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let known = at.fs().attributes(&at.id).and_then(|attributes| Ok((attributes, at.fs().properties()?)));
        let (attributes, properties) = known.map_err(|error| (error.into(), at.post_op()))?;
        let largest = at.shared.max_payload;
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        Ok(FsinfoOk {
            attributes: Some(at.attributes(&attributes)),
            read_max: largest,
            read_preferred: largest,
            read_multiple: MULTIPLE.min(largest),
            write_max: largest,
            write_preferred: largest,
            write_multiple: MULTIPLE.min(largest),
            readdir_preferred: DIRECTORY_PREFERRED.min(largest),
            max_file_size: properties.max_file_size,
            time_delta: convert::time(properties.time_delta),
            properties: flag(properties.hard_links, FSF3_LINK)
                | flag(properties.symbolic_links, FSF3_SYMLINK)
                | FSF3_HOMOGENEOUS
                | FSF3_CANSETTIME,
        })
    }
}

impl Serve for PathconfArgs {
    fn handle(&self) -> &FileHandle {
        &self.object
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let known = at.fs().attributes(&at.id).and_then(|attributes| Ok((attributes, at.fs().properties()?)));
        let (attributes, properties) = known.map_err(|error| (error.into(), at.post_op()))?;
        Ok(PathconfOk {
            attributes: Some(at.attributes(&attributes)),
            link_max: properties.link_max,
            name_max: properties.name_max,
            // A longer name is refused, not truncated (RFC 1813 §3.2).
            no_trunc: true,
            chown_restricted: properties.chown_restricted,
            case_insensitive: properties.case_insensitive,
            case_preserving: properties.case_preserving,
        })
    }
}
