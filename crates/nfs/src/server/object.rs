//! GETATTR, SETATTR, LOOKUP, ACCESS and READLINK (RFC 1813 §3.3.1 to §3.3.5).

use super::memory::Room;
use super::{At, Serve, Served3, convert};
use crate::fs::{Access, Attributes, Found, LookupName};
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

    fn try_serve(&self, at: &At) -> Option<Served3<Self>> {
        at.fs().try_attributes(&at.id).map(|attributes| Ok(at.attributes(&attributes)))
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

/// Returns the results for an object that was found, if the caller may see it.
fn found(call: &LookupArgs, at: &At, found: &Found) -> Result<LookupOk, Status> {
    let (object, attributes) = at.found(call.what.name.as_bytes(), &found.node)?;
    Ok(LookupOk {
        object,
        attributes: Some(attributes),
        dir_attributes: found.directory.as_ref().map(|attributes| at.attributes(attributes)),
    })
}

impl Serve for LookupArgs {
    fn handle(&self) -> &FileHandle {
        &self.what.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        LookupName::new(self.what.name.as_bytes())
            .and_then(|name| at.fs().lookup(&at.who, &at.id, name))
            .map_err(Status::from)
            .and_then(|node| found(&self, at, &node))
            .map_err(|status| (status, at.post_op()))
    }

    fn try_serve(&self, at: &At) -> Option<Served3<Self>> {
        let name = LookupName::new(self.what.name.as_bytes()).ok()?;
        match at.fs().try_lookup(&at.who, &at.id, name)? {
            Ok(node) => found(self, at, &node).ok().map(Ok),
            Err(error) => {
                let directory = at.fs().try_attributes(&at.id)?;
                Some(Err((error.into(), Some(at.attributes(&directory)))))
            }
        }
    }
}

/// Returns the rights that a caller may have in the export, among those asked for.
fn wanted(call: &AccessArgs, at: &At) -> Access {
    let wanted = Access::from_bits(call.access);
    if at.writable().is_ok() {
        return wanted;
    }
    wanted.intersection(Access::READ.union(Access::LOOKUP).union(Access::EXECUTE))
}

fn granted(at: &At, (granted, attributes): (Access, Attributes)) -> AccessOk {
    AccessOk { attributes: Some(at.attributes(&attributes)), access: granted.bits() }
}

impl Serve for AccessArgs {
    fn handle(&self) -> &FileHandle {
        &self.object
    }

    fn serve(self, at: &At) -> Served3<Self> {
        match at.fs().access(&at.who, &at.id, wanted(&self, at)) {
            Ok(access) => Ok(granted(at, access)),
            Err(error) => Err((error.into(), at.post_op())),
        }
    }

    fn try_serve(&self, at: &At) -> Option<Served3<Self>> {
        at.fs().try_access(&at.who, &at.id, wanted(self, at)).map(|access| Ok(granted(at, access)))
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
