use super::*;

fn tree(text: &str) -> Tree {
    let file =
        |path: &str, module: &str, text: &str| File::parse(path, vec![module.to_owned()], text).unwrap();
    let stand_in =
        "pub(crate) enum Two {} impl Two { fn open() {} } impl Core { fn divides(&self) -> bool { false } }";
    Tree { files: vec![file("no_two.rs", "two", stand_in), file("core.rs", "core", text)] }
}

/// Returns the lines of places if these lines are executed.
fn found(text: &str, executed: &[usize]) -> Vec<String> {
    places(&tree(text), &BTreeMap::from([("core.rs".to_owned(), executed.iter().copied().collect())]))
}

#[test]
fn a_place_is_a_line_that_names_a_foreign_field_hook_or_item() {
    let text = "\
use crate::two::plan;
fn asks(&mut self) {
    if let Some(two) = &mut self.two {
        two.receive();
        two.rpc_taken();
    }
    if self.core.divides() {
        plan::plan_call(self);
    }
    let Arrived { group, len } = arrived;
    assert!(self.retired.is_none());
    self.open();
    crate::two::count();
    let two = 2;
}
";
    let lines = ["core.rs:3", "core.rs:7", "core.rs:8", "core.rs:10", "core.rs:11", "core.rs:13"];
    assert_eq!(found(text, &[12]), lines);
    assert_eq!(found(text, &[1]), [""; 0], "the call does not enter the function");
}

#[test]
fn a_file_may_have_a_field_of_its_own_by_such_a_name() {
    let field = |of: &str| format!("struct Outbox {{ sending: {of} }}\nfn f(&self) {{ self.sending.x() }}\n");
    assert_eq!(found(&field("Option<Moving>"), &[2]), [""; 0]);
    assert_eq!(found(&field("bool"), &[2]), ["core.rs:2"]);
    let of_door = format!("{}use crate::two::sending::Sending;", field("Option<Box<Sending>>"));
    assert_eq!(found(&of_door, &[2]), ["core.rs:2"]);
}
