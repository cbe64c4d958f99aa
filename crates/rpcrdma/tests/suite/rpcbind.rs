//! Registration and lookup against an rpcbind of our own on loopback.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use rpcrdma::rpcbind::{Rpcbind, RpcbindError, RpcbindService};
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Effect, ProcedureInfo, Program,
    ResponseFuture, Server,
};
use rpcrdma_iwarp::IwarpListener;
use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::rpcbind::{
    AddressText, LookupError, Mapping, MappingList, Netid, PROGRAM, Registration, Rpcb, RpcbEntry,
    RpcbEntryList, RpcbList, UniversalAddress, procedure,
};
use rpcrdma_verbs::Listener;
use rpcrdma_xdr::{Decoder, Stream, encode};
use tokio::net::TcpListener;

/// A program that keeps announcements as rpcbind does, in the versions given.
struct Book {
    versions: RangeInclusive<u32>,
    entries: Mutex<Vec<Rpcb>>,
}

impl Book {
    fn serve(&self, context: &CallContext, arguments: Decoder) -> Result<Stream, CallFailure> {
        let mut entries = self.entries.lock().unwrap();
        if context.version == 2 {
            let mapping: Mapping = arguments.decode_all()?;
            let same = |entry: &Rpcb| entry.program == mapping.program && entry.netid == *"tcp";
            return Ok(match context.procedure {
                procedure::SET => {
                    let [high, low] = u16::try_from(mapping.port).unwrap().to_be_bytes();
                    entries.push(Rpcb {
                        program: mapping.program,
                        version: mapping.version,
                        netid: "tcp".into(),
                        address: format!("0.0.0.0.{high}.{low}").into(),
                        owner: "".into(),
                    });
                    encode(&true)?
                }
                procedure::UNSET => {
                    let before = entries.len();
                    entries.retain(|entry| !same(entry));
                    encode(&(entries.len() < before))?
                }
                _ => {
                    let port = entries.iter().find(|entry| same(entry)).map_or(0, |entry| {
                        let address: rpcrdma_oncrpc::rpcbind::UniversalAddress =
                            entry.address.to_str().unwrap().parse().unwrap();
                        u32::from(address.0.port())
                    });
                    encode(&port)?
                }
            });
        }
        if context.procedure == procedure::DUMP {
            return Ok(encode(&RpcbList(entries.clone()))?);
        }
        let service: Rpcb = arguments.decode_all()?;
        let same = |entry: &Rpcb| {
            (entry.program, entry.version) == (service.program, service.version)
                && entry.netid == service.netid
        };
        Ok(match context.procedure {
            procedure::SET => {
                let fresh = !entries.iter().any(same);
                if fresh {
                    entries.push(service);
                }
                encode(&fresh)?
            }
            procedure::UNSET => {
                // Announcements of another owner stay.
                let before = entries.len();
                entries.retain(|entry| !(same(entry) && entry.owner == service.owner));
                encode(&(entries.len() < before))?
            }
            procedure::GETADDR => {
                // RFC 1833 §2.2.1: the entry is for the transport of the call.
                let found =
                    entries.iter().find(|entry| entry.program == service.program && entry.netid == *"tcp");
                encode(&AddressText(found.map(|entry| entry.address.clone()).unwrap_or_default()))?
            }
            procedure::GETADDRLIST => {
                let ours = entries.iter().filter(|entry| entry.program == service.program);
                encode(&RpcbEntryList(
                    ours.map(|entry| RpcbEntry {
                        address: entry.address.clone(),
                        netid: entry.netid.clone(),
                        ..RpcbEntry::default()
                    })
                    .collect(),
                ))?
            }
            _ => return Err(CallFailure::ProcedureUnavailable),
        })
    }
}

impl Program for Book {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.versions.clone()
    }

    fn procedure(&self, _: u32, _: u32) -> Option<ProcedureInfo> {
        Some(ProcedureInfo { name: "rpcbind", effect: Effect::Idempotent })
    }

    fn call(&self, context: CallContext, arguments: Decoder) -> ResponseFuture {
        Box::pin(std::future::ready(self.serve(&context, arguments)))
    }
}

impl Binding for Book {}

async fn rpcbind(versions: RangeInclusive<u32>) -> (Arc<Book>, Rpcbind) {
    let book = Arc::new(Book { versions, entries: Mutex::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server =
        Server::builder().program(Arc::clone(&book) as Arc<dyn Binding>).listen_tcp(listener).build();
    tokio::spawn(server.unwrap().serve(std::future::pending()));
    (book, Rpcbind::connect_to(address).await.unwrap())
}

fn nfs(netid: Netid, address: &str) -> Registration {
    let address: SocketAddr = address.parse().unwrap();
    Registration { program: 100_003, version: 3, netid, address, owner: "root".into() }
}

// requirement: rfc1833-2.2.1-1, rfc1833-2.2.1-7, rfc1833-3.2-5
#[tokio::test]
async fn services_are_registered_found_and_taken_back() {
    let (book, rpcbind) = rpcbind(2..=4).await;
    let (rdma, tcp) = (nfs(Netid::Rdma, "0.0.0.0:20049"), nfs(Netid::Tcp, "0.0.0.0:2049"));
    for service in [&rdma, &tcp] {
        rpcbind.register(service).await.unwrap();
        // The announcement of an earlier run is replaced.
        rpcbind.register(service).await.unwrap();
    }
    assert_eq!(book.entries.lock().unwrap().len(), 2);
    let found = rpcbind.lookup(100_003, 3, Netid::Rdma).await.unwrap();
    assert_eq!(found, "127.0.0.1:20049".parse().unwrap());
    let found = rpcbind.lookup(100_003, 3, Netid::Tcp).await.unwrap();
    assert_eq!(found, "127.0.0.1:2049".parse().unwrap());
    assert!(rpcbind.unregister(&rdma).await.unwrap());
    assert!(!rpcbind.unregister(&rdma).await.unwrap());
    assert!(matches!(
        rpcbind.lookup(100_003, 3, Netid::Rdma).await,
        Err(RpcbindError::Lookup(LookupError::NotRegistered { .. }))
    ));
}

// requirement: rfc1833-3.2-2
#[tokio::test]
async fn older_versions_of_rpcbind_are_enough() {
    let (_, three) = rpcbind(3..=3).await;
    let rdma = nfs(Netid::Rdma, "192.0.2.7:20049");
    three.register(&rdma).await.unwrap();
    assert_eq!(three.lookup(100_003, 3, Netid::Rdma).await.unwrap(), rdma.address);

    let (_, two) = rpcbind(2..=2).await;
    two.register(&nfs(Netid::Tcp, "0.0.0.0:2049")).await.unwrap();
    let found = two.lookup(100_003, 3, Netid::Tcp).await.unwrap();
    assert_eq!(found, "127.0.0.1:2049".parse().unwrap());
    // Version 2 cannot name RDMA.
    assert!(matches!(two.register(&rdma).await, Err(RpcbindError::NoVersion { netid: Netid::Rdma })));
}

// requirement: rfc1833-2.2.1-4, rfc1833-2.2.1-9
#[tokio::test]
async fn an_announcement_of_another_owner_is_told() {
    let (_, rpcbind) = rpcbind(2..=4).await;
    rpcbind.register(&nfs(Netid::Tcp, "0.0.0.0:2049")).await.unwrap();
    let other = Registration { owner: "other".into(), ..nfs(Netid::Tcp, "0.0.0.0:2050") };
    assert!(matches!(rpcbind.register(&other).await, Err(RpcbindError::NotAccepted { .. })));
}

#[tokio::test]
async fn no_rpcbind_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert!(matches!(Rpcbind::connect_to(address).await, Err(RpcbindError::Connect { .. })));
}

/// RFC 5666 §10: the server answers for itself where it listens, RDMA included.
// requirement: rfc1833-2.1-4, rfc1833-2.2.1-4, rfc1833-2.2.1-9, rfc1833-2.2.1-10, rfc1833-2.2.1-12
// requirement: rfc1833-2.2.1-13, rfc1833-2.2.2-1, rfc1833-2.2.2-3, rfc1833-2.2.2-4, rfc1833-3.2-7, rfc1833-3.2-9
// requirement: rfc1833-3.2-10
#[tokio::test]
async fn rfc5666_s10_a_server_answers_for_itself_on_rdma_and_tcp() {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = IwarpListener::bind(any, rpcrdma_iwarp::Config::default()).await.unwrap();
    let rdma = listener.local_address().unwrap();
    let tcp = TcpListener::bind(any).await.unwrap();
    let over_tcp = tcp.local_addr().unwrap();
    let services =
        vec![nfs(Netid::Rdma, &format!("0.0.0.0:{}", rdma.port())), nfs(Netid::Tcp, "192.0.2.1:2049")];
    let server = Server::builder()
        .program(Arc::new(RpcbindService::new(services.clone())))
        .listen_rdma(Box::new(listener))
        .listen_tcp(tcp)
        .build()
        .unwrap();
    tokio::spawn(server.serve(std::future::pending()));

    let client = Client::connect_rdma(rdma).await.unwrap();
    for rpcbind in [Rpcbind::over(client.clone()), Rpcbind::connect_to(over_tcp).await.unwrap()] {
        // A wildcard address stands for the machine that was asked.
        assert_eq!(rpcbind.lookup(100_003, 3, Netid::Rdma).await.unwrap(), rdma);
        let missing = rpcbind.lookup(100_005, 3, Netid::Rdma).await.unwrap_err();
        assert!(matches!(missing, RpcbindError::Lookup(LookupError::NotRegistered { .. })), "{missing}");
        // Calls cannot change the announcements.
        let refused = rpcbind.register(&nfs(Netid::Rdma, "192.0.2.9:1")).await.unwrap_err();
        assert!(matches!(refused, RpcbindError::NotAccepted { .. }), "{refused}");
        assert!(!rpcbind.unregister(&services[0]).await.unwrap());
    }
    let over_tcp = Rpcbind::connect_to(over_tcp).await.unwrap();
    assert_eq!(over_tcp.lookup(100_003, 3, Netid::Tcp).await.unwrap(), "192.0.2.1:2049".parse().unwrap());

    let call = async |version, procedure, arguments: Stream| {
        client.call_raw(Call::new(PROGRAM, version, procedure).arguments(arguments).results(1 << 10)).await
    };
    // GETADDR answers for the transport of the call, whatever transport it names; an unknown version leads to the known
    // one.
    for (version, asked) in [(3, 3), (4, 3), (4, 4)] {
        let service = Rpcb { program: 100_003, version: asked, netid: "tcp".into(), ..Rpcb::default() };
        let reply = call(version, procedure::GETADDR, encode(&service).unwrap()).await.unwrap();
        let AddressText(address) = reply.results.decode_all().unwrap();
        let address: UniversalAddress = address.to_str().unwrap().parse().unwrap();
        assert_eq!(address.0.port(), rdma.port());
    }
    // GETADDRLIST describes each transport (RFC 1833 §2.1).
    let service = Rpcb { program: 100_003, version: 3, ..Rpcb::default() };
    let reply = call(4, procedure::GETADDRLIST, encode(&service).unwrap()).await.unwrap();
    let RpcbEntryList(entries) = reply.results.decode_all().unwrap();
    let told = entries.iter().map(|entry| {
        (
            entry.netid.to_string(),
            entry.semantics,
            entry.protocol_family.to_string(),
            entry.protocol.to_string(),
        )
    });
    let of = |netid: &str| (netid.to_owned(), 3, "inet".to_owned(), netid.to_owned());
    assert_eq!(told.collect::<Vec<_>>(), [of("rdma"), of("tcp")]);
    // Version 2 knows TCP only.
    for (protocol, port) in [(6, 2049), (17, 0)] {
        let mapping = Mapping { program: 100_003, version: 3, protocol, port: 0 };
        let reply = call(2, procedure::GETPORT, encode(&mapping).unwrap()).await.unwrap();
        assert_eq!(reply.results.decode_all::<u32>().unwrap(), port);
    }
    let dumped =
        call(2, procedure::DUMP, Stream::new()).await.unwrap().results.decode_all::<MappingList>().unwrap();
    assert_eq!(dumped.0.len(), 1);
    let dumped =
        call(3, procedure::DUMP, Stream::new()).await.unwrap().results.decode_all::<RpcbList>().unwrap();
    assert_eq!(dumped.0.len(), 2);
    // CALLIT makes no calls for others.
    for (version, procedure) in [
        (2, 5),
        (3, 5),
        (3, 6),
        (3, 7),
        (3, 8),
        (3, procedure::GETADDRLIST),
        (4, 5),
        (4, 6),
        (4, 7),
        (4, 8),
        (4, 9),
        (4, 10),
        (4, 12),
    ] {
        let refused = call(version, procedure, Stream::new()).await.unwrap_err();
        assert!(matches!(refused, CallError::Refused(Refused::ProcedureUnavailable)), "{refused}");
    }
}
