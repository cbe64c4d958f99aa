//! Wrong side files, each with its whole message.

use super::marked;

const TEXT: &str = "
typedef opaque data<100>;
typedef opaque endless<>;
typedef data other_name;
struct s { int number; int numbers<8>; string text<>; data more; };
struct entry { int value; entry *next; };
struct list { entry *first; };
program P { version V { void P_NULL(void) = 0; s P_GET(data) = 1; void P_PUT(s) = 2; } = 1; } = 1;
";

const WRONG: &[(&str, &str)] = &[
    (
        "[items]\n\"s.none\" = { max = 1 }",
        "2:12: the description has no item `s.none`: an item is a member `type.member`, or a typedef",
    ),
    (
        "[items]\ns = { max = 1 }",
        "2:5: the description has no item `s`: an item is a member `type.member`, or a typedef",
    ),
    ("[items]\n\"s.number\" = { max = 1 }", "2:14: `s.number` is no counted item: it has no maximum"),
    ("[items]\ndata = { max = 101 }", "2:8: `data` holds at most 100, not 101"),
    ("[items]\n\"s.more\" = { max = 101 }", "2:12: `s.more` holds at most 100, not 101"),
    ("[items]\nendless = { ddp = true }", "2:11: `endless` needs `max`, since it is DDP-eligible"),
    (
        "[items]\n\"s.numbers\" = { ddp = true }",
        "2:15: `s.numbers` can't be DDP-eligible: only counted opaque data and strings can",
    ),
    (
        "[items]\n\"s.number\" = { ddp = true }",
        "2:14: `s.number` can't be DDP-eligible: only counted opaque data and strings can",
    ),
    (
        "[items]\n\"list.first\" = { ddp = true, max = 1 }",
        "2:16: `list.first` can't be DDP-eligible: only counted opaque data and strings can",
    ),
    (
        "[items]\ndata = { utf8 = true }",
        "2:8: `data` can't be UTF-8: only strings can that are not DDP-eligible",
    ),
    (
        "[items]\n\"s.text\" = { utf8 = true, ddp = true, max = 9 }",
        "2:12: `s.text` can't be UTF-8: only strings can that are not DDP-eligible",
    ),
    (
        "[items]\n\"entry.next\" = { max = 9 }",
        "2:16: the description has no item `entry.next`: an item is a member `type.member`, or a typedef",
    ),
    (
        "[items]\n\"s.nubmers\" = { max = 1 }",
        "2:15: the description has no item `s.nubmers`: is `s.numbers` meant?",
    ),
    ("[items]\n\"t.text\" = { max = 1 }", "2:12: the description has no item `t.text`: is `s.text` meant?"),
    ("[procedures]\nERASE = { effect = \"data\" }", "2:9: the description has no procedure `ERASE`"),
    (
        "[procedures]\nP_GOT = { effect = \"data\" }",
        "2:9: the description has no procedure `P_GOT`: is `P_GET` meant?",
    ),
    (
        "[procedures]\nGET = { effect = \"data\" }",
        "2:7: the description has no procedure `GET`: is `P_GET` meant?",
    ),
    (
        "[procedures]\n\"W.P_GET\" = { effect = \"data\" }",
        "2:13: the description has no procedure `W.P_GET`: is `P_GET` meant?",
    ),
    (
        "[procedures]\nP_NULL = { effect = \"data\" }",
        "2:10: `P_NULL` is procedure 0, which has no marks: it does nothing",
    ),
    (
        "[procedures]\nP_GET = { effect = \"none\" }",
        "2:20: unknown variant `none`, expected one of `idempotent`, `data`, `state`",
    ),
    ("[procedures]\nGET = { bounds = \"1x\" }", "2:7: `1x` is no path of Rust, for `GET`"),
    ("[types]\nfoo = \"Foo\"", "2:7: the description needs no type `foo` of elsewhere"),
    ("[types]\ndata = \"Data\"", "2:8: the description needs no type `data` of elsewhere"),
    ("[types]\nfoo = \"Vec<u8>\"", "2:7: `Vec<u8>` is no path of Rust, for `foo`"),
    ("[types]\nfoo = \"\"", "2:7: `` is no path of Rust, for `foo`"),
    ("[constants]\nA = 1", "2:5: the description needs no constant `A` of elsewhere"),
    ("[constants]\nA = 1.5", "2:5: invalid type: floating point `1.5`, expected i64"),
    ("[item]", "1:2: unknown field `item`, expected one of `constants`, `types`, `items`, `procedures`"),
    (
        "[items]\ndata = { maximum = 1 }",
        "2:10: unknown field `maximum`, expected one of `max`, `ddp`, `utf8`",
    ),
    ("[items]\ndata = { max = -1 }", "2:16: invalid value: integer `-1`, expected u32"),
    ("[items]\ndata = { ddp = \"slice\" }", "2:16: `ddp` is true, false or \"slices\""),
    ("[items", "1:7: unclosed table, expected `]`"),
];

#[test]
fn each_wrong_side_file_has_its_message() {
    let mut differences = Vec::new();
    for (marks, message) in WRONG {
        let found = marked(TEXT, marks).unwrap_or_else(|error| error.to_string());
        if found != format!("t.toml:{message}") {
            differences.push(format!("{marks}\n  found    {found}\n  expected t.toml:{message}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The description's own faults come with its own name.
#[test]
fn faults_name_their_file() {
    let error = marked("const A = B;", "").unwrap_err().to_string();
    assert_eq!(error, "t.x:1:11: no constant `B` is declared before this place");
}
