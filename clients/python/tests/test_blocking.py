"""The blocking client against a real server."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

from tenure_client import (
    Busy,
    Closed,
    Conflict,
    Full,
    Hold,
    InDoubt,
    Invalid,
    Lost,
    OtherContent,
    Run,
    Settled,
    Unavailable,
    Unsettled,
)

from .harness import PATIENCE, ServerCase, until


class Locks(ServerCase):
    def test_a_mutex_has_one_holder_and_fences_rise(self) -> None:
        with self.tenure.mutex(self.name, ttl="10s") as first:
            first.check()
            self.assertTrue(first.held)
            self.assertLess(first.left, 10)
            self.assertIsNone(self.other.mutex(self.name).try_acquire())
            with self.assertRaises(Busy) as busy:
                self.other.mutex(self.name, wait="50ms").acquire()
            holder = busy.exception.holder
            assert holder is not None
            self.assertEqual(holder.fence, first.fence)
            self.assertRegex(holder.owner, r":\d+$")
        self.assertFalse(first.held)
        with self.other.mutex(self.name) as second:
            self.assertGreater(second.fence, first.fence)

    def test_the_next_in_line_has_it_when_it_is_released(self) -> None:
        first = self.tenure.mutex(self.name).acquire()
        got: list[Hold] = []
        thread = threading.Thread(target=lambda: got.append(self.other.mutex(self.name).acquire()))
        thread.start()
        until(self.waiting, "someone waits")
        self.assertEqual(got, [])
        first.release()
        thread.join(PATIENCE)
        self.assertGreater(got[0].fence, first.fence)
        got[0].release()

    def test_a_wait_continues_over_many_requests(self) -> None:
        # Longer than one request may wait, so that the place is kept by a ticket.
        first = self.tenure.mutex(self.name).acquire()
        got: list[Hold] = []
        thread = threading.Thread(target=lambda: got.append(self.other.mutex(self.name, wait="60s").acquire()))
        thread.start()
        time.sleep(21.5)
        self.assertEqual(self.waiting(), 1)
        first.release()
        thread.join(PATIENCE)
        self.assertGreater(got[0].fence, first.fence)
        got[0].release()

    def test_a_second_release_does_nothing(self) -> None:
        hold = self.tenure.mutex(self.name).acquire()
        hold.release()
        hold.release()
        with self.assertRaises(Lost) as lost:
            hold.check()
        self.assertEqual(lost.exception.ended, "released")

    def test_one_request_can_be_entered_by_many_threads(self) -> None:
        mutex = self.tenure.mutex(self.name)
        inside, overlaps, fences = 0, 0, []

        def work() -> None:
            nonlocal inside, overlaps
            for _ in range(5):
                with mutex as hold:
                    inside += 1
                    overlaps += inside > 1
                    fences.append(hold.fence)
                    inside -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual((overlaps, len(fences)), (0, 20))
        self.assertEqual(fences, sorted(set(fences)))

    def test_an_exception_in_the_block_releases_and_passes(self) -> None:
        with self.assertRaises(KeyError):
            with self.tenure.mutex(self.name):
                raise KeyError
        self.assertTrue(self.is_free())

    def test_a_semaphore_has_as_many_holders_as_permits(self) -> None:
        one = self.tenure.semaphore(self.name, permits=3, weight=2).acquire()
        two = self.other.semaphore(self.name, permits=3).acquire()
        self.assertIsNone(self.other.semaphore(self.name, permits=3).try_acquire())
        with self.assertRaises(Conflict):
            self.other.semaphore(self.name, permits=4).try_acquire()
        one.release()
        two.release()

    def test_readers_share_and_writers_do_not(self) -> None:
        with self.tenure.rwlock(self.name).read(), self.other.rwlock(self.name).read():
            self.assertIsNone(self.other.rwlock(self.name).write().try_acquire())
        with self.tenure.rwlock(self.name).write():
            self.assertIsNone(self.other.rwlock(self.name).read().try_acquire())

    def test_a_line_that_is_full_and_a_name_that_is_wrong_are_errors(self) -> None:
        with self.tenure.mutex(self.name):
            with self.assertRaises(Full):
                self.other.mutex(self.name, wait="5s", max_waiters=0).acquire()
        for name in ("", "a\nb", "x" * 2000):
            with self.assertRaises(Invalid):
                self.tenure.mutex(name).acquire()

    def test_names_and_texts_are_any_unicode(self) -> None:
        name = self.name + ' ü/../"<b>🔒'
        with self.tenure.mutex(name, owner="wörker", reason="nightly", meta={"a": "b"}):
            with self.assertRaises(Busy) as busy:
                self.other.mutex(name, wait=0).acquire()
            holder = busy.exception.holder
            assert holder is not None
            self.assertEqual((holder.owner, holder.reason), ("wörker", "nightly"))
            self.assertTrue(self.other.lock(name).locked())


class ThreadingLock(ServerCase):
    def test_a_lock_does_what_a_threading_lock_does(self) -> None:
        lock, same = self.tenure.lock(self.name), self.other.lock(self.name)
        self.assertFalse(lock.locked())
        self.assertIs(lock.acquire(), True)
        self.assertTrue(lock.locked())
        self.assertTrue(same.locked())
        self.assertIs(same.acquire(blocking=False), False)
        self.assertIs(same.acquire(timeout=0.05), False)
        lock.check()
        lock.release()
        self.assertFalse(same.locked())
        with self.assertRaises(RuntimeError):
            lock.release()
        with lock as entered:
            self.assertIs(entered, True)
            assert lock.hold is not None
            self.assertGreater(lock.hold.fence, 0)
        for wrong in (lambda: lock.acquire(False, 1), lambda: lock.acquire(True, -2)):
            self.assertRaises(ValueError, wrong)

    def test_another_thread_may_release_a_lock(self) -> None:
        lock = self.tenure.lock(self.name)
        lock.acquire()
        thread = threading.Thread(target=lock.release)
        thread.start()
        thread.join(PATIENCE)
        self.assertTrue(self.is_free())

    def test_it_works_within_a_condition(self) -> None:
        # `threading.Condition` takes any lock with these methods.
        condition = threading.Condition(self.tenure.lock(self.name))  # type: ignore[arg-type]
        ready: list[int] = []

        def give() -> None:
            with condition:
                ready.append(1)
                condition.notify()

        with condition:
            thread = threading.Thread(target=give)
            thread.start()
            self.assertTrue(condition.wait_for(lambda: ready, PATIENCE))
        thread.join(PATIENCE)


class Losses(ServerCase):
    def break_it(self, hold: Hold, kind: str = "lock") -> None:
        reply = self.other._http.send(
            "/v1/break", {"name": hold.name, "kind": kind, "fence": hold.fence, "reason": "stuck"}, 5
        )
        self.assertEqual(getattr(reply, "status", reply), 200)

    def test_a_hold_that_is_broken_is_lost_at_its_next_pulse(self) -> None:
        hold = self.tenure.mutex(self.name, ttl="2s").acquire()
        self.break_it(hold)
        self.assertTrue(hold.lost.wait(PATIENCE))
        with self.assertRaises(Lost) as lost:
            hold.check()
        self.assertEqual((lost.exception.ended, lost.exception.reason), ("broken", "stuck"))

    def test_a_block_whose_hold_was_lost_raises_at_its_end(self) -> None:
        with self.assertRaises(Lost):
            with self.tenure.mutex(self.name, ttl="30s") as hold:
                self.break_it(hold)  # not noticed before the release
        with self.assertRaises(KeyError):  # what the block raised is not hidden by it
            with self.tenure.mutex(self.name, ttl="30s") as hold:
                self.break_it(hold)
                raise KeyError

    def test_a_lock_of_a_thread_that_lost_it_does_not_release_the_next_one(self) -> None:
        lock = self.tenure.lock(self.name, ttl="30s")
        lock.acquire()
        assert lock.hold is not None
        self.break_it(lock.hold)
        taken, release = threading.Event(), threading.Event()

        def next_thread() -> None:
            lock.acquire()
            taken.set()
            release.wait(PATIENCE)
            lock.release()

        thread = threading.Thread(target=next_thread)
        thread.start()
        self.assertTrue(taken.wait(PATIENCE))
        self.assertRaises(Lost, lock.release)
        self.assertFalse(self.is_free())
        release.set()
        thread.join(PATIENCE)
        self.assertTrue(self.is_free())

    def test_a_server_that_falls_silent_loses_the_hold_before_others_can_have_it(self) -> None:
        proxy = self.proxy()
        hold = self.client(proxy.url).mutex(self.name, ttl="2s").acquire()
        proxy.silent.set()
        lost_while_held: list[bool] = []

        def watch() -> None:
            hold.lost.wait(PATIENCE)
            lost_while_held.append(not self.is_free())

        thread = threading.Thread(target=watch)
        thread.start()
        with self.other.mutex(self.name, wait=PATIENCE):
            self.assertFalse(hold.held)
            self.assertTrue(hold.lost.is_set())
        thread.join(PATIENCE)
        self.assertRaises(Lost, hold.release)

    def test_a_blocked_main_thread_keeps_its_hold(self) -> None:
        with self.tenure.mutex(self.name, ttl="1s") as hold:
            time.sleep(3)
            hold.check()
            self.assertFalse(self.is_free())

    def test_many_holds_are_kept(self) -> None:
        holds = [self.tenure.mutex(f"{self.name}-{number}", ttl="1s").acquire() for number in range(40)]
        time.sleep(2.5)
        self.assertTrue(all(hold.held for hold in holds))
        self.assertFalse(self.is_free(f"{self.name}-39"))
        for hold in holds:
            hold.release()

    def test_max_hold_ends_it_and_frees_it(self) -> None:
        hold = self.tenure.mutex(self.name, ttl="30s", max_hold="500ms").acquire()
        self.assertTrue(hold.lost.wait(PATIENCE))
        until(self.is_free, "the next can have it")


class LostReplies(ServerCase):
    def test_a_lost_reply_to_an_acquire_is_asked_for_again(self) -> None:
        proxy = self.proxy()
        tenure = self.client(proxy.url)
        proxy.cut_replies = 2
        hold = tenure.mutex(self.name).acquire()
        self.assertEqual(proxy.cut, 2)
        # The server knows one hold, not three.
        hold.release()
        self.assertTrue(self.is_free())

    def test_a_lost_reply_to_a_release_is_asked_for_again(self) -> None:
        proxy = self.proxy()
        hold = self.client(proxy.url).mutex(self.name).acquire()
        proxy.cut_replies = 1
        hold.release()
        self.assertEqual(proxy.cut, 1)
        self.assertTrue(self.is_free())

    def test_lost_replies_to_renewals_do_not_lose_the_hold(self) -> None:
        proxy = self.proxy()
        with self.client(proxy.url).mutex(self.name, ttl="3s") as hold:
            proxy.cut_replies = 3
            until(lambda: proxy.cut == 3, "three renewals were cut")
            time.sleep(3)
            hold.check()

    def test_a_lost_reply_to_a_settle_is_asked_for_again(self) -> None:
        proxy = self.proxy()
        tenure = self.client(proxy.url)

        def work(run: Run) -> str:
            proxy.cut_replies = 1
            return "done"

        self.assertEqual(tenure.once(self.name).run(work), "done")
        self.assertEqual(proxy.cut, 1)
        self.assertEqual(self.other.once(self.name).run(lambda run: "again"), "done")

    def test_a_release_without_answer_is_sent_again_in_the_background(self) -> None:
        proxy = self.proxy()
        hold = self.client(proxy.url, timeout="300ms").mutex(self.name, ttl="30s").acquire()
        proxy.silent.set()
        hold.release()
        self.assertFalse(self.is_free())
        proxy.silent.clear()
        begin = time.monotonic()
        until(self.is_free, "it was released")
        self.assertLess(time.monotonic() - begin, 20, "long before its ttl")


class Waits(ServerCase):
    def test_a_caller_that_gives_up_leaves_the_line(self) -> None:
        with self.tenure.mutex(self.name):
            self.assertRaises(Busy, self.other.mutex(self.name, wait="200ms").acquire)
            self.assertEqual(self.waiting(), 0)

    def test_closing_the_client_ends_its_waits_and_leaves_the_line(self) -> None:
        first = self.tenure.mutex(self.name).acquire()
        waiter = self.client()
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                waiter.mutex(self.name).acquire()
            except Closed as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(self.waiting, "it waits")
        waiter.close()
        thread.join(PATIENCE)
        self.assertEqual([type(error) for error in errors], [Closed])
        until(lambda: self.waiting() == 0, "it has left")
        first.release()
        self.assertTrue(self.is_free())

    def test_an_interrupt_ends_a_wait_and_leaves_the_line(self) -> None:
        with self.tenure.mutex(self.name):
            child = self.child(
                """
say("waits")
try: tenure.mutex(sys.argv[2]).acquire()
except KeyboardInterrupt: say("interrupted")
time.sleep(60)
""",
                self.name,
            )
            self.assertEqual(child.line(), "waits")
            until(self.waiting, "it waits")
            child.process.send_signal(signal.SIGINT)
            self.assertEqual(child.line(), "interrupted")
            until(lambda: self.waiting() == 0, "it has left")

    def test_closing_does_not_release_what_is_held(self) -> None:
        tenure = self.client()
        hold = tenure.mutex(self.name, ttl="2s").acquire()
        tenure.close()
        self.assertFalse(self.is_free())
        self.assertTrue(hold.lost.is_set())
        self.assertRaises(Closed, tenure.mutex(self.name).acquire)
        until(self.is_free, "its ttl is over")

    def test_a_release_after_closing_frees_what_was_held(self) -> None:
        tenure = self.client()
        hold = tenure.mutex(self.name, ttl="600s").acquire()
        tenure.close()
        self.assertFalse(self.is_free())
        with self.assertRaises(Lost) as lost:
            hold.release()
        self.assertEqual(lost.exception.ended, "closed")
        self.assertTrue(self.is_free(), "its own code says that the work is over")

    def test_a_block_that_ends_after_closing_frees_what_it_held(self) -> None:
        tenure = self.client()
        with self.assertRaises(Lost):
            with tenure.mutex(self.name, ttl="600s") as hold:
                tenure.close()
                self.assertRaises(Lost, hold.check)
        self.assertTrue(self.is_free())

    def test_closing_at_any_moment_holds_nothing(self) -> None:
        for after in range(20):
            tenure = self.client()
            got: list[Hold] = []

            def acquire() -> None:
                try:
                    got.append(tenure.mutex(self.name, ttl="600s").acquire())
                except Closed:
                    pass

            thread = threading.Thread(target=acquire)
            thread.start()
            time.sleep(after / 4000)
            tenure.close()
            thread.join(PATIENCE)
            for hold in got:
                self.assertRaises(Lost, hold.release)
            until(self.is_free, "it is free")


class Onces(ServerCase):
    def test_work_that_ends_after_closing_is_settled(self) -> None:
        tenure = self.client()

        def work(run: Run) -> Any:
            tenure.close()
            return "paid"

        self.assertEqual(tenure.once(self.name).run(work), "paid")
        self.assertEqual(self.other.once(self.name).run(lambda run: "again"), "paid")

    def test_the_second_caller_gets_the_outcome_of_the_first(self) -> None:
        ran: list[int] = []

        def work(run: Run) -> Any:
            run.check()
            ran.append(run.fence)
            return {"receipt": (1, 2)}

        for tenure in (self.tenure, self.other, self.tenure):
            self.assertEqual(tenure.once(self.name, content="body").run(work), {"receipt": [1, 2]})
        self.assertEqual(len(ran), 1)
        with self.assertRaises(OtherContent):
            self.other.once(self.name, content="another").run(work)

    def test_none_is_an_outcome(self) -> None:
        self.assertIsNone(self.tenure.once(self.name).run(lambda run: None))
        self.assertIsNone(self.other.once(self.name).run(lambda run: "again"))

    def test_work_that_raises_has_not_happened(self) -> None:
        def fail(run: Run) -> None:
            raise KeyError

        self.assertRaises(KeyError, self.tenure.once(self.name).run, fail)
        self.assertEqual(self.other.once(self.name).run(lambda run: "done"), "done")

    def test_work_that_was_interrupted_is_unsettled(self) -> None:
        def interrupted(run: Run) -> None:
            raise KeyboardInterrupt

        self.assertRaises(KeyboardInterrupt, self.tenure.once(self.name).run, interrupted)
        self.assertRaises(Unsettled, self.other.once(self.name).run, lambda run: "again")
        self.assertEqual(self.other.once(self.name, rerun=True).run(lambda run: "rerun"), "rerun")

    def test_an_outcome_that_is_not_json_leaves_it_unsettled(self) -> None:
        self.assertRaises(TypeError, self.tenure.once(self.name).run, lambda run: object())
        self.assertRaises(Unsettled, self.other.once(self.name).run, lambda run: "again")

    def test_a_caller_that_comes_while_it_runs_waits_for_the_outcome(self) -> None:
        run = self.tenure.once(self.name).begin()
        assert isinstance(run, Run)
        self.assertRaises(Busy, self.other.once(self.name, wait=0).run, lambda run: "again")
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.append(self.other.once(self.name).begin()))
        thread.start()
        time.sleep(0.3)
        run.settle("first")
        thread.join(PATIENCE)
        self.assertEqual(outcomes, [Settled("first")])


class Elections(ServerCase):
    def test_one_leads_and_everyone_can_see_who(self) -> None:
        self.assertIsNone(self.other.leader(self.name))
        with self.tenure.election(self.name, value="10.0.0.1:80") as term:
            leader = self.other.leader(self.name)
            assert leader is not None
            self.assertEqual((leader.term, leader.value), (term.fence, "10.0.0.1:80"))
            self.assertIsNone(self.other.election(self.name).try_acquire())
        self.assertIsNone(self.other.leader(self.name))

    def test_a_lost_term_is_followed_by_another(self) -> None:
        terms: list[int] = []
        for term in self.tenure.elect(self.name, ttl="2s"):
            with term:
                terms.append(term.fence)
                if len(terms) == 3:
                    break
                if len(terms) == 1:
                    Losses.break_it(self, term, "election")  # type: ignore[arg-type]
                    term.lost.wait(PATIENCE)
                    term.check()
        self.assertEqual(terms, sorted(set(terms)))
        self.assertIsNone(self.other.leader(self.name))

    def test_closing_the_client_ends_the_candidacy(self) -> None:
        with self.tenure.election(self.name):
            candidate = self.client()
            terms: list[Hold] = []
            thread = threading.Thread(target=lambda: terms.extend(candidate.elect(self.name)))
            thread.start()
            time.sleep(0.3)
            candidate.close()
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())
            self.assertEqual(terms, [])


class Outages(ServerCase):
    """Each test ends the server and starts it again."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.server.start)

    def test_a_hold_outlives_a_server_that_is_killed_and_started_again(self) -> None:
        with self.tenure.mutex(self.name, ttl="10s") as hold:
            for how in (signal.SIGKILL, signal.SIGTERM):
                self.server.end(how)
                self.server.start()
                hold.check()
                self.assertFalse(self.is_free())
        self.assertTrue(self.is_free())

    def test_a_wait_outlives_a_server_that_is_restarted(self) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            first = self.tenure.mutex(self.name, ttl="20s").acquire()
            got: list[Hold] = []
            thread = threading.Thread(target=lambda: got.append(self.other.mutex(self.name, wait=PATIENCE).acquire()))
            thread.start()
            until(lambda: self.tenure.lock(self.name).locked() and self._waits(), "someone waits")
            self.server.end(how)
            self.server.start()
            first.check()
            first.release()
            thread.join(PATIENCE)
            self.assertGreater(got[0].fence, first.fence)
            got[0].release()

    def _waits(self) -> bool:
        with self.client() as looking:
            self.other, kept = looking, self.other
            try:
                return self.waiting() > 0
            finally:
                self.other = kept

    def test_without_a_server_acquire_fails_after_its_patience_and_nothing_is_held(self) -> None:
        self.server.end()
        tenure = self.client(patience="1s")
        begin = time.monotonic()
        with self.assertRaises(Unavailable) as failed:
            tenure.mutex(self.name).acquire()
        self.assertNotIsInstance(failed.exception, InDoubt)
        self.assertGreater(time.monotonic() - begin, 0.9)
        self.server.start()
        self.assertTrue(self.is_free())

    def test_a_server_that_does_not_come_back_loses_the_hold(self) -> None:
        hold = self.tenure.mutex(self.name, ttl="2s").acquire()
        self.server.end()
        self.assertTrue(hold.lost.wait(PATIENCE))
        self.assertRaises(Lost, hold.release)

    def test_a_candidate_waits_for_a_server_that_comes_back(self) -> None:
        self.server.end()
        led = threading.Event()
        candidate = self.client(patience="500ms")

        def stand() -> None:
            for term in candidate.elect(self.name):
                with term:
                    led.set()
                    return

        thread = threading.Thread(target=stand)
        thread.start()
        time.sleep(1.5)
        self.assertFalse(led.is_set())
        self.server.start()
        self.assertTrue(led.wait(PATIENCE))
        thread.join(PATIENCE)
