//! Takes all measures.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::callgrind::{CALLS, Example, FPDUS, Operation};
use super::circles::{circles, compare};
use super::foreign::{is_of_door, places};
use super::measure::{Measure, Now};
use super::names::{Names, is_stand_in};
use super::page::{files_of_section, thousands};
use super::shape::{CfgSites, cfg_sites, functions, structs};
use super::{PAGE, features, gates};
use crate::failure::{Context, Failure};
use crate::source::Tree;

/// The longest functions of the other crates that are listed, for information.
const LISTED: usize = 10;

/// The measures that valgrind counts.
pub(super) const COUNTED: [&str; 13] = [
    "files",
    "checks",
    "instructions",
    "allocations",
    "read",
    "read-allocations",
    "typed-null",
    "typed-void",
    "typed-echo",
    "send",
    "send-allocations",
    "receive",
    "receive-allocations",
];

/// Length of a full TCP segment on Ethernet with time stamps, in bytes: FPDUs fit it.
const EMSS: &str = "1448";

/// Calls with types: key, title, and the work of the example by hand and with types.
const TYPED: [(&str, &str, [&str; 2]); 3] = [
    (
        "typed-null",
        "instructions of a NULL call with types, in per cent of one by hand",
        ["null", "typed-null"],
    ),
    (
        "typed-void",
        "instructions of a call without arguments and results that a service takes, likewise",
        ["void", "typed-void"],
    ),
    ("typed-echo", "instructions of a call with 1 MiB in both directions, likewise", ["echo", "typed-echo"]),
];

/// What valgrind counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// A NULL call of Version One.
    null: Option<Operation>,
    /// A call of Version One with 1 MiB in its reply.
    read: Option<Operation>,
    /// Calls of Version One by hand and with types, for each of [`TYPED`].
    typed: [Option<[Operation; 2]>; 3],
    /// 1 MiB by RDMA Write, at the end that sends and at the end that receives.
    send: Option<Operation>,
    receive: Option<Operation>,
}

impl Counted {
    /// Runs the examples under valgrind: those that a measure needs, or all.
    pub(crate) fn take(project: &Path, key: Option<&str>) -> Result<Self, Failure> {
        let wants = |part: &str| key.is_none_or(|key| key.starts_with(part));
        let wants_null = ["files", "checks", "instructions", "allocations"].into_iter().any(wants);
        let mut counted = Self::default();
        if wants_null || wants("read") || wants("typed") {
            let calls = Example::build(project, CALLS)?;
            counted.null = wants_null.then(|| calls.measure(&["null", "1"])).transpose()?;
            counted.read = wants("read").then(|| calls.measure(&["read", "1"])).transpose()?;
            for (pair, (key, _, [by_hand, typed])) in counted.typed.iter_mut().zip(TYPED) {
                if wants(key) {
                    *pair = Some([calls.measure(&[by_hand, "1"])?, calls.measure(&[typed, "1"])?]);
                }
            }
        }
        if wants("send") || wants("receive") {
            let fpdus = Example::build(project, FPDUS)?;
            counted.send = wants("send").then(|| fpdus.measure(&["send", EMSS])).transpose()?;
            counted.receive = wants("receive").then(|| fpdus.measure(&["receive", EMSS])).transpose()?;
        }
        Ok(counted)
    }
}

/// A crate: its name without the prefix, and its trees.
struct Package {
    name: String,
    trees: Vec<Tree>,
}

/// Takes all measures. Those that valgrind has not counted are left out.
pub(crate) fn all(project: &Path, counted: &Counted) -> Result<Vec<Measure>, Failure> {
    let packages = packages(project)?;
    let proto = packages.iter().find(|package| package.name == "proto");
    let proto = proto.and_then(|package| package.trees.first());
    let proto = proto.ok_or_else(|| Failure::new("no crate proto"))?;
    let page = fs::read_to_string(project.join(PAGE)).context(PAGE)?;
    let Counted { null, read, typed, send, receive } = counted;
    let call = null.as_ref();
    let [null_gate, read_gate, send_gate, receive_gate] = gates::ALLOCATIONS;
    let ([null_key, void_key, echo_key], [typed_null, typed_void, typed_echo]) = (TYPED, typed);
    Ok(vec![
        code(proto),
        code_of_version_one(proto),
        credits(proto),
        files(call),
        checks(proto, call),
        long_functions(proto, &packages),
        fields(proto),
        instructions(call),
        allocations("allocations", "allocations of this call", call, null_gate),
        instructions_of(
            ("read", "instructions in `proto` for a call with 1 MiB in its reply, both ends"),
            read.as_ref(),
            gates::READ,
        ),
        allocations("read-allocations", "allocations of that call", read.as_ref(), read_gate),
        with_types(null_key, typed_null.as_ref()),
        with_types(void_key, typed_void.as_ref()),
        with_types(echo_key, typed_echo.as_ref()),
        instructions_of(
            (
                "send",
                "instructions in `iwarp` to send 1 MiB by RDMA Write, in FPDUs for segments of 1,448 bytes",
            ),
            send.as_ref(),
            gates::SEND,
        ),
        allocations("send-allocations", "allocations to send it", send.as_ref(), send_gate),
        instructions_of(
            ("receive", "instructions in `iwarp` to receive it"),
            receive.as_ref(),
            gates::RECEIVE,
        ),
        allocations("receive-allocations", "allocations to receive it", receive.as_ref(), receive_gate),
        sites(&project.join("crates/proto/src"), proto)?,
        import_circles(&packages),
        section(&project.join("crates/proto/src"), &page)?,
        alone(&features(project)?),
    ])
}

/// Reads the crates of the workspace and this one.
fn packages(project: &Path) -> Result<Vec<Package>, Failure> {
    let mut folders = vec![project.join("xtask")];
    for entry in fs::read_dir(project.join("crates")).context("reading crates")? {
        folders.push(entry?.path());
    }
    folders.sort();
    let mut packages = Vec::new();
    for folder in folders {
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let src = folder.join("src");
        let roots = ["lib.rs", "main.rs"].into_iter().filter(|root| src.join(root).exists());
        let trees = roots.map(|root| Tree::read(&src, root)).collect::<Result<_, _>>()?;
        packages.push(Package { name, trees });
    }
    Ok(packages)
}

fn code(proto: &Tree) -> Measure {
    let mut list: Vec<_> = proto.files.iter().map(|file| (file.code_lines(), &file.path)).collect();
    list.sort_by(|one, other| other.cmp(one));
    let lines = list.iter().map(|(lines, _)| lines).sum();
    let target = "≤ 11,600".to_owned();
    let list = list.iter().map(|(lines, path)| format!("{lines:>6} {path}")).collect();
    Measure::new(
        "code",
        "code lines of `proto` without tests and comments",
        "13,164",
        Now::Exact(lines),
        target,
    )
    .with_list(list)
    .at_most(gates::CODE)
}

fn code_of_version_one(proto: &Tree) -> Measure {
    let files = proto.files.iter().filter(|file| !is_of_door(&file.path));
    let mut list: Vec<_> = files.map(|file| (file.code_lines(), &file.path)).collect();
    list.sort_by(|one, other| other.cmp(one));
    let lines = list.iter().map(|(lines, _)| lines).sum();
    let title = "of these outside `two`, `retired`, `wire/two`";
    let list = list.iter().map(|(lines, path)| format!("{lines:>6} {path}")).collect();
    Measure::new("code-one", title, "≈ 7,400", Now::Exact(lines), "≤ 6,500".to_owned())
        .with_list(list)
        .at_most(gates::CODE_OF_VERSION_ONE)
}

/// Counts the files outside of `flow/` that name the ledger: a path into `flow`, or a field `ledger`.
fn credits(proto: &Tree) -> Measure {
    let uses = Names::of(proto).uses(proto);
    let is_flow = |module: &[String]| module.first().is_some_and(|first| first == "flow");
    let mut files: BTreeSet<String> =
        uses.iter().filter(|used| is_flow(&used.to)).map(|used| used.at.0.clone()).collect();
    for file in proto.files.iter().filter(|file| !is_stand_in(&file.path)) {
        if super::names::reads_field(file, "ledger") {
            files.insert(file.path.clone());
        }
    }
    files.retain(|path| !path.starts_with("flow/") && path != "flow.rs" && path != "lib.rs");
    let target = "5 callers and `flow/`".to_owned();
    let title = "files outside `flow/` that touch credits or Receives";
    Measure::new("credits", title, "13", Now::Free(files.len()), target)
        .with_list(files.into_iter().collect())
}

fn files(call: Option<&Operation>) -> Measure {
    let title = "files of `proto` that an inline Version One call enters";
    let now = call.map_or(Now::Unmeasured, |call| Now::Exact(call.lines.len()));
    let list =
        call.map(|call| call.lines.iter().map(|(path, lines)| format!("{path} ({} lines)", lines.len())));
    Measure::new("files", title, "37", now, "≤ 22".to_owned())
        .with_list(list.into_iter().flatten().collect())
        .at_most(gates::FILES)
}

fn checks(proto: &Tree, call: Option<&Operation>) -> Measure {
    let list = call.map(|call| places(proto, &call.lines));
    let now = list.as_ref().map_or(Now::Unmeasured, |list| Now::Free(list.len()));
    Measure::new("checks", "checks of foreign features on that way", "≈ 130", now, "≤ 15".to_owned())
        .with_list(list.unwrap_or_default())
        .at_most(gates::CHECKS)
}

fn long_functions(proto: &Tree, packages: &[Package]) -> Measure {
    let all = |tree: &Tree| -> Vec<_> { tree.files.iter().flat_map(functions).collect() };
    let mut long = all(proto);
    long.retain(|function| function.lines() > gates::FUNCTION_LINES);
    let line = |package: &str, function: &super::shape::Function| {
        format!("{:>4} {package}: {}:{} {}", function.lines(), function.path, function.first, function.name)
    };
    let mut list: Vec<_> = long.iter().map(|function| line("proto", function)).collect();
    let others = packages.iter().filter(|package| package.name != "proto");
    let mut others: Vec<_> = others
        .flat_map(|package| {
            package.trees.iter().flat_map(all).map(|function| (package.name.as_str(), function))
        })
        .collect();
    others.sort_by_key(|(_, function)| std::cmp::Reverse(function.lines()));
    list.extend(others.iter().take(LISTED).map(|(package, function)| line(package, function)));
    Measure::new(
        "functions",
        "functions over 80 lines in `proto`",
        "5",
        Now::Exact(long.len()),
        "0".to_owned(),
    )
    .with_list(list)
    .at_most(0)
}

fn fields(proto: &Tree) -> Measure {
    let structs = structs(proto);
    let largest = structs.first().map_or(0, |(fields, ..)| *fields);
    let list = structs.iter().map(|(fields, name, path)| format!("{fields:>3} {name} ({path})")).collect();
    Measure::new(
        "fields",
        "fields of the largest engine struct",
        "34",
        Now::Exact(largest),
        "≤ 14".to_owned(),
    )
    .with_list(list)
    .at_most(gates::FIELDS)
}

fn instructions(call: Option<&Operation>) -> Measure {
    let key = ("instructions", "instructions in `proto` for a NULL call, both ends");
    Measure {
        start: "16,979",
        target: "≤ 14,500".to_owned(),
        ..instructions_of(key, call, gates::INSTRUCTIONS)
    }
}

/// Returns the measure of an operation's instructions, by key and title.
fn instructions_of(
    (key, title): (&'static str, &'static str),
    operation: Option<&Operation>,
    gate: usize,
) -> Measure {
    let figure = operation.map(|operation| usize::try_from(operation.own).unwrap_or(usize::MAX));
    let now = figure.map_or(Now::Unmeasured, Now::Near);
    let list = operation.map(|operation| {
        let Operation { own, all, allocations, .. } = operation;
        format!("{own} that count, {all} in all, {allocations} allocations")
    });
    let mut measure = Measure::new(key, title, "–", now, format!("≤ {}", thousands(gate)))
        .with_list(list.into_iter().collect())
        .at_most(gate * (100 + gates::TOLERANCE) / 100);
    if let Some(figure) = figure
        && figure < gate * (100 - gates::TOLERANCE) / 100
    {
        let (now, gate) = (thousands(figure), thousands(gate));
        measure.notes.push(format!("{title}: now {now}, so lower the gate of {gate}"));
    }
    measure
}

/// Compares all instructions of a call with types with those of one by hand, in per cent and rounded up.
fn with_types(
    (key, title, work): (&'static str, &'static str, [&str; 2]),
    pair: Option<&[Operation; 2]>,
) -> Measure {
    let figure = pair.map(|[by_hand, typed]| (100 * typed.all).div_ceil(by_hand.all.max(1)));
    let now =
        figure.map_or(Now::Unmeasured, |figure| Now::Free(usize::try_from(figure).unwrap_or(usize::MAX)));
    let list = pair.into_iter().flat_map(|pair| work.into_iter().zip(pair)).map(|(work, operation)| {
        format!("{work}: {} in all, {} allocations", operation.all, operation.allocations)
    });
    Measure::new(key, title, "–", now, format!("≤ {}", gates::TYPED))
        .with_list(list.collect())
        .at_most(gates::TYPED)
}

/// Counts allocations. Those of the runtime and of the simulated fabric count too.
fn allocations(
    key: &'static str,
    title: &'static str,
    operation: Option<&Operation>,
    gate: usize,
) -> Measure {
    let figure = operation.map(|operation| usize::try_from(operation.allocations).unwrap_or(usize::MAX));
    let now = figure.map_or(Now::Unmeasured, Now::Free);
    let list = figure.map(|figure| format!("{figure} in the whole example"));
    let mut measure = Measure::new(key, title, "–", now, format!("≤ {}", thousands(gate)))
        .with_list(list.into_iter().collect())
        .at_most(gate);
    if let Some(figure) = figure
        && figure < gate
    {
        measure.notes.push(format!("{title}: now {figure}, so lower the gate of {gate}"));
    }
    measure
}

fn sites(src: &Path, proto: &Tree) -> Result<Measure, Failure> {
    let mut found = CfgSites::default();
    for path in crate::source::rust_files(src)? {
        let text = fs::read_to_string(src.join(&path)).context(&path)?;
        let file = proto.files.iter().find(|file| file.path == path);
        cfg_sites(&path, &text, file, &mut found);
    }
    let mut list = found.code;
    let now = Now::Exact(list.len());
    list.push(format!("and {} in tests", found.tests));
    let title = "`cfg` sites of the features `two` and `retired` in `proto`";
    Ok(Measure::new("cfg", title, "–", now, "≤ 12".to_owned()).with_list(list).at_most(gates::CFG_SITES))
}

fn import_circles(packages: &[Package]) -> Measure {
    let all = packages
        .iter()
        .flat_map(|package| package.trees.iter().flat_map(|tree| circles(&package.name, tree)));
    let all: Vec<_> = all.collect();
    let list = all.iter().flat_map(|circle| {
        std::iter::once(circle.to_string()).chain(circle.arrows.iter().map(|arrow| format!("    {arrow}")))
    });
    let title = "import circles between folders, in all crates";
    let mut measure =
        Measure::new("circles", title, "13", Now::Exact(all.len()), "0".to_owned()).with_list(list.collect());
    measure.broken = compare(&all, gates::CIRCLES);
    measure
}

fn section(src: &Path, page: &str) -> Result<Measure, Failure> {
    let title = "files in the section on a call of Version One";
    let target = format!("≤ {}", gates::FILES_OF_SECTION);
    let Some(files) = files_of_section(page) else {
        let now = Now::Text("no section yet".to_owned());
        return Ok(Measure::new("pages", title, "–", now, target));
    };
    let files = files?;
    let mut measure =
        Measure::new("pages", title, "–", Now::Exact(files.len()), target).at_most(gates::FILES_OF_SECTION);
    let missing = files.iter().filter(|file| !src.join(file).is_file());
    measure.broken.extend(missing.map(|file| format!("{PAGE}: there is no file {file} in crates/proto/src")));
    Ok(measure.with_list(files.into_iter().collect()))
}

fn alone(tree: &str) -> Measure {
    let lines = tree.lines().filter(|line| line.contains("rpcrdma-proto"));
    let features = ["\"two\"", "\"retired\"", "\"default\""];
    let on = lines.filter(|line| features.iter().any(|feature| line.contains(feature)));
    let on: Vec<String> = on.map(str::to_owned).collect();
    let now = if on.is_empty() { "passes" } else { "has a door" };
    let title = "`proto` without `two` and `retired` passes its Version One tests";
    let mut measure =
        Measure::new("features", title, "impossible", Now::Text(now.to_owned()), "in CI".to_owned())
            .with_list(tree.lines().map(str::to_owned).collect());
    let fault = |line: &String| format!("the build without features has one: {}", line.trim());
    measure.broken = on.iter().map(fault).collect();
    measure
}
