//! What is queued on a connection: encodes it in the order of the calls, and writes it at once if nothing is under way.

use std::sync::Arc;
use std::task::Waker;

use super::{Outgoing, Pending, Purpose, ReplyTo, State, mark};
use crate::engines::redis::protocol::request::Request;
use crate::engines::redis::protocol::resp;
use crate::engines::redis::protocol::scripts::{Script, ScriptForm};
use crate::engines::redis::shared::Shared;
use crate::model::moment::Moment;

impl State {
    pub(super) fn enqueue(
        &mut self,
        shared: &Shared,
        purpose: Purpose,
        request: Arc<Request>,
        outgoing: Outgoing,
    ) {
        let Outgoing { form, reply, may_wait, asking, wait, .. } = outgoing;
        if request.grouping.is_some() && form == ScriptForm::Hash {
            return self.gather(shared, request, reply);
        }
        self.encode_gathered(shared);
        let sent = shared.setup.now();
        let partition = request.partition();
        if may_wait && purpose == Purpose::Turns && shared.setup.is_cluster {
            self.subscribe(shared, partition, sent);
        }
        if asking {
            // While a slot is being imported, so is the partition's own key, which a hello writes.
            self.queue(&[b"ASKING"], sent, ReplyTo::Nobody);
            let form = self.form_of(request.script(), form);
            request.encode(form, &mut self.out);
            self.expect(sent, reply);
        } else {
            self.encode(shared, sent, &request, form, reply);
        }
        if let Some((replicas, millis, heard)) = wait {
            shared.setup.layout.mark(partition, &mut self.out);
            self.expect(sent, ReplyTo::Nobody);
            let (replicas, millis) = (replicas.to_string(), millis.to_string());
            let parts: [&[u8]; 3] = [b"WAIT", replicas.as_bytes(), millis.as_bytes()];
            self.queue(&parts, sent, ReplyTo::One(heard));
        }
    }

    /// Encodes a step that goes by itself.
    pub(super) fn encode(
        &mut self,
        shared: &Shared,
        sent: Moment,
        request: &Request,
        form: ScriptForm,
        reply: ReplyTo,
    ) {
        if request.counts() {
            self.greet(shared, sent, request.partition());
        }
        let form = self.form_of(request.script(), form);
        request.encode(form, &mut self.out);
        self.expect(sent, reply);
    }

    pub(super) fn greet(&mut self, shared: &Shared, sent: Moment, partition: u16) {
        if mark(&mut self.greeted, partition) {
            // Send the text: the hello must run before the step even if the script is not loaded.
            let hello = shared.setup.layout.hello(partition, &self.run_id);
            hello.encode(ScriptForm::Text, &mut self.out);
            self.expect(sent, ReplyTo::Hello(partition));
        }
    }

    /// The first step of each kind is sent with its text: nobody repeats a leave that `Drop` sent.
    pub(super) fn form_of(&mut self, script: Option<Script>, form: ScriptForm) -> ScriptForm {
        let bit = script.map_or(0, |script| 1 << script as u16);
        let known = self.taught & bit == bit;
        self.taught |= bit;
        if known { form } else { ScriptForm::Text }
    }

    /// The server no longer knows the script.
    pub(super) fn forget_script(&mut self, script: Script) {
        self.taught &= !(1 << script as u16);
    }

    pub(super) fn subscribe(&mut self, shared: &Shared, partition: u16, sent: Moment) {
        if mark(&mut self.subscribed, partition) {
            let channel = shared.setup.layout.channel(partition);
            self.queue(&[b"SSUBSCRIBE", channel.as_bytes()], sent, ReplyTo::Subscribed(partition));
        }
    }

    pub(super) fn queue(&mut self, parts: &[&[u8]], sent: Moment, reply: ReplyTo) {
        resp::command(&mut self.out, parts);
        self.expect(sent, reply);
    }

    pub(super) fn expect(&mut self, sent: Moment, reply: ReplyTo) {
        self.pending.push_back(Pending { sent, reply });
        self.unwritten += 1;
    }

    /// Writes at once if no answer is due; otherwise leaves it to the reading task, which batches.
    pub(super) fn push_out(&mut self, shared: &Shared) -> Option<Waker> {
        let quiet = self.pending.len() == self.unwritten && !self.crowded;
        if quiet {
            self.encode_gathered(shared);
            if self.write() && self.timed {
                return None;
            }
        }
        self.kick()
    }

    /// Writes as much as the socket accepts. Returns whether that was everything.
    fn write(&mut self) -> bool {
        let Some(Ok(written)) = self.writer.as_ref().map(|writer| writer.try_write(&self.out))
        else {
            return false;
        };
        self.written(written)
    }

    /// Whether a request is queued or an answer is due.
    pub(super) fn is_under_way(&self) -> bool {
        !(self.pending.is_empty()
            && self.gathered.is_empty()
            && self.out.is_empty()
            && self.backlog.is_empty())
    }

    /// Ends the connection. The next caller's runtime will drive a new one.
    pub(super) fn end(&mut self) {
        let run_id = std::mem::take(&mut self.run_id);
        *self = State { run_id, ..State::default() };
    }

    /// Accounts for written bytes. Returns whether everything has been written.
    pub(super) fn written(&mut self, bytes: usize) -> bool {
        if bytes > 0 {
            // It does not matter which command was cut: all of them may have arrived.
            self.unwritten = 0;
        }
        if bytes == self.out.len() {
            self.out.clear();
            self.out.shrink_to(1 << 16);
        } else {
            self.out.drain(..bytes);
        }
        self.out.is_empty()
    }

    pub(super) fn kick(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.kicked, true) { None } else { self.waker.take() }
    }
}
