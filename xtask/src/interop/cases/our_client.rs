//! Our client on the kernel's server (knfsd on siw), reached from the host through forwarded ports.

use std::time::Duration;

use super::{Case, Detail};
use crate::interop::failure::{Failure, ensure};
use crate::interop::lab::Lab;

pub(super) const CASES: &[Case] = &[Case::new("ping", "knfsd answers NULL calls over RDMA", ping)];

fn ping(lab: &mut Lab) -> Result<Detail, Failure> {
    let knfsd = lab.knfsd()?;
    let address = format!("127.0.0.1:{}", knfsd.rdma);
    let finished =
        lab.rpcrdma(Duration::from_secs(20), &["ping", "--count", "5", "--interval", "0", &address])?;
    ensure!(finished.success(), "ping {}: {}", finished.ending(), finished.errors);
    Ok(finished.text().lines().last().unwrap_or_default().trim().to_owned())
}
