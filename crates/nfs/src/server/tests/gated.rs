//! A file system that waits where a test requires it: the one in memory behind a gate.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::fs::{
    Access, Attributes, CreateHow, EntrySink, FileId, FileSystem, Found, FsError, Identity, Linked, Listing,
    LookupName, MemoryFs, MemoryOptions, Name, Node, Outcome, Properties, ReadResult, Renamed, SetAttributes,
    Special, Stability, Statistics, Timestamp, WriteResult,
};

/// Time after which a waiting test has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// An operation that reaches the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Attributes(FileId),
    /// ACCESS of this user.
    Access(u32),
    Read(FileId),
    /// WRITE of this user, to this file, from this offset.
    Write(u32, FileId, u64),
    /// The sync of a stable WRITE, after the data is in the file.
    Settle(FileId),
    Commit(FileId),
    SetAttributes(FileId),
    Flush,
}

/// Predicate for the operations to hold.
type Holds = Box<dyn Fn(Step) -> bool + Send + Sync>;

#[derive(Default)]
struct State {
    open: bool,
    /// Operations held inside the gate, in the order of their arrival.
    inside: Vec<Step>,
    /// Operations that have passed, in the order of their departure.
    passed: Vec<Step>,
    most_inside: usize,
}

/// Gate that holds operations until it is opened.
pub(super) struct Gate {
    holds: Holds,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, step: Step) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if (self.holds)(step) {
            state.inside.push(step);
            state.most_inside = state.most_inside.max(state.inside.len());
            self.changed.notify_all();
            while !state.open {
                state = self.changed.wait(state).unwrap();
            }
            let place = state.inside.iter().position(|inside| *inside == step).unwrap();
            state.inside.remove(place);
        }
        state.passed.push(step);
        self.changed.notify_all();
    }

    /// Closes the gate: operations are held from now on. Earlier operations no longer count.
    pub(super) fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.open = false;
        state.passed.clear();
    }

    /// Opens the gate.
    pub(super) fn open(&self) {
        self.state.lock().unwrap().open = true;
        self.changed.notify_all();
    }

    /// Waits until this many operations are held.
    pub(super) async fn holding(self: &Arc<Self>, count: usize) {
        self.until(move |state| state.inside.len() >= count).await;
    }

    /// Waits until this many operations have passed.
    pub(super) async fn has_passed(self: &Arc<Self>, count: usize) {
        self.until(move |state| state.passed.len() >= count).await;
    }

    async fn until(self: &Arc<Self>, come: impl Fn(&State) -> bool + Send + 'static) {
        let gate = Arc::clone(self);
        let waiting = move || {
            let state = gate.state.lock().unwrap();
            let (state, waited) =
                gate.changed.wait_timeout_while(state, PATIENCE, |state| !come(state)).unwrap();
            assert!(!waited.timed_out(), "held: {:?}, passed: {:?}", state.inside, state.passed);
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    }

    /// Returns the operations held now.
    pub(super) fn held(&self) -> Vec<Step> {
        self.state.lock().unwrap().inside.clone()
    }

    /// Returns the operations that have passed.
    pub(super) fn passed(&self) -> Vec<Step> {
        self.state.lock().unwrap().passed.clone()
    }

    /// Returns the greatest number of operations held at a time.
    pub(super) fn most(&self) -> usize {
        self.state.lock().unwrap().most_inside
    }
}

/// Opens the gate on drop, so that a failed test leaves no thread behind it.
pub(super) struct Opener(pub(super) Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// File system behind a gate.
pub(super) struct GatedFs {
    memory: MemoryFs,
    gate: Arc<Gate>,
}

impl GatedFs {
    /// Creates a file system that holds the operations that `holds` selects, while the gate is closed.
    pub(super) fn new(holds: impl Fn(Step) -> bool + Send + Sync + 'static) -> (Arc<Self>, Arc<Gate>) {
        let state = Mutex::new(State { open: true, ..State::default() });
        let gate = Arc::new(Gate { holds: Box::new(holds), state, changed: Condvar::new() });
        let memory = MemoryFs::new(MemoryOptions::default());
        (Arc::new(Self { memory, gate: Arc::clone(&gate) }), gate)
    }
}

impl FileSystem for GatedFs {
    fn may_block(&self) -> bool {
        true
    }

    fn root(&self) -> FileId {
        self.memory.root()
    }

    fn properties(&self) -> Result<Properties, FsError> {
        self.memory.properties()
    }

    fn statistics(&self, id: &FileId) -> Result<Statistics, FsError> {
        self.memory.statistics(id)
    }

    fn attributes(&self, id: &FileId) -> Result<Attributes, FsError> {
        self.gate.pass(Step::Attributes(*id));
        self.memory.attributes(id)
    }

    fn access(&self, who: &Identity, id: &FileId, wanted: Access) -> Result<(Access, Attributes), FsError> {
        self.gate.pass(Step::Access(who.uid));
        self.memory.access(who, id, wanted)
    }

    fn lookup(&self, who: &Identity, directory: &FileId, name: LookupName<'_>) -> Result<Found, FsError> {
        if let LookupName::Entry(name) = &name {
            assert_ne!(name.as_bytes(), b"panic", "on purpose");
        }
        self.memory.lookup(who, directory, name)
    }

    fn read_link(
        &self,
        who: &Identity,
        id: &FileId,
        target: &mut [u8],
    ) -> Result<(usize, Attributes), FsError> {
        self.memory.read_link(who, id, target)
    }

    fn read(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<ReadResult, FsError> {
        self.gate.pass(Step::Read(*id));
        self.memory.read(who, id, offset, buffer)
    }

    fn write(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
    ) -> Outcome<WriteResult> {
        self.gate.pass(Step::Write(who.uid, *id, offset));
        self.memory.write(who, id, offset, data, stability)
    }

    fn write_telling(
        &self,
        who: &Identity,
        id: &FileId,
        offset: u64,
        data: &[u8],
        stability: Stability,
        written: &dyn Fn(),
    ) -> Outcome<WriteResult> {
        let outcome = self.write(who, id, offset, data, stability);
        written();
        if stability != Stability::Unstable {
            self.gate.pass(Step::Settle(*id));
        }
        outcome
    }

    fn commit(&self, who: &Identity, id: &FileId, offset: u64, count: u32) -> Outcome<u64> {
        self.gate.pass(Step::Commit(*id));
        self.memory.commit(who, id, offset, count)
    }

    fn set_attributes(
        &self,
        who: &Identity,
        id: &FileId,
        new: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Outcome<()> {
        self.gate.pass(Step::SetAttributes(*id));
        self.memory.set_attributes(who, id, new, guard)
    }

    fn create(&self, who: &Identity, directory: &FileId, name: Name<'_>, how: &CreateHow) -> Outcome<Node> {
        self.memory.create(who, directory, name, how)
    }

    fn make(
        &self,
        who: &Identity,
        directory: &FileId,
        name: Name<'_>,
        what: &Special<'_>,
        attributes: &SetAttributes,
    ) -> Outcome<Node> {
        self.memory.make(who, directory, name, what, attributes)
    }

    fn remove(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.memory.remove(who, directory, name)
    }

    fn remove_directory(&self, who: &Identity, directory: &FileId, name: Name<'_>) -> Outcome<()> {
        self.memory.remove_directory(who, directory, name)
    }

    fn rename(
        &self,
        who: &Identity,
        from: &FileId,
        from_name: Name<'_>,
        to: &FileId,
        to_name: Name<'_>,
    ) -> Renamed {
        self.memory.rename(who, from, from_name, to, to_name)
    }

    fn link(&self, who: &Identity, file: &FileId, directory: &FileId, name: Name<'_>) -> Linked {
        self.memory.link(who, file, directory, name)
    }

    fn read_directory(
        &self,
        who: &Identity,
        directory: &FileId,
        cookie: u64,
        verifier: u64,
        nodes: bool,
        sink: &mut EntrySink<'_>,
    ) -> Result<Listing, FsError> {
        self.memory.read_directory(who, directory, cookie, verifier, nodes, sink)
    }

    fn flush(&self) -> Result<(), FsError> {
        self.gate.pass(Step::Flush);
        self.memory.flush()
    }
}
