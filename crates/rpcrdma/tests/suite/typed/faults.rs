//! Calls and replies that break their types.

use std::sync::Arc;
use std::time::Duration;

use rpcrdma::oncrpc::auth::flavor;
use rpcrdma::oncrpc::gss::testing::TestMechanism;
use rpcrdma::oncrpc::gss::{GssLimits, GssServer, Service};
use rpcrdma::oncrpc::{AuthStat, Refused};
use rpcrdma::xdr::{Decoder, Encoder, encode};
use rpcrdma::{
    Call, CallContext, CallError, CallFailure, Client, Execution, GssUser, Procedure, Server, ServerConfig,
};

use super::store::{self, Count, Get, Purge, Put};
use super::{GetResults, Key, Numbers, On, Store, connect, key, on_each, serve};
use crate::support::warnings::Warnings;

#[test]
fn arguments_that_do_not_decode_are_garbage() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Store::default()))).await;
        let short = Encoder::new();
        let mut long = Encoder::new();
        long.u32(17);
        let mut left_over = Encoder::new();
        left_over.u32(3);
        left_over.u32(4);
        for (procedure, arguments) in
            [(Get::NUMBER, short), (Get::NUMBER, long), (super::store::Count::NUMBER, left_over)]
        {
            let call = Call::new(store::PROGRAM, store::VERSION, procedure).arguments(arguments.finish());
            let refused = client.call_raw(call).await.unwrap_err();
            assert!(matches!(refused, CallError::Refused(Refused::GarbageArguments)), "{refused:?}");
            assert_eq!(refused.execution(), Execution::NotExecuted);
        }
        // Void takes nothing.
        let call = Call::new(store::PROGRAM, store::VERSION, 9).arguments(encode(&1u32).unwrap());
        let refused = client.call_raw(call).await.unwrap_err();
        assert!(matches!(refused, CallError::Refused(Refused::GarbageArguments)), "{refused:?}");
    });
}

#[test]
fn procedures_and_versions_that_there_are_not_are_refused() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Store::default()))).await;
        client.null(store::PROGRAM, store::VERSION).await.unwrap();
        let call = |version, procedure| client.call_raw(Call::new(store::PROGRAM, version, procedure));
        let refused = call(1, 8).await.unwrap_err();
        assert!(matches!(refused, CallError::Refused(Refused::ProcedureUnavailable)), "{refused:?}");
        let refused = call(2, 1).await.unwrap_err();
        assert!(
            matches!(refused, CallError::Refused(Refused::ProgramMismatch { low: 1, high: 1 })),
            "{refused:?}"
        );
    });
}

/// A service cannot send what its type forbids. The log names the item, once a second.
#[tokio::test(start_paused = true)]
async fn a_service_that_returns_too_much_fails_the_call_and_is_told_once_a_second() {
    let (warnings, _guard) = Warnings::of_this_thread();
    let (client, _) = serve(On::Sim, Arc::new(store::serve(Store::default()))).await;
    assert_eq!(client.call::<Count>(4).await.unwrap(), Numbers(vec![0, 1, 2, 3]));
    warnings.take();
    for _ in 0..3 {
        let failed = client.call::<Count>(5).await.unwrap_err();
        assert!(matches!(failed, CallError::Refused(Refused::SystemError)), "{failed:?}");
        assert_eq!(failed.execution(), Execution::Unknown);
    }
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Numbers of 5 ") && told[0].contains("name=\"COUNT\""), "{told:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.call::<Count>(6).await.unwrap_err();
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("not_logged=2") && told[0].contains("Numbers of 6 "), "{told:?}");
    // The service lives on.
    client.call::<Count>(1).await.unwrap();
}

/// A program by hand.
struct ByHand;

impl rpcrdma::Program for ByHand {
    fn number(&self) -> u32 {
        store::PROGRAM
    }

    fn versions(&self) -> std::ops::RangeInclusive<u32> {
        1..=1
    }

    fn procedure(&self, _: u32, procedure: u32) -> Option<rpcrdma::ProcedureInfo> {
        (procedure == Count::NUMBER).then_some(rpcrdma::oncrpc::typed::info::<Count>())
    }

    fn call(&self, _: CallContext, arguments: Decoder) -> rpcrdma::ResponseFuture {
        Box::pin(async move {
            let count: u32 = arguments.decode_all()?;
            Ok(encode(&Numbers((0..count).collect()))?)
        })
    }
}

impl rpcrdma::Binding for ByHand {}

/// No program has to tell of its own defects.
#[tokio::test(start_paused = true)]
async fn a_program_by_hand_that_returns_too_much_is_told_too() {
    let (warnings, _guard) = Warnings::of_this_thread();
    let (client, _) = serve(On::Sim, Arc::new(ByHand)).await;
    warnings.take();
    let failed = client.call::<Count>(5).await.unwrap_err();
    assert!(matches!(failed, CallError::Refused(Refused::SystemError)), "{failed:?}");
    let told = warnings.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Numbers of 5 ") && told[0].contains("name=\"COUNT\""), "{told:?}");
}

/// The store as others know it: the results have other types.
mod elsewhere {
    use super::{Key, Numbers};

    rpcrdma::program! {
        pub mod other {
            program super::store::PROGRAM, version 1;
            fn get = 2, Get(Key) -> u32, Idempotent;
            fn count = 4, Count(u32) -> (), Idempotent;
            fn purge = 3, Purge() -> Numbers, State, integrity;
        }
    }

    pub(super) use super::super::store;
}

#[test]
fn results_of_another_type_are_a_bad_reply() {
    on_each(|on| async move {
        let (client, _) = serve(on, Arc::new(store::serve(Store::default()))).await;
        // Bytes are left over.
        let bounds = rpcrdma::Bounds::inline(100);
        let bad = client.call_within::<elsewhere::other::Count>(3, bounds).await.unwrap_err();
        assert!(matches!(bad, CallError::BadReply(_)), "{bad:?}");
        // The discriminant says that the value is missing, so one word is right.
        assert_eq!(client.call::<elsewhere::other::Get>(key("a")).await.unwrap(), 1);
        assert_eq!(client.call::<Get>(key("a")).await.unwrap(), GetResults::Missing);
        // The connection lives on after a bad reply.
        assert_eq!(client.stats().connections, 1);
    });
}

/// A store whose users prove who they are.
struct Proven(Store);

impl store::Service for Proven {
    fn accepts_flavor(&self, flavor: u32) -> bool {
        flavor == flavor::RPCSEC_GSS || flavor == flavor::AUTH_NONE
    }
    async fn put(&self, c: &CallContext, a: super::PutArguments) -> Result<super::Status, CallFailure> {
        self.0.put(c, a).await
    }
    async fn get(&self, c: &CallContext, a: Key) -> Result<GetResults, CallFailure> {
        self.0.get(c, a).await
    }
    async fn purge(&self, c: &CallContext) -> Result<u32, CallFailure> {
        self.0.purge(c).await
    }
    async fn count(&self, c: &CallContext, a: u32) -> Result<Numbers, CallFailure> {
        self.0.count(c, a).await
    }
    async fn begin_of(&self, c: &CallContext, a: super::Part) -> Result<GetResults, CallFailure> {
        self.0.begin_of(c, a).await
    }
    async fn echo(&self, c: &CallContext, a: super::Whole) -> Result<super::Whole, CallFailure> {
        self.0.echo(c, a).await
    }
    async fn endless(&self, c: &CallContext, a: u32) -> Result<super::Endless, CallFailure> {
        self.0.endless(c, a).await
    }
    async fn nothing(&self, c: &CallContext) -> Result<(), CallFailure> {
        self.0.nothing(c).await
    }
}

#[test]
fn a_procedure_with_integrity_is_called_with_protection_only() {
    on_each(|on| async move {
        let mechanism = |name: &str| TestMechanism { waits: false, ..TestMechanism::new(name) };
        let contexts = GssServer::new(Arc::new(mechanism("store@server")), GssLimits::default(), 1);
        let config = ServerConfig::default();
        let server = Server::builder().config(config).gss(Arc::new(contexts));
        let server = server.program(Arc::new(store::serve(Proven(Store::default()))));
        let (client, _) = connect(on, server, Client::builder()).await;
        let user = |service| Arc::new(GssUser::new(Arc::new(mechanism("alice")), "store@server", service));
        let too_weak = |error| matches!(error, CallError::Refused(Refused::AuthError(AuthStat::TooWeak)));
        assert!(too_weak(client.call::<Purge>(()).await.unwrap_err()));
        let with = |service| Call::of::<Purge>(&()).unwrap().gss(user(service));
        assert!(too_weak(client.call_raw(with(Service::None)).await.unwrap_err()));
        for service in [Service::Integrity, Service::Privacy] {
            let reply = client.call_raw(with(service)).await.unwrap();
            assert_eq!(reply.into_results::<Purge>().unwrap(), 0);
        }
        // Other procedures need no protection.
        client.call::<Get>(key("a")).await.unwrap();
        // Protected results do not travel in chunks of their own, and are found all the same.
        let arguments = super::PutArguments { key: key("a"), value: vec![7; 50_000].into() };
        let call = Call::of::<Put>(&arguments).unwrap().gss(user(Service::Privacy));
        client.call_raw(call).await.unwrap().into_results::<Put>().unwrap();
        let call = Call::of::<Get>(&key("a")).unwrap().gss(user(Service::Integrity));
        let got = client.call_raw(call).await.unwrap().into_results::<Get>().unwrap();
        assert_eq!(got, GetResults::Found { value: vec![7; 50_000].into() });
    });
}
