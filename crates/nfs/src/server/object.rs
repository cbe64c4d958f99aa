//! GETATTR, SETATTR, LOOKUP, ACCESS and READLINK (RFC 1813 §3.3.1 to §3.3.5).

use super::memory::Room;
use super::{At, Serve, Served3, convert};
use crate::fs::{Access, LookupName};
use crate::wire::{
    AccessArgs, AccessOk, FileHandle, GetattrArgs, LookupArgs, LookupOk, MAX_PATH, ReadlinkArgs, ReadlinkOk,
    SetattrArgs, Status,
};

impl Serve for GetattrArgs {
    fn handle(&self) -> &FileHandle {
        &self.object
    }

    fn serve(self, at: &At) -> Served3<Self> {
        match at.fs().attributes(&at.id) {
            Ok(attributes) => Ok(at.attributes(&attributes)),
            Err(error) => Err((error.into(), ())),
        }
    }
}

impl Serve for SetattrArgs {
    fn handle(&self) -> &FileHandle {
        &self.object
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let prepare = || {
            at.writable()?;
            let guard = self.guard.map(convert::timestamp).transpose()?;
            Ok((convert::set_attributes(&self.new_attributes)?, guard))
        };
        let (new, guard) = prepare().map_err(|status| (status, at.untouched()))?;
        let outcome = at.fs().set_attributes(&at.who, &at.id, &new, guard);
        let wcc = at.wcc(&outcome.change);
        match outcome.result {
            Ok(()) => Ok(wcc),
            Err(error) => Err((error.into(), wcc)),
        }
    }
}

impl Serve for LookupArgs {
    fn handle(&self) -> &FileHandle {
        &self.what.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let found =
            LookupName::new(self.what.name.as_bytes()).and_then(|name| at.fs().lookup(&at.who, &at.id, name));
        let seen = found.map_err(Status::from).and_then(|found| {
            at.found(self.what.name.as_bytes(), &found.node).map(|seen| (seen, found.directory))
        });
        match seen {
            Ok(((object, attributes), directory)) => Ok(LookupOk {
                object,
                attributes: Some(attributes),
                dir_attributes: directory.as_ref().map(|attributes| at.attributes(attributes)),
            }),
            Err(status) => Err((status, at.post_op())),
        }
    }
}

impl Serve for AccessArgs {
    fn handle(&self) -> &FileHandle {
        &self.object
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let mut wanted = Access::from_bits(self.access);
        if at.writable().is_err() {
            wanted = wanted.intersection(Access::READ.union(Access::LOOKUP).union(Access::EXECUTE));
        }
        match at.fs().access(&at.who, &at.id, wanted) {
            Ok((granted, attributes)) => {
                Ok(AccessOk { attributes: Some(at.attributes(&attributes)), access: granted.bits() })
            }
            Err(error) => Err((error.into(), at.post_op())),
        }
    }
}

/// Serves a READLINK. The text goes from the stack to the reserved memory. No other memory is allocated that
/// a client could hold.
pub(super) fn read_link(at: &At, room: Room) -> Served3<ReadlinkArgs> {
    at.check_place(&at.id).map_err(|status| (status, None))?;
    let mut target = [0; MAX_PATH];
    match at.fs().read_link(&at.who, &at.id, &mut target) {
        Ok((length, attributes)) => {
            let attributes = Some(at.attributes(&attributes));
            let data = target.get(..length).and_then(|text| room.hold(text));
            let data = data.ok_or((Status::ServerFault, attributes))?;
            Ok(ReadlinkOk { attributes, data })
        }
        Err(error) => Err((error.into(), at.post_op())),
    }
}
