use super::*;

/// A run in the form of callgrind: names once, differences of lines, a call, inlined code of another file.
const RUN: &str = "\
# callgrind format
version: 1
events: Ir
summary: 100

fl=(1) /checkout/crates/proto/src/connection.rs
fn=(1) rpcrdma_proto::connection::Connection::poll
10 3
+2 4
fi=(2) /checkout/crates/proto/src/core.rs
7 5
fe=(1)
-1 6
cfi=(3) /checkout/crates/xdr/src/encode.rs
cfn=(2) rpcrdma_xdr::encode
calls=2 +5
* 40
20 1

fl=(3)
fn=(2)
1 39
fi=(2)
8 1
";

#[test]
fn costs_count_for_the_file_of_inlined_code_and_without_callees() {
    let costs = Costs::parse(RUN, &["rpcrdma_proto"]).unwrap();
    let line = |file: &str, line| costs.lines.get(&(file.to_owned(), line)).copied();
    assert_eq!(line("connection.rs", 10), Some(3));
    assert_eq!(line("connection.rs", 12), Some(4));
    assert_eq!(line("core.rs", 7), Some(5));
    assert_eq!(line("connection.rs", 6), Some(6));
    assert_eq!(line("connection.rs", 20), Some(1));
    // Inlined into another crate's function: a line of the engine, and no instructions of its functions.
    assert_eq!(line("core.rs", 8), Some(1));
    assert_eq!(costs.lines.len(), 6, "{costs:?}");
    assert_eq!(costs.own, 19);
    assert_eq!(costs.all, 59);
}

#[test]
fn a_call_is_the_difference_of_two_runs() {
    let few = Costs::parse(RUN, &["rpcrdma_proto"]).unwrap();
    let more = RUN.replace("10 3", "10 23").replace("7 5", "7 14").replace("1 39", "1 139");
    let call = Operation::between(&few, &Costs::parse(&more, &["rpcrdma_proto"]).unwrap(), 10);
    assert_eq!((call.own, call.all), (2, 12));
    // Nine more in ten calls: not every call executes this line.
    assert_eq!(call.lines, BTreeMap::from([("connection.rs".to_owned(), BTreeSet::from([10]))]));
}

#[test]
fn a_file_that_callgrind_did_not_write_is_refused() {
    assert!(Costs::parse("", &[]).is_err());
    assert!(Costs::parse("fn=(9)\n1 1\n", &[]).is_err(), "a number without a name");
}

#[test]
fn allocations_are_calls_of_the_allocators() {
    let run = "fn=(1) rpcrdma_proto::one\n1 5\ncfn=(2) malloc\ncalls=3 +1\n* 90\ncfn=(3) free\ncalls=9 +1\n* 90\n\
               fn=(4) other\ncfn=(2)\ncalls=2 0\n* 60\ncfn=(5) realloc\ncalls=1 0\n* 30\n";
    let costs = Costs::parse(run, &["rpcrdma_proto"]).unwrap();
    assert_eq!((costs.allocations, costs.own, costs.all), (6, 5, 5));
}
