//! A transport without a network: calls go to the programs of an [`NfsServer`] in this process. A hook sees
//! every call first and may answer the call, damage its reply or lose it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rpcrdma::{Call, CallError, ReplyShape};
use rpcrdma_oncrpc::{AuthSys, CallContext, Credential, Program, Refused, TransportKind};
use rpcrdma_xdr::{Decode, Decoder, Encode, Stream};

use crate::client::transport::{ReplyFuture, Transport};
use crate::client::{Client, ClientOptions, MountClient};
use crate::extents::EXTENTS_PROGRAM;
use crate::fs::{MemoryFs, MemoryOptions};
use crate::mount::MOUNT_PROGRAM;
use crate::server::{Export, HandleKey, NfsServer, ServerOptions};
use crate::wire::tests::{from_bytes, in_slices, to_bytes};
use crate::wire::{NFS_PROGRAM, NfsCall, NfsProcedure, NfsResult, Status};

/// Treatment of a call.
pub(super) enum Step {
    /// The server answers the call.
    Serve,
    /// The server answers once this was sent, or can no longer be sent.
    After(tokio::sync::oneshot::Receiver<()>),
    /// The call gets these results.
    Answer(Bytes),
    /// The call fails.
    Fail(CallError),
    /// The server answers, and its results are changed.
    Then(Box<dyn FnOnce(Bytes) -> Bytes + Send>),
}

impl Step {
    /// Ends the call with this status.
    pub(super) fn fail<A: NfsCall>(status: Status, attributes: A::Fail) -> Self {
        Self::Answer(to_bytes(&NfsResult::<A::Ok, A::Fail>::Fail { status, attributes }))
    }

    /// Ends the call with these results.
    pub(super) fn ok<A: NfsCall>(ok: A::Ok) -> Self {
        Self::Answer(to_bytes(&NfsResult::<A::Ok, A::Fail>::Ok(ok)))
    }

    /// Changes the server's results, if the call succeeded.
    pub(super) fn change<A: NfsCall>(change: impl FnOnce(&mut A::Ok) + Send + 'static) -> Self {
        Self::Then(Box::new(move |bytes| {
            let mut result: NfsResult<A::Ok, A::Fail> = from_bytes(bytes).unwrap();
            if let NfsResult::Ok(ok) = &mut result {
                change(ok);
            }
            to_bytes(&result)
        }))
    }
}

type Extents = Box<dyn Fn() -> Result<Bytes, CallError> + Send>;

type Hook = Box<dyn FnMut(NfsProcedure, &Bytes) -> Step + Send>;

/// Loopback transport; see the module documentation.
pub(super) struct Loopback {
    programs: Mutex<Vec<Arc<dyn Program>>>,
    hook: Mutex<Hook>,
    calls: Mutex<Vec<NfsProcedure>>,
    in_flight: AtomicU32,
    most_in_flight: AtomicU32,
    latency: Mutex<Duration>,
    extents: Mutex<Option<Extents>>,
}

impl Loopback {
    /// Returns a server with these exports, each a file system in memory.
    pub(super) fn exporting(names: &[&str]) -> Arc<Self> {
        let export = |name: &&str| Export::new(*name, Arc::new(MemoryFs::new(MemoryOptions::default())));
        Self::serving(names.iter().map(export).collect())
    }

    pub(super) fn serving(exports: Vec<Export>) -> Arc<Self> {
        let server = NfsServer::new(HandleKey::random(), exports, ServerOptions::default()).unwrap();
        Arc::new(Self {
            programs: Mutex::new(vec![
                server.nfs_program(),
                server.mount_program(),
                server.extents_program(),
            ]),
            hook: Mutex::new(Box::new(|_, _| Step::Serve)),
            calls: Mutex::default(),
            in_flight: AtomicU32::new(0),
            most_in_flight: AtomicU32::new(0),
            latency: Mutex::default(),
            extents: Mutex::default(),
        })
    }

    /// Removes the MOUNT program.
    pub(super) fn without_mount(&self) {
        self.programs.lock().unwrap().retain(|program| program.number() != MOUNT_PROGRAM);
    }

    /// Removes the program EXTENTS.
    pub(super) fn without_extents(&self) {
        self.programs.lock().unwrap().retain(|program| program.number() != EXTENTS_PROGRAM);
    }

    /// Answers the calls of EXTENTS. Returns a counter of these answers.
    pub(super) fn answer_extents(
        &self,
        answer: impl Fn() -> Result<Bytes, CallError> + Send + 'static,
    ) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        *self.extents.lock().unwrap() = Some(Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            answer()
        }));
        count
    }

    /// Sets the hook for NFS calls.
    pub(super) fn hook(&self, hook: impl FnMut(NfsProcedure, &Bytes) -> Step + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    /// Returns the NFS calls since the last call of this function.
    pub(super) fn calls(&self) -> Vec<NfsProcedure> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    /// Returns how often a procedure was called since [`calls`](Self::calls).
    pub(super) fn count(&self, procedure: NfsProcedure) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == procedure).count()
    }

    /// Sets the duration of every call.
    pub(super) fn latency(&self, latency: Duration) {
        *self.latency.lock().unwrap() = latency;
    }

    /// Returns the greatest number of NFS calls in flight.
    pub(super) fn most_in_flight(&self) -> u32 {
        self.most_in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn mount_client(self: &Arc<Self>) -> MountClient {
        MountClient::on(self.clone(), options().credential, None)
    }

    /// Mounts an export with these options.
    pub(super) async fn mount_with(self: &Arc<Self>, name: &str, options: ClientOptions) -> Client {
        let service = MountClient::on(self.clone(), options.credential.clone(), None);
        crate::client::connect::mount_by(service, self.clone(), name.as_bytes(), options, Arc::default())
            .await
            .unwrap()
    }

    /// Mounts the export `/`.
    pub(super) async fn mount(self: &Arc<Self>) -> Client {
        self.mount_with("/", options()).await
    }

    async fn carry(&self, call: Call) -> Result<Decoder, CallError> {
        let Call { program, version, procedure, credential, arguments, reply, .. } = call;
        let served = self.programs.lock().unwrap().iter().find(|served| served.number() == program).cloned();
        let Some(served) = served else { return Err(Refused::ProgramUnavailable.into()) };
        let (arguments, _) = arguments.flatten();
        let mut step = Step::Serve;
        if program == NFS_PROGRAM {
            let procedure = NfsProcedure::from_number(procedure).unwrap();
            self.calls.lock().unwrap().push(procedure);
            step = (self.hook.lock().unwrap())(procedure, &arguments);
        }
        if program == EXTENTS_PROGRAM
            && let Some(answer) = self.extents.lock().unwrap().as_ref()
        {
            return answer().map(in_slices);
        }
        // As on a network, other calls may overtake.
        tokio::task::yield_now().await;
        let latency = *self.latency.lock().unwrap();
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let change: Box<dyn FnOnce(Bytes) -> Bytes + Send> = match step {
            Step::Serve => Box::new(|bytes| bytes),
            Step::After(released) => {
                let _ = released.await;
                Box::new(|bytes| bytes)
            }
            Step::Answer(bytes) => return Ok(in_slices(bytes)),
            Step::Fail(error) => return Err(error),
            Step::Then(change) => change,
        };
        let context = CallContext {
            peer: None,
            transport: TransportKind::Sim,
            xid: 1,
            program,
            version,
            procedure,
            credential,
            attached: None,
            owner: None,
        };
        let stream = match procedure {
            // A dispatcher answers NULL.
            0 => Stream::new(),
            _ => served.call(context, in_slices(arguments)).await.expect("the server takes the call"),
        };
        // RFC 8267 §4.1: the client offered enough memory for any answer of the server.
        check_prediction(&reply, stream.len());
        let (bytes, _) = stream.flatten();
        Ok(in_slices(change(bytes)))
    }
}

fn check_prediction(predicted: &ReplyShape, length: usize) {
    let data: usize = predicted.sinks.iter().map(|sink| sink.len().next_multiple_of(4)).sum();
    assert!(length <= predicted.max_len + data, "results of {length} bytes, predicted {predicted:?}");
}

impl Transport for Loopback {
    fn call(&self, call: Call) -> ReplyFuture<'_> {
        Box::pin(async move {
            let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_in_flight.fetch_max(now, Ordering::Relaxed);
            let result = self.carry(call).await;
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
            result
        })
    }
}

/// Returns options of an ordinary user.
pub(super) fn options() -> ClientOptions {
    let sys = AuthSys { uid: 1000, gid: 1000, ..AuthSys::default() };
    ClientOptions { credential: Credential::Sys(sys), ..ClientOptions::default() }
}

/// Decodes the arguments of a call in a hook.
pub(super) fn arguments<A: NfsCall + Encode + Decode>(bytes: &Bytes) -> A {
    from_bytes(bytes.clone()).unwrap()
}
