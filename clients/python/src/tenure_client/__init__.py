"""Locks, semaphores, leaders and once-only work of a `tenure serve`, over HTTP.

    from tenure_client import Tenure

    tenure = Tenure("http://127.0.0.1:7117")
    with tenure.mutex("backup", wait="10s") as hold:
        back_up(fence=hold.fence)

This is one file without dependencies, so that it can be copied into a project as it is. From top to bottom: time,
errors, HTTP without IO, the protocol as generators without IO, holds and the threads that renew them, the blocking
client, the asyncio client, forks. Both clients run the same generators; they differ in how they send and wait.

A hold is renewed by a thread in both clients, so that neither a blocked main thread nor a blocked event loop loses it.
"""

from __future__ import annotations

import asyncio
import atexit
import datetime
import ipaddress
import json
import logging
import math
import os
import random
import re
import secrets
import selectors
import socket
import ssl
import sys
import threading
import time
import urllib.parse
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Unpack

__version__ = "0.1.0"

__all__ = [
    "AsyncHold", "AsyncOnce", "AsyncRequest", "AsyncRun", "AsyncTenure", "Busy", "Closed", "Conflict", "Duration",
    "Forbidden", "Full", "Hold", "Holder", "InDoubt", "Invalid", "Leader", "Lock", "Lost", "Once", "Options",
    "OtherContent", "Request", "Run", "RwLock", "Settled", "Tenure", "TenureError", "TooMany", "Unauthorized",
    "Unavailable", "Unreadable", "Unsettled",
]  # fmt: skip

T = TypeVar("T")

log = logging.getLogger("tenure_client")
# Without a handler of its own, a library's warnings would be printed to the program's standard error.
log.addHandler(logging.NullHandler())


# --- time -------------------------------------------------------------------------------------------------------------

Duration: TypeAlias = str | int | float | datetime.timedelta
"""A text with a unit (`"250ms"`, `"10s"`, `"2m"`, `"1h"`), a number of seconds, or a `timedelta`."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(duration: Duration) -> float:
    if isinstance(duration, datetime.timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", duration)
        if match is None:
            raise ValueError(f'not a duration: {duration!r}; write "250ms", "10s", "2m" or "1h"')
        value = float(match[1]) * _UNITS[match[2]]
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        value = float(duration)
    else:
        raise TypeError(f"not a duration: {duration!r}")
    if not 0 <= value < math.inf:
        raise ValueError(f"not a duration: {duration!r}")
    return value


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))


class _SteppingClock:
    """For systems without a clock that counts sleep: a monotonic one, advanced when the wall clock is ahead."""

    # Less than this is the time between the two readings, not sleep.
    JITTER = 0.1

    def __init__(self) -> None:
        self._monotonic, self._wall, self._slept = time.monotonic(), time.time(), 0.0

    def __call__(self) -> float:
        monotonic, wall = time.monotonic(), time.time()
        asleep = (wall - self._wall) - (monotonic - self._monotonic)
        if asleep > self.JITTER:
            self._slept += asleep
        self._monotonic, self._wall = monotonic, wall
        return monotonic + self._slept


def _clock() -> Callable[[], float]:
    """A clock that continues while the machine sleeps: a hold must not outlive its ttl in a closed laptop."""
    if sys.platform == "linux":
        boot = time.CLOCK_BOOTTIME
        return lambda: time.clock_gettime(boot)
    if sys.platform == "darwin":
        # On macOS, this one counts sleep, and `time.monotonic` does not.
        continuous = time.CLOCK_MONOTONIC
        return lambda: time.clock_gettime(continuous)
    return _SteppingClock()


_now = _clock()


def _deadline(sent: float, left_ms: float) -> float:
    """Until when a hold may be relied on, if the request sent at `sent` was answered with `left_ms`."""
    return sent + (left_ms - left_ms / 100 - min(left_ms / 20, 25)) / 1000


# --- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """Who holds a name. Times are in seconds, and were true when the server answered."""

    owner: str
    fence: int
    weight: int
    held: float
    left: float
    reason: str | None = None

    @classmethod
    def _read(cls, fields: object) -> Holder | None:
        if not isinstance(fields, dict):
            return None
        numbers = {key: value for key, value in fields.items() if _is_number(value)}
        return cls(
            owner=str(fields.get("owner", "")),
            fence=numbers.get("fence", 0),
            weight=numbers.get("weight", 0),
            held=numbers.get("held_ms", 0) / 1000,
            left=numbers.get("left_ms", 0) / 1000,
            reason=fields.get("reason"),
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


class TenureError(Exception):
    """The base class of all errors of this module. `code` is for programs, the text for people."""

    code = "internal"

    def __init__(self, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.problem: Mapping[str, Any] = problem or {}
        """The server's own words: the fields of its `application/problem+json`."""


class Busy(TenureError):
    """Others hold it, and the wait is over."""

    code = "busy"

    @property
    def holder(self) -> Holder | None:
        """Who holds it, if the server said so."""
        return Holder._read(self.problem.get("holder"))

    @property
    def position(self) -> int | None:
        """The place in line when the wait ended; 1 is the next."""
        position = self.problem.get("position")
        return position if isinstance(position, int) else None


class Lost(TenureError):
    """The hold has ended without being released: stop, because somebody else may have it.

    `ended` says how: the words of the server (`expired`, `broken`, `forgotten`, `clock_step`, `conflict`, `elsewhere`),
    or `engine_changed`, `max_hold`, `forked`, `closed` and `released`, which this client finds out itself.
    """

    code = "lost"

    @property
    def ended(self) -> str:
        return str(self.problem.get("ended", "expired"))

    @property
    def by(self) -> str | None:
        """Who broke it."""
        return self.problem.get("by")

    @property
    def reason(self) -> str | None:
        """Why it was broken."""
        return self.problem.get("reason")


class Unavailable(TenureError):
    """The server, or its engine, did not answer for as long as `patience`. Nothing is held."""

    code = "unavailable"


class InDoubt(Unavailable):
    """Like `Unavailable`, but the request may have been carried out. A claim in doubt is released in the background."""

    code = "in_doubt"


class Unauthorized(TenureError):
    """No token, or an unknown one."""

    code = "unauthorized"


class Forbidden(TenureError):
    """The token does not allow this."""

    code = "forbidden"


class Invalid(TenureError):
    """The request is wrong; the same one will be wrong again."""

    code = "invalid"


class Conflict(TenureError):
    """The name is in use with a different size."""

    code = "conflict"


class Full(TenureError):
    """The line has as many waiters as `max_waiters` allows."""

    code = "full"


class TooMany(TenureError):
    """This client has too many requests waiting, as the server counts them."""

    code = "too_many"


class Unsettled(TenureError):
    """A once was begun, and nobody knows how it ended."""

    code = "unsettled"


class OtherContent(TenureError):
    """A once with the same name was done with different content."""

    code = "other_content"


class Closed(TenureError):
    """The client was closed."""

    code = "closed"


class Unreadable(TenureError):
    """The answer is not one that a tenure server of this version gives."""

    code = "unreadable"


_ERRORS: dict[str, type[TenureError]] = {
    error.code: error
    for error in (Busy, Conflict, Forbidden, Full, Invalid, OtherContent, TooMany, Unauthorized, Unsettled)
}


# --- HTTP without IO --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes
    # Whether the connection can be used for another request.
    keep: bool = True

    @property
    def engine(self) -> str | None:
        return self.headers.get("tenure-engine")

    def fields(self) -> dict[str, Any]:
        try:
            fields = json.loads(self.body)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            raise Unreadable(f"the answer {self.status} has no JSON object: is this a tenure server?")
        return fields

    def problem(self) -> TenureError:
        """The answer as an error."""
        try:
            fields = self.fields()
        except Unreadable as unreadable:
            return unreadable
        code = str(fields.get("code", "internal"))
        detail = str(fields.get("detail") or fields.get("title") or f"the server answered {self.status}")
        error = _ERRORS.get(code, TenureError)(detail, fields)
        error.code = code
        return error


@dataclass(frozen=True)
class _NoAnswer:
    why: str
    # Whether any of the request may have arrived.
    sent: bool


_Answer: TypeAlias = _Reply | _NoAnswer


class _Endpoint:
    """Where the server is, and the bytes of a request to it."""

    def __init__(self, url: str, token: str | None, ssl_context: ssl.SSLContext | None) -> None:
        parts = urllib.parse.urlsplit(url)
        # The path of a unix socket, in place of host and port.
        self.socket: str | None = None
        if parts.scheme == "http+unix" and not parts.netloc and parts.path.startswith("/"):
            self.socket = urllib.parse.unquote(parts.path)
            parts = parts._replace(scheme="http", netloc="localhost", path="")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            example = "http://127.0.0.1:7117, https://locks.example.org or http+unix:/run/tenure/tenure.sock"
            raise ValueError(f"the URL of a server is like {example}")
        if parts.username is not None or parts.password is not None:
            raise ValueError("give the token as `token`: a URL ends up in logs")
        # Checked here because a line break would begin another header.
        if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("a token is printable ASCII without blanks")
        self.host = parts.hostname
        self.port = parts.port or (443 if parts.scheme == "https" else 80)
        self.tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            self.tls = ssl_context or ssl.create_default_context()
        self.shown = f"{parts.scheme}://{parts.netloc}" if self.socket is None else f"http+unix:{self.socket}"
        self._prefix = parts.path.rstrip("/")
        self._headers = (
            f"Host: {parts.netloc}\r\nAccept: application/json\r\nUser-Agent: tenure-client-python/{__version__}\r\n"
        )
        if token is not None:
            self._headers += f"Authorization: Bearer {token}\r\n"

    def request(self, path: str, body: Mapping[str, Any] | None) -> bytes:
        if body is None:
            return f"GET {self._prefix}{path} HTTP/1.1\r\n{self._headers}\r\n".encode("ascii")
        try:
            content = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid("names and texts must be Unicode without lone surrogates") from error
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._headers}Content-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode("ascii") + content


_Reading = Generator[None, bytes, T]


class _BadReply(Exception):
    """What arrived is not an answer."""


class _ReplyReader:
    """Assembles one HTTP/1.1 answer from what arrives."""

    MAX_HEAD = 64 * 1024
    MAX_BODY = 8 * 1024 * 1024

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._reading = self._read()
        next(self._reading)

    def feed(self, data: bytes) -> _Reply | None:
        """Takes what was received, `b""` at the end of the connection. Returns the answer once it is complete."""
        try:
            self._reading.send(data)
        except StopIteration as whole:
            reply: _Reply = whole.value
            return reply
        return None

    def _read(self) -> _Reading[_Reply]:
        status = 100
        while status < 200:  # an interim answer is followed by the real one
            version, status, headers = yield from self._head()
        keep = version == "1" and headers.get("connection", "").lower() != "close"
        length = headers.get("content-length")
        if status in (204, 304):
            body = b""
        elif headers.get("transfer-encoding", "").lower() == "chunked":
            body = yield from self._chunks()
        elif length is None:
            keep, body = False, (yield from self._to_the_end())
        elif re.fullmatch(r"[0-9]{1,10}", length):
            body = yield from self._exactly(int(length))
        else:
            raise _BadReply("the answer has no readable length")
        return _Reply(status, headers, body, keep and not self._buffer)

    def _head(self) -> _Reading[tuple[str, int, dict[str, str]]]:
        head = yield from self._line(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.([01]) ([0-9]{3})(?: .*)?", first)
        if match is None:
            raise _BadReply("the answer is not HTTP/1.1")
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise _BadReply("the answer has a header without a colon")
            headers[name.strip().lower()] = value.strip()
        return match[1], int(match[2]), headers

    def _chunks(self) -> _Reading[bytes]:
        body = bytearray()
        while True:
            size = (yield from self._line(b"\r\n")).split(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,8}", size):
                raise _BadReply("the answer has a chunk without a size")
            if int(size, 16) == 0:
                while (yield from self._line(b"\r\n")):
                    pass  # trailers
                return bytes(body)
            body += yield from self._exactly(int(size, 16), len(body))
            if (yield from self._line(b"\r\n")):
                raise _BadReply("the answer has a chunk of another size")

    def _line(self, end: bytes) -> _Reading[bytes]:
        while (at := self._buffer.find(end)) < 0:
            if len(self._buffer) > self.MAX_HEAD:
                raise _BadReply("the head of the answer is too long")
            yield from self._more()
        line = bytes(self._buffer[:at])
        del self._buffer[: at + len(end)]
        return line

    def _exactly(self, size: int, before: int = 0) -> _Reading[bytes]:
        if before + size > self.MAX_BODY:
            raise _BadReply("the answer is too long")
        while len(self._buffer) < size:
            yield from self._more()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _to_the_end(self) -> _Reading[bytes]:
        while data := (yield):
            self._buffer += data
            if len(self._buffer) > self.MAX_BODY:
                raise _BadReply("the answer is too long")
        body = bytes(self._buffer)
        self._buffer.clear()
        return body

    def _more(self) -> _Reading[None]:
        data = yield
        if not data:
            raise _BadReply("the connection ended within an answer" if self._buffer else "the connection was closed")
        self._buffer += data


# --- the protocol, without IO -----------------------------------------------------------------------------------------
#
# A generator yields what to do next, a `_Send` or a `_Pause`, and is sent the answer. Whatever ends it early
# (`KeyboardInterrupt`, a cancelled task) is thrown into it, so that a claim is left no matter how the caller ends.


@dataclass(frozen=True)
class _Send:
    path: str
    body: Mapping[str, Any] | None
    timeout: float


@dataclass(frozen=True)
class _Pause:
    seconds: float


_Steps = Generator[_Send | _Pause, Any, T]
_AnyClient: TypeAlias = "_Client[Any, Any]"


class Options(TypedDict, total=False):
    """The options of all requests."""

    ttl: Duration
    """How long the hold lasts without a renewal (30 s). It is renewed for as long as the process lives."""
    wait: Duration | None
    """How long to wait in line; None, the default, is for ever."""
    owner: str
    """Shown to others (host name and process id)."""
    reason: str
    """Shown to others."""
    meta: Mapping[str, str]
    """Shown to others."""
    max_waiters: int
    """Raises `Full` rather than join a line with this many waiters or more."""
    max_hold: Duration
    """How long a hold is renewed at most, from its grant; then it is lost."""
    cancel_on_loss: bool
    """asyncio only: a loss cancels the task within `async with`, which then raises `Lost`."""


# A request that waits is answered after this time at the latest.
_LONGEST_POLL = 20.0
# What is sent for "wait for ever"; every answer of the server is followed by another request.
_LONG_WAIT = 3600.0
# For how long a request is repeated at least, even if the caller does not want to wait in line.
_SHORTEST_PATIENCE = 2.0


@dataclass(frozen=True)
class _Terms:
    """What a request asks for."""

    name: str
    kind: str
    ttl: float
    wait: float | None
    max_hold: float
    shown: Mapping[str, Any]
    cancel_on_loss: bool

    @classmethod
    def of(cls, name: str, kind: str, fields: Mapping[str, Any], options: Options) -> _Terms:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise TypeError(f"unknown option: {', '.join(sorted(unknown))}")
        wait, max_hold = options.get("wait"), options.get("max_hold")
        shown = {key: value for key, value in options.items() if key in ("reason", "meta", "max_waiters", "owner")}
        return cls(
            name=name,
            kind=kind,
            ttl=_seconds(options.get("ttl", 30)),
            wait=None if wait is None else _seconds(wait),
            max_hold=math.inf if max_hold is None else _seconds(max_hold),
            shown={**fields, **shown},
            cancel_on_loss=options.get("cancel_on_loss", False),
        )

    @property
    def path(self) -> str:
        return "/v1/once" if self.kind == "once" else "/v1/holds"

    def ask(self, claim: str, wait: float, ticket: str | None) -> dict[str, Any]:
        # The owner is read only here: a request may be made before a fork and used after it.
        body = {"name": self.name, "claim": claim, "owner": f"{socket.gethostname()}:{os.getpid()}", **self.shown}
        body["ttl"], body["wait"] = _milliseconds(self.ttl), _milliseconds(wait)
        if self.kind != "once":
            body["kind"] = self.kind
        if ticket is not None:
            body["ticket"] = ticket
        return body


@dataclass
class _Grant:
    """A claim that the server has granted."""

    terms: _Terms
    claim: str = field(repr=False)
    fence: int
    engine: str
    renew: float
    deadline: float
    confirm: bool
    waited: float
    # Whether a request for it was never answered, and may still arrive.
    doubt: bool

    @classmethod
    def read(cls, reply: _Reply, terms: _Terms, claim: str, sent: float, doubt: bool) -> _Grant:
        fields = reply.fields()
        numbers = all(_is_number(fields.get(key)) for key in ("fence", "left_ms", "renew_ms", "waited_ms"))
        if (
            not numbers
            or fields.get("claim") != claim
            or not isinstance(fields.get("confirm"), bool)
            or not reply.engine
        ):
            raise Unreadable("the answer to an acquire is not one of this version of tenure, or has no Tenure-Engine")
        return cls(
            terms=terms,
            claim=claim,
            fence=fields["fence"],
            engine=reply.engine,
            renew=max(fields["renew_ms"] / 1000, 0.05),
            deadline=_deadline(sent, fields["left_ms"]),
            confirm=fields["confirm"],
            waited=fields["waited_ms"] / 1000,
            doubt=doubt,
        )

    def renewal(self) -> dict[str, Any]:
        return {**self.about(), "fence": self.fence, "ttl": _milliseconds(self.terms.ttl)}

    def about(self) -> dict[str, Any]:
        return {"name": self.terms.name, "kind": self.terms.kind, "claim": self.claim}

    @property
    def retry(self) -> float:
        """How soon a renewal that was not answered is sent again."""
        return max(self.renew / 10, 0.1)


@dataclass(frozen=True)
class _Renewal:
    """What an answer says about one renewal."""

    deadline: float | None = None
    lost: Lost | None = None

    @classmethod
    def read(
        cls, grant: _Grant, sent: float, status: object, fields: Mapping[str, Any], engine: str | None
    ) -> _Renewal:
        if status == 410:
            return cls(lost=Lost(str(fields.get("detail", "the hold has ended")), fields))
        if status != 200 or not engine:
            return cls()
        if engine != grant.engine:
            return cls(lost=_lost(grant, "engine_changed", "the server has another engine now"))
        if fields.get("fence") != grant.fence or not _is_number(fields.get("left_ms")):
            return cls()
        return cls(deadline=_deadline(sent, fields["left_ms"]))


def _lost(grant: _Grant, ended: str, why: str) -> Lost:
    problem = {"code": "gone", "name": grant.terms.name, "ended": ended}
    return Lost(f'"{grant.terms.name}", fence {grant.fence}: {why}', problem)


def _fields_or_nothing(reply: _Reply) -> dict[str, Any]:
    try:
        return reply.fields()
    except Unreadable:
        return {}


def _outage(answer: _Answer, endpoint: _Endpoint) -> Unavailable | None:
    """The error for an answer, if another attempt may fare better. None: the server has decided."""
    if isinstance(answer, _NoAnswer):
        kind = InDoubt if answer.sent else Unavailable
        return kind(f"{endpoint.shown} did not answer: {answer.why}")
    if answer.status < 500 and answer.status != 408:
        return None
    fields = _fields_or_nothing(answer)
    # Only the server itself can say that nothing happened; a proxy's 503 says nothing about what is behind it.
    nothing_happened = (answer.status, fields.get("code")) in ((503, "unavailable"), (408, "too_slow"))
    kind = Unavailable if nothing_happened else InDoubt
    return kind(str(fields.get("detail") or f"{endpoint.shown} answered {answer.status}"), fields)


class _Attempts:
    """How long, and how often, a request is retried in an outage."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._until = math.inf
        self._count = 0

    def answered(self) -> None:
        self._until, self._count = math.inf, 0

    def failed(self, sent: float, error: Unavailable, answer: _Answer) -> _Pause:
        """How long to rest before the next attempt. Raises `error` if there is none."""
        if self._count == 0:
            # A request that was never answered is sent once more, however long it took to find that out.
            self._until = max(sent + self._patience, _now() + 1.0)
        left = self._until - _now()
        if left <= 0:
            raise error
        rest = min(0.05 * 2**self._count, 1.0) * random.uniform(0.5, 1.0)
        if isinstance(answer, _Reply) and re.fullmatch(r"[0-9]{1,3}", answer.headers.get("retry-after", "")):
            rest = max(rest, min(float(answer.headers["retry-after"]), 2.0))
        self._count += 1
        return _Pause(min(rest, left))


@dataclass(frozen=True)
class Settled:
    """A once that was done before, with its outcome."""

    outcome: Any


def _acquire(client: _AnyClient, terms: _Terms, wait: float | None) -> _Steps[_Grant | Settled]:
    give_up = math.inf if wait is None else _now() + wait
    patience = min(client._patience, math.inf if wait is None else max(wait, _SHORTEST_PATIENCE))
    attempts = _Attempts(patience)
    claim, ticket = secrets.token_hex(16), None
    # Whether the server may know the claim: then it is left when the wait ends early.
    known = doubt = False
    try:
        while True:
            sent = _now()
            left = max(0.0, min(give_up - sent, _LONG_WAIT))
            known, before = True, known
            answer = yield _Send(terms.path, terms.ask(claim, left, ticket), min(left, _LONGEST_POLL) + client._timeout)
            error = _outage(answer, client._endpoint)
            if error is not None:
                doubt = doubt or isinstance(error, InDoubt)
                known = before or doubt
                yield attempts.failed(sent, error, answer)
                continue
            attempts.answered()
            if answer.status == 202:
                ticket = answer.fields().get("ticket")
                if _now() - sent < 0.1 and left > 0.1:
                    yield _Pause(0.1)  # a server that does not wait must not be asked in a tight loop
                continue
            if answer.status == 200 and terms.kind == "once":
                fields = answer.fields()
                if fields.get("settled") is not True or not {"outcome", "outcome_base64"} & set(fields):
                    raise Unreadable("the answer to a once is not one of this version of tenure")
                known = doubt
                return Settled(fields.get("outcome", fields.get("outcome_base64")))
            if answer.status == 400 and ticket is not None:
                # A server that has another key, or a new one, does not know the ticket. The claim may still be in line.
                ticket = None
                continue
            if answer.status != 201:
                known = doubt
                raise answer.problem()
            grant = _Grant.read(answer, terms, claim, sent, doubt)
            if (yield from _confirm(client, grant)):
                known = False
                return grant
            # The turn passed before this process took it. Join the line again, as a new claim.
            client._keeper.leave(grant.about(), terms.ttl)
            claim, ticket, known, doubt = secrets.token_hex(16), None, False, False
    finally:
        if known:
            client._keeper.leave({"name": terms.name, "kind": terms.kind, "claim": claim}, terms.ttl)


def _confirm(client: _AnyClient, grant: _Grant) -> _Steps[bool]:
    """Whether the work may start: the hold is live by our own clock and, where necessary, confirmed."""
    while (sent := _now()) < grant.deadline:
        if not grant.confirm:
            return True
        # A turn lasts 2 s. Several attempts fit into that, even if the first one hangs.
        timeout = min(client._timeout, max((grant.deadline - sent) / 3, 0.1))
        answer = yield _Send("/v1/holds/renew", grant.renewal(), timeout)
        if isinstance(answer, _Reply):
            renewal = _Renewal.read(grant, sent, answer.status, _fields_or_nothing(answer), answer.engine)
            if renewal.lost is not None:
                return False
            if renewal.deadline is not None:
                grant.deadline, grant.confirm = renewal.deadline, False
                continue
        yield _Pause(0.1)
    return False


def _take(
    client: _AnyClient, terms: _Terms, wait: float | None, hold: Callable[[_Grant], T]
) -> _Steps[T | Settled]:
    """Acquires, and makes the caller's hold. If that fails, such as when the client was closed, the claim is left."""
    grant = yield from _acquire(client, terms, wait)
    if isinstance(grant, Settled):
        return grant
    try:
        return hold(grant)
    except BaseException:
        client._keeper.leave(grant.about(), terms.ttl)
        raise


def _release(client: _AnyClient, grant: _Grant) -> _Steps[Lost | None]:
    """Releases. Returns how the hold had already ended, if it had. An unanswered release is sent again later."""
    attempts = _Attempts(client._timeout)
    doubt, answered = grant.doubt, False
    first = True
    try:
        while True:
            sent = _now()
            body = {**grant.about(), "in_doubt": doubt}
            answer = yield _Send("/v1/holds/release", body, client._timeout)
            error = _outage(answer, client._endpoint)
            if error is None:
                answered = True
                if answer.status == 204:
                    return None
                if answer.status == 410:
                    # An earlier attempt that was not answered may have been the release.
                    return Lost(str(answer.problem()), _fields_or_nothing(answer)) if first else None
                raise answer.problem()
            doubt = doubt or isinstance(error, InDoubt)
            first = first and not isinstance(error, InDoubt)
            try:
                pause = attempts.failed(sent, error, answer)
            except Unavailable:
                log.warning("%s, fence %s: the release was not answered; it ends with its ttl at the latest",
                            grant.terms.name, grant.fence)  # fmt: skip
                return None
            yield pause
    finally:
        if not answered:
            client._keeper.leave(grant.about(), grant.terms.ttl)


def _settle(client: _AnyClient, grant: _Grant, outcome: Mapping[str, Any]) -> _Steps[None]:
    attempts = _Attempts(client._patience)
    doubt = False
    while True:
        sent = _now()
        body = {"name": grant.terms.name, "claim": grant.claim, "fence": grant.fence, **outcome}
        answer = yield _Send("/v1/once/settle", body, client._timeout)
        error = _outage(answer, client._endpoint)
        if error is not None:
            doubt = doubt or isinstance(error, InDoubt)
            yield attempts.failed(sent, InDoubt(str(error), error.problem) if doubt else error, answer)
        elif answer.status == 204:
            return
        elif answer.status == 410 and not doubt:
            raise Lost(str(answer.problem()), _fields_or_nothing(answer))
        elif answer.status == 410:
            # An earlier request that was not answered may have settled it.
            if (yield from _is_settled(client, grant, outcome)):
                return
            raise InDoubt("the once has ended; whether by an earlier request to settle it is not known")
        else:
            raise answer.problem()


def _is_settled(client: _AnyClient, grant: _Grant, outcome: Mapping[str, Any]) -> _Steps[bool]:
    """Whether the server remembers this outcome, or, if it is empty, no outcome."""
    try:
        found = yield from _ask(client, _query("/v1/name", name=grant.terms.name, kind="once"))
    except TenureError:
        return False
    record = (found or {}).get("record") or {}
    return {key: value for key, value in record.items() if key == "outcome"} == outcome


def _ask(client: _AnyClient, path: str) -> _Steps[dict[str, Any] | None]:
    """Reads something; None if there is nothing by that name."""
    attempts = _Attempts(client._timeout)
    while True:
        sent = _now()
        answer = yield _Send(path, None, client._timeout)
        error = _outage(answer, client._endpoint)
        if error is not None:
            yield attempts.failed(sent, Unavailable(str(error), error.problem), answer)
        elif answer.status == 200:
            fields: dict[str, Any] = answer.fields()
            return fields
        elif answer.status == 404:
            return None
        else:
            raise answer.problem()


# --- holds, and the threads that look after them ----------------------------------------------------------------------


class _HoldBase:
    """A hold of the caller. Its state changes under the lock of its keeper; reading it takes no lock."""

    def __init__(self, client: _AnyClient, grant: _Grant) -> None:
        self._client = client
        self._grant = grant
        self._granted = _now()
        self._cap = self._granted + grant.terms.max_hold
        self._deadline = min(grant.deadline, self._cap)
        # A grant that was asked for twice may be old already; then the first renewal is due sooner.
        self._renew_at = min(self._granted + grant.renew, grant.deadline - 2 * grant.renew)
        self._loss: Lost | None = None
        self._over = False
        # Whether it was released after the client was closed.
        self._freed = False
        self._quiet = False

    @property
    def name(self) -> str:
        return self._grant.terms.name

    @property
    def fence(self) -> int:
        """Rises with every grant of the name. Pass it to whatever you write to, so that it can refuse older ones."""
        return self._grant.fence

    @property
    def waited(self) -> float:
        """How many seconds it took to get it, as the server counts."""
        return self._grant.waited

    @property
    def left(self) -> float:
        """How many seconds it can be relied on even if no further renewal is answered; 0 if it has ended."""
        return 0.0 if self._over else max(0.0, self._deadline - _now())

    @property
    def held(self) -> bool:
        """Whether it is held now, by this process's own clock."""
        return self.left > 0

    def check(self) -> None:
        """Raises `Lost` unless it is held. Needs no network: call it before each step that must not happen twice."""
        if not self.held:
            raise self._lost_error()

    def __repr__(self) -> str:
        state = "held" if self.held else self._lost_error().ended
        return f"<{type(self).__name__} {self.name!r} fence={self.fence} {state}>"

    def _lost_error(self) -> Lost:
        # A new one each time: an exception that is raised twice keeps the frames of the first.
        if self._loss is not None:
            return Lost(str(self._loss), self._loss.problem)
        if self._over:
            return _lost(self._grant, "released", "it was released")
        if self._deadline >= self._cap:
            return _lost(self._grant, "max_hold", "it was held for as long as max_hold says")
        return _lost(self._grant, "expired", "no renewal was answered in time")

    def _end(self, loss: Lost | None) -> bool:
        """Ends it, as lost or as released. Returns False if it had already ended."""
        keeper = self._client._keeper
        with keeper.changed:
            if self._over:
                return False
            if loss is None and not self.held:
                loss = self._lost_error()
            self._over, self._loss = True, loss
            keeper.holds.discard(self)
        if loss is None:
            return True
        if loss.ended == "max_hold":
            keeper.leave(self._grant.about(), self._grant.terms.ttl)
        log.warning("lost %s, fence %s: %s", self.name, self.fence, loss.ended)
        self._announce_loss()
        return False

    @property
    def _is_kept(self) -> bool:
        """Whether the server keeps it although it is lost here, because the client was closed: a release frees it."""
        return self._loss is not None and self._loss.ended == "closed" and not self._freed

    def _settled(self) -> None:
        """Ends it after it was settled: whether it was lost meanwhile no longer matters."""
        keeper = self._client._keeper
        with keeper.changed:
            self._over, self._loss = True, None
            keeper.holds.discard(self)

    def _renewed(self, sent: float, renewal: _Renewal) -> None:
        if renewal.lost is not None:
            self._end(renewal.lost)
        elif renewal.deadline is not None:
            with self._client._keeper.changed:
                if self.held:  # a late answer never brings back what is lost
                    self._deadline = max(self._deadline, min(renewal.deadline, self._cap))
                    self._renew_at = sent + self._grant.renew

    def _announce_loss(self) -> None:
        raise NotImplementedError

    def _forked(self) -> None:
        """In a child process: the hold is the parent's."""
        self._over, self._loss = True, _lost(self._grant, "forked", "it is held by the parent of this process")


@dataclass
class _Leave:
    body: Mapping[str, Any]
    at: float
    give_up: float


class _Keeper:
    """Renews the holds of a client, notices their end, and sends the leaves that nobody waits for.

    Two threads, because a request can take long where no timeout applies (looking up a host name), and a loss must be
    announced meanwhile. They are daemons, which do not keep a process alive, and end when there is nothing to do.
    """

    IDLE = 5.0
    # The clocks of waiting threads stop while the machine sleeps, so no wait is long.
    LONGEST_WAIT = 1.0
    LARGEST_BATCH = 256
    LARGEST_BODY = 48 * 1024

    def __init__(self, endpoint: _Endpoint) -> None:
        self._endpoint = endpoint
        # Connections of its own: requests that wait never delay a renewal.
        self._http = _Http(endpoint)
        self._begin()

    def _begin(self) -> None:
        self.changed = threading.Condition()
        self.holds: set[_HoldBase] = set()
        self._leaves: list[_Leave] = []
        self._threads: dict[str, threading.Thread] = {}
        # How many requests are under way. The leaves that they cause are sent before the client is closed.
        self.running = 0
        self._closed = False

    def add(self, hold: _HoldBase) -> None:
        with self.changed:
            if self._closed:
                raise Closed("the client was closed")
            self._run("tenure-renew", self._renew)
            self._run("tenure-watch", self._watch)
            self.holds.add(hold)
            self.changed.notify_all()

    def leave(self, about: Mapping[str, Any], ttl: float) -> None:
        """Leaves a claim soon, without waiting for the answer."""
        with self.changed:
            if self._http.closed:
                return
            now = _now()
            self._leaves.append(_Leave({**about, "in_doubt": True}, now, now + max(ttl, 5.0)))
            try:
                self._run("tenure-renew", self._renew)
            except RuntimeError:
                log.warning("no thread to release a claim: the interpreter shuts down")
            self.changed.notify_all()

    def flush(self, timeout: float, running: bool = False) -> None:
        """Waits until the leaves are sent; with `running`, also those of requests that are under way."""
        with self.changed:
            self.changed.wait_for(lambda: not self._leaves and not (running and self.running), timeout)

    def count(self, change: int) -> None:
        with self.changed:
            self.running += change
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self._closed = True
            holds = list(self.holds)
        for hold in holds:
            hold._end(_lost(hold._grant, "closed", "the client was closed; it ends with its ttl"))
        self.flush(1.0, running=True)
        with self.changed:
            self._leaves.clear()
            self.changed.notify_all()
        self._http.close()

    def close_idle(self) -> None:
        self._http.close_idle()

    def forked(self) -> None:
        for hold in self.holds:
            hold._forked()
        self._http.forked()
        closed = self._closed
        self._begin()
        self._closed = closed

    def _run(self, name: str, loop: Callable[[], bool]) -> None:
        if name not in self._threads:
            thread = threading.Thread(target=self._repeat, args=(name, loop), name=name, daemon=True)
            self._threads[name] = thread
            try:
                thread.start()
            except BaseException:
                del self._threads[name]
                raise

    def _repeat(self, name: str, loop: Callable[[], bool]) -> None:
        while True:
            try:
                if not loop():
                    return
            except Exception:
                # Nobody could catch it here, and a thread that ends would lose every hold.
                log.exception("a mistake in %s", name)
                time.sleep(0.1)

    def _rest(self, name: str, until: float | None) -> bool:
        """Waits for a change, until there is something to do. None: there is nothing. False: the thread ends."""
        if until is not None:
            self.changed.wait(max(0.0, min(until - _now(), self.LONGEST_WAIT)))
            return True
        changed = self.changed.wait(0.05 if self._closed else self.IDLE)
        # Looked at again: a hold may have come at the moment the wait was over.
        if changed or self.holds or self._leaves:
            return True
        del self._threads[name]
        return False

    def _watch(self) -> bool:
        with self.changed:
            ended = [hold for hold in self.holds if not hold.held]
            if not ended:
                return self._rest("tenure-watch", min((hold._deadline for hold in self.holds), default=None))
        for hold in ended:
            hold._end(None)
        return True

    def _renew(self) -> bool:
        with self.changed:
            now = _now()
            due = sorted((hold for hold in self.holds if hold._renew_at <= now), key=lambda hold: hold._deadline)
            leaves = [leave for leave in self._leaves if leave.at <= now]
            if not due and not leaves:
                times = [hold._renew_at for hold in self.holds] + [leave.at for leave in self._leaves]
                return self._rest("tenure-renew", min(times, default=None))
            left = min((hold._deadline for hold in self.holds), default=math.inf) - now
        # Several attempts fit into what is left, even if the first ones hang.
        timeout = min(max(left / 4, 0.25), 5.0)
        if due:
            self._pulse(due, timeout)
        else:
            self._send_leave(leaves[0], min(timeout, 2.0))
        return True

    def _pulse(self, due: list[_HoldBase], timeout: float) -> None:
        batch: list[_HoldBase] = []
        size = 0
        for hold in due[: self.LARGEST_BATCH]:
            size += 4 * len(hold.name) + 256
            if batch and size > self.LARGEST_BODY:
                break
            batch.append(hold)
        sent = _now()
        for hold in batch:
            hold._renew_at = sent + hold._grant.retry
        # Checked before sending: after a pause of the process, what has ended by its own clock stays ended.
        batch = [hold for hold in batch if hold.held]
        if not batch:
            return
        renewals = [hold._grant.renewal() for hold in batch]
        answer = self._http.send("/v1/holds/renew", renewals[0] if len(batch) == 1 else {"holds": renewals}, timeout)
        if isinstance(answer, _NoAnswer):
            log.info("a renewal was not answered: %s", answer.why)
            return
        fields = _fields_or_nothing(answer)
        each = [{**fields, "status": answer.status}]
        if len(batch) > 1:
            each = fields.get("holds", []) if answer.status == 200 else []
        if len(each) != len(batch) or not all(isinstance(one, dict) for one in each):
            log.info("a renewal was answered with %s", answer.status)
            return
        for hold, one in zip(batch, each):
            hold._renewed(sent, _Renewal.read(hold._grant, sent, one.get("status"), one, answer.engine))

    def _send_leave(self, leave: _Leave, timeout: float) -> None:
        leave.at = _now() + 0.5
        answer = self._http.send("/v1/holds/release", leave.body, timeout)
        if _outage(answer, self._endpoint) is None or _now() > leave.give_up:
            with self.changed:
                if leave in self._leaves:
                    self._leaves.remove(leave)
                self.changed.notify_all()


# --- what both clients share ------------------------------------------------------------------------------------------

R = TypeVar("R")
O = TypeVar("O")


@dataclass(frozen=True)
class Leader:
    """Who leads. Times are in seconds, and were true when the server answered."""

    term: int
    owner: str
    value: str | None
    led: float
    left: float


class RwLock(Generic[R]):
    """A read-write lock: any number of readers, or one writer."""

    def __init__(self, make: Callable[[str], R]) -> None:
        self._make = make

    def read(self) -> R:
        return self._make("read")

    def write(self) -> R:
        return self._make("write")


class _Client(Generic[R, O]):
    def __init__(
        self,
        url: str = "http://127.0.0.1:7117",
        *,
        token: str | None = None,
        patience: Duration = "15s",
        timeout: Duration = "5s",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = _Endpoint(url, token, ssl_context)
        self._patience = _seconds(patience)
        self._timeout = _seconds(timeout)
        self._keeper = _Keeper(self._endpoint)
        _clients.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._endpoint.shown}>"

    def mutex(self, name: str, **options: Unpack[Options]) -> R:
        """One holder at a time."""
        return self._request(_Terms.of(name, "lock", {}, options))

    def semaphore(self, name: str, permits: int, weight: int = 1, **options: Unpack[Options]) -> R:
        """As many holders as fit into `permits` by their weights."""
        return self._request(_Terms.of(name, "semaphore", {"permits": permits, "weight": weight}, options))

    def rwlock(self, name: str, **options: Unpack[Options]) -> RwLock[R]:
        """Many readers, or one writer: `tenure.rwlock("x").read()`."""
        return RwLock(lambda kind: self._request(_Terms.of(name, kind, {}, options)))

    def election(self, name: str, value: str | None = None, **options: Unpack[Options]) -> R:
        """Leadership. The hold is a term, and its fence the term's number. `value` is what others see of the leader."""
        return self._request(_Terms.of(name, "election", {} if value is None else {"value": value}, options))

    def once(
        self,
        name: str,
        *,
        keep: Duration = "24h",
        rerun: bool = False,
        content: str | None = None,
        **options: Unpack[Options],
    ) -> O:
        """Work that is done once. `keep` is how long that is remembered. `rerun` runs work again that was begun and
        never settled. The same name with different `content` is refused."""
        fields: dict[str, Any] = {"keep": _milliseconds(_seconds(keep)), "rerun": rerun}
        if content is not None:
            fields["content"] = content
        return self._once(_Terms.of(name, "once", fields, options))

    def _request(self, terms: _Terms) -> R:
        raise NotImplementedError

    def _once(self, terms: _Terms) -> O:
        raise NotImplementedError

    def _forked(self) -> None:
        self._keeper.forked()

    def _at_exit(self) -> None:
        self._keeper.flush(1.0)
        self._keeper.close_idle()


def _query(path: str, **fields: str) -> str:
    return f"{path}?{urllib.parse.urlencode(fields, quote_via=urllib.parse.quote)}"


def _leader(fields: Mapping[str, Any] | None) -> Leader | None:
    if fields is None:
        return None
    try:
        return Leader(
            term=fields["term"],
            owner=fields["owner"],
            value=fields.get("value"),
            led=fields["led_ms"] / 1000,
            left=fields["left_ms"] / 1000,
        )
    except (KeyError, TypeError) as error:
        raise Unreadable("the answer about a leader is not one of this version of tenure") from error


_LARGEST_OUTCOME = 32 * 1024


def _outcome(value: Any) -> Any:
    """The outcome as everyone else will read it, so that the first caller gets the same as the second."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if len(text.encode("utf-8")) > _LARGEST_OUTCOME:
        raise Invalid("an outcome has at most 32 KiB of JSON")
    return json.loads(text)


# --- the blocking client ----------------------------------------------------------------------------------------------


def _connect(endpoint: _Endpoint, timeout: float) -> socket.socket:
    address: str | tuple[str, int] = (endpoint.host, endpoint.port)
    try:
        if endpoint.socket is not None:
            family, address = socket.AF_UNIX, endpoint.socket
        else:
            family = socket.AF_INET6 if ipaddress.ip_address(endpoint.host).version == 6 else socket.AF_INET
    except ValueError:
        return socket.create_connection((endpoint.host, endpoint.port), timeout=timeout)
    # Without a look-up: the resolver of glibc can hang in a child that was forked while another thread was in it.
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


class _Connection:
    def __init__(self, endpoint: _Endpoint, give_up: float) -> None:
        left = max(0.001, give_up - _now())
        self.socket = _connect(endpoint, left)
        try:
            if endpoint.socket is None:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.tls is not None:
                self.socket = endpoint.tls.wrap_socket(self.socket, server_hostname=endpoint.host)
        except BaseException:
            self.socket.close()
            raise

    def exchange(self, request: bytes, give_up: float) -> _Reply:
        self._limit(give_up)
        self.socket.sendall(request)
        reader = _ReplyReader()
        while True:
            self._limit(give_up)
            reply = reader.feed(self.socket.recv(65536))
            if reply is not None:
                return reply

    def _limit(self, give_up: float) -> None:
        left = give_up - _now()
        if left <= 0:
            raise TimeoutError("timed out")
        self.socket.settimeout(left)

    def is_quiet(self) -> bool:
        """Whether the server has left it open while it was idle."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return not selector.select(0)


class _Http:
    """Sends requests over connections that it keeps. For many threads."""

    def __init__(self, endpoint: _Endpoint) -> None:
        self._endpoint = endpoint
        self._begin()

    def _begin(self) -> None:
        # Reentrant, because a signal handler may use the client while the client itself has the lock.
        self._lock = threading.RLock()
        self._idle: list[_Connection] = []
        # Whether `close` leaves it alone.
        self._busy: dict[_Connection, bool] = {}
        self.closed = False

    def send(self, path: str, body: Mapping[str, Any] | None, timeout: float, last: bool = False) -> _Answer:
        """`last`: the request ends a hold, so it is sent even after `close`."""
        request = self._endpoint.request(path, body)
        give_up = _now() + timeout
        connection, sent = self._kept(), False
        try:
            if connection is None:
                connection = _Connection(self._endpoint, give_up)
            with self._lock:
                if self.closed and not last:
                    raise Closed("the client was closed")
                self._busy[connection] = last
            sent = True
            reply = connection.exchange(request, give_up)
        except (OSError, _BadReply) as error:
            self._drop(connection)
            return _NoAnswer(str(error) or type(error).__name__, sent)
        except BaseException:
            self._drop(connection)
            raise
        self._put_back(connection, reply.keep)
        return reply

    def _kept(self) -> _Connection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_quiet():
                return connection
            connection.socket.close()

    def _put_back(self, connection: _Connection, keep: bool) -> None:
        with self._lock:
            self._busy.pop(connection, None)
            if keep and not self.closed:
                self._idle.append(connection)
                return
        connection.socket.close()

    def _drop(self, connection: _Connection | None) -> None:
        if connection is not None:
            self._put_back(connection, keep=False)

    def close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.socket.close()

    def close(self) -> None:
        """Also ends the requests under way, except those that end a hold."""
        with self._lock:
            self.closed = True
            busy = [connection for connection, last in self._busy.items() if not last]
        self.close_idle()
        for connection in busy:
            try:
                connection.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def forked(self) -> None:
        # Closed, not shut down: the parent continues to use them.
        for connection in [*self._idle, *self._busy]:
            connection.socket.close()
        closed = self.closed
        self._begin()
        self.closed = closed


class Hold(_HoldBase):
    """A hold, renewed in the background until it is released or lost. `with hold:` releases it at the end."""

    _client: Tenure

    def __init__(self, client: Tenure, grant: _Grant) -> None:
        super().__init__(client, grant)
        self.lost = threading.Event()
        """Set when the hold is lost, before anyone else can have it (except when it was broken by force)."""
        client._keeper.add(self)

    def release(self) -> None:
        """Releases it: the next in line has it at once. Raises `Lost` if it had been lost; a second call does nothing.

        If the server does not answer, it returns after `timeout`, and the release is sent again in the background."""
        if self._over and self._loss is None:
            return
        if not self._end(None):
            if self._is_kept:
                self._freed = True
                self._client._run(_release(self._client, self._grant), last=True)
            raise self._lost_error()
        lost = self._client._run(_release(self._client, self._grant), last=True)
        if lost is not None:
            self._loss = lost
            self._announce_loss()
            raise self._lost_error()

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            self.release()
        except TenureError as failed:
            # What the body raised matters more than that the hold was lost, too.
            if error is None and not (self._quiet and isinstance(failed, Lost)):
                raise
        return self._quiet and isinstance(error, Lost)

    def _announce_loss(self) -> None:
        self.lost.set()

    def _forked(self) -> None:
        super()._forked()
        # Another thread of the parent may have been within the old one at the moment of the fork.
        self.lost = threading.Event()
        self.lost.set()


H = TypeVar("H", bound=Hold)


class Run(Hold):
    """A once that is being run here: `settle` it, or `undo` it. A `Run` that is only released stays unsettled."""

    def settle(self, outcome: Any) -> None:
        """The work is done. `outcome` is what everyone else gets: anything that JSON can express, at most 32 KiB."""
        self._settle({"outcome": _outcome(outcome)})

    def undo(self) -> None:
        """The work has not happened: the next caller runs it."""
        self._settle({})

    def _settle(self, outcome: Mapping[str, Any]) -> None:
        self._client._run(_settle(self._client, self._grant, outcome), last=True)
        self._settled()


class Request:
    """What `tenure.mutex(…)` and the like return: nothing is held yet. Reusable, also by several threads."""

    def __init__(self, client: Tenure, terms: _Terms) -> None:
        self._client = client
        self._terms = terms
        self._entered: dict[int, list[Hold]] = {}

    def acquire(self) -> Hold:
        """Waits in line for as long as `wait` says. Raises `Busy` if that was not enough."""
        return self._acquire(self._terms.wait)

    def try_acquire(self) -> Hold | None:
        """Does not wait: None if others hold it."""
        try:
            return self._acquire(0.0)
        except Busy:
            return None

    def _acquire(self, wait: float | None) -> Hold:
        client = self._client
        hold = client._run(_take(client, self._terms, wait, lambda grant: Hold(client, grant)))
        assert isinstance(hold, Hold)
        return hold

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(hold)
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return _leave_block(self._entered, threading.get_ident()).__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._terms.kind} {self._terms.name!r}>"


K = TypeVar("K")
E = TypeVar("E")


def _leave_block(entered: dict[K, list[E]], key: K) -> E:
    """The innermost hold of this thread or task; of another one, if this one has none."""
    if key not in entered:
        key = next(reversed(entered))
    hold = entered[key].pop()
    if not entered[key]:
        del entered[key]
    return hold


class Lock:
    """A mutex with the methods of a `threading.Lock`, between processes and machines.

    Unlike with a `threading.Lock`, `acquire` raises `Unavailable` if there is no server, and `release` raises `Lost` if
    the lock was lost meanwhile. Call `check()` before what must not happen twice.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        # By thread, so that a thread that lost its hold does not release the one of the next thread.
        self._holds: dict[int, Hold] = {}

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        if blocking and timeout < 0 and timeout != -1:
            raise ValueError("timeout value must be a non-negative number")
        wait = (self._request._terms.wait if timeout == -1 else timeout) if blocking else 0.0
        try:
            self._holds[threading.get_ident()] = self._request._acquire(wait)
        except Busy:
            return False
        return True

    def release(self) -> None:
        """Releases it, even if another thread has acquired it."""
        hold = self._holds.pop(threading.get_ident(), None)
        if hold is None:
            thread = next((thread for thread, hold in list(self._holds.items()) if hold.held), None)
            hold = None if thread is None else self._holds.pop(thread, None)
        if hold is None:
            raise RuntimeError("release unlocked lock")
        hold.release()

    def locked(self) -> bool:
        """Whether anyone holds it. Asks the server, unless it is held through this object."""
        if any(hold.held for hold in list(self._holds.values())):
            return True
        client = self._request._client
        found = client._run(_ask(client, _query("/v1/name", name=self._request._terms.name, kind="lock")))
        return found is not None and bool(found.get("holders"))

    @property
    def hold(self) -> Hold | None:
        """The hold of this thread: its fence, and how long it lasts."""
        return self._holds.get(threading.get_ident())

    def check(self) -> None:
        """Raises `Lost` unless this thread holds it."""
        hold = self.hold
        if hold is None:
            raise RuntimeError("check of an unlocked lock")
        hold.check()

    def __enter__(self) -> bool:
        return self.acquire() or self._refuse()

    def _refuse(self) -> bool:
        raise Busy(f'"{self._request._terms.name}" is held, and the wait is over')

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except TenureError:
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Lock {self._request._terms.name!r}>"


class Once:
    """What `tenure.once(…)` returns."""

    def __init__(self, client: Tenure, terms: _Terms) -> None:
        self._client = client
        self._terms = terms

    def run(self, work: Callable[[Run], Any]) -> Any:
        """Runs `work` and returns its outcome, or the outcome of an earlier run.

        If `work` raises an `Exception`, it has not happened and the next caller runs it; to remember a failure, return
        it. If it is interrupted, or loses its hold, it is unsettled. Raises `Busy` if someone runs it for longer than
        `wait`, and `Unsettled` if someone began and nobody knows how it ended."""
        run = self.begin()
        if isinstance(run, Settled):
            return run.outcome
        with run:
            try:
                outcome = work(run)
            except Lost:
                raise
            except Exception:
                try:
                    run.undo()
                except TenureError as error:
                    log.warning("once %s could not be undone: %s", run.name, error)
                raise
            run.settle(outcome)
        return _outcome(outcome)

    def begin(self) -> Run | Settled:
        """For work that is settled somewhere other than where it begins."""
        client = self._client
        return client._run(_take(client, self._terms, self._terms.wait, lambda grant: Run(client, grant)))


class Tenure(_Client[Request, Once]):
    """A client for threads. Make one per process; many threads can use it, and so can forked children.

    `patience` is how long a server may be out of reach before a request fails, `timeout` how long one answer may take
    (in addition to the time in line).
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7117",
        *,
        token: str | None = None,
        patience: Duration = "15s",
        timeout: Duration = "5s",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, token=token, patience=patience, timeout=timeout, ssl_context=ssl_context)
        self._http = _Http(self._endpoint)
        self._closing = threading.Event()

    def lock(self, name: str, **options: Unpack[Options]) -> Lock:
        """A mutex that can be used where a `threading.Lock` is."""
        return Lock(self.mutex(name, **options))

    def elect(self, name: str, value: str | None = None, **options: Unpack[Options]) -> Iterator[Hold]:
        """Stands for election, again and again: `for term in tenure.elect("x"): with term: …`. Continues while the
        server is out of reach. A term that is lost ends its `with` block quietly. Ends when the client is closed."""
        options["wait"] = None
        request = self.election(name, value, **options)
        while True:
            try:
                term = request.acquire()
            except Unavailable as error:
                log.warning("election %s: %s", name, error)
                continue
            except Closed:
                return
            term._quiet = True
            with term:
                yield term

    def leader(self, name: str) -> Leader | None:
        """Who leads now; None if nobody does."""
        return _leader(self._run(_ask(self, _query("/v1/leader", name=name))))

    def close(self) -> None:
        """Waits in line end with `Closed`. Holds are lost to this program (`ended` is `closed`), so that their work
        stops, but *not* released, because that work may still be running. A hold whose `with` block ends, or that is
        released, is free at once, even after this; the others end with their ttl. Does not wait for work, so it may
        be called within a block."""
        self._closing.set()
        self._http.close()
        self._keeper.close()

    def __enter__(self) -> Tenure:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, terms: _Terms) -> Request:
        return Request(self, terms)

    def _once(self, terms: _Terms) -> Once:
        return Once(self, terms)

    def _run(self, steps: _Steps[T], last: bool = False) -> T:
        answer: Any = None
        self._keeper.count(1)
        try:
            while True:
                step = steps.send(answer)
                try:
                    answer = self._do(step, last)
                except BaseException as stop:
                    steps.throw(stop)
                    raise
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            self._keeper.count(-1)

    def _do(self, step: _Send | _Pause, last: bool) -> _Answer | None:
        answer = None
        if isinstance(step, _Send):
            answer = self._http.send(step.path, step.body, step.timeout, last)
        elif last:
            time.sleep(step.seconds)
        else:
            self._closing.wait(step.seconds)
        if self._closing.is_set() and not last and not isinstance(answer, _Reply):
            raise Closed("the client was closed")
        return answer

    def _at_exit(self) -> None:
        super()._at_exit()
        self._http.close_idle()

    def _forked(self) -> None:
        super()._forked()
        closing, self._closing = self._closing, threading.Event()
        if closing.is_set():
            self._closing.set()
        self._http.forked()


# --- the asyncio client -----------------------------------------------------------------------------------------------


class _AsyncHttp:
    """Sends requests over connections that it keeps, those of each event loop apart."""

    def __init__(self, endpoint: _Endpoint) -> None:
        self._endpoint = endpoint
        self.closed = False
        self.forked()

    def forked(self) -> None:
        self._idle: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Streams]] = weakref.WeakKeyDictionary()
        # What ends the requests under way, when the client is closed. Each belongs to the event loop of its request.
        self._busy: set[tuple[asyncio.AbstractEventLoop, asyncio.WriteTransport]] = set()

    async def send(
        self, path: str, body: Mapping[str, Any] | None, timeout: float, last: bool = False
    ) -> _Answer:
        """`last`: the request ends a hold, so it is sent even after `close`."""
        request = self._endpoint.request(path, body)
        give_up = _now() + timeout
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(loop, [])
        streams: _Streams | None = None
        while idle and streams is None:
            streams = idle.pop()
            if streams[0].at_eof() or streams[1].is_closing():
                streams[1].close()
                streams = None
        sent = keep = False
        try:
            if streams is None:
                streams = await self._connect(give_up - _now())
            if self.closed and not last:
                raise Closed("the client was closed")
            busy = (loop, streams[1].transport)
            if not last:
                self._busy.add(busy)
            sent = True
            try:
                reply = await self._exchange(streams, request, give_up - _now())
            finally:
                self._busy.discard(busy)
            keep = reply.keep and not self.closed
            return reply
        except (OSError, _BadReply) as error:
            return _NoAnswer(str(error) or type(error).__name__, sent)
        finally:
            if streams is not None and keep:
                idle.append(streams)
            elif streams is not None:
                streams[1].transport.abort()

    async def _connect(self, timeout: float) -> _Streams:
        endpoint = self._endpoint
        opening: asyncio.Future[_Streams]
        if endpoint.socket is not None:
            opening = asyncio.ensure_future(asyncio.open_unix_connection(endpoint.socket))
        else:
            name = None if endpoint.tls is None else endpoint.host
            connecting = asyncio.open_connection(endpoint.host, endpoint.port, ssl=endpoint.tls, server_hostname=name)
            opening = asyncio.ensure_future(connecting)
        # Not `wait_for`: before Python 3.12 it can swallow a cancellation.
        is_used = False
        try:
            await asyncio.wait({opening}, timeout=max(0.0, timeout))
            is_used = opening.done()
        finally:
            if not is_used:
                opening.cancel()
                opening.add_done_callback(_close_late)
        if not is_used:
            raise TimeoutError("timed out")
        return opening.result()

    async def _exchange(self, streams: _Streams, request: bytes, timeout: float) -> _Reply:
        reader, writer = streams
        late = False

        def give_up() -> None:
            nonlocal late
            late = True
            writer.transport.abort()

        timer = asyncio.get_running_loop().call_later(max(0.0, timeout), give_up)
        try:
            writer.write(request)
            replies = _ReplyReader()
            while True:
                reply = replies.feed(await reader.read(65536))
                if reply is not None:
                    return reply
        except (OSError, _BadReply):
            if late:
                raise TimeoutError("timed out") from None
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """Also ends the requests under way, except those that end a hold."""
        self.closed = True
        here = asyncio.get_running_loop()
        idle = [(loop, writer.transport) for loop, kept in list(self._idle.items()) for _, writer in kept]
        for loop, transport in [*idle, *list(self._busy)]:
            try:
                transport.abort() if loop is here else loop.call_soon_threadsafe(transport.abort)
            except RuntimeError:
                pass  # the loop is closed, and its connections with it
        # Not before: a writer that is thrown away while it is open warns of that.
        self._idle.clear()


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _close_late(opening: asyncio.Future[_Streams]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[1].transport.abort()


class AsyncHold(_HoldBase):
    """A hold, renewed by a thread until it is released or lost. `async with hold:` releases it at the end."""

    _client: AsyncTenure

    def __init__(self, client: AsyncTenure, grant: _Grant) -> None:
        super().__init__(client, grant)
        self.lost = asyncio.Event()
        """Set when the hold is lost, before anyone else can have it (except when it was broken by force)."""
        self._loop = asyncio.get_running_loop()
        # The task that a loss cancels, and whether it did.
        self._body: asyncio.Task[Any] | None = None
        self._cancelled = False
        client._keeper.add(self)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine as a task that is cancelled when the hold is lost; then raises `Lost`."""
        task, lost = asyncio.ensure_future(work), asyncio.ensure_future(self.lost.wait())
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled() and self.lost.is_set():
            raise self._lost_error()
        return task.result()

    async def release(self) -> None:
        """Releases it: the next in line has it at once. Raises `Lost` if it had been lost; a second call does nothing.

        If the server does not answer, it returns after `timeout`, and the release is sent again in the background."""
        if self._over and self._loss is None:
            return
        if not self._end(None):
            if self._is_kept:
                self._freed = True
                await self._client._run(_release(self._client, self._grant), last=True)
            raise self._lost_error()
        lost = await self._client._run(_release(self._client, self._grant), last=True)
        if lost is not None:
            self._loss = lost
            self._announce_loss()
            raise self._lost_error()

    async def __aenter__(self: AH) -> AH:
        if self._grant.terms.cancel_on_loss:
            self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        body, self._body = self._body, None
        if self._cancelled and body is not None:
            # Before Python 3.11 nobody can tell whether somebody else has cancelled the task as well.
            others = 0
            if sys.version_info >= (3, 11):
                others = body.uncancel()
            if others == 0 and isinstance(error, asyncio.CancelledError):
                if self._quiet:
                    return True
                raise self._lost_error() from error
        try:
            await self.release()
        except TenureError as failed:
            # What the body raised matters more than that the hold was lost, too.
            if error is None and not (self._quiet and isinstance(failed, Lost)):
                raise
        return self._quiet and isinstance(error, Lost)

    def _announce_loss(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            pass  # the loop is closed: nobody listens

    def _tell(self) -> None:
        self.lost.set()
        if self._body is not None and not self._cancelled:
            self._cancelled = True
            self._body.cancel()


AH = TypeVar("AH", bound=AsyncHold)


class AsyncRun(AsyncHold):
    """A once that is being run here: `settle` it, or `undo` it. One that is only released stays unsettled."""

    async def settle(self, outcome: Any) -> None:
        """The work is done. `outcome` is what everyone else gets: anything that JSON can express, at most 32 KiB."""
        await self._settle({"outcome": _outcome(outcome)})

    async def undo(self) -> None:
        """The work has not happened: the next caller runs it."""
        await self._settle({})

    async def _settle(self, outcome: Mapping[str, Any]) -> None:
        await self._client._run(_settle(self._client, self._grant, outcome), last=True)
        self._settled()


class AsyncRequest:
    """What `tenure.mutex(…)` and the like return: nothing is held yet. Reusable, also by several tasks."""

    def __init__(self, client: AsyncTenure, terms: _Terms) -> None:
        self._client = client
        self._terms = terms
        self._entered: dict[object, list[AsyncHold]] = {}

    async def acquire(self) -> AsyncHold:
        """Waits in line for as long as `wait` says. Raises `Busy` if that was not enough.

        If it is cancelled, it leaves the line."""
        return await self._acquire(self._terms.wait)

    async def try_acquire(self) -> AsyncHold | None:
        """Does not wait: None if others hold it."""
        try:
            return await self._acquire(0.0)
        except Busy:
            return None

    async def _acquire(self, wait: float | None) -> AsyncHold:
        client = self._client
        hold = await client._run(_take(client, self._terms, wait, lambda grant: AsyncHold(client, grant)))
        assert isinstance(hold, AsyncHold)
        return hold

    async def __aenter__(self) -> AsyncHold:
        hold = await self.acquire()
        self._entered.setdefault(asyncio.current_task(), []).append(hold)
        return await hold.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await _leave_block(self._entered, asyncio.current_task()).__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._terms.kind} {self._terms.name!r}>"


class AsyncOnce:
    """What `tenure.once(…)` returns."""

    def __init__(self, client: AsyncTenure, terms: _Terms) -> None:
        self._client = client
        self._terms = terms

    async def run(self, work: Callable[[AsyncRun], Awaitable[Any]]) -> Any:
        """Like `Once.run`, with a coroutine function."""
        run = await self.begin()
        if isinstance(run, Settled):
            return run.outcome
        async with run:
            try:
                outcome = await work(run)
            except Lost:
                raise
            except Exception:
                try:
                    await run.undo()
                except TenureError as error:
                    log.warning("once %s could not be undone: %s", run.name, error)
                raise
            await run.settle(outcome)
        return _outcome(outcome)

    async def begin(self) -> AsyncRun | Settled:
        """For work that is settled somewhere other than where it begins."""
        client = self._client
        return await client._run(_take(client, self._terms, self._terms.wait, lambda grant: AsyncRun(client, grant)))


class AsyncTenure(_Client[AsyncRequest, AsyncOnce]):
    """A client for asyncio. Takes what `Tenure` takes."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:7117",
        *,
        token: str | None = None,
        patience: Duration = "15s",
        timeout: Duration = "5s",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(url, token=token, patience=patience, timeout=timeout, ssl_context=ssl_context)
        self._http = _AsyncHttp(self._endpoint)

    async def elect(self, name: str, value: str | None = None, **options: Unpack[Options]) -> AsyncIterator[AsyncHold]:
        """Stands for election, again and again: `async for term in tenure.elect("x"): async with term: …`. Continues
        while the server is out of reach. A term that is lost ends its `async with` block quietly."""
        options["wait"] = None
        request = self.election(name, value, **options)
        while True:
            try:
                term = await request.acquire()
            except Unavailable as error:
                log.warning("election %s: %s", name, error)
                continue
            except Closed:
                return
            term._quiet = True
            try:
                yield term
            finally:
                try:
                    await term.release()
                except Lost:
                    pass

    async def leader(self, name: str) -> Leader | None:
        """Who leads now; None if nobody does."""
        return _leader(await self._run(_ask(self, _query("/v1/leader", name=name))))

    async def close(self) -> None:
        """Like `Tenure.close`: waits end with `Closed`, and holds are lost to this program but *not* released."""
        self._http.close()
        await asyncio.get_running_loop().run_in_executor(None, self._keeper.close)

    async def __aenter__(self) -> AsyncTenure:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _request(self, terms: _Terms) -> AsyncRequest:
        return AsyncRequest(self, terms)

    def _once(self, terms: _Terms) -> AsyncOnce:
        return AsyncOnce(self, terms)

    async def _run(self, steps: _Steps[T], last: bool = False) -> T:
        answer: Any = None
        self._keeper.count(1)
        try:
            while True:
                step = steps.send(answer)
                try:
                    answer = await self._do(step, last)
                except BaseException as stop:
                    steps.throw(stop)
                    raise
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            self._keeper.count(-1)

    async def _do(self, step: _Send | _Pause, last: bool) -> _Answer | None:
        answer = None
        if isinstance(step, _Send):
            answer = await self._http.send(step.path, step.body, step.timeout, last)
        else:
            await asyncio.sleep(step.seconds)
        if self._http.closed and not last and not isinstance(answer, _Reply):
            raise Closed("the client was closed")
        return answer

    def _forked(self) -> None:
        super()._forked()
        self._http.forked()


# --- forks, and the end of the process --------------------------------------------------------------------------------

_clients: weakref.WeakSet[_Client[Any, Any]] = weakref.WeakSet()


def _after_fork() -> None:
    """The child holds nothing, has none of the parent's threads, and makes connections of its own."""
    for client in list(_clients):
        client._forked()


def _at_exit() -> None:
    """Sends what was to be released in the background. What is held is not released: its work may still run."""
    for client in list(_clients):
        client._at_exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
