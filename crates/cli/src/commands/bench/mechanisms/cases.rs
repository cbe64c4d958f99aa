//! Cases of the benchmark: operations, each in several ways. The first way is explicit RDMA.

use rpcrdma::experimental::{BufferStructure, Profile};
use rpcrdma::{Config, Versions};

use crate::commands::bench::table::Target;

/// Operation of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// NULL, without data.
    Null,
    /// NFS WRITE of this many bytes, to a file system in memory.
    Write(u32),
    /// NFS READ of this many bytes, from a file system in memory.
    Read(u32),
    /// A Call with this many bytes that are not DDP-eligible.
    LongCall(u32),
    /// A reply with this many bytes that are not DDP-eligible.
    LongReply(u32),
}

impl Task {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Write(_) => "WRITE",
            Self::Read(_) => "READ",
            Self::LongCall(_) => "long call",
            Self::LongReply(_) => "long reply",
        }
    }

    pub(crate) const fn bytes(self) -> u32 {
        match self {
            Self::Null => 0,
            Self::Write(bytes) | Self::Read(bytes) | Self::LongCall(bytes) | Self::LongReply(bytes) => bytes,
        }
    }

    /// Returns whether the data is in the reply.
    pub(super) const fn is_in_reply(self) -> bool {
        matches!(self, Self::Read(_) | Self::LongReply(_))
    }
}

/// Structure of each Receive in which items can be placed, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) head: u32,
    pub(super) item: u32,
}

/// Settings of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(super) versions: Versions,
    /// Inline size in bytes. A structure for items replaces it.
    pub(super) inline: usize,
    /// Most Sends of a message. With 1 and no structure for items, no message travels in a transmission
    /// group.
    pub(super) parts: usize,
    /// Most Sends of a reply that could have a Reply chunk.
    pub(super) replies: usize,
    /// Length of the shortest item that is placed, and of the longest in several Receives, in bytes.
    pub(super) place: (usize, usize),
    pub(super) room: Option<Room>,
}

/// Default inline size, in bytes.
const INLINE: usize = 4096;

/// Setting of explicit RDMA.
pub(super) const EXPLICIT: Setting = Setting {
    versions: Versions::two(Profile::P1),
    inline: INLINE,
    parts: 1,
    replies: 1,
    place: (1, usize::MAX),
    room: None,
};

/// Setting of Version One.
pub(crate) const VERSION_ONE: Setting = Setting { versions: Versions::ONE, ..EXPLICIT };

impl Setting {
    const fn inline(inline: usize) -> Self {
        Self { inline, ..EXPLICIT }
    }

    const fn continued(parts: usize) -> Self {
        Self { parts, replies: parts, ..EXPLICIT }
    }

    const fn placed(head: u32, item: u32) -> Self {
        Self { room: Some(Room { head, item }), ..Self::continued(PARTS) }
    }

    /// Returns the setting of sides that get nothing but the version and, if given, the length of items in
    /// Receives.
    fn defaults(item: Option<u32>) -> Self {
        let Config { send_size, continued_parts, transmissions, .. } = Config::default();
        Self {
            versions: EXPLICIT.versions,
            inline: send_size,
            parts: continued_parts,
            replies: transmissions.reply_sends,
            place: (transmissions.place_from, transmissions.spread_up_to),
            room: item.map(|item| Room { head: HEAD, item }),
        }
    }

    pub(super) fn apply(self, config: &mut Config) {
        config.versions = self.versions;
        config.send_size = self.inline;
        config.receive_size = self.inline;
        config.continued_parts = self.parts;
        config.transmissions.reply_sends = self.replies;
        (config.transmissions.place_from, config.transmissions.spread_up_to) = self.place;
        config.transmissions.enabled = self.parts > 1 || self.room.is_some();
        // The receiver accepts the longest messages that are measured.
        if self.place.1 == usize::MAX {
            config.limits.continued_len = config.limits.continued_len.max(LONGEST_MESSAGE);
        }
        if let Some(Room { head, item }) = self.room {
            config.place_items(BufferStructure::behind_head(head, 1, item));
        }
    }
}

/// Way of an operation, and the target for its ratio.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) name: String,
    pub(super) setting: Setting,
    pub(super) target: Target,
}

/// Operation, and its ways.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Case {
    pub(super) task: Task,
    pub(super) ways: Vec<Way>,
}

impl Case {
    fn new(task: Task) -> Self {
        let name = match task {
            Task::Null => "inline",
            Task::Write(_) => "Read chunk",
            Task::Read(_) => "Write chunk",
            Task::LongCall(_) => "Position-Zero Read chunk",
            Task::LongReply(_) => "Reply chunk",
        };
        let base = Way { name: name.to_owned(), setting: EXPLICIT, target: Target::None };
        Self { task, ways: vec![base] }
    }

    fn way(mut self, name: impl Into<String>, setting: Setting, target: Target) -> Self {
        self.ways.push(Way { name: name.into(), setting, target });
        self
    }
}

/// Default length of the part before an item, in bytes.
const HEAD: u32 = BufferStructure::HEAD;
/// Limit for the longest message in several Sends, in bytes.
const LONGEST_MESSAGE: usize = 2 << 20;
const KIB: u32 = 1 << 10;
/// Default number of Sends of a message.
const PARTS: usize = 8;
/// Longest item that fits the longest Receive, in bytes.
const LONGEST_ITEM: u32 = 240 * KIB;

/// Returns the ways beside explicit RDMA, with their targets.
pub(super) fn ways() -> Vec<Case> {
    let chosen = "the planner's choice";
    let mut cases = Vec::new();
    for (len, target) in [(4 * KIB, Target::AtLeast(1.5)), (8 * KIB, Target::AtLeast(1.5))] {
        let inline = Setting::inline(16 << 10);
        cases.push(
            Case::new(Task::Write(len)).way("placement", Setting::defaults(Some(8 * KIB)), target).way(
                "inline of 16 KiB",
                inline,
                Target::None,
            ),
        );
        cases.push(
            Case::new(Task::Read(len)).way("placement", Setting::defaults(Some(8 * KIB)), Target::None).way(
                "inline of 16 KiB",
                inline,
                Target::None,
            ),
        );
    }
    for task in [Task::LongCall(16 * KIB), Task::LongReply(16 * KIB)] {
        cases.push(
            Case::new(task)
                .way("continuation", Setting::continued(PARTS), Target::None)
                .way(chosen, Setting::defaults(None), Target::AtLeast(1.0))
                .way("inline of 24 KiB", Setting::inline(24 << 10), Target::None),
        );
    }
    for task in [Task::Write(1 << 20), Task::Read(1 << 20)] {
        cases.push(
            Case::new(task).way("placement, 5 Sends", Setting::placed(HEAD, LONGEST_ITEM), Target::None).way(
                chosen,
                Setting::defaults(Some(LONGEST_ITEM)),
                Target::AtLeast(1.0),
            ),
        );
    }
    cases
}

/// Returns cases of items by length, to show from which length placement pays.
pub(super) fn sweep_placement() -> Vec<Case> {
    let case = |task| {
        let room = |item: u32| format!("placement in {} KiB", item / KIB);
        let sizes = [8 * KIB, 64 * KIB];
        sizes.into_iter().fold(Case::new(task), |case, item| {
            case.way(room(item), Setting::placed(HEAD, item), Target::None)
        })
    };
    let lengths = [256, 512, KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB];
    lengths.into_iter().flat_map(|len| [case(Task::Write(len)), case(Task::Read(len))]).collect()
}

/// Returns cases of messages by length, and by the number of Sends allowed.
pub(super) fn sweep_continuation() -> Vec<Case> {
    let case = |task| {
        [2, 4, 8, 16, 32].into_iter().fold(Case::new(task), |case, parts| {
            case.way(format!("up to {parts} Sends"), Setting::continued(parts), Target::None)
        })
    };
    let lengths = [6 * KIB, 12 * KIB, 16 * KIB, 24 * KIB, 32 * KIB, 64 * KIB, 120 * KIB];
    lengths.into_iter().flat_map(|len| [case(Task::LongCall(len)), case(Task::LongReply(len))]).collect()
}

/// Returns cases by the length of the part before an item.
pub(super) fn sweep_head() -> Vec<Case> {
    let case = |task| {
        [KIB, 2 * KIB, 4 * KIB, 8 * KIB].into_iter().fold(Case::new(task), |case, head| {
            let setting = Setting::placed(head, 8 * KIB);
            case.way(format!("head of {} KiB", head / KIB), setting, Target::None)
        })
    };
    [KIB, 4 * KIB, 8 * KIB]
        .into_iter()
        .flat_map(|len| [case(Task::Write(len)), case(Task::Read(len))])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure that cannot be announced would have no effect, and the row would measure another way.
    #[test]
    fn every_setting_takes_effect() {
        for case in [ways(), sweep_placement(), sweep_continuation(), sweep_head()].concat() {
            assert_eq!(case.ways[0].setting, EXPLICIT);
            for Way { name, setting, .. } in case.ways {
                let mut config = Config::default();
                setting.apply(&mut config);
                assert_eq!(config.transmissions.structure.is_some(), setting.room.is_some(), "{name}");
                let size = setting.room.map_or(setting.inline, |room| (room.head + room.item) as usize);
                assert_eq!((config.receive_size, config.send_size), (size, size), "{name}");
            }
        }
    }
}
