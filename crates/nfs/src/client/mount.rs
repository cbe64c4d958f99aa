//! Client of a MOUNT service (RFC 1813 §5.2), over any transport.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::Procedure;
use rpcrdma_oncrpc::Credential;

use super::Error;
use super::transport::{Transport, carry, null};
use crate::mount::{
    DirPath, Dump, Export, ExportNode, MOUNT_PROGRAM, MOUNT_VERSION, Mnt, MountBody, MountOk, MountResult,
    Umnt, UmntAll,
};

/// Client of MOUNT version 3 with typed calls. Cheap to clone.
#[derive(Clone)]
pub struct MountClient {
    transport: Arc<dyn Transport>,
    credential: Credential,
    timeout: Option<Duration>,
}

impl MountClient {
    pub(super) fn on(
        transport: Arc<dyn Transport>,
        credential: Credential,
        timeout: Option<Duration>,
    ) -> Self {
        Self { transport, credential, timeout }
    }

    async fn call<P: Procedure>(&self, arguments: &P::Arguments) -> Result<P::Results, Error> {
        carry::<P>(&*self.transport, arguments, self.credential.clone(), self.timeout).await
    }

    /// Procedure 0: checks whether the service answers.
    pub async fn null(&self) -> Result<(), Error> {
        null(&*self.transport, (MOUNT_PROGRAM, MOUNT_VERSION), self.timeout).await
    }

    /// Procedure 1, MNT: returns the first handle of an export, or [`Error::Mount`] if the server refuses.
    pub async fn mnt(&self, path: impl AsRef<[u8]>) -> Result<MountOk, Error> {
        let path = DirPath::new(path.as_ref());
        match self.call::<Mnt>(&path).await? {
            MountResult::Ok(ok) => Ok(ok),
            MountResult::Fail(status) => Err(Error::Mount { status, path: path.to_string() }),
        }
    }

    /// Procedure 2, DUMP: returns clients and the directories that they have mounted.
    pub async fn dump(&self) -> Result<Vec<MountBody>, Error> {
        Ok(self.call::<Dump>(&()).await?.mounts)
    }

    /// Procedure 3, UMNT: removes the entry of an MNT from the server's list.
    pub async fn umnt(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.call::<Umnt>(&DirPath::new(path.as_ref())).await
    }

    /// Procedure 4, UMNTALL: removes all entries of this machine.
    pub async fn umntall(&self) -> Result<(), Error> {
        self.call::<UmntAll>(&()).await
    }

    /// Procedure 5, EXPORT: returns the exports.
    pub async fn exports(&self) -> Result<Vec<ExportNode>, Error> {
        Ok(self.call::<Export>(&()).await?.exports)
    }
}
