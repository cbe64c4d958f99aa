//! Registration and lookup against an rpcbind of our own on loopback.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use rpcrdma::rpcbind::{Rpcbind, RpcbindError, RpcbindService, version_2, version_3, version_4};
use rpcrdma::{
    Binding, Call, CallContext, CallError, CallFailure, Client, Effect, InterceptService, NextService,
    Procedure as _, ProcedureInfo, Program, ResponseFuture, Server, ServerBuilder,
};
use rpcrdma_iwarp::IwarpListener;
use rpcrdma_oncrpc::Refused;
use rpcrdma_oncrpc::rpcbind::{
    AddressText, Mapping, Netid, PROGRAM, Registration, Rpcb, RpcbEntry, RpcbEntryList, RpcbList,
    UniversalAddress,
};
use rpcrdma_verbs::Listener;
use rpcrdma_xdr::{Decoder, Stream, encode};
use tokio::net::TcpListener;

/// A program that keeps announcements as rpcbind does, in the versions given. By hand, since a typed one has one version.
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
                version_4::Set::NUMBER => {
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
                version_4::Unset::NUMBER => {
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
        if context.procedure == version_4::Dump::NUMBER {
            return Ok(encode(&RpcbList(entries.clone()))?);
        }
        let service: Rpcb = arguments.decode_all()?;
        let same = |entry: &Rpcb| {
            (entry.program, entry.version) == (service.program, service.version)
                && entry.netid == service.netid
        };
        Ok(match context.procedure {
            version_4::Set::NUMBER => {
                let fresh = !entries.iter().any(same);
                if fresh {
                    entries.push(service);
                }
                encode(&fresh)?
            }
            version_4::Unset::NUMBER => {
                // Announcements of another owner stay.
                let before = entries.len();
                entries.retain(|entry| !(same(entry) && entry.owner == service.owner));
                encode(&(entries.len() < before))?
            }
            version_4::Getaddr::NUMBER => {
                // RFC 1833 §2.2.1: the entry is for the transport of the call.
                let found =
                    entries.iter().find(|entry| entry.program == service.program && entry.netid == *"tcp");
                encode(&AddressText(found.map(|entry| entry.address.clone()).unwrap_or_default()))?
            }
            version_4::Getaddrlist::NUMBER => {
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

// requirement: rfc1833-2.2.1-1, rfc1833-2.2.1-3, rfc1833-2.2.1-7, rfc1833-3.2-5
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
    assert!(matches!(rpcbind.lookup(100_003, 3, Netid::Rdma).await, Err(RpcbindError::NotRegistered { .. })));
}

// requirement: rfc1833-3.2-2, rfc1833-3.2-3
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
    let versions = RpcbindService::new(services.clone()).versions();
    let server = versions.into_iter().fold(Server::builder(), ServerBuilder::program);
    let server = server.listen_rdma(Box::new(listener)).listen_tcp(tcp).build().unwrap();
    tokio::spawn(server.serve(std::future::pending()));

    let client = Client::connect(rdma).await.unwrap();
    for rpcbind in [Rpcbind::over(client.clone()), Rpcbind::connect_to(over_tcp).await.unwrap()] {
        // A wildcard address stands for the machine that was asked.
        assert_eq!(rpcbind.lookup(100_003, 3, Netid::Rdma).await.unwrap(), rdma);
        let missing = rpcbind.lookup(100_005, 3, Netid::Rdma).await.unwrap_err();
        assert!(matches!(missing, RpcbindError::NotRegistered { .. }), "{missing}");
        // Calls cannot change the announcements.
        let refused = rpcbind.register(&nfs(Netid::Rdma, "192.0.2.9:1")).await.unwrap_err();
        assert!(matches!(refused, RpcbindError::NotAccepted { .. }), "{refused}");
        assert!(!rpcbind.unregister(&services[0]).await.unwrap());
    }
    let over_tcp = Rpcbind::connect_to(over_tcp).await.unwrap();
    assert_eq!(over_tcp.lookup(100_003, 3, Netid::Tcp).await.unwrap(), "192.0.2.1:2049".parse().unwrap());

    // GETADDR answers for the transport of the call, whatever transport it names; an unknown version leads to the known
    // one.
    let service = |version| Rpcb { program: 100_003, version, netid: "tcp".into(), ..Rpcb::default() };
    for address in [
        client.call::<version_3::Getaddr>(service(3)).await,
        client.call::<version_4::Getaddr>(service(3)).await,
        client.call::<version_4::Getaddr>(service(4)).await,
    ] {
        let address: UniversalAddress = address.unwrap().0.to_str().unwrap().parse().unwrap();
        assert_eq!(address.0.port(), rdma.port());
    }
    // GETADDRLIST describes each transport (RFC 1833 §2.1).
    let RpcbEntryList(entries) = client.call::<version_4::Getaddrlist>(service(3)).await.unwrap();
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
        assert_eq!(client.call::<version_2::Getport>(mapping).await.unwrap(), port);
    }
    assert_eq!(client.call::<version_2::Dump>(()).await.unwrap().0.len(), 1);
    assert_eq!(client.call::<version_3::Dump>(()).await.unwrap().0.len(), 2);
    // CALLIT makes no calls for others.
    for (version, procedure) in [
        (2, 5),
        (3, 5),
        (3, 6),
        (3, 7),
        (3, 8),
        (3, version_4::Getaddrlist::NUMBER),
        (4, 5),
        (4, 6),
        (4, 7),
        (4, 8),
        (4, 9),
        (4, 10),
        (4, 12),
    ] {
        let refused = client.call_raw(Call::new(PROGRAM, version, procedure)).await.unwrap_err();
        assert!(matches!(refused, CallError::Refused(Refused::ProcedureUnavailable)), "{refused}");
    }
}

/// Serves an rpcbind without announcements, whose calls pass this interceptor.
async fn intercepted(interceptor: impl InterceptService) -> Rpcbind {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let versions = RpcbindService::new(Vec::new()).versions();
    let server = versions.into_iter().fold(Server::builder(), ServerBuilder::program);
    let server = server.intercept(interceptor).listen_tcp(listener).build().unwrap();
    tokio::spawn(server.serve(std::future::pending()));
    Rpcbind::connect_to(address).await.unwrap()
}

#[tokio::test]
async fn i6_garbage_ends_the_lookup_with_an_error() {
    let garbage = |_: CallContext, _: Decoder, _: NextService| -> ResponseFuture {
        Box::pin(std::future::ready(Ok(encode(&7u32).unwrap())))
    };
    let end = intercepted(garbage).await.lookup(100_003, 3, Netid::Rdma).await;
    assert!(matches!(end, Err(RpcbindError::Call(CallError::BadReply(_)))), "{end:?}");
}

/// RFC 1833 §2.2.1: GETADDR answers for the transport of the question alone, so others are looked up in lists.
// requirement: rfc1833-2.2.1-11
#[tokio::test]
async fn rfc1833_2_2_questions_by_transport() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let note = move |context: CallContext, arguments: Decoder, next: NextService| -> ResponseFuture {
        notes.lock().unwrap().push((context.version, context.procedure));
        next.call(context, arguments)
    };
    let rpcbind = intercepted(note).await;
    let lists = vec![(4, 11), (4, 4), (3, 4)];
    for (netid, questions) in [
        (Netid::Tcp, vec![(4, 3), (3, 3), (2, 3)]),
        (Netid::Tcp6, vec![(4, 3), (3, 3)]),
        (Netid::Rdma, lists.clone()),
        (Netid::Rdma6, lists),
    ] {
        let missing = rpcbind.lookup(100_003, 3, netid).await;
        assert!(matches!(missing, Err(RpcbindError::NotRegistered { .. })), "{missing:?}");
        assert_eq!(std::mem::take(&mut *asked.lock().unwrap()), questions);
    }
}

// requirement: rfc1833-1-1, rfc1833-2.1-5, rfc1833-3.1-2, rfc1833-3.1-4
#[test]
fn rfc1833_2_1_numbers_of_procedures() {
    use version_2::{Dump, Getport, Set, Unset};
    assert_eq!((version_2::PROGRAM, version_2::VERSION), (100_000, 2));
    assert_eq!([Set::NUMBER, Unset::NUMBER, Getport::NUMBER, Dump::NUMBER], [1, 2, 3, 4]);
    use version_3 as three;
    assert_eq!((three::PROGRAM, three::VERSION), (100_000, 3));
    let numbers = [three::Set::NUMBER, three::Unset::NUMBER, three::Getaddr::NUMBER, three::Dump::NUMBER];
    assert_eq!(numbers, [1, 2, 3, 4]);
    use version_4 as four;
    assert_eq!((four::PROGRAM, four::VERSION), (100_000, 4));
    let numbers = [four::Set::NUMBER, four::Unset::NUMBER, four::Getaddr::NUMBER, four::Dump::NUMBER];
    assert_eq!((numbers, four::Getaddrlist::NUMBER), ([1, 2, 3, 4], 11));
}
