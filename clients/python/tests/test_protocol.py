"""The parts without IO: durations, deadlines, HTTP, and the steps of the protocol, each answer written out."""

from __future__ import annotations

import datetime
import json
import unittest
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import tenure_client
from tenure_client import (
    Busy,
    InDoubt,
    Invalid,
    Lost,
    Settled,
    Tenure,
    Unauthorized,
    Unavailable,
    Unreadable,
    _acquire,
    _Attempts,
    _BadReply,
    _deadline,
    _Endpoint,
    _Grant,
    _Http,
    _NoAnswer,
    _Pause,
    _release,
    _Renewal,
    _Reply,
    _ReplyReader,
    _seconds,
    _Send,
    _settle,
    _SteppingClock,
)


class Durations(unittest.TestCase):
    def test_texts_numbers_of_seconds_and_timedeltas_are_durations(self) -> None:
        for given, seconds in (
            ("250ms", 0.25), ("10s", 10), ("2m", 120), ("1h", 3600), ("1.5s", 1.5), (3, 3), (0.5, 0.5), (0, 0),
            (datetime.timedelta(minutes=1), 60),
        ):  # fmt: skip
            self.assertEqual(_seconds(given), seconds, given)

    def test_what_has_no_unit_is_negative_or_endless_is_refused(self) -> None:
        for given in ("10", "", "10 s", "-1s", "1d", "s", -1, float("inf"), float("nan"), datetime.timedelta(-1)):
            with self.assertRaises(ValueError, msg=repr(given)):
                _seconds(given)
        for wrong in (None, True, b"10s"):
            with self.assertRaises(TypeError, msg=repr(wrong)):
                _seconds(wrong)  # type: ignore[arg-type]


class Deadlines(unittest.TestCase):
    def test_a_deadline_counts_from_the_sending_less_the_margin(self) -> None:
        self.assertAlmostEqual(_deadline(100, 30_000), 100 + 30 - 0.3 - 0.025)
        self.assertAlmostEqual(_deadline(100, 100), 100 + 0.1 - 0.001 - 0.005)
        self.assertEqual(_deadline(100, 0), 100)

    def test_a_clock_that_stops_in_sleep_is_moved_on_by_the_wall_clock_and_never_back(self) -> None:
        with mock.patch("time.monotonic") as monotonic, mock.patch("time.time") as wall:
            monotonic.return_value, wall.return_value = 50.0, 1000.0
            clock = _SteppingClock()
            monotonic.return_value, wall.return_value = 51.0, 1001.0
            self.assertEqual(clock(), 51)
            monotonic.return_value, wall.return_value = 52.0, 902.0  # the wall clock was set back
            self.assertEqual(clock(), 52)
            monotonic.return_value, wall.return_value = 53.0, 963.0  # a minute of sleep
            self.assertEqual(clock(), 113)
            monotonic.return_value, wall.return_value = 54.0, 964.0
            self.assertEqual(clock(), 114)


class Requests(unittest.TestCase):
    def test_a_request_carries_the_token_in_a_header_and_names_in_the_body(self) -> None:
        endpoint = _Endpoint("http://locks.example:81/behind/", "secret", None)
        request = endpoint.request("/v1/holds", {"name": "a/../ü"})
        head, _, body = request.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"POST /behind/v1/holds HTTP/1.1\r\nHost: locks.example:81\r\n"))
        self.assertIn(b"\r\nAuthorization: Bearer secret\r\n", head)
        self.assertIn(f"\r\nContent-Length: {len(body)}".encode(), head)
        self.assertEqual(json.loads(body), {"name": "a/../ü"})

    def test_urls_and_tokens_that_could_leak_or_forge_are_refused(self) -> None:
        for url in ("127.0.0.1:7117", "redis://x", "http://", "http://a?b", "http://user:secret@host"):
            with self.assertRaises(ValueError, msg=url) as refused:
                Tenure(url)
            self.assertNotIn("secret", str(refused.exception))
        for token in ("a b", "a\r\nX: y", "", "ü"):
            with self.assertRaises(ValueError) as refused:
                Tenure("http://localhost", token=token)
        with self.assertRaises(Invalid):
            _Endpoint("http://localhost", None, None).request("/v1/holds", {"name": "\ud800"})

    def test_secrets_are_in_no_repr(self) -> None:
        tenure = Tenure("http://localhost", token="the-token")
        hold = mock.Mock(terms=None)
        self.assertNotIn("the-token", repr(tenure) + repr(tenure.mutex("x")) + repr(tenure._endpoint))
        grant = _Grant(
            terms=hold,
            claim="the-claim",
            fence=1,
            engine="e",
            renew=1,
            deadline=1,
            confirm=False,
            waited=0,
            doubt=False,
        )
        self.assertNotIn("the-claim", repr(grant))

    def test_an_unknown_option_is_refused(self) -> None:
        with self.assertRaises(TypeError):
            Tenure().mutex("x", tll="3s")  # type: ignore[call-arg]


def read(*pieces: bytes) -> _Reply | None:
    reader = _ReplyReader()
    reply = None
    for piece in pieces:
        if reply is not None:
            raise AssertionError("the answer was whole before")
        reply = reader.feed(piece)
    return reply


class Replies(unittest.TestCase):
    ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nTenure-Engine: e1\r\n\r\nhello"
    CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: z\r\n\r\n"

    def test_answers_are_read_whole_and_in_single_bytes(self) -> None:
        for answer in (self.ANSWER, self.CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + self.ANSWER):
            for reply in (read(answer), read(*(answer[at : at + 1] for at in range(len(answer))))):
                assert reply is not None
                self.assertEqual((reply.status, reply.body, reply.keep), (200, b"hello", True))
        reply = read(self.ANSWER)
        assert reply is not None
        self.assertEqual(reply.engine, "e1")

    def test_a_204_has_no_body_and_a_body_without_length_ends_with_the_connection(self) -> None:
        reply = read(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert reply is not None
        self.assertEqual((reply.status, reply.body, reply.keep), (204, b"", True))
        reply = read(b"HTTP/1.0 200 OK\r\n\r\nhel", b"lo", b"")
        assert reply is not None
        self.assertEqual((reply.body, reply.keep), (b"hello", False))

    def test_connections_that_the_server_closes_are_not_kept(self) -> None:
        for answer in (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore than was asked for",
        ):
            reply = read(answer)
            assert reply is not None
            self.assertFalse(reply.keep, answer)

    def test_what_is_no_answer_is_refused(self) -> None:
        for pieces in (
            [b""], [self.ANSWER[:-1], b""], [self.CHUNKED[:-2], b""], [b"SSH-2.0\r\n\r\n"],
            [b"HTTP/1.1 200 OK\r\nx\r\n\r\n"], [b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"],
            [b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"],
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"],
            [b"x" * 70_000],
        ):  # fmt: skip
            with self.assertRaises(_BadReply, msg=pieces):
                read(*pieces)


def answer(status: int, fields: Mapping[str, Any] | None = None, engine: str = "e1", **headers: str) -> _Reply:
    return _Reply(
        status, {"tenure-engine": engine, **headers}, json.dumps(fields).encode() if fields is not None else b""
    )


def problem(status: int, code: str, **more: Any) -> _Reply:
    return answer(status, {"code": code, "status": status, "detail": f"{code} it is", **more})


NO_ANSWER = _NoAnswer("cut", sent=True)
NOT_SENT = _NoAnswer("refused", sent=False)


class ByHand(unittest.TestCase):
    """Runs the steps of the protocol by hand, with a clock that only a test moves."""

    def setUp(self) -> None:
        self.now = 1000.0
        patch = mock.patch.object(tenure_client, "_now", lambda: self.now)
        patch.start()
        self.addCleanup(patch.stop)
        self.tenure = Tenure("http://127.0.0.1:9")
        self.left: list[Mapping[str, Any]] = []
        self.tenure._keeper.leave = lambda about, ttl: self.left.append(about)  # type: ignore[method-assign]

    def send(self, steps: Any, reply: Any = None, after: float = 0.0) -> _Send:
        """Answers a request `after` some seconds, and returns the next one; time passes in pauses."""
        self.now += after
        step = steps.send(reply)
        while isinstance(step, _Pause):
            self.now += step.seconds
            step = steps.send(None)
        assert isinstance(step, _Send)
        return step

    def end(self, steps: Any, reply: Any, after: float = 0.0) -> Any:
        with self.assertRaises(StopIteration) as stop:
            self.send(steps, reply, after)
        return stop.exception.value

    def granted(self, request: _Send, **more: Any) -> _Reply:
        assert request.body is not None
        fields = {"claim": request.body["claim"], "fence": 7, "ttl_ms": 30000, "left_ms": 30000, "renew_ms": 10000}
        return answer(201, {**fields, "confirm": False, "waited_ms": 0, **more})

    def acquire(self, **options: Any) -> Any:
        request = self.tenure.mutex("x", **options)
        return _acquire(self.tenure, request._terms, request._terms.wait)

    def grant(self, **options: Any) -> _Grant:
        steps = self.acquire(**options)
        grant: _Grant = self.end(steps, self.granted(self.send(steps)))
        return grant


class Steps(ByHand):
    def test_a_grant_counts_from_the_sending_of_its_request(self) -> None:
        steps = self.acquire()
        request = self.send(steps)
        grant = self.end(steps, self.granted(request, left_ms=45_000), after=15)
        self.assertAlmostEqual(grant.deadline, _deadline(1000, 45_000))
        self.assertEqual((grant.fence, grant.engine, self.left), (7, "e1", []))

    def test_a_claim_is_128_bits_and_new_for_each_acquire(self) -> None:
        claims = {self.send(self.acquire()).body["claim"] for _ in range(20)}  # type: ignore[index]
        self.assertEqual(len(claims), 20)
        for claim in claims:
            self.assertRegex(claim, "^[0-9a-f]{32}$")

    def test_a_ticket_keeps_the_place_and_the_wait_shrinks(self) -> None:
        steps = self.acquire(wait="30s")
        first = self.send(steps)
        second = self.send(steps, answer(202, {"ticket": "t1"}), after=20)
        assert first.body is not None and second.body is not None
        self.assertEqual((first.body["wait"], "ticket" in first.body), (30_000, False))
        self.assertEqual((second.body["wait"], second.body["ticket"]), (10_000, "t1"))
        self.assertEqual(first.body["claim"], second.body["claim"])
        with self.assertRaises(Busy) as busy:
            self.send(
                steps, problem(409, "busy", position=2, holder={"owner": "w:1", "fence": 6, "held_ms": 1500}), after=10
            )
        holder = busy.exception.holder
        assert holder is not None
        self.assertEqual((holder.owner, holder.fence, holder.held, busy.exception.position), ("w:1", 6, 1.5, 2))
        self.assertEqual(self.left, [], "the server has said that it is not in line any more")

    def test_a_ticket_that_a_server_does_not_know_is_left_out(self) -> None:
        steps = self.acquire()
        first = self.send(steps)
        self.send(steps, answer(202, {"ticket": "t1"}), after=20)
        again = self.send(steps, problem(400, "invalid"))
        assert first.body is not None and again.body is not None
        self.assertNotIn("ticket", again.body)
        self.assertEqual(again.body["claim"], first.body["claim"])
        with self.assertRaises(Invalid):
            self.send(steps, problem(400, "invalid"))

    def test_a_lost_reply_is_asked_for_again_with_the_same_claim(self) -> None:
        for lost in (NO_ANSWER, problem(504, "in_doubt"), answer(502, {}), answer(503, {}), problem(500, "internal")):
            steps = self.acquire()
            first = self.send(steps)
            again = self.send(steps, lost)
            assert first.body is not None and again.body is not None
            self.assertEqual(first.body["claim"], again.body["claim"])
            grant = self.end(steps, self.granted(again))
            self.assertTrue(grant.doubt, lost)

    def test_a_503_of_the_server_and_a_refused_connection_leave_no_doubt(self) -> None:
        for refused in (problem(503, "unavailable"), NOT_SENT):
            steps = self.acquire()
            self.send(steps)
            again = self.send(steps, refused)
            self.assertFalse(self.end(steps, self.granted(again)).doubt)

    def test_an_outage_ends_the_acquire_after_its_patience(self) -> None:
        for lost, error in ((NOT_SENT, Unavailable), (NO_ANSWER, InDoubt)):
            for wait, patience in ((None, 15), ("60s", 15), ("5s", 5), (0, 2)):
                self.left.clear()
                steps = self.acquire(wait=wait)
                begin = self.now
                self.send(steps)
                with self.assertRaises(Unavailable) as raised:
                    while True:
                        self.send(steps, lost)
                self.assertIs(type(raised.exception), error)
                self.assertAlmostEqual(self.now - begin, patience)
                self.assertEqual(len(self.left), 1 if lost is NO_ANSWER else 0)

    def test_an_answer_begins_patience_anew(self) -> None:
        steps = self.acquire()
        self.send(steps)
        for _ in range(3):
            self.send(steps, NO_ANSWER, after=10)
            self.send(steps, answer(202, {"ticket": "t"}), after=20)

    def test_retry_after_is_kept_to(self) -> None:
        attempts = _Attempts(15)
        self.assertEqual(attempts.failed(self.now, Unavailable(""), answer(503, {}, **{"retry-after": "1"})).seconds, 1)

    def test_work_starts_only_after_the_confirmation(self) -> None:
        steps = self.acquire()
        request = self.send(steps)
        renewal = self.send(steps, self.granted(request, left_ms=17_000, confirm=True), after=15)
        assert renewal.body is not None and request.body is not None
        self.assertEqual(renewal.path, "/v1/holds/renew")
        self.assertEqual((renewal.body["claim"], renewal.body["fence"]), (request.body["claim"], 7))
        again = self.send(steps, NO_ANSWER)
        self.assertEqual(again.body, renewal.body)
        sent = self.now
        grant = self.end(steps, answer(200, {"fence": 7, "left_ms": 30_000, "renew_ms": 10_000}), after=0.1)
        self.assertAlmostEqual(grant.deadline, _deadline(sent, 30_000))

    def test_a_turn_that_passed_is_left_and_asked_for_as_a_new_claim(self) -> None:
        gone = problem(410, "gone", ended="expired")
        refusals: list[Callable[[Any], _Send]] = [
            lambda steps: self.send(steps, gone),
            # The confirmation is not answered, until its time is over.
            lambda steps: self.send(steps, NO_ANSWER, after=2),
            # Another engine has never heard of it.
            lambda steps: self.send(steps, answer(200, {"fence": 7, "left_ms": 30_000}, engine="e2")),
        ]
        for refuse in refusals:
            steps = self.acquire()
            self.left.clear()
            request = self.send(steps)
            self.send(steps, self.granted(request, left_ms=2000, confirm=True))
            again = refuse(steps)
            assert request.body is not None and again.body is not None
            self.assertEqual(again.path, "/v1/holds")
            self.assertNotEqual(again.body["claim"], request.body["claim"])
            self.assertEqual([about["claim"] for about in self.left], [request.body["claim"]])

    def test_a_grant_that_arrives_after_its_deadline_is_not_used(self) -> None:
        steps = self.acquire()
        request = self.send(steps)
        again = self.send(steps, self.granted(request, left_ms=30_000), after=29.7)
        self.assertEqual(again.path, "/v1/holds")
        self.assertEqual(len(self.left), 1)

    def test_an_unknown_answer_is_an_error_and_never_a_hold(self) -> None:
        answers: list[Callable[[_Send], _Reply]] = [
            lambda request: self.granted(request, claim="0" * 32), lambda request: self.granted(request, fence="7"),
            lambda request: self.granted(request, confirm=None), lambda request: self.granted(request, left_ms=True),
            lambda request: answer(201, None), lambda request: answer(200, {"fence": 7, "left_ms": 1}),
            lambda request: _Reply(201, {}, self.granted(request).body), lambda request: answer(299, {"held": True}),
            lambda request: answer(302, {}),
        ]  # fmt: skip
        for strange in answers:
            steps = self.acquire()
            with self.assertRaises(tenure_client.TenureError):
                self.send(steps, strange(self.send(steps)))
        self.assertEqual(len(self.left), 6, "what may be held is left")

    def test_a_caller_that_goes_while_waiting_leaves_the_line(self) -> None:
        steps = self.acquire()
        request = self.send(steps)
        with self.assertRaises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt())
        assert request.body is not None
        self.assertEqual(self.left, [{"name": "x", "kind": "lock", "claim": request.body["claim"]}])

    def test_problems_are_exceptions_with_a_code(self) -> None:
        for reply, error, code in (
            (problem(401, "unauthorized"), Unauthorized, "unauthorized"),
            (problem(400, "invalid"), Invalid, "invalid"),
            (problem(410, "left"), tenure_client.TenureError, "left"),
            (_Reply(401, {}, b"<html>"), Unreadable, "unreadable"),
        ):
            steps = self.acquire()
            self.send(steps)
            with self.assertRaises(error) as raised:
                self.send(steps, reply)
            self.assertEqual(raised.exception.code, code)

    def test_a_release_that_was_not_answered_is_sent_again_in_doubt(self) -> None:
        steps = _release(self.tenure, self.grant())
        first = self.send(steps)
        second = self.send(steps, NO_ANSWER)
        assert first.body is not None and second.body is not None
        self.assertEqual((first.body["in_doubt"], second.body["in_doubt"]), (False, True))
        # It was the first that had released it.
        self.assertIsNone(self.end(steps, problem(410, "gone", ended="forgotten")))
        self.assertEqual(self.left, [])

    def test_a_release_that_comes_too_late_says_so(self) -> None:
        steps = _release(self.tenure, self.grant())
        self.send(steps)
        lost = self.end(steps, problem(410, "gone", ended="broken", by="ann", reason="stuck"))
        self.assertEqual((lost.ended, lost.by, lost.reason, lost.code), ("broken", "ann", "stuck", "lost"))

    def test_a_release_without_a_server_continues_in_the_background(self) -> None:
        steps = _release(self.tenure, self.grant())
        self.send(steps)
        with self.assertRaises(StopIteration) as stop:
            while True:
                self.send(steps, NOT_SENT)
        self.assertIsNone(stop.exception.value)
        self.assertEqual(len(self.left), 1)

    def test_a_once_that_was_done_gives_its_outcome(self) -> None:
        once = self.tenure.once("x", content="c")
        steps = _acquire(self.tenure, once._terms, None)
        request = self.send(steps)
        assert request.body is not None
        self.assertEqual(request.path, "/v1/once")
        self.assertEqual(
            (request.body["keep"], request.body["content"], "kind" in request.body), (86_400_000, "c", False)
        )
        self.assertEqual(self.end(steps, answer(200, {"settled": True, "outcome": [1]})), Settled([1]))

    def test_a_settle_that_comes_too_late_says_so(self) -> None:
        steps = _settle(self.tenure, self.grant(), {"outcome": 1})
        self.send(steps)
        with self.assertRaises(Lost):
            self.send(steps, problem(410, "gone", ended="expired"))

    def test_a_settle_whose_answer_was_lost_is_found_in_the_record_or_is_in_doubt(self) -> None:
        grant = self.grant()
        settled = answer(200, {"record": {"settled": True, "outcome": 1}})
        for outcome, found, done in (
            ({"outcome": 1}, settled, True), ({"outcome": 2}, settled, False), ({}, settled, False),
            ({"outcome": 1}, answer(404, {}), False), ({}, answer(404, {}), True),
            ({"outcome": 1}, problem(403, "forbidden"), False),
        ):  # fmt: skip
            steps = _settle(self.tenure, grant, outcome)
            self.send(steps)
            self.send(steps, NO_ANSWER)
            look = self.send(steps, problem(410, "gone", ended="expired"))
            self.assertEqual(look.path, "/v1/name?name=x&kind=once")
            if done:
                self.assertIsNone(self.end(steps, found))
            else:
                with self.assertRaises(InDoubt):
                    self.send(steps, found)

    def test_what_an_answer_says_about_a_renewal(self) -> None:
        grant = self.grant()
        fine = {"fence": 7, "left_ms": 1000}
        self.assertEqual(_Renewal.read(grant, 5, 200, fine, "e1"), _Renewal(deadline=_deadline(5, 1000)))
        for status, fields, engine in (
            (200, {"fence": 8, "left_ms": 1}, "e1"), (200, {"fence": 7}, "e1"), (200, fine, None), (503, fine, "e2"),
            (401, {}, "e1"), (404, {}, None), (None, fine, "e1"),
        ):  # fmt: skip
            self.assertEqual(_Renewal.read(grant, 5, status, fields, engine), _Renewal(), (status, fields, engine))
        lost = _Renewal.read(grant, 5, 200, fine, "e2").lost
        assert lost is not None
        self.assertEqual(lost.ended, "engine_changed")
        lost = _Renewal.read(grant, 5, 410, {"ended": "broken"}, "e1").lost
        assert lost is not None
        self.assertEqual(lost.ended, "broken")


class Holding(ByHand):
    """A hold and its clock. The threads that renew it are not started."""

    def hold(self, left: float | None = None, **options: Any) -> tenure_client.Hold:
        grant = self.grant(**options)
        grant.deadline = grant.deadline if left is None else self.now + left
        with mock.patch.object(tenure_client._Keeper, "add", lambda keeper, hold: keeper.holds.add(hold)):
            return tenure_client.Hold(self.tenure, grant)

    def test_a_hold_that_is_old_already_is_renewed_at_once(self) -> None:
        # Its grant was asked for a second time, because the reply to the first request was lost.
        self.assertAlmostEqual(self.hold()._renew_at, self.now + 10, delta=0.5)
        self.assertLessEqual(self.hold(left=12)._renew_at, self.now)

    def test_a_hold_is_lost_at_its_deadline_whatever_is_answered_later(self) -> None:
        hold = self.hold()
        self.now = hold._deadline - 0.001
        hold.check()
        self.now = hold._deadline
        with self.assertRaises(Lost) as lost:
            hold.check()
        self.assertEqual((lost.exception.ended, hold.left, hold.held), ("expired", 0, False))
        hold._renewed(self.now, _Renewal(deadline=self.now + 60))
        self.assertFalse(hold.held)

    def test_a_renewal_moves_the_deadline_only_forward(self) -> None:
        hold = self.hold()
        before = hold._deadline
        hold._renewed(self.now, _Renewal(deadline=before - 5))
        self.assertEqual(hold._deadline, before)
        hold._renewed(self.now, _Renewal(deadline=before + 5))
        self.assertEqual(hold._deadline, before + 5)

    def test_max_hold_ends_a_hold_that_is_renewed(self) -> None:
        hold = self.hold(max_hold="40s")
        self.now += 20
        hold._renewed(self.now, _Renewal(deadline=self.now + 29))
        self.now = 1039.9
        hold.check()
        self.now = 1040
        with self.assertRaises(Lost) as lost:
            hold.check()
        self.assertEqual(lost.exception.ended, "max_hold")
        self.assertFalse(hold._end(None))
        self.assertTrue(hold.lost.is_set())
        self.assertEqual(len(self.left), 1, "the next in line does not wait for the ttl")

    def test_a_thread_does_not_end_when_a_hold_comes_at_that_moment(self) -> None:
        hold, keeper = self.hold(), self.tenure._keeper
        for held in (True, False):
            keeper.holds.clear()
            keeper._threads["tenure-renew"] = mock.Mock()

            def wait(timeout: float | None = None, held: bool = held) -> bool:
                keeper.holds.update([hold] if held else [])
                return False  # nobody has called before the time was over

            with mock.patch.object(keeper.changed, "wait", wait), keeper.changed:
                self.assertEqual(keeper._rest("tenure-renew", None), held)
            self.assertEqual("tenure-renew" in keeper._threads, held)

    def pulse(self, holds: list[Any], reply: Any, after: float = 0.0) -> list[Mapping[str, Any]]:
        sent: list[Mapping[str, Any]] = []

        def send(http: _Http, path: str, body: Mapping[str, Any], timeout: float) -> Any:
            self.now += after
            sent.append(body)
            return reply

        with mock.patch.object(_Http, "send", send):
            self.tenure._keeper._pulse(holds, 1)
        return sent

    def test_many_holds_are_renewed_by_one_request(self) -> None:
        one, two, three = self.hold(), self.hold(), self.hold()
        left = {"fence": 7, "left_ms": 60_000}
        reply = answer(200, {"holds": [{"status": 200, **left}, {"status": 410, "ended": "broken"}, {"status": 503}]})
        before = three._deadline
        (body,) = self.pulse([one, two, three], reply, after=1)
        self.assertEqual([each["claim"] for each in body["holds"]], [hold._grant.claim for hold in (one, two, three)])
        self.assertAlmostEqual(one._deadline, _deadline(1000, 60_000))
        self.assertAlmostEqual(one._renew_at, 1010)
        self.assertTrue(two.lost.is_set())
        self.assertEqual(three._deadline, before)
        self.assertAlmostEqual(three._renew_at, 1001)

    def test_nothing_is_sent_for_a_hold_that_has_ended_by_our_clock(self) -> None:
        hold = self.hold()
        self.now += 60
        self.assertEqual(self.pulse([hold], answer(200, {"fence": 7, "left_ms": 60_000})), [])

    def test_an_answer_that_is_not_about_as_many_holds_changes_nothing(self) -> None:
        one, two = self.hold(), self.hold()
        for fields in ({"holds": [{"status": 410}]}, {"holds": [1, 2]}, {}, None):
            self.pulse([one, two], answer(200, fields))
            self.assertTrue(one.held and two.held)

    def test_a_body_stays_within_what_the_server_takes(self) -> None:
        holds = []
        for _ in range(300):
            hold = self.hold()
            hold._grant.terms = tenure_client._Terms.of("ü" * 512, "lock", {}, {})
            holds.append(hold)
        (body,) = self.pulse(holds, NO_ANSWER)
        self.assertLess(len(json.dumps(body, ensure_ascii=False).encode()), 64 * 1024)
        self.assertGreater(len(body["holds"]), 10)


if __name__ == "__main__":
    unittest.main()
