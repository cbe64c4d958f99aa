//! Making, removing, renaming and changing objects by path.

use bytes::Bytes;

use super::walk::lossy;
use super::{Client, Error, File, Node};
use crate::wire::{
    Attributes, CreateArgs, CreateHow, DirOpArgs, FileHandle, FsstatArgs, FsstatOk, LinkArgs, MkdirArgs,
    NewObject, PathconfArgs, PathconfOk, RemoveArgs, RenameArgs, RmdirArgs, SetAttributes, SetTime,
    SetattrArgs, SymlinkArgs, SymlinkData, Verifier,
};

impl Client {
    /// Opens a file that exists; symbolic links are followed. NFS has no open: later operations may still be refused.
    pub async fn open(&self, path: impl AsRef<[u8]>) -> Result<File, Error> {
        let path = path.as_ref();
        let node = self.lookup(path).await?;
        Ok(self.file(node.handle, path))
    }

    /// A file whose handle is known; `path` is for messages.
    pub fn file(&self, handle: FileHandle, path: impl AsRef<[u8]>) -> File {
        File::new(self.clone(), handle, lossy(path.as_ref()))
    }

    /// Makes a file, or cuts an existing one to nothing, and opens it. `attributes` are those of a new file; of an
    /// existing one only the length changes.
    pub async fn create(&self, path: impl AsRef<[u8]>, attributes: SetAttributes) -> Result<File, Error> {
        let path = path.as_ref();
        let how = CreateHow::Unchecked(SetAttributes { size: Some(0), ..attributes });
        let node = self.create_with(path, how).await?;
        Ok(self.file(node.handle, path))
    }

    /// Makes a file that must not exist yet and opens it: exactly once, even if the call is repeated (RFC 1813
    /// §3.3.8, EXCLUSIVE).
    pub async fn create_new(&self, path: impl AsRef<[u8]>, attributes: SetAttributes) -> Result<File, Error> {
        let path = path.as_ref();
        let verifier: Verifier = rand::random();
        let node = self.create_with(path, CreateHow::Exclusive(verifier)).await?;
        // The server may have kept the verifier in the times: they are set again with the rest.
        let attributes = SetAttributes {
            atime: if attributes.atime == SetTime::DontChange {
                SetTime::ServerTime
            } else {
                attributes.atime
            },
            mtime: if attributes.mtime == SetTime::DontChange {
                SetTime::ServerTime
            } else {
                attributes.mtime
            },
            ..attributes
        };
        self.set_attributes_of(node.handle, attributes).await.map_err(|error| error.at(path))?;
        Ok(self.file(node.handle, path))
    }

    async fn create_with(&self, path: &[u8], how: CreateHow) -> Result<Node, Error> {
        let place = self.place(path).await?.args();
        let made = self.procedures().create(&CreateArgs { place: place.clone(), how }).await;
        self.made(made, place).await.map_err(|error| error.at(path))
    }

    /// Handle and attributes of what was made: what the server did not tell is asked for.
    pub(super) async fn made(&self, made: Result<NewObject, Error>, place: DirOpArgs) -> Result<Node, Error> {
        match made? {
            NewObject { object: Some(handle), attributes: Some(attributes), .. } => {
                Ok(Node { handle, attributes })
            }
            NewObject { object: Some(handle), .. } => {
                Ok(Node { handle, attributes: self.attributes(handle).await? })
            }
            _ => self.lookup_in(place.dir, place.name).await,
        }
    }

    /// Makes a directory.
    pub async fn mkdir(&self, path: impl AsRef<[u8]>, attributes: SetAttributes) -> Result<Node, Error> {
        let path = path.as_ref();
        let place = self.place(path).await?.args();
        let made = self.procedures().mkdir(&MkdirArgs { place: place.clone(), attributes }).await;
        self.made(made, place).await.map_err(|error| error.at(path))
    }

    /// Makes a symbolic link to `target`, which is not looked at.
    pub async fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.place(path).await?.args();
        let target = Bytes::copy_from_slice(target.as_ref());
        let symlink = SymlinkData { attributes: SetAttributes::default(), target };
        self.procedures().symlink(&SymlinkArgs { place, symlink }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// Makes a further hard link to an existing object (a symbolic link at its end is not followed).
    pub async fn link(&self, existing: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let file = self.lookup_link(existing).await?.handle;
        let link = self.place(path).await?.args();
        self.procedures().link(&LinkArgs { file, link }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// The target of a symbolic link.
    pub async fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let link = self.lookup_link(path).await?;
        self.read_link_of(link.handle).await.map_err(|error| error.at(path))
    }

    /// Removes a file, link or special file.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let object = self.place(path).await?.args();
        self.procedures().remove(&RemoveArgs { object }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let object = self.place(path).await?.args();
        self.procedures().rmdir(&RmdirArgs { object }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// Renames an object within the export, replacing what has the new name (RFC 1813 §3.3.14).
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Error> {
        let from_path = from.as_ref();
        let from = self.place(from_path).await?.args();
        let to = self.place(to.as_ref()).await?.args();
        self.procedures().rename(&RenameArgs { from, to }).await.map_err(|error| error.at(from_path))?;
        Ok(())
    }

    /// Changes attributes; symbolic links are followed.
    pub async fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let node = self.lookup(path).await?;
        self.set_attributes_of(node.handle, attributes).await.map_err(|error| error.at(path))
    }

    pub(super) async fn set_attributes_of(
        &self,
        object: FileHandle,
        new_attributes: SetAttributes,
    ) -> Result<(), Error> {
        self.procedures().setattr(&SetattrArgs { object, new_attributes, guard: None }).await?;
        Ok(())
    }

    /// Space and files of the file system (FSSTAT).
    pub async fn fsstat(&self) -> Result<FsstatOk, Error> {
        self.procedures().fsstat(&FsstatArgs { root: self.root() }).await
    }

    /// Limits of names and links (PATHCONF) at a path.
    pub async fn pathconf(&self, path: impl AsRef<[u8]>) -> Result<PathconfOk, Error> {
        let path = path.as_ref();
        let object = self.lookup(path).await?.handle;
        self.procedures().pathconf(&PathconfArgs { object }).await.map_err(|error| error.at(path))
    }

    /// The attributes of the root.
    pub async fn root_attributes(&self) -> Result<Attributes, Error> {
        self.attributes(self.root()).await
    }
}
