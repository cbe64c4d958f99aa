//! Repetitions: which calls, how many, and after which pauses.

use rpcrdma::{Call, CallError, Execution, Retry, Sink};
use rpcrdma_oncrpc::Refused;
use rpcrdma_verbs::Buffer;
use rpcrdma_xdr::encode;
use tokio::time::{Instant, sleep};

use super::{Answer, DATA, FETCH, PROGRAM, Scripted, World, change, milliseconds, read};

fn retry(attempts: u32) -> Retry {
    Retry::new(attempts).pauses(milliseconds(100), milliseconds(300)).seed(1)
}

/// A server that sheds load answers SYSTEM_ERR.
#[tokio::test(start_paused = true)]
async fn an_idempotent_call_is_repeated_after_growing_pauses() {
    let world = World::new([Answer::SystemError; 5]).await;
    let mut reply = world.handle().retry(retry(6)).call_raw(read(42)).await.unwrap();
    assert_eq!(reply.results.u32(), Ok(42));
    let between = world.program.between();
    // From half of the pause to all of it; a call and its reply take less than 1 ms.
    for (between, longest) in between.iter().zip([100, 200, 300, 300, 300]) {
        assert!((longest / 2..=longest + 1).contains(between), "{between} of {longest} ms");
    }
    assert_eq!(between.len(), 5);
    let mut xids: Vec<u32> = world.program.heard().iter().map(|call| call.xid).collect();
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), 6, "each attempt has an XID of its own");
}

#[tokio::test(start_paused = true)]
async fn a_seed_repeats_the_pauses() {
    let mut between = Vec::new();
    for seed in [3, 3, 4] {
        let world = World::new([Answer::SystemError; 5]).await;
        world.handle().retry(retry(6).seed(seed)).call_raw(read(42)).await.unwrap();
        between.push(world.program.between());
    }
    assert_eq!(between[0], between[1]);
    assert_ne!(between[0], between[2]);
}

#[tokio::test(start_paused = true)]
async fn the_error_tells_the_number_of_attempts() {
    let world = World::new([Answer::SystemError; 9]).await;
    let began = Instant::now();
    let error = world.handle().retry(retry(3)).call_raw(read(1)).await.unwrap_err();
    assert_eq!((error.attempts(), world.program.heard().len()), (3, 3));
    assert!(matches!(error.last(), CallError::Refused(Refused::SystemError)), "{error:?}");
    assert_eq!(error.execution(), Execution::Unknown);
    let text = error.to_string();
    assert!(text.starts_with("3 attempts in ") && text.contains(&error.last().to_string()), "{text}");
    assert!(matches!(error, CallError::Repeated { elapsed, .. } if elapsed == began.elapsed()));
    // A handle without the rule makes one.
    let error = world.handle().call_raw(read(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::SystemError)), "{error:?}");
    assert_eq!(error.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_changes_state_is_made_once_if_it_may_have_been_carried_out() {
    let world = World::new([Answer::SystemError, Answer::Never]).await;
    let handle = world.handle().retry(retry(5).on(|_| true)).timeout(milliseconds(200));
    let error = handle.call_raw(change(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::SystemError)), "{error:?}");
    let error = handle.call_raw(change(1)).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error:?}");
    assert_eq!(world.program.heard().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_sent_once_only_is_not_repeated() {
    let world = World::new([Answer::SystemError]).await;
    let error = world.handle().retry(retry(5)).call_raw(read(1).once()).await.unwrap_err();
    assert_eq!((error.attempts(), world.program.heard().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_not_carried_out_is_repeated_even_if_it_changes_state() {
    // The client connects again after pauses of random lengths. If that falls on the end of an attempt, the call is sent without
    // an answer in time, and must not be repeated.
    for _ in 0..10 {
        let mut world = World::new([]).await;
        world.stop_server().await;
        let handle = world.handle().timeout(milliseconds(400)).retry(retry(20));
        let client = world.client.clone();
        let call = tokio::spawn(async move { handle.call_raw(change(7)).await });
        sleep(milliseconds(3_000)).await;
        world.start_server();
        let outcome = call.await.unwrap();
        assert!(world.program.heard().len() <= 1);
        assert!(client.stats().timed_out > 3);
        match outcome {
            Ok(reply) => return assert_eq!(reply.results.clone().u32(), Ok(7)),
            Err(error) => assert_eq!(error.execution(), Execution::Unknown, "{error:?}"),
        }
    }
    panic!("no call was answered");
}

#[tokio::test(start_paused = true)]
async fn an_end_without_execution_is_one_for_all_attempts() {
    let mut world = World::new([]).await;
    world.stop_server().await;
    let handle = world.handle().timeout(milliseconds(400)).retry(retry(3));
    let error = handle.call_raw(change(7)).await.unwrap_err();
    assert_eq!((error.attempts(), error.execution()), (3, Execution::NotExecuted));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_may_have_been_carried_out_is_not_forgotten() {
    let mut world = World::new([Answer::SystemError]).await;
    let handle = world.handle().timeout(milliseconds(400)).retry(retry(2));
    let call = tokio::spawn(async move { handle.call_raw(read(7)).await });
    sleep(milliseconds(10)).await;
    world.stop_server().await;
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.last().execution(), Execution::NotExecuted, "{error:?}");
    assert_eq!(error.execution(), Execution::Unknown);
}

/// Two calls are carried out, and their connection is lost. On the next connection the second call waits for the only
/// credit until its time is over. Then it has not left there, but it had left before.
#[tokio::test(start_paused = true)]
async fn i8_a_call_that_left_on_an_earlier_connection_is_not_made_again() {
    let world = World::new([Answer::Never, Answer::Never]).await;
    world.bring_credits().await;
    let handle = world.handle().retry(retry(3)).timeout(milliseconds(3_000));
    let calls = [1, 2].map(|number| {
        let handle = handle.clone();
        tokio::spawn(async move { handle.call_raw(change(number)).await })
    });
    sleep(milliseconds(50)).await;
    assert_eq!(world.program.heard().len(), 2);
    world.fabric.cut(world.fabric.connections()[0]);
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::TimedOut { sent: true, .. }), "{error:?}");
    }
    assert_eq!(world.client.stats().connections, 2);
    assert_eq!(world.program.heard().len(), 2);
}

/// A server carries a call out and fails. The next server at its address refuses the same call.
#[tokio::test(start_paused = true)]
async fn i8_a_refusal_of_a_call_that_had_left_before_does_not_deny_its_execution() {
    let mut world = World::new([Answer::Never]).await;
    world.bring_credits().await;
    let handle = world.handle().retry(retry(3).on(|_| true));
    let call = tokio::spawn(async move { handle.call_raw(change(1)).await });
    sleep(milliseconds(50)).await;
    assert_eq!(world.program.heard().len(), 1);
    world.task.abort();
    world.program = Scripted::new([Answer::Unavailable]);
    sleep(milliseconds(1)).await;
    world.start_server();
    let error = call.await.unwrap().unwrap_err();
    let CallError::SentBefore { error: last } = &error else { panic!("{error:?}") };
    assert!(matches!(**last, CallError::Refused(Refused::ProcedureUnavailable)), "{last:?}");
    assert_eq!((error.execution(), error.attempts()), (Execution::Unknown, 1));
    assert_eq!(world.program.heard().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_final_unless_the_rule_chooses_it() {
    let world = World::new([Answer::Unavailable; 3]).await;
    let error = world.handle().retry(retry(5)).call_raw(change(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Refused(Refused::ProcedureUnavailable)), "{error:?}");
    assert_eq!(world.program.heard().len(), 1);
    let unavailable = |error: &CallError| matches!(error, CallError::Refused(Refused::ProcedureUnavailable));
    let mut reply = world.handle().retry(retry(5).on(unavailable)).call_raw(change(5)).await.unwrap();
    assert_eq!((reply.results.u32(), world.program.heard().len()), (Ok(5), 4));
}

#[tokio::test(start_paused = true)]
async fn closed_is_final() {
    let world = World::new([Answer::SystemError; 5]).await;
    let handle = world.handle().retry(retry(5).on(|_| true));
    let (result, ()) = tokio::join!(handle.call_raw(read(1)), async {
        sleep(milliseconds(10)).await;
        world.client.close().await;
    });
    let error = result.unwrap_err();
    assert!(matches!(error.last(), CallError::Closed { sent: false }), "{error:?}");
    assert_eq!((error.attempts(), error.execution()), (2, Execution::Unknown));
    let began = Instant::now();
    let error = handle.call_raw(read(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Closed { sent: false }), "{error:?}");
    assert_eq!(began.elapsed().as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_has_its_arguments_and_memory_for_its_results() {
    let world = World::new([Answer::SystemError, Answer::SystemError]).await;
    let call = Call::new(PROGRAM, 1, FETCH).effect(rpcrdma::Effect::Idempotent).results(4);
    let buffer = Sink::Buffer(Buffer::adopt(vec![0; DATA]));
    let call = call.arguments(encode(&9u32).unwrap()).sink(buffer);
    let mut reply = world.handle().retry(retry(5)).call_raw(call).await.unwrap();
    assert_eq!(reply.results.payload(DATA).unwrap(), vec![7; DATA]);
    drop(reply);
    assert_eq!(world.program.heard().len(), 3);
    assert_eq!(world.client.stats().payload_bytes_copied, 0);
}
