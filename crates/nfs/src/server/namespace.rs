//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK (RFC 1813 §3.3.8 to §3.3.15).

use super::{At, Serve, Served3, convert};
use crate::fs::{self, DeviceNumber, FileId, FsError, Name, Node, Outcome, Special};
use crate::wire::{
    CreateArgs, CreateHow, FileHandle, LinkArgs, LinkAttributes, MkdirArgs, MknodArgs, MknodData, NewObject,
    RemoveArgs, RenameArgs, RenameWcc, RmdirArgs, SetAttributes, SpecData, Status, SymlinkArgs, WccData,
};

/// Returns the results of an operation that made an object.
fn made(at: &At, outcome: &Outcome<Node>) -> Result<NewObject, (Status, WccData)> {
    let dir_wcc = at.wcc(&outcome.change);
    match &outcome.result {
        Ok(node) => Ok(NewObject {
            object: Some(at.seal(&node.id)),
            attributes: Some(at.attributes(&node.attributes)),
            dir_wcc,
        }),
        Err(error) => Err(((*error).into(), dir_wcc)),
    }
}

/// Returns the results of an operation that only changed a directory.
fn changed(at: &At, outcome: &Outcome<()>) -> Result<WccData, (Status, WccData)> {
    let wcc = at.wcc(&outcome.change);
    match outcome.result {
        Ok(()) => Ok(wcc),
        Err(error) => Err((error.into(), wcc)),
    }
}

/// Returns the name of a new object, if the export permits changes.
fn new_name<'a>(at: &At, name: &'a [u8]) -> Result<Name<'a>, Status> {
    at.writable()?;
    Ok(Name::new(name)?)
}

/// Returns the name of an object to remove, if the export permits changes.
fn old_name<'a>(at: &At, directory: &FileId, name: &'a [u8]) -> Result<Name<'a>, Status> {
    at.writable()?;
    let name = Name::for_removal(name)?;
    at.removable(directory, name)?;
    Ok(name)
}

/// Makes an object that is not a regular file.
fn make(
    at: &At,
    name: &[u8],
    what: &Special<'_>,
    attributes: &SetAttributes,
) -> Result<NewObject, (Status, WccData)> {
    let prepare = || Ok((new_name(at, name)?, convert::set_attributes(attributes)?));
    let (name, attributes) = prepare().map_err(|status| (status, at.untouched()))?;
    made(at, &at.fs().make(&at.who, &at.id, name, what, &attributes))
}

impl Serve for CreateArgs {
    fn handle(&self) -> &FileHandle {
        &self.place.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let prepare = || {
            let name = new_name(at, self.place.name.as_bytes())?;
            let how = match &self.how {
                CreateHow::Unchecked(new) => fs::CreateHow::Unchecked(convert::set_attributes(new)?),
                CreateHow::Guarded(new) => fs::CreateHow::Guarded(convert::set_attributes(new)?),
                CreateHow::Exclusive(verifier) => fs::CreateHow::Exclusive(*verifier),
            };
            Ok((name, how))
        };
        let (name, how) = prepare().map_err(|status| (status, at.untouched()))?;
        made(at, &at.fs().create(&at.who, &at.id, name, &how))
    }
}

impl Serve for MkdirArgs {
    fn handle(&self) -> &FileHandle {
        &self.place.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        make(at, self.place.name.as_bytes(), &Special::Directory, &self.attributes)
    }
}

impl Serve for SymlinkArgs {
    fn handle(&self) -> &FileHandle {
        &self.place.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let what = Special::Symlink(&self.symlink.target);
        make(at, self.place.name.as_bytes(), &what, &self.symlink.attributes)
    }
}

impl Serve for MknodArgs {
    fn handle(&self) -> &FileHandle {
        &self.place.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let number = |spec: &SpecData| DeviceNumber { major: spec.major, minor: spec.minor };
        let (what, attributes) = match &self.what {
            MknodData::BlockDevice(device) => {
                (Special::BlockDevice(number(&device.spec)), &device.attributes)
            }
            MknodData::CharacterDevice(device) => {
                (Special::CharacterDevice(number(&device.spec)), &device.attributes)
            }
            MknodData::Socket(attributes) => (Special::Socket, attributes),
            MknodData::Fifo(attributes) => (Special::Fifo, attributes),
            // RFC 1813 §3.3.11: these types have procedures of their own.
            MknodData::Regular | MknodData::Directory | MknodData::Symlink => {
                return Err((Status::BadType, at.untouched()));
            }
        };
        make(at, self.place.name.as_bytes(), &what, attributes)
    }
}

impl Serve for RemoveArgs {
    fn handle(&self) -> &FileHandle {
        &self.object.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let name =
            old_name(at, &at.id, self.object.name.as_bytes()).map_err(|status| (status, at.untouched()))?;
        changed(at, &at.fs().remove(&at.who, &at.id, name))
    }
}

impl Serve for RmdirArgs {
    fn handle(&self) -> &FileHandle {
        &self.object.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let name =
            old_name(at, &at.id, self.object.name.as_bytes()).map_err(|status| (status, at.untouched()))?;
        changed(at, &at.fs().remove_directory(&at.who, &at.id, name))
    }
}

impl Serve for RenameArgs {
    fn handle(&self) -> &FileHandle {
        &self.from.dir
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let prepare = || {
            let from = old_name(at, &at.id, self.from.name.as_bytes())?;
            let directory = at.sibling(&self.to.dir)?;
            let to = old_name(at, &directory, self.to.name.as_bytes())?;
            Ok((from, directory, to))
        };
        let (from, directory, to) = prepare()
            .map_err(|status| (status, RenameWcc { from_dir: at.untouched(), to_dir: WccData::default() }))?;
        let renamed = at.fs().rename(&at.who, &at.id, from, &directory, to);
        let wcc = RenameWcc { from_dir: at.wcc(&renamed.from), to_dir: at.wcc(&renamed.to) };
        match renamed.result {
            Ok(()) => Ok(wcc),
            Err(error) => Err((error.into(), wcc)),
        }
    }
}

impl Serve for LinkArgs {
    fn handle(&self) -> &FileHandle {
        &self.file
    }

    fn serve(self, at: &At) -> Served3<Self> {
        let prepare = || Ok((new_name(at, self.link.name.as_bytes())?, at.sibling(&self.link.dir)?));
        let (name, directory) = prepare().map_err(|status| {
            (status, LinkAttributes { file: at.post_op(), link_dir: WccData::default() })
        })?;
        let linked = at.fs().link(&at.who, &at.id, &directory, name);
        let attributes = LinkAttributes {
            file: linked.file.as_ref().map(|attributes| at.attributes(attributes)),
            link_dir: at.wcc(&linked.directory),
        };
        match linked.result {
            Ok(()) => Ok(attributes),
            // RFC 1813 §3.3.15 has no other status for a file system without links.
            Err(FsError::NotPermitted) if !at.has_links() => Err((Status::NotSupp, attributes)),
            Err(error) => Err((error.into(), attributes)),
        }
    }
}

impl At {
    fn has_links(&self) -> bool {
        self.fs().properties().is_ok_and(|properties| properties.hard_links)
    }
}
