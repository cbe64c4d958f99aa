//! Operations by path that make, remove, rename and change objects.

use bytes::Bytes;

use super::walk::lossy;
use super::{Client, Error, File, Node};
use crate::wire::{
    Attributes, CreateArgs, CreateHow, DirOpArgs, FileHandle, FsstatArgs, FsstatOk, LinkArgs, MkdirArgs,
    NewObject, PathconfArgs, PathconfOk, RemoveArgs, RenameArgs, RmdirArgs, SetAttributes, SetTime,
    SetattrArgs, SymlinkArgs, SymlinkData, Verifier,
};

impl Client {
    /// Opens an existing file; follows symbolic links. NFS has no open, so later operations may still be
    /// refused.
    pub async fn open(&self, path: impl AsRef<[u8]>) -> Result<File, Error> {
        let path = path.as_ref();
        let node = self.lookup(path).await?;
        Ok(self.file(node.handle, path))
    }

    /// Returns a file with a known handle; `path` is for messages.
    pub fn file(&self, handle: FileHandle, path: impl AsRef<[u8]>) -> File {
        File::new(self.clone(), handle, lossy(path.as_ref()))
    }

    /// Makes a file, or truncates an existing one to zero bytes, and opens it. `attributes` apply to a new
    /// file; of an existing file only the length changes.
    pub async fn create(&self, path: impl AsRef<[u8]>, attributes: SetAttributes) -> Result<File, Error> {
        let path = path.as_ref();
        let how = CreateHow::Unchecked(SetAttributes { size: Some(0), ..attributes });
        let node = self.create_with(path, how).await?;
        Ok(self.file(node.handle, path))
    }

    /// Makes and opens a file that must not exist yet. The file is made exactly once, even if the call is
    /// repeated (RFC 1813 §3.3.8, EXCLUSIVE).
    pub async fn create_new(&self, path: impl AsRef<[u8]>, attributes: SetAttributes) -> Result<File, Error> {
        let path = path.as_ref();
        let verifier: Verifier = rand::random();
        let node = self.create_with(path, CreateHow::Exclusive(verifier)).await?;
        // The server may have stored the verifier in the times, so they are set with the other attributes.
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
        let place = self.place_of_file(path).await?.args();
        let made = self.procedures().create(&CreateArgs { place: place.clone(), how }).await;
        self.made(made, place).await.map_err(|error| error.at(path))
    }

    /// Returns handle and attributes of a new object; requests those that the server omitted.
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

    /// Makes a symbolic link with the text `target`, which is not examined.
    pub async fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let place = self.place_of_file(path).await?.args();
        let target = Bytes::copy_from_slice(target.as_ref());
        let symlink = SymlinkData { attributes: SetAttributes::default(), target };
        self.procedures().symlink(&SymlinkArgs { place, symlink }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// Makes another hard link to an existing object. A symbolic link at the end of `existing` is not
    /// followed.
    pub async fn link(&self, existing: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let file = self.lookup_link(existing).await?.handle;
        let link = self.place_of_file(path).await?.args();
        self.procedures().link(&LinkArgs { file, link }).await.map_err(|error| error.at(path))?;
        Ok(())
    }

    /// Returns the target of a symbolic link.
    pub async fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let link = self.lookup_link(path).await?;
        self.read_link_of(link.handle).await.map_err(|error| error.at(path))
    }

    /// Removes a file, link or special file.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let object = self.place_of_file(path).await?.args();
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

    /// Renames an object within the export and replaces an existing object of the new name (RFC 1813
    /// §3.3.14).
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Error> {
        let from_path = from.as_ref();
        let (from, to) = self.places_of_rename(from_path, to.as_ref()).await?;
        let arguments = RenameArgs { from: from.args(), to: to.args() };
        self.procedures().rename(&arguments).await.map_err(|error| error.at(from_path))?;
        Ok(())
    }

    /// Changes attributes; follows symbolic links.
    pub async fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let node = self.lookup(path).await?;
        self.set_attributes_of(node.handle, attributes).await.map_err(|error| error.at(path))
    }

    /// Changes attributes of the object with this handle, which may be a symbolic link.
    pub async fn set_attributes_of(
        &self,
        object: FileHandle,
        new_attributes: SetAttributes,
    ) -> Result<(), Error> {
        self.procedures().setattr(&SetattrArgs { object, new_attributes, guard: None }).await?;
        Ok(())
    }

    /// Returns space and files of the file system (FSSTAT).
    pub async fn fsstat(&self) -> Result<FsstatOk, Error> {
        self.procedures().fsstat(&FsstatArgs { root: self.root() }).await
    }

    /// Returns the limits of names and links at a path (PATHCONF).
    pub async fn pathconf(&self, path: impl AsRef<[u8]>) -> Result<PathconfOk, Error> {
        let path = path.as_ref();
        let object = self.lookup(path).await?.handle;
        self.procedures().pathconf(&PathconfArgs { object }).await.map_err(|error| error.at(path))
    }

    /// Returns the attributes of the root.
    pub async fn root_attributes(&self) -> Result<Attributes, Error> {
        self.attributes(self.root()).await
    }
}
