//! Choice of the RDMA provider, on machines with RDMA devices and on those without.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Server, command, fail, run, scratch, succeed, text};

/// Returns whether the kernel has an RDMA device.
fn has_devices() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

/// Checks that a complaint names the package to install or the module to load, in one line.
#[track_caller]
fn names_the_remedy(complaint: &str) {
    assert!(complaint.contains("install libibverbs") || complaint.contains("modprobe"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[test]
fn without_rdma_devices_the_complaint_names_the_remedy() {
    if has_devices() {
        println!("skipped: this machine has RDMA devices");
        return;
    }
    let place = scratch();
    let (export, state) = (place.path().join("export"), place.path().join("state"));
    fs::create_dir(&export).unwrap();
    let serve = ["serve", export.to_str().unwrap(), "--state", state.to_str().unwrap()];
    for listen in ["verbs:127.0.0.1:0", "verbs:192.0.2.1:20049"] {
        let complaint = fail(1, &[&serve[..], &["--listen", listen]].concat());
        names_the_remedy(&complaint);
        assert!(complaint.contains("cannot listen on"), "{complaint}");
    }
    let url = "nfs://127.0.0.1:1/x";
    for arguments in [
        vec!["ls", url, "--provider", "verbs"],
        vec!["cat", url, "--provider", "verbs:mlx5_0"],
        vec!["ping", "127.0.0.1:1", "--provider", "verbs", "--tos", "104", "--no-windows"],
        vec!["conform", "--server", "127.0.0.1:1", "--provider", "verbs"],
    ] {
        let complaint = fail(3, &arguments);
        names_the_remedy(&complaint);
        assert!(complaint.contains("cannot connect to 127.0.0.1:1"), "{complaint}");
    }
    let complaint = fail(1, &["conform", "--client", "--listen", "127.0.0.1:0", "--provider", "verbs"]);
    names_the_remedy(&complaint);
}

/// A command that fails has its document, with the failure beside what it has done or found.
#[test]
fn without_rdma_devices_documents_are_those_of_other_failures() {
    if has_devices() {
        println!("skipped: this machine has RDMA devices");
        return;
    }
    let output = run(&["mkdir", "--json", "--provider", "verbs", "nfs://127.0.0.1:1/x"]);
    let parsed = |output: &std::process::Output| serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let document = parsed(&output);
    assert_eq!((output.status.code(), &document["done"]), (Some(3), &json!([])));
    names_the_remedy(document["error"]["message"].as_str().unwrap());
    let output = run(&["ls", "--json", "--provider", "verbs", "nfs://127.0.0.1:1/x"]);
    let document = parsed(&output);
    assert_eq!(output.status.code(), Some(3));
    let fields: Vec<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!((fields, &document["error"]["exit"]), (vec!["error", "listings"], &json!(3)));
    // A kernel with its RDMA subsystem has an empty list.
    if !fs::exists("/sys/class/infiniband").unwrap() {
        let output = run(&["devices", "--json"]);
        assert_eq!((output.status.code(), &parsed(&output)["error"]["exit"]), (Some(1), &json!(1)));
        names_the_remedy(&text(&output.stderr));
        names_the_remedy(&fail(1, &["devices"]));
    }
}

#[test]
fn a_server_listens_on_several_addresses() {
    // The server of the tests has an address already; these follow it.
    let server = Server::start_with(&["--listen", "iwarp:127.0.0.1:0", "--listen", "auto:127.0.0.2:0"]);
    fs::write(server.directory().join("there"), "content").unwrap();
    let listeners = server.ready["listeners"].as_array().unwrap();
    assert_eq!(listeners.len(), 3);
    assert_eq!(listeners[0]["address"], server.ready["rdma"]);
    for listener in listeners {
        assert_eq!(listener["provider"], "iwarp", "{listener}");
        let url = format!("nfs://{}/there", listener["address"].as_str().unwrap());
        for provider in ["auto", "iwarp"] {
            assert_eq!(succeed(&["cat", &url, "--provider", provider]), "content");
        }
    }
}

/// Loopback is never on an adapter, and `-v` shows the choice.
#[test]
fn auto_tells_its_choice() {
    let server = Server::start();
    let output = run(&["-v", "ping", "-c", "1", "--no-crc", "--tos", "8", server.rdma()]);
    let events = text(&output.stderr);
    let choice = format!("RDMA provider address={} provider=iwarp", server.rdma());
    assert!(output.status.success() && events.contains(&choice), "{events}");
    let quiet = command(&["ping", "-c", "1", server.rdma()]).output().unwrap();
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
}
