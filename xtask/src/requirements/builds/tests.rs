use super::*;

fn holds(features: &[&str], condition: &str) -> bool {
    let features = features.iter().map(|&feature| feature.to_owned()).collect();
    Build { features, ..Build::default() }.holds(&syn::parse_str(condition).unwrap())
}

#[test]
fn conditions_of_a_build_for_tests() {
    for condition in [
        "test",
        "unix",
        "target_os = \"linux\"",
        "feature = \"two\"",
        "all()",
        "all(test, feature = \"two\")",
        "any(windows, test)",
        "not(miri)",
        "not(any(windows, feature = \"no\"))",
    ] {
        assert!(holds(&["two"], condition), "{condition}");
    }
}

#[test]
fn conditions_that_hold_in_no_build() {
    for condition in [
        "any()",
        "not(test)",
        "windows",
        "miri",
        "feature = \"no\"",
        "target_os = \"macos\"",
        "all(test, feature = \"no\")",
        "any(windows, miri)",
        "not(all())",
        "unknown(test)",
    ] {
        assert!(!holds(&["two"], condition), "{condition}");
    }
}

#[test]
fn targets_without_tests_and_without_their_features_are_not_built() {
    let json = r#"{"packages": [
        {"name": "a", "features": {"default": ["x"], "x": ["y", "dep/z"], "y": [], "off": []}, "targets": [
            {"src_path": "/a/src/lib.rs", "test": true},
            {"src_path": "/a/examples/e.rs", "test": false},
            {"src_path": "/a/tests/off.rs", "test": true, "required-features": ["off"]}
        ]},
        {"name": "rpcrdma-proto", "features": {"default": ["two"], "two": []}, "targets": [
            {"src_path": "/p/src/lib.rs", "test": true},
            {"src_path": "/p/tests/two.rs", "test": true, "required-features": ["two"]}
        ]}
    ]}"#;
    let builds = of_metadata(json).unwrap();
    let seen: Vec<(&str, Vec<&str>)> = builds
        .iter()
        .map(|build| (build.root.to_str().unwrap(), build.features.iter().map(String::as_str).collect()))
        .collect();
    let expected = [
        ("/a/src/lib.rs", vec!["default", "x", "y"]),
        ("/p/src/lib.rs", vec!["default", "two"]),
        ("/p/src/lib.rs", vec![]),
        ("/p/tests/two.rs", vec!["default", "two"]),
    ];
    assert_eq!(seen, expected);
}

/// The claims of the constants, as `.ci/run` has them.
#[test]
fn the_builds_are_those_of_the_script() {
    let script = include_str!("../../../../.ci/run");
    for line in
        ["cargo test --workspace --locked", "cargo test -p rpcrdma-proto --no-default-features --locked"]
    {
        assert!(script.lines().any(|seen| seen == line), "{line}");
    }
    let builds = of_workspace(&crate::project::project().unwrap()).unwrap();
    let proto: Vec<bool> = builds
        .iter()
        .filter(|build| build.root.ends_with("crates/proto/src/lib.rs"))
        .map(|build| build.features.contains("two"))
        .collect();
    assert_eq!(proto, [true, false]);
}
