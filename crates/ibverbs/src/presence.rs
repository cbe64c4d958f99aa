//! Notices that a device goes away.
//!
//! The kernel removes a software device only when no process has it open. It tells users of the connection manager, but
//! not in every order in which modules were loaded. So one task for each device in use looks for its entry in sysfs. When
//! the entry is gone, connections and listeners of the device let go, and librdmacm is made to close it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::device;
use crate::ffi::{ibv_context, ibv_device};
use crate::library::cm;

/// Directory of the devices as processes open them.
const DIRECTORY: &str = "/sys/class/infiniband_verbs";
/// Interval between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks for the device after its end, at which librdmacm closes it: the kernel may need some time.
const FAREWELLS: usize = 20;

/// Ready when a device is gone.
pub(crate) type Gone = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Devices that are watched, by the name of their entry.
static WATCHED: Mutex<BTreeMap<String, watch::Receiver<bool>>> = Mutex::new(BTreeMap::new());

/// Returns whether the device of an open context can be opened again. A device that is about to be removed cannot.
pub(crate) fn is_there(context: NonNull<ibv_context>) -> bool {
    let directory = Path::new(DIRECTORY);
    !directory.exists() || directory.join(entry(context).0).exists()
}

/// Returns the names of a device: of its entry, and its own.
fn entry(context: NonNull<ibv_context>) -> (String, String) {
    let device = device::of(context);
    // SAFETY: the device is valid as long as its context, and the library does not change the names.
    #[allow(unsafe_code)]
    let ibv_device { dev_name, name, .. } = unsafe { &*device };
    let text = |name: &[c_char; 64]| {
        let name = name.map(|octet| octet.to_ne_bytes()[0]);
        CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned()
    };
    (text(dev_name), text(name))
}

/// Returns a future that is ready when the device of an open context is gone.
pub(crate) fn gone(context: NonNull<ibv_context>) -> Gone {
    let (name, device) = entry(context);
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = watched.get(&name).filter(|known| known.has_changed().is_ok()).cloned();
    let receiver = known.unwrap_or_else(|| {
        let (sender, receiver) = watch::channel(false);
        watched.insert(name.clone(), receiver.clone());
        tokio::spawn(look_after(name, device, sender));
        receiver
    });
    Box::pin(wait(receiver))
}

async fn wait(mut receiver: watch::Receiver<bool>) {
    if receiver.wait_for(|gone| *gone).await.is_err() {
        // Nobody looks any more: the runtime ends.
        pending::<()>().await;
    }
}

/// Looks for a device until it is gone, or nobody uses it.
async fn look_after(name: String, device: String, sender: watch::Sender<bool>) {
    let entry = PathBuf::from(DIRECTORY).join(&name);
    // A system without this directory cannot be asked.
    let can_be_seen = entry.exists();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if can_be_seen && !entry.exists() {
            break;
        }
        let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
        // The table has a receiver itself.
        if sender.receiver_count() <= 1 {
            watched.remove(&name);
            return;
        }
    }
    tracing::warn!(device, "an RDMA device is gone");
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
    sender.send_replace(true);
    say_farewell().await;
}

/// Makes librdmacm close devices that are gone, which it does when it makes a list of devices.
pub(crate) async fn say_farewell() {
    let Ok(cm) = cm() else { return };
    for _ in 0..FAREWELLS {
        tokio::time::sleep(INTERVAL / 2).await;
        // SAFETY: the count may be null. The list is freed once, and not used.
        #[allow(unsafe_code)]
        let list = unsafe { (cm.rdma_get_devices)(std::ptr::null_mut()) };
        if !list.is_null() {
            // SAFETY: the list is from the call above.
            #[allow(unsafe_code)]
            unsafe {
                (cm.rdma_free_devices)(list);
            }
        }
    }
}
