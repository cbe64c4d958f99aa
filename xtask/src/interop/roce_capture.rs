//! `cargo xtask roce-capture`: records RoCE between two guests, for the tests of `rpcrdma_capture`.
//!
//! rxe hands the packets for its own machine to itself, and no recorder sees them. Between two machines they pass the
//! network devices, where tcpdump in the server's guest records them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::machine::{self, Machine};
use super::network::GUEST;
use super::vm::{Accel, Network, Vm};
use crate::failure::{Context, Failure, ensure};
use crate::project::{self, project};

/// Address of the client's guest. The server's guest keeps the address that every guest begins with.
const CLIENT: &str = "10.0.2.16";
/// Maximum time of a script with KVM.
const LIMIT: Duration = Duration::from_secs(60);

/// The options of `cargo xtask roce-capture`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder for the recordings
    #[arg(value_name = "DIR")]
    output: PathBuf,
    /// Kind of the guests' processors
    #[arg(long, value_enum, default_value_t = Accel::Auto)]
    accel: Accel,
}

/// Records all.
pub(crate) fn run(options: &Options) -> ExitCode {
    match record_all(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("roce-capture: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn record_all(options: &Options) -> Result<(), Failure> {
    let project = project()?;
    let target = project::target(&project).join("interop");
    fs::create_dir_all(&target)?;
    fs::create_dir_all(&options.output)?;
    let lock = fs::File::create(target.join("lock")).context("creating the lock")?;
    ensure!(lock.try_lock().is_ok(), "a run of the suite uses {}", target.display());
    let rpcrdma = project::build_command(&project)?;
    let machine = machine::prepare(&project.join("interop"), &target, false)?;
    let mut guests = Guests::boot(&machine, &project, &target.join("roce"), &rpcrdma, options)?;
    let server = GUEST.to_string();

    guests.on_server(SERVE, &[&server])?;
    guests.record("roce-kclient", KERNEL_CLIENT, &[&server])?;
    guests.on_server("rm -f /srv/export/*", &[])?;
    guests.record("roce-rpcrdma", COMMANDS, &[&format!("nfs://{server}")])?;
    guests.on_server(KNFSD, &[])?;
    let url = format!("nfs://{server}/export/memory");
    guests.record("roce-knfsd", COMMANDS, &[&url, "--mountport", "20048"])
}

/// Two guests on one network, each with rxe as its only RDMA device.
struct Guests<'a> {
    server: Vm,
    client: Vm,
    /// Name of the network device of a guest.
    device: String,
    output: &'a Path,
}

impl<'a> Guests<'a> {
    fn boot(
        machine: &Machine,
        project: &Path,
        run: &Path,
        rpcrdma: &Path,
        options: &'a Options,
    ) -> Result<Self, Failure> {
        let interop = project.join("interop");
        let boot = |name: &str, network| {
            let run = run.join(name);
            fs::create_dir_all(&run)?;
            let vm = Vm::boot(machine, &interop, &run, options.accel, network)?;
            fs::copy(rpcrdma, vm.job.join("rpcrdma")).context("copying rpcrdma into a guest")?;
            Ok::<_, Failure>(vm)
        };
        let server = boot("server", Network::Cable { listens: true })?;
        let client = boot("client", Network::Cable { listens: false })?;
        let mut guests = Self { server, client, device: String::new(), output: &options.output };
        let device = guests.on_server("basename /sys/class/net/e[tn]*", &[])?;
        device.trim().clone_into(&mut guests.device);
        let device = guests.device.clone();
        guests.on_client(ADDRESS, &[&device, CLIENT])?;
        for vm in [&mut guests.server, &mut guests.client] {
            on(vm, "exec bash /job/guest/fabric.sh rxe", &[])?;
        }
        guests.on_client(FILES, &[])?;
        Ok(guests)
    }

    fn on_server(&mut self, script: &str, arguments: &[&str]) -> Result<String, Failure> {
        on(&mut self.server, script, arguments)
    }

    fn on_client(&mut self, script: &str, arguments: &[&str]) -> Result<String, Failure> {
        on(&mut self.client, script, arguments)
    }

    /// Records a script in the client's guest.
    fn record(&mut self, name: &str, script: &str, arguments: &[&str]) -> Result<(), Failure> {
        let device = self.device.clone();
        self.on_server(BEGIN, &[&device])?;
        let result = self.on_client(script, arguments);
        let said = self.on_server(END, &[])?;
        let file = self.output.join(format!("{name}.pcap"));
        fs::copy(self.server.job.join("pcap"), &file).context("taking the recording")?;
        result.context(name)?;
        println!("{}: {}", file.display(), said.lines().collect::<Vec<_>>().join(", "));
        Ok(())
    }
}

fn on(vm: &mut Vm, script: &str, arguments: &[&str]) -> Result<String, Failure> {
    let job = vm.start(script, arguments)?;
    let outcome = vm.finish(&job, LIMIT * vm.accel.patience())?;
    outcome.succeeded(script)
}

/// Gives the guest another address: ADDRESS DEVICE IP.
const ADDRESS: &str = "set -e; ip address flush dev \"$1\" scope global; ip address add \"$2/24\" dev \"$1\"; \
    ip route add default via 10.0.2.2";

/// Makes files for three ways of an item: in one packet, in packets of one Send, and in a chunk.
const FILES: &str = "mkdir /tmp/files && for size in 100 3000 10000; do \
    head -c $size /dev/urandom >/tmp/files/$size; done";

/// Starts our server: SERVE IP.
const SERVE: &str = "ulimit -l unlimited; mkdir -p /srv/export
    setsid /job/rpcrdma -v serve --provider verbs --listen \"$1:20049\" --tcp \"$1:20048\" --state /srv/state \
        --export /=/srv/export,squash=none --json </dev/null >/tmp/ready 2>/job/serve.log &
    for _ in $(seq 400); do ! grep -q rdma /tmp/ready || exit 0; sleep 0.1; done; cat /job/serve.log; exit 1";

/// Stops our server and starts that of the kernel.
const KNFSD: &str = "pkill -x rpcrdma; while pgrep -x rpcrdma >/dev/null; do sleep 0.1; done; \
    exec bash /job/guest/knfsd.sh";

/// Mounts the export, stores and fetches the files, lists them: KERNEL_CLIENT IP.
const KERNEL_CLIENT: &str = "set -e; modprobe -a rpcrdma nfsv3; mkdir -p /mnt/server
    mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock,noacl,retry=0 \"$1:/\" /mnt/server
    cp /tmp/files/* /mnt/server/; sync; echo 3 >/proc/sys/vm/drop_caches
    for file in /tmp/files/*; do cmp $file /mnt/server/${file##*/}; done
    ls -l /mnt/server; umount /mnt/server";

/// Stores, lists and fetches the files by our command: COMMANDS URL OPTION...
const COMMANDS: &str = "set -e; ulimit -l unlimited; url=$1; shift; rm -rf /tmp/back; mkdir /tmp/back
    /job/rpcrdma put -q --provider verbs \"$@\" /tmp/files/* $url/
    /job/rpcrdma ls -l --provider verbs \"$@\" $url/
    /job/rpcrdma get -q --provider verbs \"$@\" $url/100 $url/3000 $url/10000 /tmp/back
    diff -r /tmp/files /tmp/back";

/// Begins to record: BEGIN DEVICE.
const BEGIN: &str = "setsid tcpdump -i \"$1\" -s 0 -B 32768 -U -Z root -w /tmp/pcap udp port 4791 \
        </dev/null >/tmp/tcpdump 2>&1 &
    for _ in $(seq 400); do ! grep -q 'listening on' /tmp/tcpdump || exit 0; sleep 0.1; done; cat /tmp/tcpdump; exit 1";

/// Ends the recording. The last packets may still be on their way.
const END: &str = "sleep 1; pkill -x tcpdump; while pgrep -x tcpdump >/dev/null; do sleep 0.1; done
    grep packets /tmp/tcpdump; cp /tmp/pcap /job/pcap; grep -q '^0 packets dropped' /tmp/tcpdump";
