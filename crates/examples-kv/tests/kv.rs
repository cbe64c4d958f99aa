//! The store over software iWARP and TCP on loopback, by its calls and by its command, and the size of the example.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::net::SocketAddr;
use std::process::{Command, Output};

use rpcrdma::bytes::Bytes;
use rpcrdma::{CallError, Client, Execution, Transport, TransportKind};
use rpcrdma_examples_kv::{
    KV_KEYS_MAX, KV_VALUE_MAX, KvEntry, KvFound, KvKey, KvNames, KvStatus, kv_store, serve,
};

/// Most lines of code of the service and of the client together.
const LINES_MAX: usize = 60;

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn key(name: &str) -> KvKey {
    KvKey { name: name.to_owned() }
}

fn entry(name: &str, value: Bytes) -> KvEntry {
    KvEntry { name: name.to_owned(), value }
}

/// Calls each procedure, with values of each size that matters, and with the wrong ones.
async fn all_calls(client: &Client, transport: TransportKind) {
    let travelled = client.null(kv_store::PROGRAM, kv_store::VERSION).await.unwrap();
    assert_eq!(travelled.transport, transport);

    let store = kv_store::Client::new(client);
    for length in [0, 1, 3, 4, 5000, KV_VALUE_MAX as usize] {
        let value = Bytes::from((0..length).map(|at| u8::try_from(at % 251).unwrap()).collect::<Vec<_>>());
        assert_eq!(store.put(entry("value", value.clone())).await.unwrap(), KvStatus::Ok);
        assert_eq!(store.get(key("value")).await.unwrap(), KvFound::Ok(value), "{length} bytes");
    }
    assert_eq!(store.list().await.unwrap(), KvNames { keys: vec![key("value")] });
    assert_eq!(store.remove(key("value")).await.unwrap(), KvStatus::Ok);
    assert_eq!(store.remove(key("value")).await.unwrap(), KvStatus::Absent);
    assert_eq!(store.get(key("value")).await.unwrap(), KvFound::Default(KvStatus::Absent));

    let long = Bytes::from(vec![0; KV_VALUE_MAX as usize + 1]);
    let refused = store.put(entry("value", long)).await.unwrap_err();
    assert!(matches!(refused, CallError::Unsendable { .. }), "{refused}");
    assert_eq!(refused.execution(), Execution::NotExecuted);
    assert!(refused.to_string().contains("KvEntry.value"), "{refused}");
}

#[tokio::test]
async fn every_call_runs_over_iwarp_and_tcp() {
    let server = serve(local(), local()).await.unwrap();
    let rdma = *server.rdma_addresses().unwrap().first().unwrap();
    let tcp = *server.tcp_addresses().unwrap().first().unwrap();
    let client = Client::connect(rdma).await.unwrap();
    all_calls(&client, TransportKind::Rdma).await;
    client.close().await;
    let client = Client::builder().transport(Transport::tcp()).connect(tcp).await.unwrap();
    all_calls(&client, TransportKind::Tcp).await;
    client.close().await;
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_full_store_takes_no_further_key() {
    let server = serve(local(), local()).await.unwrap();
    let client = Client::connect(*server.rdma_addresses().unwrap().first().unwrap()).await.unwrap();
    let store = kv_store::Client::new(&client);
    let name = |at| format!("{at:0255}");
    for at in 0..KV_KEYS_MAX {
        assert_eq!(store.put(entry(&name(at), Bytes::new())).await.unwrap(), KvStatus::Ok);
    }
    assert_eq!(store.put(entry("another", Bytes::new())).await.unwrap(), KvStatus::Full);
    assert_eq!(store.put(entry(&name(7), Bytes::from_static(b"new"))).await.unwrap(), KvStatus::Ok);
    // The longest list that there can be.
    let keys = store.list().await.unwrap().keys;
    assert_eq!(keys, (0..KV_KEYS_MAX).map(|at| key(&name(at))).collect::<Vec<_>>());
    client.close().await;
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_command_calls_over_either_transport() {
    let server = serve(local(), local()).await.unwrap();
    let rdma = server.rdma_addresses().unwrap().first().unwrap().to_string();
    let tcp = server.tcp_addresses().unwrap().first().unwrap().to_string();
    let run = async |transport: &str, address: &str, words: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kv"));
        command.args([transport, address]).args(words);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    };
    let said = |output: Output| String::from_utf8(output.stdout).unwrap();
    assert_eq!(said(run("rdma", &rdma, &["put", "city", "Oslo"]).await), "Ok\n");
    assert_eq!(said(run("tcp", &tcp, &["get", "city"]).await), "Ok(b\"Oslo\")\n");
    assert_eq!(said(run("tcp", &tcp, &["list"]).await), "KvNames { keys: [KvKey { name: \"city\" }] }\n");
    assert_eq!(said(run("tcp", &tcp, &["remove", "city"]).await), "Ok\n");
    assert_eq!(said(run("rdma", &rdma, &["get", "city"]).await), "Default(Absent)\n");
    let wrong = run("rdma", &rdma, &["fetch"]).await;
    assert!(!wrong.status.success() && String::from_utf8(wrong.stderr).unwrap().contains("commands: put"));
    server.shutdown().await.unwrap();
}

#[test]
fn service_and_client_and_build_script_have_at_most_sixty_lines_and_ten() {
    let code = |text: &str| {
        let lines = text.lines().map(str::trim);
        lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
    };
    let lines = code(include_str!("../src/lib.rs")) + code(include_str!("../src/main.rs"));
    assert!((20..=LINES_MAX).contains(&lines), "{lines} lines");
    assert!(code(include_str!("../build.rs")) <= 10);
}
