//! A command that is ready to be sent.

use std::fmt::{self, Write};
use std::ops::Range;

use super::resp;
use super::scripts::{Script, ScriptForm};

/// A command that is ready to be sent: a step, by the script's hash or with its text, or a plain command.
#[derive(Clone)]
pub(crate) struct Request {
    script: Option<Script>,
    partition: u16,
    pub(super) counts: bool,
    parts: usize,
    body: Vec<u8>,
    /// Set if the step may travel in a group.
    pub(crate) grouping: Option<Grouping>,
}

/// What a group needs of a step: parts of its body, so that they are encoded once.
#[derive(Clone)]
pub(crate) struct Grouping {
    pub(super) key: Range<usize>,
    pub(super) partition_key: Range<usize>,
    pub(super) arguments: Range<usize>,
    /// For a claim.
    pub(super) claim: Option<ClaimGrouping>,
}

#[derive(Clone, Copy)]
pub(super) struct ClaimGrouping {
    /// The highest number of its partition that was seen.
    pub(super) seen: u64,
    /// Whether the claim joins the line with its ticket if the name is held.
    pub(super) may_join: bool,
}

impl Request {
    pub(super) fn new(script: Script, partition: u16) -> Request {
        let body = Vec::with_capacity(256);
        Request { script: Some(script), partition, counts: false, parts: 2, body, grouping: None }
    }

    /// A plain command. Any server can run it.
    pub(crate) fn plain(parts: &[&[u8]]) -> Request {
        let (body, counts, grouping) = (Vec::new(), false, None);
        let mut request = Request { script: None, partition: 0, counts, parts: 0, body, grouping };
        parts.iter().for_each(|part| request.arg(part));
        request
    }

    /// Whether the step may take a number, so that a hello must come first.
    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    pub(crate) fn partition(&self) -> u16 {
        self.partition
    }

    pub(crate) fn script(&self) -> Option<Script> {
        self.script
    }

    /// What it does, for error messages.
    pub(crate) fn step(&self) -> &'static str {
        self.script.map_or("command", Script::name)
    }

    pub(crate) fn encode(&self, form: ScriptForm, out: &mut Vec<u8>) {
        resp::array(out, self.parts);
        if let Some(script) = self.script {
            script.encode(form, out);
        }
        out.extend_from_slice(&self.body);
    }

    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    pub(super) fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.body.get(range.clone()).unwrap_or_default()
    }

    pub(super) fn arg(&mut self, bytes: &[u8]) {
        self.parts += 1;
        resp::bulk(&mut self.body, bytes);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.parts += 1;
        resp::bulk_number(&mut self.body, number);
    }

    /// Adds the pieces as one argument.
    pub(super) fn joined(&mut self, pieces: &[&[u8]]) {
        self.parts += 1;
        resp::bulk_of(&mut self.body, pieces);
    }

    pub(super) fn text(&mut self, text: fmt::Arguments<'_>) {
        let mut piece = String::with_capacity(64);
        let _ = piece.write_fmt(text);
        self.arg(piece.as_bytes());
    }

    pub(super) fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.arg(b""),
        }
    }
}
