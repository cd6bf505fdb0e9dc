//! A command that is ready to be sent.

use std::fmt::{self, Write};

use super::resp;
use super::scripts::Script;

/// What is ready to be sent: a step, by the script's hash or with its text, or a plain command.
#[derive(Clone)]
pub(crate) struct Request {
    script: Option<Script>,
    partition: u16,
    pub(super) counts: bool,
    parts: usize,
    body: Vec<u8>,
}

/// How the script of a step is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptForm {
    Hash,
    Text,
}

impl Request {
    pub(super) fn new(script: Script, partition: u16) -> Request {
        let body = Vec::with_capacity(256);
        Request { script: Some(script), partition, counts: false, parts: 2, body }
    }

    /// A plain command, for any partition of the server it is sent to.
    pub(crate) fn plain(parts: &[&[u8]]) -> Request {
        let body = Vec::new();
        let mut request = Request { script: None, partition: 0, counts: false, parts: 0, body };
        parts.iter().for_each(|part| request.arg(part));
        request
    }

    /// Whether it may take a number, so that a hello must come first.
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
        match (self.script, form) {
            (Some(script), ScriptForm::Hash) => {
                resp::bulk(out, b"EVALSHA");
                resp::bulk(out, script.hash());
            }
            (Some(script), ScriptForm::Text) => {
                resp::bulk(out, b"EVAL");
                resp::bulk(out, script.text().as_bytes());
            }
            (None, _) => {}
        }
        out.extend_from_slice(&self.body);
    }

    pub(super) fn arg(&mut self, bytes: &[u8]) {
        self.parts += 1;
        resp::bulk(&mut self.body, bytes);
    }

    pub(super) fn number(&mut self, number: u64) {
        self.parts += 1;
        resp::bulk_number(&mut self.body, number);
    }

    /// The pieces as one argument.
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
