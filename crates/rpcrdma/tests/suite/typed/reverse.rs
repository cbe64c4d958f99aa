//! Both directions of one connection with types: a client that serves, and a server that calls it (RFC 8167).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rpcrdma::xdr::{Text, Xdr};
use rpcrdma::{Backchannel, CallContext, CallError, CallFailure, Client, ConnectionContext, Server};

use super::{On, connect};

#[derive(Debug, Xdr)]
pub struct Note(#[xdr(max = 2000)] Text);

rpcrdma::program! {
    /// A board of notes, which clients call.
    pub mod board {
        program 0x2000_0053, version 1;
        /// Asks for all later notes.
        fn subscribe = 1, Subscribe() -> (), State;
        /// Posts a note, and returns the number of readers that took it.
        fn post = 2, Post(Note) -> u32, State;
    }
}

rpcrdma::program! {
    /// The readers of the board, which the server calls.
    pub mod reader {
        program 0x2000_0054, version 1;
        /// Takes a note, and returns how many were taken before.
        fn take = 1, Take(Note) -> u32, State;
    }
}

#[derive(Default)]
struct Board(Mutex<Vec<Backchannel>>);

impl board::Service for Board {
    async fn subscribe(&self, context: &CallContext) -> Result<(), CallFailure> {
        let reader = context.backchannel().ok_or(CallFailure::SystemError)?;
        self.0.lock().unwrap().push(reader);
        Ok(())
    }

    async fn post(&self, _: &CallContext, note: Note) -> Result<u32, CallFailure> {
        let readers = self.0.lock().unwrap().clone();
        let mut took = 0;
        for reader in readers {
            // By the type, and by the client of the program.
            took += u32::from(reader.call::<reader::Take>(&note).await.is_ok());
            took += u32::from(reader::Client::new(reader).take(&note).await.is_ok());
        }
        Ok(took)
    }
}

#[derive(Default)]
struct Reader(AtomicU32);

impl reader::Service for Reader {
    async fn take(&self, _: &CallContext, note: Note) -> Result<u32, CallFailure> {
        let no = Text::from("no");
        if note.0 == no {
            return Err(CallFailure::SystemError);
        }
        Ok(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_calls_the_service_of_its_client() {
    let server = Server::builder().program(Arc::new(board::serve(Board::default())));
    let taken = Arc::new(Reader::default());
    let client = Client::builder().program(Arc::new(reader::serve(Arc::clone(&taken))));
    let (client, monitor) = connect(On::Sim, server, client).await;
    let board = board::Client::new(client);
    assert_eq!(board.post(Note("too early".into())).await.unwrap(), 0);
    board.subscribe().await.unwrap();
    assert_eq!(board.post(Note("hello".into())).await.unwrap(), 2);
    assert_eq!(board.post(Note("no".into())).await.unwrap(), 0);
    assert_eq!((taken.0.load(Ordering::SeqCst), monitor.stats().reverse_calls), (2, 4));
}

/// Over TCP there is no way back.
#[tokio::test]
async fn over_tcp_a_service_has_no_backchannel() {
    let server = Server::builder().program(Arc::new(board::serve(Board::default())));
    let (client, _) = connect(On::Tcp, server, Client::builder()).await;
    let error = client.call::<board::Subscribe>(()).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(_)), "{error:?}");
}

/// Messages of the reverse direction are inline: what does not fit is told before it leaves.
#[tokio::test(start_paused = true)]
async fn notes_that_do_not_fit_inline_are_not_sent() {
    let server = Server::builder().program(Arc::new(board::serve(Board::default())));
    let client = Client::builder().program(Arc::new(reader::serve(Reader::default())));
    let mut config = rpcrdma::ClientConfig::default();
    config.protocol.receive_size = 1024;
    let (client, monitor) = connect(On::Sim, server, client.config(config)).await;
    client.call::<board::Subscribe>(()).await.unwrap();
    let back = monitor.backchannels().pop().unwrap();
    let note = Note(Text::from("x".repeat(1500).as_str()));
    let error = back.call::<reader::Take>(&note).await.unwrap_err();
    assert!(matches!(error, CallError::CallTooLong { len: 1501.., room: 1024 }), "{error:?}");
}
