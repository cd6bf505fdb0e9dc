//! The thread that talks to the server: two queues of steps, and the stream that brings turns.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, StatusCode};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::client::{Client, Outgoing, unreachable_server};
use super::events::Parser;
use super::protocol::{
    Batch, Event, StepAnswer, StepRequest, decode_answers, decode_event, decode_profile,
    encode_batch,
};
use super::shared::Shared;
use crate::engine::Ack;
use crate::model::error::{Error, ErrorKind, Result};
use crate::observe;
use crate::system;
use crate::world::{SystemWorld, World};

/// The largest number of steps in a batch.
const MOST_STEPS: usize = 256;
/// A stream says something at least every 5 s; after this long without a word it is dead.
const SILENCE: Duration = Duration::from_secs(12);
/// How often waiting claims look for their turn while no stream brings turns: more often than once in the first
/// life of a turn.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait before a stream is opened again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A job for the thread.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every job is a step, and boxing it would cost an allocation"
)]
pub(super) enum Job {
    Step(StepRequest, ReplyTo),
    Profile(oneshot::Sender<Result<()>>),
}

/// Who gets the answer.
pub(super) enum ReplyTo {
    Step(oneshot::Sender<Result<StepAnswer>>),
    Leave(Ack),
    Nobody,
}

impl ReplyTo {
    fn answer(self, answer: Result<StepAnswer>) {
        match (self, answer) {
            (ReplyTo::Step(reply), answer) => drop(reply.send(answer)),
            (ReplyTo::Leave(done), Ok(StepAnswer::Left(left))) => done.done(Ok(left)),
            // Dropped without an answer, the leave is sent again.
            (ReplyTo::Leave(_) | ReplyTo::Nobody, _) => {}
        }
    }
}

/// Steps in the order of the calls.
#[derive(Clone)]
pub(super) struct Queue(UnboundedSender<Job>);

impl Queue {
    pub(super) fn put(&self, job: Job) -> Result<()> {
        let closed = |_| Error::new(ErrorKind::Closed, "the connection to the server was closed");
        self.0.send(job).map_err(closed)
    }
}

/// Starts the thread. It ends when both queues have been dropped, after the last step.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(Queue, Queue)> {
    let (queue, jobs) = unbounded_channel();
    let (lifeline, urgent) = unbounded_channel();
    let failed = |error: std::io::Error| {
        Error::new(
            ErrorKind::Internal,
            format!("the thread for the server cannot be started: {error}"),
        )
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let thread = std::thread::Builder::new().name("tenure-http".into());
    let shared = shared.clone();
    // It does not keep the queue open.
    let own_queue = queue.downgrade();
    let work = move || {
        system::is_own_thread_from_now_on();
        runtime.block_on(async {
            let turns = async {
                follow(&shared, &own_queue).await;
                std::future::pending::<()>().await;
            };
            let steps = async {
                tokio::join!(serve(&shared, jobs, false), serve(&shared, urgent, true));
            };
            tokio::select! {
                () = steps => {}
                () = turns => {}
            }
        });
    };
    thread.spawn(work).map_err(failed)?;
    Ok((Queue(queue), Queue(lifeline)))
}

/// Sends what is queued, one batch at a time.
async fn serve(shared: &Arc<Shared>, mut jobs: UnboundedReceiver<Job>, is_lifeline: bool) {
    let mut client = Client::default();
    let mut closing = shared.closing();
    loop {
        let first = tokio::select! {
            biased;
            first = jobs.recv() => first,
            _ = closing.wait_for(|closed| *closed) => None,
        };
        let Some(first) = first else { return };
        let (mut steps, mut replies, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Step(step, reply) => {
                    steps.push(step);
                    replies.push(reply);
                }
                Job::Profile(reply) => told.push(reply),
            }
            next = if steps.len() < MOST_STEPS { jobs.try_recv().ok() } else { None };
        }
        if !told.is_empty() {
            let learnt = learn(shared, &mut client).await;
            told.into_iter().for_each(|reply| drop(reply.send(learnt.clone())));
        }
        if steps.is_empty() {
            continue;
        }
        match exchange(shared, &mut client, steps, is_lifeline).await {
            Ok(answers) if answers.len() == replies.len() => {
                replies.into_iter().zip(answers).for_each(|(reply, answer)| reply.answer(answer));
            }
            Ok(_) => {
                let error = Error::new(
                    ErrorKind::Unsupported,
                    "the server answered a different number of steps than were sent",
                );
                replies.into_iter().for_each(|reply| reply.answer(Err(error.clone().in_doubt())));
            }
            Err(error) => {
                client.drop_connection();
                replies.into_iter().for_each(|reply| reply.answer(Err(error.clone())));
            }
        }
    }
}

async fn learn(shared: &Shared, client: &mut Client) -> Result<()> {
    let outgoing =
        Outgoing { method: Method::GET, path: "/v1/profile", body: Bytes::new(), header: None };
    let answer = client.ask(shared, outgoing).await?;
    let (profile, engine) = decode_profile(&answer)?;
    shared.learn(profile);
    shared.heard_from(&engine);
    Ok(())
}

async fn exchange(
    shared: &Shared,
    client: &mut Client,
    steps: Vec<StepRequest>,
    is_lifeline: bool,
) -> Result<Vec<Result<StepAnswer>>> {
    if steps.iter().any(|step| matches!(step, StepRequest::Claim(claim) if claim.may_wait)) {
        shared.until_streaming().await;
    }
    let (number, sent) = shared.next_batch();
    let body = encode_batch(&Batch { session: shared.session, number, steps });
    let header = is_lifeline.then(|| ("tenure-lifeline", "1".to_owned()));
    let outgoing = Outgoing { method: Method::POST, path: "/v1/steps", body: body.into(), header };
    let answer = client.ask(shared, outgoing).await?;
    decode_answers(sent, &answer).map_err(Error::in_doubt)
}

/// Keeps a stream open, and delivers what it brings.
async fn follow(shared: &Arc<Shared>, queue: &tokio::sync::mpsc::WeakUnboundedSender<Job>) {
    let mut closing = shared.closing();
    // The server has accepted a stream and said nothing: most likely a proxy holds the stream back.
    let mut is_silent = false;
    loop {
        let (began, greeted) = (SystemWorld.now(), Cell::new(false));
        let ended = tokio::select! {
            ended = stream(shared, queue, &greeted) => ended,
            () = look_until_greeted(shared, &greeted), if is_silent => continue,
            _ = closing.wait_for(|closed| *closed) => return,
        };
        shared.has_tried_to_stream();
        let was_silent = is_silent;
        is_silent = !greeted.get() && began.until(SystemWorld.now()) >= shared.config.answer_within;
        if is_silent && !was_silent {
            observe::silent_stream(&shared.label);
        }
        if shared.is_closed() {
            return;
        }
        // A permanent refusal, such as a bad token: no reason to ask often.
        let often = !matches!(ended, Err(ref error) if error.kind() == ErrorKind::Denied);
        let jitter = SystemWorld.now().as_nanos() % 100;
        let pause = AGAIN_AFTER + Duration::from_millis(jitter);
        sleep(if often { pause } else { pause * 20 }).await;
    }
}

/// Looks for turns whenever no stream brings them. Never ends.
async fn look_until_greeted(shared: &Shared, greeted: &Cell<bool>) {
    loop {
        if !greeted.get() {
            shared.look_for_turns();
        }
        sleep(LOOK_EVERY).await;
    }
}

/// `greeted`: whether the stream has brought anything.
async fn stream(
    shared: &Arc<Shared>,
    queue: &tokio::sync::mpsc::WeakUnboundedSender<Job>,
    greeted: &Cell<bool>,
) -> Result<()> {
    let outgoing = Outgoing {
        method: Method::GET,
        path: "/v1/turns",
        body: Bytes::new(),
        header: Some(("tenure-session", format!("{:032x}", shared.session))),
    };
    let mut client = Client::default();
    let response = client.send(shared, outgoing).await?;
    if response.status() != StatusCode::OK {
        let denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&response.status());
        let kind = if denied { ErrorKind::Denied } else { ErrorKind::Unavailable };
        return Err(Error::new(kind, "the server refused the event stream"));
    }
    let (mut body, mut parser) = (response.into_body(), Parser::default());
    let gone = || unreachable_server(shared, "the stream has ended");
    let within = || if greeted.get() { SILENCE } else { shared.config.answer_within };
    while let Ok(Some(Ok(frame))) = timeout(within(), body.frame()).await {
        let Ok(data) = frame.into_data() else { continue };
        for message in parser.read(&data).ok_or_else(gone)? {
            match message.kind.as_str() {
                // Whatever was pushed before is lost.
                "hello" => {
                    greeted.set(true);
                    shared.has_tried_to_stream();
                    shared.look_again();
                }
                "turn" => match decode_event(&message.data)? {
                    Event::Moving => return Ok(()),
                    event => {
                        let leave = shared.hear(event);
                        if let (Some(leave), Some(queue)) = (leave, queue.upgrade()) {
                            let _ =
                                queue.send(Job::Step(StepRequest::Leave(leave), ReplyTo::Nobody));
                        }
                    }
                },
                _ => {}
            }
        }
    }
    Err(gone())
}
