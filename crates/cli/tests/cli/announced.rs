//! Registration with rpcbind, in a network namespace where port 111 is free.

use std::fs::OpenOptions;
use std::future::pending;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rpcrdma::rpcbind::version_4;
use rpcrdma::{CallContext, CallFailure, Server};
use rpcrdma_oncrpc::rpcbind::{AddressText, PORT, Rpcb, RpcbEntryList, RpcbList};
use tokio::net::TcpListener;

use crate::network::{host, is_inside};
use crate::support::{command, scratch, text};

/// An rpcbind that counts announcements.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    now: Vec<Rpcb>,
    /// Number of all announcements so far.
    made: usize,
}

impl version_4::Service for Book {
    async fn set(&self, _: &CallContext, service: Rpcb) -> Result<bool, CallFailure> {
        let mut entries = self.0.lock().unwrap();
        entries.made += 1;
        entries.now.push(service);
        Ok(true)
    }

    async fn unset(&self, _: &CallContext, service: Rpcb) -> Result<bool, CallFailure> {
        let mut entries = self.0.lock().unwrap();
        let before = entries.now.len();
        entries.now.retain(|entry| (entry.program, &entry.netid) != (service.program, &service.netid));
        Ok(entries.now.len() < before)
    }

    async fn getaddr(&self, _: &CallContext, _: Rpcb) -> Result<AddressText, CallFailure> {
        Err(CallFailure::ProcedureUnavailable)
    }

    async fn dump(&self, _: &CallContext) -> Result<RpcbList, CallFailure> {
        Ok(RpcbList(self.0.lock().unwrap().now.clone()))
    }

    async fn getaddrlist(&self, _: &CallContext, _: Rpcb) -> Result<RpcbEntryList, CallFailure> {
        Err(CallFailure::ProcedureUnavailable)
    }
}

#[tokio::test]
async fn a_server_that_cannot_say_that_it_is_ready_takes_its_registrations_back() {
    if !is_inside("announced::a_server_that_cannot_say_that_it_is_ready_takes_its_registrations_back") {
        return;
    }
    let book = Book::default();
    let listener = TcpListener::bind(("127.0.0.1", PORT)).await.unwrap();
    let program = Arc::new(version_4::serve(book.clone()));
    let server = Server::builder().program(program).listen_tcp(listener).build().unwrap();
    tokio::spawn(server.serve(pending()));
    let place = scratch();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("export")).unwrap();
    let (listen, tcp) = (format!("iwarp:{}:0", host(1)), format!("{}:0", host(1)));
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    for (stdout, expected) in [(Stdio::from(closed), 3), (Stdio::from(full), 6)] {
        let arguments = ["serve", "--rpcbind", "--listen", &listen, "--tcp", &tcp, "--state", &path("state")];
        let mut serve = command(&[&arguments[..], &[&path("export")]].concat());
        serve.stdout(stdout).stderr(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || serve.output().unwrap()).await.unwrap();
        let entries = book.0.lock().unwrap();
        assert_eq!((entries.made, &entries.now[..]), (expected, &[][..]), "{}", text(&output.stderr));
    }
}
