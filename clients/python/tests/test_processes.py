"""What needs processes: contention, forks, stops, kills and exits."""

from __future__ import annotations

import os
import pathlib
import signal
import tempfile
import time
import unittest

from .harness import ServerCase, until


class Contention(ServerCase):
    COUNT = """
name, path, rounds = sys.argv[2], sys.argv[3], int(sys.argv[4])
for _ in range(rounds):
    with tenure.mutex(name, ttl="10s", wait="60s") as hold:
        with open(path) as file: count, fence = map(int, file.read().split())
        assert fence < hold.fence, "an older hold wrote after a newer one"
        time.sleep(0.002)
        hold.check()
        with open(path, "w") as file: file.write(f"{count + 1} {hold.fence}")
"""

    def test_processes_never_hold_a_mutex_at_once_and_their_fences_rise(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "count")
            path.write_text("0 0")
            children = [self.child(self.COUNT, self.name, str(path), "40") for _ in range(3)]
            for child in children:
                self.assertEqual(child.rest(), (0, "", ""))
            self.assertEqual(path.read_text().split()[0], "120")


@unittest.skipUnless(hasattr(os, "fork"), "needs fork")
class Forks(ServerCase):
    def test_a_child_of_a_holder_holds_nothing_and_the_parent_continues(self) -> None:
        child = self.child(
            """
import warnings; warnings.simplefilter("ignore")  # Python warns of forks with threads, which is what is tested
name = sys.argv[2]
with tenure.mutex(name, ttl="3s") as hold:
    time.sleep(1.6)  # so that the thread that renews has a connection, too
    used = lambda: {one.socket.getsockname() for http in (tenure._http, tenure._keeper._http) for one in http._idle}
    before = used()
    assert len(before) == 2, before
    pid = os.fork()
    if pid == 0:
        assert threading.active_count() == 1, "the threads of the parent are not here"
        assert hold.lost.is_set() and not hold.held
        for use in (hold.check, hold.release):
            try: use()
            except Lost as lost: assert lost.ended == "forked", lost.ended
            else: raise AssertionError("the child holds it")
        assert tenure.mutex(name).try_acquire() is None, "released by the child"
        with tenure.mutex(name + "-child", ttl="3s") as own:
            time.sleep(5)
            own.check()
        assert len(used()) == 2 and not used() & before, "a connection of the parent is used"
        try: hold.__exit__(None, None, None)
        except Lost: pass
        say("child done")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    hold.check()
    assert tenure.mutex(name).try_acquire() is None
    say("parent holds")
say("done")
""",
            self.name,
        )
        self.assertEqual(child.line(), "child done")
        code, out, errors = child.rest()
        self.assertEqual((code, out, errors), (0, "parent holds\ndone", ""))
        self.assertTrue(self.is_free())

    def test_a_fork_in_the_middle_of_everything_leaves_both_usable(self) -> None:
        # Threads acquire and release without pause, so that forks meet every lock of the client taken.
        child = self.child(
            """
import warnings; warnings.simplefilter("ignore")  # Python warns of forks with threads, which is what is tested
name, stop = sys.argv[2], threading.Event()
def churn(number):
    while not stop.is_set():
        with tenure.mutex(f"{name}-{number}", ttl="5s"): pass
threads = [threading.Thread(target=churn, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for round in range(20):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        with tenure.mutex(f"{name}-fork", wait="10s") as hold: hold.check()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, f"round {round}: status {status}"
stop.set()
for thread in threads: thread.join()
say("done")
""",
            self.name,
        )
        self.assertEqual(child.rest(), (0, "done", ""))

    def test_a_fork_while_another_thread_has_the_locks_of_the_client(self) -> None:
        child = self.child(
            """
import warnings; warnings.simplefilter("ignore")  # Python warns of forks with threads, which is what is tested
taken, forked = threading.Event(), threading.Event()
def take():
    with tenure._keeper.changed, tenure._keeper._http._lock, tenure._http._lock:
        taken.set()
        forked.wait(30)
threading.Thread(target=take).start()
taken.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    with tenure.mutex(sys.argv[2], ttl="1s") as hold:
        time.sleep(1.5)
        hold.check()
    os._exit(0)
status = os.waitpid(pid, 0)[1]
forked.set()
say(status)
""",
            self.name,
        )
        self.assertEqual(child.rest(), (0, "0", ""))

    def test_workers_forked_from_a_pool_use_a_client_made_before(self) -> None:
        # As gunicorn with --preload, and Celery, do it.
        child = self.child(
            """
import multiprocessing, warnings; warnings.simplefilter("ignore")
lock = tenure.lock(sys.argv[2])
def work(_):
    with lock:
        lock.check()
        return lock.hold.fence
with lock: pass
with multiprocessing.get_context("fork").Pool(3) as pool:
    fences = pool.map(work, range(12))
say(len(set(fences)))
""",
            self.name,
        )
        self.assertEqual(child.rest(), (0, "12", ""))

    def test_a_child_that_falls_out_of_the_block_does_not_release(self) -> None:
        child = self.child(
            """
import warnings; warnings.simplefilter("ignore")  # Python warns of forks with threads, which is what is tested
try:
    with tenure.mutex(sys.argv[2], ttl="30s") as hold:
        pid = os.fork()
        if pid == 0: sys.exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
        hold.check()
        say("held")
        time.sleep(60)
except Lost: os._exit(1)
""",
            self.name,
        )
        self.assertEqual(child.line(), "held")
        self.assertFalse(self.is_free())


class Stops(ServerCase):
    HOLD = """
with tenure.mutex(sys.argv[2], ttl=sys.argv[3]) as hold:
    say("held", hold.fence)
    while hold.held: time.sleep(0.001)
    try: hold.check()
    except Lost as lost: say(lost.ended)
    say(hold.lost.wait(5))
"""

    def test_a_holder_that_was_stopped_finds_out_before_it_does_anything(self) -> None:
        child = self.child(self.HOLD, self.name, "2s")
        fence = int(child.line().split()[1])
        child.process.send_signal(signal.SIGSTOP)
        with self.other.mutex(self.name, wait="30s") as hold:
            self.assertGreater(hold.fence, fence)
            child.process.send_signal(signal.SIGCONT)
            self.assertEqual(child.line(), "expired")
            self.assertEqual(child.line(), "True")
            code, _, errors = child.rest()
            self.assertEqual(code, 1)
            self.assertIn("Lost", errors.splitlines()[-1], "the block raises at its end")
            hold.check()

    def test_a_short_stop_does_no_harm(self) -> None:
        child = self.child(self.HOLD, self.name, "30s")
        child.line()
        child.process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        child.process.send_signal(signal.SIGCONT)
        self.assertFalse(self.is_free())

    def test_a_waiter_that_was_stopped_does_not_hold_up_the_line(self) -> None:
        first = self.tenure.mutex(self.name, ttl="30s").acquire()
        child = self.child(
            'say("waits")\nwith tenure.mutex(sys.argv[2], wait="60s") as hold: say("held"); hold.check()', self.name
        )
        self.assertEqual(child.line(), "waits")
        until(self.waiting, "it waits")
        child.process.send_signal(signal.SIGSTOP)
        first.release()
        # Its turn is not taken, and passes.
        with self.other.mutex(self.name, wait="30s"):
            child.process.send_signal(signal.SIGCONT)
            time.sleep(0.5)
        self.assertEqual(child.line(), "held")
        self.assertEqual(child.rest(), (0, "", ""))

    def test_a_holder_that_was_killed_loses_it_after_its_ttl(self) -> None:
        child = self.child(self.HOLD, self.name, "2s")
        child.line()
        child.process.kill()
        with self.other.mutex(self.name, wait="30s"):
            pass


class Exits(ServerCase):
    def test_a_process_that_ends_with_a_hold_ends_at_once_and_says_nothing(self) -> None:
        for ending in ("", "sys.exit(0)", "os._exit(0)"):
            name = self.name + ending
            child = self.child(
                f"""
hold = tenure.mutex(sys.argv[2], ttl="2s").acquire()
lock = tenure.lock(sys.argv[2] + "-2", ttl="2s"); lock.acquire()
time.sleep(1)
say("ends")
{ending}
""",
                name,
            )
            self.assertEqual(child.line(), "ends")
            begin = time.monotonic()
            self.assertEqual(child.rest(), (0, "", ""))
            self.assertLess(time.monotonic() - begin, 15)
            with self.other.mutex(name, wait="30s"):
                pass  # it has ended by its ttl

    def test_a_claim_given_up_at_the_end_is_left_before_the_process_ends(self) -> None:
        with self.tenure.mutex(self.name, ttl="30s"):
            child = self.child(
                """
def stop(*_): raise SystemExit
signal.signal(signal.SIGTERM, stop)
say("waits")
tenure.mutex(sys.argv[2]).acquire()
""",
                self.name,
            )
            self.assertEqual(child.line(), "waits")
            until(self.waiting, "it waits")
            child.process.send_signal(signal.SIGTERM)
            self.assertEqual(child.rest(), (0, "", ""))
            # At once, not only when the server misses its next request.
            self.assertEqual(self.waiting(), 0)

    def test_threads_that_still_work_at_the_end_say_nothing(self) -> None:
        child = self.child(
            """
def churn(number):
    while True:
        with tenure.mutex(f"{sys.argv[2]}-{number}", ttl="2s"): pass
for number in range(4): threading.Thread(target=churn, args=(number,), daemon=True).start()
time.sleep(1)
""",
            self.name,
        )
        self.assertEqual(child.rest(), (0, "", ""))

    def test_the_file_alone_is_the_client(self) -> None:
        source = pathlib.Path(__file__).parents[1] / "src/tenure_client/__init__.py"
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "copied.py").write_bytes(source.read_bytes())
            child = self.child(
                """
sys.path.insert(0, sys.argv[2])
import copied
with copied.Tenure(sys.argv[1]).mutex("copied") as hold: say(hold.fence > 0)
""",
                folder,
            )
            self.assertEqual(child.rest(), (0, "True", ""))


if __name__ == "__main__":
    unittest.main()
