//! Generated programs: a service, called as a server calls it, and the list of procedures.

use bytes::Bytes;
use rpcrdma::xdr::{Decoder, encode};
use rpcrdma::{
    Binding, CallContext, CallError, CallFailure, Caller, Credential, Effect, Procedure, Program,
    TransportKind,
};
use rpcrdma_xdrgen_tests::language::{self, *};
use rpcrdma_xdrgen_tests::{Elsewhere, nfs40, ping, renamed, rpcbind};

use crate::octets;

struct Service;

impl language_v1::Service for Service {
    async fn add(&self, _: &CallContext, arguments: AddArguments) -> Result<i32, CallFailure> {
        arguments.argument_1.checked_add(arguments.more).ok_or(CallFailure::SystemError)
    }

    async fn say(&self, _: &CallContext, arguments: SayArguments) -> Result<SayResults, CallFailure> {
        Ok(SayResults(arguments.argument_1.to_uppercase().into()))
    }

    async fn new2(&self, _: &CallContext, arguments: S) -> Result<language::Client, CallFailure> {
        Ok(language::Client { a: arguments.a })
    }

    async fn type_(&self, _: &CallContext, _: language::Add) -> Result<(), CallFailure> {
        Ok(())
    }

    async fn walk(&self, _: &CallContext, arguments: WalkArguments) -> Result<Nodes, CallFailure> {
        let mut nodes = Nodes(vec![]);
        for depth in 0..arguments.depth {
            nodes = Nodes(vec![Node { name: depth.to_string().into(), children: nodes }]);
        }
        Ok(nodes)
    }

    async fn caller2(&self, _: &CallContext, is: bool) -> Result<u64, CallFailure> {
        Ok(u64::from(is))
    }

    async fn echo(&self, _: &CallContext, shapes: Shapes) -> Result<Shapes, CallFailure> {
        Ok(shapes)
    }

    async fn reverse(&self, _: &CallContext, mut chain: Chain) -> Result<Chain, CallFailure> {
        chain.first.reverse();
        Ok(chain)
    }

    async fn relative(&self, _: &CallContext, thing: Elsewhere) -> Result<Elsewhere, CallFailure> {
        Ok(thing)
    }

    async fn s(&self, context: &CallContext) -> Result<(), CallFailure> {
        assert_eq!(context.procedure, 9);
        Ok(())
    }
}

/// Serves one call of [`Service`].
fn call<P: Procedure>(arguments: &P::Arguments) -> Result<P::Results, CallFailure> {
    let program = language_v1::serve(Service);
    let context = CallContext {
        peer: None,
        transport: TransportKind::Sim,
        xid: 1,
        program: P::PROGRAM,
        version: P::VERSION,
        procedure: P::NUMBER,
        credential: Credential::None,
        attached: None,
        owner: None,
    };
    let mut served = program.call(context, Decoder::new(octets(arguments)));
    let mut waker = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(results) = served.as_mut().poll(&mut waker) else { panic!("a call waits") };
    Ok(Decoder::new(results?.flatten().0).decode_all().unwrap())
}

#[test]
fn calls_of_each_form() {
    let numbers = |argument_1, more| AddArguments { argument_1, more };
    assert_eq!(call::<language_v1::Add>(&numbers(2, 3)), Ok(5));
    assert_eq!(call::<language_v1::Add>(&numbers(i32::MAX, 1)), Err(CallFailure::SystemError));
    let said = call::<language_v1::Say>(&SayArguments { argument_1: "hello".to_owned() });
    assert_eq!(said, Ok(SayResults("HELLO".into())));
    assert_eq!(call::<language_v1::New>(&S { a: 4 }), Ok(language::Client { a: 4 }));
    assert_eq!(call::<language_v1::Type>(&language::Add { a: 1 }), Ok(()));
    assert_eq!(
        call::<language_v1::Walk>(&WalkArguments { depth: 3 }).map(|nodes| nodes.0[0].children.0.len()),
        Ok(1)
    );
    assert_eq!(call::<language_v1::Caller>(&true), Ok(1));
    let chain = |values: [i32; 2]| Chain { first: values.map(|value| Link { value }).to_vec() };
    assert_eq!(call::<language_v1::Reverse>(&chain([1, 2])), Ok(chain([2, 1])));
    assert_eq!(call::<language_v1::S2>(&()), Ok(()));
}

#[test]
fn marks_of_procedures() {
    assert_eq!(language_v1::Add::EFFECT, Effect::Idempotent);
    assert_eq!((language_v1::Add::INTEGRITY, language_v1::Say::INTEGRITY), (true, false));
    assert_eq!((language_v1::Say::EFFECT, language_v2::Say::EFFECT), (Effect::State, Effect::Data));
    assert_eq!(language_v1::Walk::bounds(&WalkArguments { depth: 3 }).inline, 300);
    let program = language_v1::serve(Service);
    assert!(program.requires_integrity(1, 1) && !program.requires_integrity(1, 2));
    let eligible = program.eligibility(1, language_v1::Echo::NUMBER);
    assert_eq!((eligible.arguments, eligible.results), (1, 1));
    assert_eq!(program.eligibility(1, language_v1::Walk::NUMBER).arguments, 3);
}

/// Numbers, and modules of versions that have one name.
#[test]
fn programs_and_versions() {
    assert_eq!((language_v1::PROGRAM, language_v1::VERSION), (0x2000_0050, 1));
    assert_eq!((language_v2::PROGRAM, language_v2::VERSION), (0x2000_0050, 2));
    assert_eq!((language_v1_2::PROGRAM, language_v1_2::VERSION), (0x2000_0051, 16));
    assert_eq!(
        (ping::ping_vers_pingback::VERSION, ping::ping_vers_orig::VERSION, ping::PING_VERS),
        (2, 1, 2)
    );
    assert_eq!((nfs40::nfs_v4::PROGRAM, nfs40::nfs_v4::VERSION), (100_003, 4));
    assert_eq!((nfs40::nfs_v4::Compound::NUMBER, nfs40::nfs_cb::PROGRAM), (1, 0x4000_0000));
    assert_eq!(rpcbind::rpcbvers4::Getstat::NUMBER, 12);
    assert_eq!(renamed::renamed_v1::Ask::NUMBER, 1);
}

/// The client of a program works with any caller. No caller is needed to compile it.
#[expect(dead_code, reason = "compiled only")]
async fn client<C: Caller>(caller: C) -> Result<(), CallError> {
    let client = language_v1::Client::new(caller);
    let sum: i32 = client.add(AddArguments { argument_1: 1, more: sum_of(&client).await? }).await?;
    let _: SayResults = client.say(&SayArguments { argument_1: sum.to_string() }).await?;
    let _: language::Client = client.new2(S { a: 1 }).await?;
    let _: u64 = client.caller2(true).await?;
    let _: Nodes = client.walk(WalkArguments { depth: 1 }).await?;
    client.s().await
}

async fn sum_of<C: Caller>(client: &language_v1::Client<C>) -> Result<i32, CallError> {
    client.add(&AddArguments { argument_1: 1, more: 1 }).await
}

/// Types of a crate that knows `rpcrdma` by another path.
#[test]
fn another_path_of_the_crate() {
    let question = renamed::Question { text: "why".into() };
    assert_eq!(octets(&question).len(), 8);
    let stream = encode(&renamed::Answer::Yes).unwrap();
    assert_eq!(stream.flatten().0, Bytes::from_static(&[0, 0, 0, 1]));
}
