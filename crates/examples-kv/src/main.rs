//! `kv serve RDMA-ADDRESS TCP-ADDRESS`, and `kv rdma|tcp ADDRESS put NAME VALUE | get NAME | remove NAME | list`.

use rpcrdma::{Client, Transport};
use rpcrdma_examples_kv::{AnyError, KvEntry, KvKey, kv_store, serve};

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["serve", rdma, tcp] = *words {
        let server = serve(rdma.parse()?, tcp.parse()?).await?;
        println!("rdma {:?} tcp {:?}", server.rdma_addresses()?, server.tcp_addresses()?);
        tokio::signal::ctrl_c().await?;
        return Ok(server.shutdown().await?);
    }
    let [transport, address, ref command @ ..] = *words else {
        return Err("no transport and address".into());
    };
    let transport = if transport == "tcp" { Transport::tcp() } else { Transport::rdma() };
    let store = kv_store::Client::new(Client::builder().transport(transport).connect(address).await?);
    let entry = |name: &str, value: &str| KvEntry { name: name.into(), value: value.to_owned().into() };
    match *command {
        ["put", name, value] => println!("{:?}", store.put(entry(name, value)).await?),
        ["get", name] => println!("{:?}", store.get(KvKey { name: name.into() }).await?),
        ["remove", name] => println!("{:?}", store.remove(KvKey { name: name.into() }).await?),
        ["list"] => println!("{:?}", store.list().await?),
        _ => return Err("commands: put NAME VALUE, get NAME, remove NAME, list".into()),
    }
    Ok(())
}
