//! Client of a MOUNT service (RFC 1813 §5.2), over any transport.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma_oncrpc::Credential;
use rpcrdma_xdr::{Decode, Encode, Stream, encode};

use super::Error;
use super::transport::{Request, Transport, carry, unsendable};
use crate::binding::largest_mount_results;
use crate::mount::{
    DirPath, ExportNode, Exports, MOUNT_PROGRAM, MOUNT_VERSION, MountBody, MountList, MountOk,
    MountProcedure, MountResult,
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

    async fn call<T: Decode>(
        &self,
        procedure: MountProcedure,
        arguments: &(impl Encode + Sync),
    ) -> Result<T, Error> {
        let arguments: Stream = encode(arguments).map_err(|error| unsendable(procedure.name(), error))?;
        let credential = match procedure {
            MountProcedure::Null => Credential::None,
            _ => self.credential.clone(),
        };
        let request = Request {
            program: MOUNT_PROGRAM,
            version: MOUNT_VERSION,
            procedure: procedure.number(),
            name: procedure.name(),
            credential,
            arguments,
            results: largest_mount_results(procedure),
            timeout: self.timeout,
        };
        carry(&*self.transport, request).await
    }

    /// Procedure 0: checks whether the service answers.
    pub async fn null(&self) -> Result<(), Error> {
        self.call(MountProcedure::Null, &()).await
    }

    /// Procedure 1, MNT: returns the first handle of an export, or [`Error::Mount`] if the server refuses.
    pub async fn mnt(&self, path: impl AsRef<[u8]>) -> Result<MountOk, Error> {
        let path = DirPath::new(path.as_ref());
        match self.call(MountProcedure::Mnt, &path).await? {
            MountResult::Ok(ok) => Ok(ok),
            MountResult::Fail(status) => Err(Error::Mount { status, path: path.to_string() }),
        }
    }

    /// Procedure 2, DUMP: returns clients and the directories that they have mounted.
    pub async fn dump(&self) -> Result<Vec<MountBody>, Error> {
        Ok(self.call::<MountList>(MountProcedure::Dump, &()).await?.mounts)
    }

    /// Procedure 3, UMNT: removes the entry of an MNT from the server's list.
    pub async fn umnt(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        self.call(MountProcedure::Umnt, &DirPath::new(path.as_ref())).await
    }

    /// Procedure 4, UMNTALL: removes all entries of this machine.
    pub async fn umntall(&self) -> Result<(), Error> {
        self.call(MountProcedure::UmntAll, &()).await
    }

    /// Procedure 5, EXPORT: returns the exports.
    pub async fn exports(&self) -> Result<Vec<ExportNode>, Error> {
        Ok(self.call::<Exports>(MountProcedure::Export, &()).await?.exports)
    }
}
