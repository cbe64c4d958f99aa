//! The documents of `--json` have the shapes that `docs/json.md` describes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Map, Value};

use crate::bench::BenchServer;
use crate::support::{Server, json, run, text};

/// A shape of `docs/json.md`.
#[derive(Clone, Debug)]
enum Shape {
    Named(String),
    Exactly(String),
    List(Box<Self>),
    /// Fields, and whether each may be absent.
    Object(Vec<(String, bool, Self)>),
    Any(Vec<Self>),
    Both(Box<Self>, Box<Self>),
}

/// Parser of a line of shapes.
struct Parser<'a>(&'a str);

impl Parser<'_> {
    fn space(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "{token} before {:?}", self.0);
    }

    fn word(&mut self) -> String {
        self.space();
        let end = self.0.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        assert!(!word.is_empty(), "a word before {:?}", self.0);
        self.0 = rest;
        word.to_owned()
    }

    fn shape(&mut self) -> Shape {
        let mut any = vec![self.both()];
        while self.take("|") {
            any.push(self.both());
        }
        if any.len() == 1 { any.remove(0) } else { Shape::Any(any) }
    }

    fn both(&mut self) -> Shape {
        let mut shape = self.one();
        while self.take("&") {
            shape = Shape::Both(Box::new(shape), Box::new(self.one()));
        }
        shape
    }

    fn one(&mut self) -> Shape {
        if self.take("\"") {
            let (exactly, rest) = self.0.split_once('"').unwrap();
            self.0 = rest;
            return Shape::Exactly(exactly.to_owned());
        }
        if self.take("[") {
            let inner = self.shape();
            self.expect("]");
            return Shape::List(Box::new(inner));
        }
        if !self.take("{") {
            return Shape::Named(self.word());
        }
        let mut fields = Vec::new();
        while !self.take("}") {
            if !fields.is_empty() {
                self.expect(",");
            }
            let name = self.word();
            let optional = self.take("?");
            self.expect(":");
            fields.push((name, optional, self.shape()));
        }
        Shape::Object(fields)
    }
}

/// The shapes of the page by name.
struct Shapes(BTreeMap<String, Shape>);

impl Shapes {
    fn read() -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let page = fs::read_to_string(page).unwrap();
        let blocks = page.split("```shapes\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
        let mut shapes = BTreeMap::new();
        for line in blocks.flat_map(str::lines) {
            let mut parser = Parser(line);
            let name = parser.word();
            parser.expect("=");
            let shape = parser.shape();
            assert_eq!(parser.0, "", "{line}");
            assert!(shapes.insert(name, shape).is_none(), "twice: {line}");
        }
        Self(shapes)
    }

    /// Checks that a value has the shape of this name, and no field beside.
    fn check(&self, name: &str, value: &Value) {
        if let Err(wrong) = self.matches(&Shape::Named(name.to_owned()), value) {
            panic!("{name}: {wrong} in {value}");
        }
    }

    fn fields(&self, shape: &Shape) -> Vec<(String, bool, Shape)> {
        match shape {
            Shape::Object(fields) => fields.clone(),
            Shape::Named(name) => self.fields(&self.0[name]),
            Shape::Both(one, other) => [self.fields(one), self.fields(other)].concat(),
            other => panic!("{other:?} has no fields"),
        }
    }

    fn matches(&self, shape: &Shape, value: &Value) -> Result<(), String> {
        let fits = match shape {
            Shape::Named(name) => match name.as_str() {
                "string" => value.is_string(),
                "integer" => value.is_u64() || value.is_i64(),
                "number" => value.is_number(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                "STATUSES" => value.as_object().is_some_and(|counts| counts.values().all(Value::is_u64)),
                name => return self.matches(self.0.get(name).ok_or(format!("no shape {name}"))?, value),
            },
            Shape::Exactly(text) => value == text,
            Shape::Any(shapes) => shapes.iter().any(|shape| self.matches(shape, value).is_ok()),
            Shape::List(inner) => {
                let list = value.as_array().ok_or(format!("{value} is no list"))?;
                return list.iter().try_for_each(|item| self.matches(inner, item));
            }
            Shape::Object(_) | Shape::Both(..) => {
                let object = value.as_object().ok_or(format!("{value} is no object"))?;
                return self.object(&self.fields(shape), object);
            }
        };
        if fits { Ok(()) } else { Err(format!("{value} is not {shape:?}")) }
    }

    fn object(&self, fields: &[(String, bool, Shape)], object: &Map<String, Value>) -> Result<(), String> {
        for (name, optional, shape) in fields {
            match object.get(name) {
                Some(value) => self.matches(shape, value).map_err(|wrong| format!("{name}: {wrong}"))?,
                None if *optional => {}
                None => return Err(format!("no field {name}")),
            }
        }
        match object.keys().find(|key| !fields.iter().any(|(name, ..)| name == *key)) {
            Some(key) => Err(format!("the field {key} is not described")),
            None => Ok(()),
        }
    }
}

#[test]
fn documents_are_as_described() {
    let shapes = Shapes::read();
    let server = Server::start_with(&["--metrics", "127.0.0.1:0"]);
    let export = server.directory();
    fs::create_dir(export.join("d")).unwrap();
    fs::write(export.join("d/f"), "content").unwrap();
    symlink("f", export.join("d/l")).unwrap();
    let url = |path: &str| server.url(path);
    let local = server.place.path().join("local");
    let local = local.to_str().unwrap();

    shapes.check("serve", &server.ready);
    for (shape, arguments) in [
        ("checked", vec!["serve", "--check", export.to_str().unwrap()]),
        ("exports", vec!["exports", server.rdma()]),
        ("ls", vec!["ls", "-l", "-R", &url("/")]),
        ("stat", vec!["stat", &url("/d/l"), &url("/d")]),
        ("find", vec!["find", &url("/")]),
        ("du", vec!["du", "-a", &url("/")]),
        ("df", vec!["df", &url("/")]),
        ("checksum", vec!["checksum", "-r", &url("/d")]),
        ("copy", vec!["get", "-r", &url("/d"), local]),
        ("copy", vec!["put", "-r", local, &url("/new")]),
        ("copy", vec!["cp", "-r", &url("/d"), &url("/copy")]),
        ("done", vec!["mkdir", &url("/m")]),
        ("done", vec!["mv", &url("/m"), &url("/n")]),
        ("done", vec!["ln", &url("/d/f"), &url("/n/hard")]),
        ("done", vec!["chmod", "-R", "u+w", &url("/n")]),
        ("done", vec!["chown", "-R", ":0", &url("/n")]),
        ("done", vec!["touch", &url("/n/t")]),
        ("done", vec!["rm", "-r", &url("/n")]),
        ("ping", vec!["ping", "-c", "1", server.rdma()]),
        ("ping", vec!["ping", "-c", "1", "--proto", "tcp", server.tcp()]),
        ("status", vec!["stat", server.metrics()]),
        ("status", vec!["stat", server.state().to_str().unwrap()]),
        ("clients", vec!["clients", server.state().to_str().unwrap()]),
        ("rows", vec!["conform", "--list", "--client"]),
        ("conform", vec!["conform", "--server", server.rdma(), "--filter", "version"]),
    ] {
        let document = json(&arguments);
        shapes.check(shape, &document);
        let lists = document.as_object().unwrap().values().filter_map(Value::as_array);
        let may_be_empty = matches!(shape, "copy" | "clients");
        let empty = !may_be_empty && lists.clone().count() > 0 && lists.clone().all(Vec::is_empty);
        assert!(!empty, "{arguments:?} shows nothing: {document}");
    }
    let list = server.place.path().join("list");
    let sum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    fs::write(&list, format!("{sum}  f\n{sum}  nothing\n")).unwrap();
    let output = run(&["checksum", "--json", "--check", list.to_str().unwrap(), &url("/d")]);
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    shapes.check("ERROR", &Value::Object(Map::from_iter([("error".to_owned(), document["error"].take())])));
    document.as_object_mut().unwrap().remove("error");
    shapes.check("check", &document);
    // A machine without the libraries of adapters has no list of devices.
    let devices = run(&["devices", "--json"]);
    let document = serde_json::from_slice(&devices.stdout).unwrap();
    shapes.check(if devices.status.success() { "devices" } else { "ERROR" }, &document);
}

/// The server of measurements prints lines, and the other commands a document.
#[test]
fn measurements_are_as_described() {
    let shapes = Shapes::read();
    let mut server = BenchServer::start(&[]);
    shapes.check("bench_server", &server.ready);
    shapes.check("bench_host", &server.measure(&["--interval", "0.01"]));
    run(&["bench", &server.address, "--seconds", "1000000"]);
    loop {
        let event = server.event();
        shapes.check("bench_server", &event);
        if event["event"] == "refused" {
            break;
        }
    }
    let place = tempfile::tempdir().unwrap();
    let picture = place.path().join("picture.svg");
    shapes.check("bench_roundtrips", &json(&["bench", "roundtrips"]));
    shapes.check("bench_curves", &json(&["bench", "roundtrips", "--svg", picture.to_str().unwrap()]));
    let verbs = ["bench", "verbs", "--provider", "iwarp", "--quick", "--rounds", "1", "--operations", "8"];
    shapes.check("bench_verbs", &json(&verbs));
}

/// A failure is in the document of what was done before, or it is the document.
#[test]
fn failures_are_in_the_document() {
    let shapes = Shapes::read();
    let server = Server::start();
    fs::write(server.directory().join("f"), "").unwrap();
    let (there, missing) = (server.url("/f"), server.url("/missing"));
    let (here, local) = (server.place.path().join("here"), server.place.path().join("local"));
    fs::write(&here, "x").unwrap();
    fs::create_dir(&local).unwrap();
    let (here, local) = (here.to_str().unwrap(), local.to_str().unwrap());
    for (code, kind, arguments) in [
        (1, "failed", vec!["stat", &missing]),
        (4, "partial", vec!["stat", &there, &missing]),
        (4, "partial", vec!["get", &there, &missing, local]),
        (4, "partial", vec!["rm", &missing, &there]),
        (3, "unreachable", vec!["ls", "nfs://127.0.0.1:1/"]),
        (3, "unreachable", vec!["ping", "127.0.0.1:1"]),
        (2, "usage", vec!["ls"]),
        (2, "usage", vec!["ls", "--proto", "x", &there]),
        (2, "usage", vec!["cat", &there]),
        (2, "usage", vec!["nothing"]),
        (1, "failed", vec!["get", &missing, local]),
        (1, "failed", vec!["put", here, &server.url("/missing/f")]),
        (1, "failed", vec!["cp", &missing, &server.url("/new")]),
    ] {
        let output = run(&[arguments.clone(), vec!["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        let out = text(&output.stdout);
        assert_eq!(out.lines().count(), 1, "{arguments:?}: {out}");
        let document: Value = serde_json::from_str(&out).unwrap();
        let error = &document["error"];
        assert_eq!((&error["exit"], &error["kind"]), (&code.into(), &kind.into()), "{document}");
        if matches!(arguments[0], "get" | "put" | "cp") {
            let causes = error["causes"].as_array().unwrap();
            assert!(causes.len() == 1 && causes[0].as_str().unwrap().contains("/missing"), "{document}");
        }
        assert!(!error["causes"].as_array().unwrap().is_empty(), "{document}");
        let alone = Map::from_iter([("error".to_owned(), error.clone())]);
        shapes.check("ERROR", &Value::Object(alone));
        assert!(!error["message"].as_str().unwrap().is_empty(), "{document}");
        if kind == "partial" {
            assert!(error["causes"][0].as_str().unwrap().contains("/missing"), "{document}");
        }
    }
    // Without the option nothing is on standard output.
    assert_eq!(text(&run(&["stat", &missing]).stdout), "");
}
