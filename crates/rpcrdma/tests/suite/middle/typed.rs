//! Calls with types through a handle.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rpcrdma::{CallContext, CallFailure, Caller, Client, Retry, Server, Transport};
use rpcrdma_sim::{Fabric, FabricConfig};

use super::{HOST, SERVER, milliseconds};

rpcrdma::program! {
    /// A counter.
    pub mod counter {
        program 0x2000_00f3, version 1;
        /// Returns the argument.
        fn peek = 1, Peek(u32) -> u32, Idempotent;
        /// Adds the argument, and returns the sum.
        fn add = 2, Add(u32) -> u32, State;
    }
}

/// A busy service: it fails so many calls of each procedure.
#[derive(Default)]
struct Busy {
    left: Mutex<[u32; 2]>,
    calls: [AtomicU32; 2],
}

impl Busy {
    fn take(&self, which: usize) -> Result<(), CallFailure> {
        self.calls[which].fetch_add(1, Ordering::SeqCst);
        let left = &mut self.left.lock().unwrap()[which];
        match left.checked_sub(1) {
            None => Ok(()),
            Some(less) => {
                *left = less;
                Err(CallFailure::SystemError)
            }
        }
    }

    fn calls(&self) -> [u32; 2] {
        self.calls.each_ref().map(|calls| calls.load(Ordering::SeqCst))
    }
}

impl counter::Service for Busy {
    async fn peek(&self, _: &CallContext, arguments: u32) -> Result<u32, CallFailure> {
        self.take(0).map(|()| arguments)
    }

    async fn add(&self, _: &CallContext, arguments: u32) -> Result<u32, CallFailure> {
        self.take(1).map(|()| arguments)
    }
}

async fn peek_of(caller: &impl Caller, number: u32) -> u32 {
    caller.call::<counter::Peek>(number).await.unwrap()
}

/// The effect of a procedure decides whether its calls are repeated.
#[tokio::test(start_paused = true)]
async fn a_typed_call_is_repeated_by_its_effect() {
    let fabric = Fabric::on_tokio(FabricConfig::default());
    let busy = Arc::new(Busy { left: Mutex::new([2, 2]), ..Busy::default() });
    let server = Server::builder().program(Arc::new(counter::serve(Arc::clone(&busy))));
    let server = server.listen_rdma(Box::new(fabric.listen(SERVER).unwrap())).build().unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    tokio::task::yield_now().await;
    let connector = Arc::new(fabric.connector(HOST));
    let client = Client::builder().transport(Transport::rdma_on(connector)).connect(SERVER).await.unwrap();
    let handle = client.handle().retry(Retry::new(3)).deadline(milliseconds(5_000));
    assert_eq!(handle.call::<counter::Peek>(&7).await.unwrap(), 7);
    let error = handle.call::<counter::Add>(&7).await.unwrap_err();
    assert_eq!((error.attempts(), busy.calls()), (1, [3, 1]));
    // The generated client and functions over any caller take a handle, too.
    assert_eq!(counter::Client::new(handle.clone()).peek(8).await.unwrap(), 8);
    assert_eq!(peek_of(&handle, 9).await, 9);
}
