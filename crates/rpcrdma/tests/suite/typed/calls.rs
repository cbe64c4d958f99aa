//! Calls with types, and what they cost on the wire.

use std::sync::Arc;

use bytes::Bytes;
use rpcrdma::oncrpc::{AuthStat, Refused};
use rpcrdma::xdr::Xdr;
use rpcrdma::{
    AuthSys, Call, CallContext, CallError, CallFailure, Caller, Credential, Effect, Form, Procedure, Server,
    ServerConfig, Sink, TransportKind,
};

use super::store::{self, BeginOf, Get, GetEndless, Nothing, Purge, Put};
use super::{Endless, GetResults, MIB, On, Part, PutArguments, Status, Store, Whole, key, on_each, serve};
use crate::support::pattern;

#[test]
fn a_procedure_knows_its_numbers_and_its_name() {
    assert_eq!((Put::PROGRAM, Put::VERSION, Put::NUMBER), (store::PROGRAM, store::VERSION, 1));
    assert_eq!((store::PROGRAM, store::VERSION), (0x2000_0051, 1));
    assert_eq!((Put::NAME, BeginOf::NAME), ("PUT", "BEGIN_OF"));
    assert_eq!((users::Who::NAME, users::Type::NAME), ("WHO", "TYPE"));
    assert_eq!((Put::EFFECT, Get::EFFECT), (Effect::State, Effect::Idempotent));
    assert_eq!((Put::INTEGRITY, Purge::INTEGRITY), (false, true));
}

#[test]
fn sizes_and_eligible_items_come_from_the_types() {
    let call = Call::of::<Get>(&key("a")).unwrap();
    assert_eq!((call.program, call.version, call.procedure, call.name), (store::PROGRAM, 1, 2, "GET"));
    assert_eq!(call.effect, Effect::Idempotent);
    // Discriminant and length inline, and the value beside them.
    assert_eq!(call.reply.max_len, 8);
    assert!(matches!(call.reply.sinks[..], [Sink::Pool(MIB)]), "{:?}", call.reply.sinks);
    let part = Part { key: key("a"), length: 100 };
    let call = Call::of::<BeginOf>(&part).unwrap();
    assert!(matches!(call.reply.sinks[..], [Sink::Pool(100)]), "{:?}", call.reply.sinks);
    let call = Call::of::<Nothing>(&()).unwrap();
    assert_eq!((call.arguments.len(), call.reply.max_len, call.reply.sinks.len()), (0, 0, 0));
}

#[test]
fn values_travel_in_chunks_of_their_own() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Store::default()))).await;
        let value = Bytes::from(pattern(MIB));
        let stored = client.call::<Put>(PutArguments { key: key("a"), value: value.clone() }).await.unwrap();
        assert_eq!(stored, Status::Stored);
        let reply = client.call_raw(Call::of::<Get>(&key("a")).unwrap()).await.unwrap();
        let travelled = reply.travelled;
        match on {
            On::Sim => assert_eq!((travelled.reply.form, travelled.reply.written), (Form::Reduced, MIB)),
            On::Tcp => assert_eq!(travelled.transport, TransportKind::Tcp),
        }
        assert_eq!(reply.into_results::<Get>().unwrap(), GetResults::Found { value: value.clone() });
        assert_eq!(client.call::<Get>(&key("b")).await.unwrap(), GetResults::Missing);
        let begin = client.call::<BeginOf>(Part { key: key("a"), length: 1000 }).await.unwrap();
        assert_eq!(begin, GetResults::Found { value: value.slice(..1000) });
    });
}

#[test]
fn a_client_of_the_program_has_its_procedures_as_methods() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Arc::new(Store::default())))).await;
        let store = store::Client::new(client);
        let value = Bytes::from(pattern(10));
        let arguments = PutArguments { key: key("a"), value: value.clone() };
        assert_eq!(store.put(&arguments).await.unwrap(), Status::Stored);
        assert_eq!(store.get(key("a")).await.unwrap(), GetResults::Found { value });
        assert_eq!(store.count(&2).await.unwrap().0, [0, 1]);
        store.nothing().await.unwrap();
        let data = Whole(Bytes::from(pattern(300_000)));
        assert_eq!(store.echo(&data).await.unwrap(), data);
        // The client lends its caller, and a loan is a caller too.
        let again = store::Client::new(store.caller());
        again.nothing().await.unwrap();
    });
}

/// Any caller will do: here a loan, or a shared one.
#[tokio::test(start_paused = true)]
async fn a_caller_may_be_lent_or_shared() {
    async fn nothing(caller: impl Caller) {
        caller.call::<Nothing>(()).await.unwrap();
    }
    let (client, _) = serve(On::Sim, Arc::new(store::serve(Store::default()))).await;
    nothing(&client).await;
    nothing(Arc::new(client.clone())).await;
    nothing(client).await;
}

#[test]
fn results_without_a_bound_get_one_with_the_call() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Store::default()))).await;
        let bounds = rpcrdma::Bounds::inline(4 + 8 * 1000);
        let numbers = client.call_within::<GetEndless>(1000, bounds).await.unwrap();
        assert_eq!(numbers, Endless((0..1000).collect()));
        let numbers = store::Client::new(&client).endless(1000, bounds).await.unwrap();
        assert_eq!(numbers, Endless((0..1000).collect()));
    });
}

/// A task has all of its futures in memory.
#[tokio::test(start_paused = true)]
async fn the_future_of_a_call_takes_a_call_more_than_one_by_hand() {
    let (client, _) = serve(On::Sim, Arc::new(store::serve(Store::default()))).await;
    let raw = size_of_val(&client.call_raw(Call::new(store::PROGRAM, store::VERSION, 9)));
    let typed = size_of_val(&client.call::<Nothing>(()));
    assert!(typed <= raw + size_of::<Call>() + 64, "{typed}, by hand {raw}");
}

/// Arguments that are too long never leave, and the error names the item.
#[tokio::test(start_paused = true)]
async fn arguments_that_break_their_type_are_not_sent() {
    let (client, monitor) = serve(On::Sim, Arc::new(store::serve(Store::default()))).await;
    let arguments = PutArguments { key: key("a"), value: Bytes::from(vec![0; MIB + 1]) };
    let error = client.call::<Put>(&arguments).await.unwrap_err();
    assert!(matches!(&error, CallError::Unsendable { .. }), "{error:?}");
    assert!(error.to_string().contains("PutArguments.value of 1048577"), "{error}");
    let error = client.call::<Get>(key("a key of more than 16 bytes")).await.unwrap_err();
    assert!(error.to_string().contains("Key of 27"), "{error}");
    assert_eq!(monitor.stats().calls, 0);
}

/// A store of those who say who they are.
struct ForUsers;

rpcrdma::program! {
    mod users {
        program 0x2000_0052, version 3;
        fn who = 1, Who() -> User, Idempotent;
        fn r#type = 2, Type(User) -> Kind, Idempotent;
    }
}

/// Types may be as private as the module.
#[derive(Debug, PartialEq, Xdr)]
struct User(u32);

#[derive(Debug, PartialEq, Xdr)]
enum Kind {
    Root = 0,
    Other = 1,
}

/// Names of the standard library have no meaning for the module.
#[allow(dead_code, reason = "only the name is there")]
struct Result;
#[allow(dead_code, reason = "only the name is there")]
struct Some;

impl users::Service for ForUsers {
    async fn who(&self, context: &CallContext) -> std::result::Result<User, CallFailure> {
        match &context.credential {
            Credential::Sys(sys) => Ok(User(sys.uid)),
            _ => Err(CallFailure::Auth(AuthStat::TooWeak)),
        }
    }

    async fn r#type(&self, _: &CallContext, user: User) -> std::result::Result<Kind, CallFailure> {
        Ok(if user == User(0) { Kind::Root } else { Kind::Other })
    }

    fn accepts_flavor(&self, flavor: u32) -> bool {
        flavor == rpcrdma::oncrpc::auth::flavor::AUTH_SYS
    }
}

#[test]
fn a_service_chooses_the_flavours_that_it_accepts() {
    on_each(|on| async move {
        let (client, _) = serve_quietly(on).await;
        let sys = Credential::Sys(AuthSys { uid: 1000, ..AuthSys::default() });
        let call = Call::of::<users::Who>(&()).unwrap().credential(sys);
        let user = client.call_raw(call).await.unwrap().into_results::<users::Who>().unwrap();
        assert_eq!(user, User(1000));
        let refused = client.call::<users::Who>(()).await;
        assert!(
            matches!(refused, Err(CallError::Refused(Refused::AuthError(AuthStat::BadCred)))),
            "{refused:?}"
        );
    });
}

/// Serves users whom the test invents.
async fn serve_quietly(on: On) -> (rpcrdma::Client, rpcrdma::ServerMonitor) {
    let mut config = ServerConfig::default();
    config.local_owners = false;
    let server = Server::builder().config(config).program(Arc::new(users::serve(ForUsers)));
    super::connect(on, server, rpcrdma::Client::builder()).await
}
