//! The layout in Redis: keys, channels, and the commands of each step on them.

use std::time::Duration;

use super::request::{ClaimGrouping, Grouping, Request};
use super::resp;
use super::scripts::Script;
use crate::engines::redis::config::{AfterRestart, RedisConfig, Topology};
use crate::model::claim::{
    Claim, ClaimId, Details, Fence, Keep, Leave, MOST_FENCES, Note, OnceRecord, OnceTerms, Settle,
    Ticket,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::{Name, Space};

/// Names are spread over this many partitions. A partition is a hash tag of our choice, so all keys of a
/// name share a slot, and no name can choose its own.
pub(crate) const PARTITIONS: u16 = 256;
/// Every number ever given is higher than this: the clock in microseconds passed it in 2001.
const LOWEST_NUMBER: u64 = 1_000_000_000_000_000;

/// The partition of a name. It is the same in every process, and must never change.
pub(crate) fn partition(name: &Name) -> u16 {
    let bytes = [letter(name.space())].into_iter().chain(name.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    ((hash >> 32 ^ hash) % u64::from(PARTITIONS)) as u16
}

fn letter(space: Space) -> u8 {
    match space {
        Space::Lock => b'l',
        Space::Election => b'e',
        Space::Once => b'o',
    }
}

/// The keys and channels of a namespace, and this process's name in them.
#[derive(Debug)]
pub(crate) struct Layout {
    /// `namespace:{partition}:` for each partition.
    tags: Box<[Box<str>]>,
    process: String,
    channels: String,
    flags: &'static str,
    longest: String,
    sharded: bool,
    /// Whether a name may have its plain form. A plain hold ends when its key expires, without a script
    /// that could notice that another server has taken over.
    plain: bool,
    /// Whether steps may travel in groups: only where each of them is one change of a plain name.
    pub(super) groups: bool,
}

/// What a key of ours is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A name.
    Name,
    /// The line of a name.
    Line,
    /// The data of a partition.
    Partition,
    /// For testing the user's permissions; it expires.
    Trial,
}

/// Which keys a step uses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    All,
    /// All except the partition's.
    Line,
    Own,
}

impl Layout {
    pub(crate) fn new(config: &RedisConfig, process: [u8; 8]) -> Layout {
        let namespace = &config.namespace;
        let sharded = matches!(config.topology, Topology::Cluster(_));
        let waits = config.after_restart == AfterRestart::Wait;
        let plain = matches!(config.topology, Topology::Single(_));
        Layout {
            tags: (0..PARTITIONS).map(|p| format!("{namespace}:{{{p}}}:").into()).collect(),
            process: process.iter().map(|byte| format!("{byte:02x}")).collect(),
            channels: format!("{namespace}:c:"),
            flags: match (&config.topology, waits) {
                (Topology::Single(_), false) => "-",
                (Topology::Single(_), true) => "-n",
                (Topology::Sentinel { .. }, false) => "-f",
                (Topology::Sentinel { .. }, true) => "-nf",
                (Topology::Cluster(_), false) => "-s",
                (Topology::Cluster(_), true) => "-ns",
            },
            longest: match waits {
                true => config.longest_ttl().as_millis().to_string(),
                false => "0".into(),
            },
            sharded,
            plain,
            groups: plain && !waits && config.wait_replicas == 0,
        }
    }

    /// The channel on which this process receives its turns in a partition.
    pub(crate) fn channel(&self, partition: u16) -> String {
        match self.sharded {
            true => format!("{}c:{}", self.tags[usize::from(partition)], self.process),
            false => format!("{}{}", self.channels, self.process),
        }
    }

    /// The prefix of all channels.
    pub(crate) fn channels(&self) -> &str {
        &self.channels
    }

    /// Some key of the partition, which determines its slot.
    pub(crate) fn tag(&self, partition: u16) -> &str {
        &self.tags[usize::from(partition)]
    }

    /// Adds the keys, and the terms that are the first argument of every step.
    fn begin(&self, script: Script, name: &Name, keys: Keys, more_flags: &str) -> Request {
        self.begin_for_group(script, name, keys, more_flags).0
    }

    /// The same, and where the keys are in it.
    fn begin_for_group(
        &self,
        script: Script,
        name: &Name,
        keys: Keys,
        more_flags: &str,
    ) -> (Request, Grouping) {
        let partition = partition(name);
        let mut request = Request::new(script, partition);
        let tag = self.tag(partition).as_bytes();
        let (space, text) = (&[letter(name.space()), b':'], name.as_str().as_bytes());
        request.number(match keys {
            Keys::All => 3,
            Keys::Line => 2,
            Keys::Own => 1,
        });
        let start = request.len();
        self.name_key(name, &mut request);
        let key = start..request.len();
        if keys != Keys::Own {
            request.joined(&[tag, b"z:", space, text]);
        }
        let start = request.len();
        if keys == Keys::All {
            request.joined(&[tag, b"p"]);
        }
        let partition_key = start..request.len();
        request.counts = keys == Keys::All;
        let (flags, longest) = (self.flags, &self.longest);
        let (tag, channels) = match self.sharded {
            true => (self.tag(partition), "c:"),
            false => ("", &*self.channels),
        };
        let mut digits = [0; 20];
        let partition = resp::decimal(partition.into(), &mut digits);
        let (flags, more_flags, tag) = (flags.as_bytes(), more_flags.as_bytes(), tag.as_bytes());
        let (channels, longest) = (channels.as_bytes(), longest.as_bytes());
        request.joined(&[flags, more_flags, b" ", tag, channels, b" ", partition, b" ", longest]);
        (request, Grouping { key, partition_key, arguments: 0..0, claim: None })
    }

    /// Adds the key of a name.
    pub(super) fn name_key(&self, name: &Name, request: &mut Request) {
        let tag = self.tag(partition(name)).as_bytes();
        request.joined(&[tag, &[letter(name.space()), b':'], name.as_str().as_bytes()]);
    }

    /// `in_hand`: the caller is there to take a grant, so it lasts the full ttl. `has_line`: as far as we
    /// know, others wait for the name. `seen`: the highest number of its partition that was seen.
    pub(crate) fn claim(
        &self,
        claim: &Claim,
        in_hand: bool,
        has_line: bool,
        seen: Fence,
    ) -> Result<Request> {
        let ticket = claim.ticket.map(Ticket::get);
        if ticket.is_some_and(|ticket| ticket < LOWEST_NUMBER) {
            return Err(Error::new(ErrorKind::Invalid, "the ticket is not from this engine"));
        }
        let (capacity, weight) = (claim.capacity, claim.weight);
        let fixed = usize::from(claim.fixed) + 2 * usize::from(claim.on_behalf);
        let flags = match (claim.may_wait, in_hand) {
            (true, true) => "wh",
            (true, false) => "w",
            (false, true) => "h",
            (false, false) => "",
        };
        let (mut request, grouping) =
            self.begin_for_group(Script::Claim, &claim.name, Keys::All, flags);
        let waits = self.flags.contains('n');
        let is_new = in_hand && ticket.is_none() && claim.once.is_none() && !waits;
        let may_join = claim.may_wait && claim.max_waiters == u32::MAX;
        // In a cluster, names have no plain form for another reason, too: a key that is deleted while its
        // slot moves cannot be created again before the slot has arrived.
        let mode: &[u8] = match (is_new && weight <= capacity, may_join, has_line) {
            (true, true, _) if !self.plain => b"l",
            (true, true, true) => b"j",
            (true, true, false) => b"q",
            (true, false, _) if self.plain => b"t",
            _ => b"",
        };
        request.arg(mode);
        let (process, ttl) = (&self.process, claim.ttl.as_millis() as u64);
        let start = request.len();
        let (mut a, mut b, mut c) = ([0; 20], [0; 20], [0; 20]);
        let (of, process) = (resp::decimal(capacity.into(), &mut a), process.as_bytes());
        let (units, life) = (resp::decimal(weight.into(), &mut b), resp::decimal(ttl, &mut c));
        let fixed = [b" 0 ", b" 1 ", b" 2 ", b" 3 "][fixed];
        request.joined(&[&claim.id.to_bytes(), of, b" ", process, b" ", units, fixed, life]);
        request.number(ttl);
        request.arg(&encode_details(&claim.details));
        if self.groups && matches!(mode, b"q" | b"t") {
            let arguments = start..request.len();
            let claim = Some(ClaimGrouping { seen: seen.get(), may_join });
            request.grouping = Some(Grouping { arguments, claim, ..grouping });
        }
        request.number(seen.get());
        if matches!(mode, b"j" | b"l" | b"q") {
            return Ok(request);
        }
        let ticket = ticket.map(|ticket| ticket.to_string()).unwrap_or_default();
        let (keep, rerun) = match claim.once {
            Some(once) => (once.keep.as_millis() as i64, once_terms(once)),
            None => (-1, "0".to_owned()),
        };
        request.text(format_args!("{} {ticket} {keep} {rerun}", claim.max_waiters));
        Ok(request)
    }

    pub(crate) fn renew(&self, name: &Name, id: &ClaimId, fence: Fence, ttl: Duration) -> Request {
        let keys = if self.sharded { Keys::Line } else { Keys::All };
        let mut request = self.begin(Script::Renew, name, keys, "");
        request.arg(&id.to_bytes());
        request.number(fence.get());
        request.number(ttl.as_millis() as u64);
        request
    }

    /// `seen`: the highest number of its partition that was seen. Without the partition no fences are given.
    pub(crate) fn keep(&self, keep: &Keep, seen: Fence, with_partition: bool) -> Request {
        let keys = if with_partition { Keys::All } else { Keys::Line };
        let mut request = self.begin(Script::Keep, &keep.name, keys, "");
        request.arg(&keep.id.to_bytes());
        request.number(keep.fence.get());
        request.number(keep.ttl.as_millis() as u64);
        request.number(keep.fences.min(MOST_FENCES).into());
        request.number(seen.get());
        request.arg(&encode_details(&keep.details));
        request
    }

    /// `has_line`: as far as we know, others wait for the name or did so.
    pub(crate) fn leave(&self, leave: &Leave, has_line: bool) -> Request {
        let (mut request, grouping) =
            self.begin_for_group(Script::Leave, &leave.name, Keys::All, "");
        let Leave { id, in_doubt, only, only_waiting, settle, unbegun, .. } = leave;
        let is_plain = !in_doubt && only.is_none() && !only_waiting && settle.is_none() && !unbegun;
        let waits = self.flags.contains('n');
        let mode: &[u8] = match (is_plain, has_line || !self.plain) {
            (true, true) if !waits => b"h",
            (true, false) => b"q",
            _ => b"",
        };
        request.arg(mode);
        let start = request.len();
        request.arg(&id.to_bytes());
        if self.groups && mode == b"q" {
            let arguments = start..request.len();
            request.grouping = Some(Grouping { arguments, ..grouping });
        }
        if is_plain {
            return request;
        }
        request.arg(match (in_doubt, unbegun) {
            (true, true) => b"du",
            (true, false) => b"d",
            (false, true) => b"u",
            (false, false) => b"",
        });
        match only {
            _ if *only_waiting => request.text(format_args!("w{}", self.process)),
            Some(fence) if *unbegun => {
                request.text(format_args!("{}p{}", fence.get(), self.process));
            }
            only => request.maybe(only.map(Fence::get)),
        }
        if let Some(Settle { fence, outcome }) = settle {
            request.number(fence.get());
            request.arg(if outcome.is_some() { b"o" } else { b"" });
            request.arg(outcome.as_deref().unwrap_or_default());
        }
        request
    }

    pub(crate) fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Request {
        let mut request = self.begin(Script::Break, name, Keys::All, "");
        request.number(fence.get());
        request.arg(format!("{}\n{}", note.by.replace('\n', " "), note.reason).as_bytes());
        request
    }

    pub(crate) fn forget(&self, name: &Name, seen: &OnceRecord) -> Request {
        let mut request = self.begin(Script::Forget, name, Keys::All, "");
        request.number(seen.fence.get());
        request.arg(if seen.outcome.is_some() { b"o" } else { b"" });
        request
    }

    pub(crate) fn resize(&self, name: &Name, capacity: u32) -> Request {
        let mut request = self.begin(Script::Resize, name, Keys::All, "");
        request.number(capacity.into());
        request
    }

    pub(crate) fn tick(&self, name: &Name) -> Request {
        self.begin(Script::Tick, name, Keys::All, "")
    }

    pub(crate) fn view(&self, name: &Name) -> Request {
        self.begin(Script::View, name, Keys::Own, "")
    }

    /// A write without effect for `WAIT` to count: a replica that has it also has everything granted before it.
    pub(crate) fn mark(&self, partition: u16, out: &mut Vec<u8>) {
        let key = [self.tag(partition).as_bytes(), b"p"].concat();
        resp::command(out, &[b"HINCRBY", &key, b"n", b"1"]);
    }

    pub(crate) fn hello(&self, partition: u16, run_id: &str) -> Request {
        let mut request = Request::new(Script::Hello, partition);
        let tag = self.tag(partition).as_bytes();
        request.number(1);
        request.joined(&[tag, b"p"]);
        request.arg(run_id.as_bytes());
        request.arg(self.longest.as_bytes());
        request.arg(if self.sharded { &b"SPUBLISH"[..] } else { b"PUBLISH" });
        request.arg(self.channel(partition).as_bytes());
        request
    }

    /// The pattern for the keys of all names in a space that start with `prefix`.
    pub(crate) fn pattern(&self, space: Space, prefix: &str) -> String {
        let namespace = self.channels.strip_suffix(":c:").unwrap_or_default();
        let mut pattern = format!("{namespace}:{{*}}:{}:", char::from(letter(space)));
        for char in prefix.chars() {
            if matches!(char, '*' | '?' | '[' | ']' | '^' | '\\' | '-') {
                pattern.push('\\');
            }
            pattern.push(char);
        }
        pattern.push('*');
        pattern
    }

    /// A key and a channel that nobody uses, for testing the user's permissions.
    pub(crate) fn to_try(&self, partition: u16, random: u64) -> (String, String) {
        let key = format!("{}d:{random:016x}", self.tag(partition));
        let channel = match self.sharded {
            true => format!("{}c:{random:016x}", self.tag(partition)),
            false => format!("{}{random:016x}", self.channels),
        };
        (key, channel)
    }

    /// What the key is for, if it is one of ours.
    pub(crate) fn kind_of(&self, key: &[u8]) -> Option<Kind> {
        let text = std::str::from_utf8(key).ok()?;
        let (tag, rest) = text.split_at_checked(text.find("}:")? + 2)?;
        if !self.tags.iter().any(|known| **known == *tag) {
            return None;
        }
        match rest {
            "p" => Some(Kind::Partition),
            rest if rest.starts_with("d:") => Some(Kind::Trial),
            rest => match rest.strip_prefix("z:") {
                Some(name) => self.name_of(format!("{tag}{name}").as_bytes()).map(|_| Kind::Line),
                None => self.name_of(key).map(|_| Kind::Name),
            },
        }
    }

    /// The name that the key belongs to, if it is a name's own key.
    pub(crate) fn name_of(&self, key: &[u8]) -> Option<Name> {
        let text = std::str::from_utf8(key).ok()?;
        let rest = text.strip_prefix(self.channels.strip_suffix("c:")?)?.strip_prefix('{')?;
        let (partition_text, rest) = rest.split_once("}:")?;
        let (space, name) = rest.split_once(':')?;
        let space = match space {
            "l" => Space::Lock,
            "e" => Space::Election,
            "o" => Space::Once,
            _ => return None,
        };
        let name = Name::new(space, name).ok()?;
        (partition_text.parse() == Ok(partition(&name))).then_some(name)
    }
}

/// Whether to rerun, followed by the fingerprint, in one word.
fn once_terms(once: OnceTerms) -> String {
    let OnceTerms { rerun, content, .. } = once;
    let content = if content == 0 { String::new() } else { format!("{content:032x}") };
    format!("{}{content}", u8::from(rerun))
}

fn encode_details(details: &Details) -> Vec<u8> {
    let Details { owner, reason, meta, value, trace } = details;
    let pairs = meta.iter().flat_map(|(key, value)| [key.as_str(), value]);
    let said = [reason, value, trace].map(|said| said.as_deref().unwrap_or_default());
    let mut text = Vec::with_capacity(64);
    // Each with its length, so that no text can be mistaken for the next one.
    for part in [owner.as_str()].into_iter().chain(said).chain(pairs) {
        text.extend_from_slice(resp::decimal(part.len() as u64, &mut [0; 20]));
        text.push(b':');
        text.extend_from_slice(part.as_bytes());
    }
    text
}

pub(crate) fn decode_details(mut text: &[u8]) -> Option<Details> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let colon = text.iter().position(|byte| *byte == b':')?;
        let length: usize = std::str::from_utf8(&text[..colon]).ok()?.parse().ok()?;
        let (part, rest) = text[colon + 1..].split_at_checked(length)?;
        parts.push(String::from_utf8_lossy(part).into_owned());
        text = rest;
    }
    let mut parts = parts.into_iter();
    let owner = parts.next()?;
    let mut said = || parts.next().filter(|said| !said.is_empty());
    let (reason, value, trace) = (said(), said(), said());
    let mut meta = Vec::new();
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        meta.push((key, value));
    }
    Some(Details { owner, reason, meta, value, trace })
}
