//! The order of jobs: the queues of an export for one kind of work. This module has no threads and no clock;
//! times are arguments.
//!
//! *Order.* Each address, or IPv6 network ([`Origin`]), has a queue. A free thread goes to the address that
//! holds the fewest threads; among equal addresses they take turns. So a job counts for as long as it holds a
//! thread. An address with slow jobs gets fewer turns, and the next free thread goes to an address that holds
//! none.
//!
//! *Quick jobs.* A job that is answered from memory needs only a processor. On more threads such jobs would
//! not end earlier, but would compete for processors with those of other addresses. So an address holds few
//! threads ([`Limits::quick`]) as long as its jobs are quick. It may hold more when a job took [`Limits::slow`], or
//! has not ended after [`UNENDED`] times as long. Such a job waits for a disk, and others can run meanwhile. The second
//! limit is wider, because a job may also wait for a processor, where another thread is no help.
//!
//! *Writes.* One WRITE to a file runs at a time, because the kernel would make others wait for the inode's
//! lock. Those wait here without a thread: the WRITEs of one address in their order, and addresses take
//! turns. At the end of a WRITE, each address that waits for the file puts a mark into its own queue. The
//! first address that gets a thread writes; the others find the file taken and wait again. This costs a step
//! for each address that waits.
//!
//! *Refusal.* If no job of an address could begin for [`STALLED`], the address waits for a job that may never
//! end. Its jobs that have waited as long are returned, and new jobs are refused until a thread is free. So a
//! waiting call does not hold its credit for ever, and a client's calls of other exports get through.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use rpcrdma_oncrpc::Origin;

use crate::fs::FileId;

/// Time without a new start after which the jobs of an address are refused.
pub(in crate::server) const STALLED: Duration = Duration::from_secs(10);

/// Multiple of [`Limits::slow`] after which a job that has not ended counts as slow.
const UNENDED: u32 = 8;

/// Origin of a job. Peers without an address share one queue.
pub(super) type Address = Option<Origin>;

/// Bounds of the running jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Jobs that run at a time.
    pub(super) threads: usize,
    /// Jobs of one address that run at a time.
    pub(super) of_address: usize,
    /// Jobs of one address that run at a time while they are quick; at least 1.
    pub(super) quick: usize,
    /// Duration from which on a job that has waited for anything is not quick.
    pub(super) slow: Duration,
}

/// A job that begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Begun<J> {
    pub(super) job: J,
    pub(super) address: Address,
    /// File whose turn the job has until [`Queues::release`].
    pub(super) file: Option<FileId>,
}

#[derive(Debug)]
struct Waiting<J> {
    job: J,
    since: Instant,
}

#[derive(Debug)]
enum Entry<J> {
    Job(Waiting<J>),
    /// The first of [`Flow::writes`] to this file.
    Write(FileId),
}

/// Jobs of one address.
#[derive(Debug)]
struct Flow<J> {
    entries: VecDeque<Entry<J>>,
    /// WRITEs by file. Each file is once in [`Self::entries`] or in [`Taken::waiting`].
    writes: HashMap<FileId, VecDeque<Waiting<J>>>,
    held: usize,
    /// Time of the last turn; lower is longer ago.
    turn: u64,
    /// Time at which a job of the address began last, or the first job arrived.
    begun: Instant,
    /// Whether the job that ended last was slow.
    slow: bool,
}

/// A file with a running WRITE.
#[derive(Debug)]
struct Taken {
    since: Instant,
    waiting: Vec<Address>,
}

/// The queues; see the module documentation.
#[derive(Debug)]
pub(super) struct Queues<J> {
    limits: Limits,
    /// Ordered, not hashed: each job looks its address up several times, and peers choose the addresses. So a quick hash is
    /// no choice, and a keyed one costs more than the comparisons.
    flows: BTreeMap<Address, Flow<J>>,
    /// Addresses with a job to begin that hold fewer threads than their maximum, the next one first.
    ready: BTreeSet<(usize, u64, Address)>,
    taken: HashMap<FileId, Taken>,
    held: usize,
    turns: u64,
    /// Time at which a job began last.
    begun: Option<Instant>,
}

fn overdue(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) >= STALLED
}

impl<J> Flow<J> {
    fn is_idle(&self) -> bool {
        self.held == 0 && self.entries.is_empty() && self.writes.is_empty()
    }

    /// Returns whether the address may hold one more thread now.
    fn may_begin(&self, limits: Limits, now: Instant) -> bool {
        let slow = self.slow || now.saturating_duration_since(self.begun) >= limits.slow * UNENDED;
        self.held < if slow { limits.of_address } else { limits.quick }
    }

    /// Removes the first WRITE to a file. Returns the job, and whether there are more.
    fn first_write(&mut self, file: &FileId) -> Option<(J, bool)> {
        let writes = self.writes.get_mut(file)?;
        let first = writes.pop_front()?;
        let more = !writes.is_empty();
        if !more {
            self.writes.remove(file);
        }
        Some((first.job, more))
    }

    /// Removes jobs that have waited too long, of all kinds or of one file.
    fn withdraw(&mut self, file: Option<&FileId>, now: Instant, into: &mut Vec<J>) {
        let mut sift = |jobs: VecDeque<Waiting<J>>| -> VecDeque<Waiting<J>> {
            let (late, kept): (VecDeque<_>, VecDeque<_>) =
                jobs.into_iter().partition(|waiting| overdue(waiting.since, now));
            into.extend(late.into_iter().map(|waiting| waiting.job));
            kept
        };
        for (of, jobs) in &mut self.writes {
            if file.is_none_or(|file| file == of) {
                *jobs = sift(std::mem::take(jobs));
            }
        }
        if file.is_some() {
            return;
        }
        let entries = std::mem::take(&mut self.entries);
        for entry in entries {
            match entry {
                Entry::Job(waiting) if overdue(waiting.since, now) => into.push(waiting.job),
                kept => self.entries.push_back(kept),
            }
        }
    }
}

impl<J> Queues<J> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            flows: BTreeMap::new(),
            ready: BTreeSet::new(),
            taken: HashMap::new(),
            held: 0,
            turns: 0,
            begun: None,
        }
    }

    /// Returns the number of running jobs.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns whether a job may be ready to begin.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.next(now).is_some()
    }

    /// Returns whether a thread is available, and jobs may wait only for others of their address, which are
    /// quick so far.
    pub(super) fn is_held_back(&self) -> bool {
        self.held > 0 && self.held < self.limits.threads && !self.ready.is_empty()
    }

    /// Returns the address whose job is next. Addresses passed over hold threads, so there are few of them.
    fn next(&self, now: Instant) -> Option<(usize, u64, Address)> {
        if self.held >= self.limits.threads {
            return None;
        }
        let may_begin = |address| {
            let flow: Option<&Flow<J>> = self.flows.get(address);
            flow.is_some_and(|flow| flow.may_begin(self.limits, now))
        };
        self.ready.iter().find(|(.., address)| may_begin(address)).copied()
    }

    /// Returns whether any job waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.flows.values().any(|flow| !flow.entries.is_empty() || !flow.writes.is_empty())
    }

    /// Returns the number of jobs that have not begun.
    pub(super) fn waiting(&self) -> usize {
        let jobs =
            |flow: &Flow<J>| flow.entries.iter().filter(|entry| matches!(entry, Entry::Job(_))).count();
        let writes = |flow: &Flow<J>| flow.writes.values().map(VecDeque::len).sum::<usize>();
        self.flows.values().map(|flow| jobs(flow) + writes(flow)).sum()
    }

    /// Removes all waiting jobs, because no thread will come. No job runs, so none holds a file.
    pub(super) fn clear(&mut self) -> Vec<J> {
        let mut jobs = Vec::new();
        self.ready.clear();
        for flow in std::mem::take(&mut self.flows).into_values() {
            jobs.extend(flow.entries.into_iter().filter_map(|entry| match entry {
                Entry::Job(waiting) => Some(waiting.job),
                Entry::Write(_) => None,
            }));
            jobs.extend(flow.writes.into_values().flatten().map(|waiting| waiting.job));
        }
        jobs
    }

    /// Accepts a job; returns it if its address is stalled.
    pub(super) fn push(
        &mut self,
        address: Address,
        file: Option<FileId>,
        job: J,
        now: Instant,
    ) -> Result<(), J> {
        if self.is_stalled(address, file.as_ref(), now) {
            return Err(job);
        }
        let turns = &mut self.turns;
        let flow = self.flows.entry(address).or_insert_with(|| {
            *turns += 1;
            Flow {
                entries: VecDeque::new(),
                writes: HashMap::new(),
                held: 0,
                turn: *turns,
                begun: now,
                slow: false,
            }
        });
        let waiting = Waiting { job, since: now };
        match file {
            None => flow.entries.push_back(Entry::Job(waiting)),
            Some(file) => {
                let writes = flow.writes.entry(file).or_default();
                writes.push_back(waiting);
                if writes.len() == 1 {
                    match self.taken.get_mut(&file) {
                        Some(taken) => taken.waiting.push(address),
                        None => flow.entries.push_back(Entry::Write(file)),
                    }
                }
            }
        }
        self.settle(address);
        Ok(())
    }

    fn is_stalled(&self, address: Address, file: Option<&FileId>, now: Instant) -> bool {
        let lane = self.held >= self.limits.threads && self.begun.is_some_and(|begun| overdue(begun, now));
        let flow = self
            .flows
            .get(&address)
            .is_some_and(|flow| flow.held >= self.limits.of_address && overdue(flow.begun, now));
        let taken = file.and_then(|file| self.taken.get(file)).is_some_and(|taken| overdue(taken.since, now));
        lane || flow || taken
    }

    /// Returns the next job, if a thread is available for one. The job holds the thread until
    /// [`Self::finish`].
    pub(super) fn begin(&mut self, now: Instant) -> Option<Begun<J>> {
        while let Some(next) = self.next(now) {
            self.ready.remove(&next);
            let (.., address) = next;
            let Some(flow) = self.flows.get_mut(&address) else { continue };
            let begun = match flow.entries.pop_front() {
                Some(Entry::Job(waiting)) => Some((waiting.job, None)),
                Some(Entry::Write(file)) => match self.taken.get_mut(&file) {
                    Some(taken) => {
                        taken.waiting.push(address);
                        None
                    }
                    None => flow.first_write(&file).map(|(job, more)| {
                        let waiting = if more { vec![address] } else { Vec::new() };
                        self.taken.insert(file, Taken { since: now, waiting });
                        (job, Some(file))
                    }),
                },
                None => None,
            };
            if begun.is_some() {
                flow.held += 1;
                flow.begun = now;
                self.turns += 1;
                flow.turn = self.turns;
                self.held += 1;
                self.begun = Some(now);
            }
            self.settle(address);
            if let Some((job, file)) = begun {
                return Some(Begun { job, address, file });
            }
        }
        None
    }

    /// Ends a turn: the next WRITE to this file may begin.
    pub(super) fn release(&mut self, file: &FileId) {
        let Some(taken) = self.taken.remove(file) else { return };
        for address in taken.waiting {
            if let Some(flow) = self.flows.get_mut(&address) {
                flow.entries.push_back(Entry::Write(*file));
            }
            self.settle(address);
        }
    }

    /// Ends a job of this address after its duration, and frees its thread.
    pub(super) fn finish(&mut self, address: Address, took: Duration) {
        self.held = self.held.saturating_sub(1);
        if let Some(flow) = self.flows.get_mut(&address) {
            self.ready.remove(&(flow.held, flow.turn, address));
            flow.held = flow.held.saturating_sub(1);
            flow.slow = took >= self.limits.slow;
        }
        self.settle(address);
    }

    /// Removes jobs that have waited too long for one that makes no progress.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<J> {
        let mut late = Vec::new();
        let stuck: Vec<(Address, FileId)> = self
            .taken
            .iter()
            .filter(|(_, taken)| overdue(taken.since, now))
            .flat_map(|(file, taken)| taken.waiting.iter().map(|address| (*address, *file)))
            .collect();
        for (address, file) in stuck {
            if let Some(flow) = self.flows.get_mut(&address) {
                flow.withdraw(Some(&file), now, &mut late);
            }
        }
        let addresses: Vec<Address> = self.flows.keys().copied().collect();
        for address in addresses {
            if let Some(flow) = self.flows.get_mut(&address)
                && overdue(flow.begun, now)
            {
                flow.withdraw(None, now, &mut late);
            }
            self.tidy(address);
        }
        late
    }

    /// Removes entries that refer to WRITEs which are gone.
    fn tidy(&mut self, address: Address) {
        let Some(flow) = self.flows.get_mut(&address) else { return };
        self.ready.remove(&(flow.held, flow.turn, address));
        for (file, writes) in &flow.writes {
            if writes.is_empty()
                && let Some(taken) = self.taken.get_mut(file)
            {
                taken.waiting.retain(|other| *other != address);
            }
        }
        flow.writes.retain(|_, writes| !writes.is_empty());
        let writes = &flow.writes;
        flow.entries.retain(|entry| match entry {
            Entry::Job(_) => true,
            Entry::Write(file) => writes.contains_key(file),
        });
        self.settle(address);
    }

    /// Updates the position of an address after a change of its entries. Before a change of its threads or
    /// its turn, the address must be removed from [`Self::ready`].
    fn settle(&mut self, address: Address) {
        let Some(flow) = self.flows.get(&address) else { return };
        if flow.is_idle() {
            self.flows.remove(&address);
        } else if !flow.entries.is_empty() && flow.held < self.limits.of_address {
            self.ready.insert((flow.held, flow.turn, address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_micros(200);
    const LIMITS: Limits = Limits { threads: 4, of_address: 3, quick: 3, slow: SLOW };

    fn address(number: u8) -> Address {
        Some(Origin::of([192, 0, 2, number].into()))
    }

    fn file(number: u8) -> FileId {
        FileId::from_array(&[number])
    }

    /// Queues whose jobs have names.
    struct Bench {
        queues: Queues<String>,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self::of(LIMITS)
        }

        fn of(limits: Limits) -> Self {
            Self { queues: Queues::new(limits), now: Instant::now() }
        }

        fn push(&mut self, from: u8, name: &str) -> bool {
            self.queues.push(address(from), None, name.to_owned(), self.now).is_ok()
        }

        fn write(&mut self, from: u8, to: u8, name: &str) -> bool {
            self.queues.push(address(from), Some(file(to)), name.to_owned(), self.now).is_ok()
        }

        /// Returns the jobs that begin with the available threads.
        fn begin(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.queues.begin(self.now)).map(|begun| begun.job).collect()
        }

        fn finish(&mut self, from: u8) {
            self.queues.finish(address(from), Duration::ZERO);
        }

        fn end(&mut self, from: u8, of: u8) {
            self.queues.release(&file(of));
            self.finish(from);
        }

        fn wait(&mut self, time: Duration) -> Vec<String> {
            self.now += time;
            let mut late = self.queues.sweep(self.now);
            late.sort();
            late
        }

        fn is_empty(&self) -> bool {
            let queues = &self.queues;
            queues.flows.is_empty() && queues.ready.is_empty() && queues.taken.is_empty() && queues.held == 0
        }
    }

    #[test]
    fn i6_an_address_leaves_threads_to_others() {
        let mut bench = Bench::new();
        for number in 0..100 {
            assert!(bench.push(1, &format!("slow{number}")));
        }
        assert_eq!(bench.begin(), ["slow0", "slow1", "slow2"]);
        bench.push(2, "quick");
        assert_eq!(bench.begin(), ["quick"]);
        bench.finish(2);
        assert_eq!(bench.begin(), Vec::<String>::new());
    }

    #[test]
    fn i6_the_next_free_thread_is_for_the_address_that_holds_the_fewest() {
        let mut bench = Bench::new();
        for number in 0..3 {
            for from in 1..=2 {
                bench.push(from, &format!("job{number}-of-{from}"));
            }
        }
        assert_eq!(bench.begin(), ["job0-of-1", "job0-of-2", "job1-of-1", "job1-of-2"]);
        // A single job must end, not the whole queue.
        bench.push(3, "other");
        bench.finish(1);
        assert_eq!(bench.begin(), ["other"]);
        bench.finish(2);
        bench.finish(2);
        // Addresses 1 and 3 hold one thread each, 2 holds none.
        assert_eq!(bench.begin(), ["job2-of-2", "job2-of-1"]);
    }

    #[test]
    fn i6_an_address_with_quick_jobs_holds_few_threads() {
        let mut bench = Bench::of(Limits { quick: 1, ..LIMITS });
        for number in 0..9 {
            bench.push(1, &format!("job{number}"));
        }
        bench.push(2, "other");
        assert_eq!(bench.begin(), ["job0", "other"]);
        bench.finish(1);
        assert_eq!(bench.begin(), ["job1"]);
        // The job waited for a disk: others may run meanwhile.
        bench.queues.finish(address(1), SLOW);
        assert_eq!(bench.begin(), ["job2", "job3", "job4"]);
        bench.finish(1);
        assert_eq!(bench.begin(), Vec::<String>::new(), "they are quick again");
        bench.finish(1);
        bench.finish(1);
        assert_eq!(bench.begin(), ["job5"]);
        // The job has not ended yet: one more may begin each time.
        for next in ["job6", "job7"] {
            bench.now += SLOW;
            assert_eq!(bench.begin(), Vec::<String>::new(), "it may wait for a processor");
            bench.now += SLOW * UNENDED;
            assert_eq!(bench.begin(), [next]);
        }
        bench.now += SLOW * UNENDED;
        assert_eq!(bench.begin(), Vec::<String>::new(), "as many as an address may hold");
    }

    #[test]
    fn addresses_take_turns() {
        let mut bench = Bench::new();
        for from in 1..=3 {
            for number in 0..3 {
                bench.push(from, &format!("{number}-{from}"));
            }
        }
        let mut order = Vec::new();
        while let Some(begun) = bench.queues.begin(bench.now) {
            order.push(begun.job);
            bench.queues.finish(begun.address, Duration::ZERO);
        }
        assert_eq!(order, ["0-1", "0-2", "0-3", "1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]);
        assert!(bench.is_empty());
        // The first to come is the first, whatever its address.
        bench.push(2, "first");
        bench.push(1, "second");
        assert_eq!(bench.begin(), ["first", "second"]);
    }

    #[test]
    fn an_idle_thread_looks_again_for_quick_jobs_only() {
        let mut bench = Bench::of(Limits { quick: 1, ..LIMITS });
        bench.push(1, "quick");
        bench.begin();
        assert!(!bench.queues.is_held_back(), "no job waits");
        bench.push(1, "next");
        assert!(bench.queues.is_held_back());
        bench.queues.finish(address(1), SLOW);
        for number in 0..4 {
            bench.push(1, &format!("slow{number}"));
        }
        bench.begin();
        assert_eq!(bench.queues.held(), 3);
        assert!(!bench.queues.is_held_back(), "the address holds its maximum");
        bench.push(2, "quick");
        bench.begin();
        bench.push(2, "next");
        assert!(!bench.queues.is_held_back(), "there is no thread");
    }

    #[test]
    fn i6_writes_to_one_file_hold_one_thread_and_keep_their_order() {
        let mut bench = Bench::new();
        for number in 0..3 {
            bench.write(1, 7, &format!("write{number}"));
        }
        assert_eq!(bench.begin(), ["write0"]);
        // Other jobs of the address run: a WRITE to another file, a COMMIT of this one.
        bench.push(1, "commit");
        bench.write(1, 8, "elsewhere");
        assert_eq!(bench.begin(), ["commit", "elsewhere"]);
        bench.end(1, 7);
        assert_eq!(bench.begin(), ["write1"]);
        // The data is in the file; its sync still holds the thread.
        bench.queues.release(&file(7));
        bench.finish(1);
        bench.end(1, 8);
        assert_eq!(bench.begin(), ["write2"]);
        bench.finish(1);
        bench.end(1, 7);
        assert!(bench.is_empty());
    }

    #[test]
    fn i6_addresses_that_write_to_one_file_take_turns() {
        let mut bench = Bench::new();
        for number in 0..50 {
            bench.write(1, 7, &format!("a{number}"));
        }
        assert_eq!(bench.begin(), ["a0"]);
        bench.write(2, 7, "b0");
        bench.write(2, 7, "b1");
        assert_eq!(bench.begin(), Vec::<String>::new());
        let mut order = Vec::new();
        let mut from = 1;
        for _ in 0..5 {
            bench.end(from, 7);
            let begun = bench.queues.begin(bench.now).unwrap();
            from = if begun.address == address(1) { 1 } else { 2 };
            order.push(begun.job);
            assert_eq!(bench.queues.begin(bench.now), None);
        }
        assert_eq!(order, ["a1", "b0", "a2", "b1", "a3"]);
    }

    #[test]
    fn i6_a_write_does_not_wait_behind_other_jobs_of_an_address_that_writes_there_too() {
        let mut bench = Bench::new();
        // Address 1 has its maximum of threads, with a WRITE to file 7 behind the running jobs.
        for number in 0..10 {
            bench.push(1, &format!("slow{number}"));
        }
        bench.begin();
        bench.write(1, 7, "late");
        bench.write(2, 7, "other");
        assert_eq!(bench.begin(), ["other"]);
    }

    #[test]
    fn i6_what_does_not_go_on_refuses_what_waits_for_it() {
        let mut bench = Bench::new();
        for number in 0..4 {
            bench.push(1, &format!("slow{number}"));
        }
        assert_eq!(bench.begin().len(), 3);
        assert_eq!(bench.wait(STALLED / 2), Vec::<String>::new());
        bench.push(1, "later");
        // As long as jobs begin, however slowly, none is refused.
        bench.finish(1);
        assert_eq!(bench.begin(), ["slow3"]);
        assert_eq!(bench.wait(STALLED / 2), Vec::<String>::new());
        assert_eq!(bench.wait(STALLED / 2), ["later"]);
        assert!(!bench.push(1, "refused"), "at once, as long as it goes on");
        // Another address is served.
        assert!(bench.push(2, "quick"));
        assert_eq!(bench.begin(), ["quick"]);
        // All threads are held now. A new address waits for a time, because some jobs have just begun.
        assert!(bench.push(3, "third"));
        assert_eq!(bench.wait(STALLED), ["third"]);
        assert!(!bench.push(3, "again"));
        for _ in 0..3 {
            bench.finish(1);
        }
        assert!(bench.push(1, "good"));
        assert_eq!(bench.begin(), ["good"]);
        bench.finish(1);
        bench.finish(2);
        assert!(bench.is_empty());
    }

    #[test]
    fn i6_an_address_with_threads_left_is_not_refused() {
        let mut bench = Bench::new();
        bench.push(1, "long");
        assert_eq!(bench.begin(), ["long"]);
        bench.wait(STALLED);
        assert!(bench.push(1, "next"));
        assert_eq!(bench.begin(), ["next"]);
    }

    /// A WRITE to file 7 never ends. WRITEs to file 8, and the other jobs of address 1, go on.
    #[test]
    fn i6_only_what_waits_long_and_for_what_does_not_go_on_is_refused() {
        let mut bench = Bench::new();
        bench.write(2, 7, "stuck");
        bench.write(2, 8, "slow write");
        for name in ["one", "two"] {
            bench.push(1, name);
        }
        assert_eq!(bench.begin(), ["stuck", "one", "slow write", "two"]);
        for name in ["three", "four"] {
            bench.push(1, name);
        }
        bench.write(1, 7, "behind");
        for name in ["first to 8", "second to 8"] {
            bench.write(3, 8, name);
        }
        bench.write(3, 7, "behind too");
        bench.now += STALLED / 2;
        bench.write(1, 7, "young");
        bench.end(2, 8);
        assert_eq!(bench.begin(), ["first to 8"]);
        bench.finish(1);
        assert_eq!(bench.begin(), ["three"]);
        assert_eq!(bench.wait(STALLED / 2), ["behind", "behind too"]);
        bench.end(3, 8);
        assert_eq!(bench.begin(), ["second to 8"]);
        bench.end(2, 7);
        assert_eq!(bench.begin(), ["four"]);
        bench.finish(1);
        assert_eq!(bench.begin(), ["young"]);
    }

    #[test]
    fn i6_nothing_is_left_of_what_was_refused() {
        let mut bench = Bench::new();
        bench.write(1, 7, "stuck");
        for number in 0..3 {
            bench.push(2, &format!("stuck{number}"));
        }
        assert_eq!(bench.begin().len(), 4);
        bench.write(3, 7, "behind");
        bench.write(3, 8, "elsewhere");
        bench.push(3, "first");
        bench.now += STALLED / 2;
        // Another job begins, so that one may come later.
        bench.finish(2);
        bench.push(2, "new");
        assert_eq!(bench.begin(), ["elsewhere"]);
        bench.end(3, 8);
        assert_eq!(bench.begin(), ["first"]);
        bench.write(3, 8, "late");
        assert_eq!(bench.wait(STALLED / 2), ["behind"]);
        assert!(bench.queues.taken[&file(7)].waiting.is_empty(), "nobody waits for the file");
        assert_eq!(bench.wait(STALLED / 2), ["late", "new"]);
        assert!(!bench.queues.is_waiting());
        assert!(bench.queues.ready.is_empty(), "no thread is needed");
    }

    #[test]
    fn i6_a_write_that_does_not_end_refuses_the_others_to_its_file_only() {
        let mut bench = Bench::new();
        bench.write(1, 7, "stuck");
        assert_eq!(bench.begin(), ["stuck"]);
        bench.write(1, 7, "behind");
        assert!(bench.queues.is_waiting());
        bench.write(2, 7, "behind-too");
        bench.now += STALLED / 2;
        // Meanwhile the addresses continue.
        for from in 1..=2 {
            bench.push(from, "read");
            assert_eq!(bench.begin(), ["read"]);
            bench.finish(from);
        }
        assert_eq!(bench.wait(STALLED / 2), ["behind", "behind-too"]);
        assert!(!bench.write(2, 7, "refused"));
        assert!(bench.write(2, 8, "another file"));
        assert_eq!(bench.begin(), ["another file"]);
        bench.end(2, 8);
        bench.end(1, 7);
        assert!(bench.write(2, 7, "after"));
        assert_eq!(bench.begin(), ["after"]);
        bench.end(2, 7);
        assert!(bench.is_empty());
    }

    proptest::proptest! {
        /// For any order of starts and ends, the limits hold, and the WRITEs of an address to a file keep
        /// their order. No job is lost, and none waits that could begin.
        #[test]
        fn i6_any_history_keeps_the_limits_and_loses_nothing(quick in 1..4_usize, steps in proptest::collection::vec((0..6_u8, 1..5_u8, 0..4_u8), 0..200)) {
            let mut queues: Queues<(u8, Option<u8>, usize)> = Queues::new(Limits { quick, ..LIMITS });
            let (mut now, mut begun, mut over, mut refused) = (Instant::now(), Vec::new(), 0, 0);
            let mut last: HashMap<(u8, u8), usize> = HashMap::new();
            let end = (0..1000).map(|_| (3, 1, 0));
            for (number, (step, from, to)) in steps.iter().copied().chain(end).enumerate() {
                let pushed = match step {
                    0 => Some(queues.push(address(from), None, (from, None, number), now)),
                    1 | 2 => Some(queues.push(address(from), Some(file(to)), (from, Some(to), number), now)),
                    3 if !begun.is_empty() => {
                        let job: Begun<(u8, Option<u8>, usize)> = begun.remove(usize::from(to) % begun.len());
                        if let Some(file) = job.file {
                            queues.release(&file);
                        }
                        queues.finish(job.address, if from % 2 == 0 { SLOW } else { Duration::ZERO });
                        over += 1;
                        None
                    }
                    4 => {
                        // The sync of a WRITE continues.
                        if let Some(job) = begun.iter_mut().find(|job| job.file.is_some()) {
                            queues.release(&job.file.take().unwrap());
                        }
                        None
                    }
                    5 => {
                        now += STALLED / 3;
                        refused += queues.sweep(now).len();
                        None
                    }
                    _ => None,
                };
                refused += usize::from(pushed.is_some_and(|pushed| pushed.is_err()));
                while let Some(job) = queues.begin(now) {
                    if let (from, Some(to), number) = job.job {
                        let before = last.insert((from, to), number);
                        assert!(before.is_none_or(|before| before < number));
                        assert!(!begun.iter().any(|other| other.file == Some(file(to))));
                    }
                    begun.push(job);
                    let of_address = |from| begun.iter().filter(|job| job.address == address(from)).count();
                    assert!(begun.len() <= LIMITS.threads && (1..5).all(|from| of_address(from) <= LIMITS.of_address));
                }
                assert_eq!(queues.held(), begun.len());
            }
            let pushed = steps.iter().filter(|(step, ..)| *step < 3).count();
            assert_eq!(over + refused, pushed);
            assert!(!queues.is_waiting() && queues.flows.is_empty() && queues.taken.is_empty() && queues.ready.is_empty());
        }
    }

    #[test]
    fn without_threads_everything_is_handed_back() {
        let mut bench = Bench::new();
        bench.push(1, "one");
        bench.write(2, 7, "two");
        let mut jobs = bench.queues.clear();
        jobs.sort();
        assert_eq!(jobs, ["one", "two"]);
        assert!(bench.is_empty());
    }
}
