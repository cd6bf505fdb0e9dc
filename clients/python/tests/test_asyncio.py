"""The asyncio client against a real server."""

from __future__ import annotations

import asyncio
import time
import unittest
from typing import Any

from tenure_client import AsyncHold, AsyncRun, AsyncTenure, Busy, Closed, Lost, Settled, Unavailable, Unsettled

from .harness import PATIENCE, ServerCase


class AsyncCase(ServerCase, unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.aio = await self.async_client()

    async def async_client(self, url: str = "", **options: Any) -> AsyncTenure:
        tenure = AsyncTenure(url or self.server.url, **options)
        self.addAsyncCleanup(tenure.close)
        return tenure

    async def eventually(self, condition: Any, what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), give_up, f"waited in vain until {what}")
            await asyncio.sleep(0.02)


class Locks(AsyncCase):
    async def test_a_mutex_has_one_holder_and_fences_rise(self) -> None:
        async with self.aio.mutex(self.name) as first:
            first.check()
            self.assertIsNone(await self.aio.mutex(self.name).try_acquire())
            with self.assertRaises(Busy):
                await self.aio.mutex(self.name, wait="50ms").acquire()
        async with self.aio.mutex(self.name) as second:
            self.assertGreater(second.fence, first.fence)

    async def test_one_request_can_be_entered_by_many_tasks(self) -> None:
        mutex = self.aio.mutex(self.name)
        inside, overlaps, fences = 0, 0, []

        async def work() -> None:
            nonlocal inside, overlaps
            for _ in range(3):
                async with mutex as hold:
                    inside += 1
                    overlaps += inside > 1
                    await asyncio.sleep(0.001)
                    fences.append(hold.fence)
                    inside -= 1

        await asyncio.gather(*(work() for _ in range(8)))
        self.assertEqual((overlaps, len(fences)), (0, 24))
        self.assertEqual(fences, sorted(set(fences)))

    async def test_semaphores_readers_and_leaders(self) -> None:
        async with self.aio.semaphore(self.name, permits=2), self.aio.semaphore(self.name, permits=2):
            self.assertIsNone(await self.aio.semaphore(self.name, permits=2).try_acquire())
        async with self.aio.rwlock(self.name).read(), self.aio.rwlock(self.name).read():
            self.assertIsNone(await self.aio.rwlock(self.name).write().try_acquire())
        async with self.aio.election(self.name, value="me") as term:
            leader = await self.aio.leader(self.name)
            assert leader is not None
            self.assertEqual((leader.term, leader.value), (term.fence, "me"))
        self.assertIsNone(await self.aio.leader(self.name))

    async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_line(self) -> None:
        first = await self.aio.mutex(self.name).acquire()
        for _ in range(3):
            task = asyncio.create_task(self.aio.mutex(self.name).acquire())
            await self.eventually(self.waiting, "it waits")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            await self.eventually(lambda: self.waiting() == 0, "it has left")
        await first.release()
        self.assertTrue(self.is_free())

    async def test_a_wait_with_a_timeout_of_asyncio_leaves_the_line(self) -> None:
        async with self.aio.mutex(self.name):
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(self.aio.mutex(self.name).acquire(), 0.5)
            await self.eventually(lambda: self.waiting() == 0, "it has left")

    async def test_cancelling_an_acquire_at_any_moment_holds_nothing(self) -> None:
        for after in range(40):
            task = asyncio.create_task(self.aio.mutex(self.name, ttl="30s").acquire())
            await asyncio.sleep(after / 10_000)
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
        await self.eventually(self.is_free, "it is free")

    async def test_a_cancelled_body_releases(self) -> None:
        entered = asyncio.Event()

        async def body() -> None:
            async with self.aio.mutex(self.name):
                entered.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertTrue(self.is_free())

    async def test_the_client_can_be_used_from_one_event_loop_after_another(self) -> None:
        async def use() -> int:
            async with self.aio.mutex(self.name) as hold:
                return hold.fence

        loop = asyncio.get_running_loop()
        fences = [await loop.run_in_executor(None, lambda: asyncio.run(use())) for _ in range(3)]
        self.assertEqual(len(set(fences)), 3)


class Losses(AsyncCase):
    def break_it(self, hold: AsyncHold) -> None:
        body = {"name": hold.name, "fence": hold.fence, "reason": "stuck"}
        reply = self.other._http.send("/v1/break", body, 5)
        self.assertEqual(getattr(reply, "status", reply), 200)

    async def test_a_blocked_event_loop_keeps_its_hold(self) -> None:
        async with self.aio.mutex(self.name, ttl="1s") as hold:
            time.sleep(3)
            hold.check()
            self.assertFalse(self.is_free())

    async def test_a_loss_sets_the_event_and_ends_the_block_with_lost(self) -> None:
        with self.assertRaises(Lost) as lost:
            async with self.aio.mutex(self.name, ttl="2s") as hold:
                self.break_it(hold)
                await asyncio.wait_for(hold.lost.wait(), PATIENCE)
        self.assertEqual(lost.exception.ended, "broken")

    async def test_a_loss_cancels_the_body_if_asked(self) -> None:
        cancelled = False
        with self.assertRaises(Lost):
            async with self.aio.mutex(self.name, ttl="2s", cancel_on_loss=True) as hold:
                self.break_it(hold)
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    cancelled = True
                    raise
        self.assertTrue(cancelled)
        await asyncio.sleep(0)  # the task itself goes on

    async def test_a_body_that_is_cancelled_by_others_stays_cancelled(self) -> None:
        entered = asyncio.Event()

        async def body() -> None:
            async with self.aio.mutex(self.name, ttl="2s", cancel_on_loss=True):
                entered.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task

    async def test_run_cancels_its_work_on_loss(self) -> None:
        ended: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                ended.append("work")

        hold = await self.aio.mutex(self.name, ttl="2s").acquire()
        self.break_it(hold)
        with self.assertRaises(Lost):
            await hold.run(work())
        self.assertEqual(ended, ["work"])

    async def test_run_returns_what_its_work_does(self) -> None:
        async def work(result: Any) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        async with self.aio.mutex(self.name) as hold:
            self.assertEqual(await hold.run(work(5)), 5)
            with self.assertRaises(KeyError):
                await hold.run(work(KeyError()))
            task = asyncio.create_task(hold.run(asyncio.sleep(PATIENCE)))
            await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

    async def test_a_silent_server_loses_the_hold_in_time(self) -> None:
        proxy = self.proxy()
        tenure = await self.async_client(proxy.url, timeout="1s")
        with self.assertRaises(Lost):
            async with tenure.mutex(self.name, ttl="2s", cancel_on_loss=True):
                proxy.silent.set()
                await asyncio.sleep(PATIENCE)
        proxy.silent.clear()

    async def test_lost_replies_are_asked_for_again(self) -> None:
        proxy = self.proxy()
        tenure = await self.async_client(proxy.url)
        proxy.cut_replies = 2
        hold = await tenure.mutex(self.name).acquire()
        self.assertEqual(proxy.cut, 2)
        proxy.cut_replies = 1
        await hold.release()
        self.assertTrue(self.is_free())

    async def test_a_silent_server_is_unavailable_after_the_timeout(self) -> None:
        proxy = self.proxy()
        proxy.silent.set()
        tenure = await self.async_client(proxy.url, timeout="200ms", patience="500ms")
        with self.assertRaises(Unavailable):
            await tenure.mutex(self.name, wait=0).acquire()

    async def test_candidates_lead_again_after_a_loss(self) -> None:
        terms: list[int] = []
        async for term in self.aio.elect(self.name, ttl="2s", cancel_on_loss=True):
            async with term:
                terms.append(term.fence)
                if len(terms) == 2:
                    break
                body = {"name": term.name, "kind": "election", "fence": term.fence, "reason": "stuck"}
                self.other._http.send("/v1/break", body, 5)
                await asyncio.sleep(PATIENCE)
        self.assertEqual(terms, sorted(set(terms)))
        self.assertIsNone(await self.aio.leader(self.name))


class Closing(AsyncCase):
    async def test_closing_the_client_ends_its_waits_and_leaves_the_line(self) -> None:
        first = self.other.mutex(self.name).acquire()
        task = asyncio.create_task(self.aio.mutex(self.name).acquire())
        await self.eventually(self.waiting, "it waits")
        await self.aio.close()
        with self.assertRaises(Closed):
            await task
        await self.eventually(lambda: self.waiting() == 0, "it has left")
        with self.assertRaises(Closed):
            await self.aio.mutex(self.name).acquire()
        first.release()
        self.assertTrue(self.is_free())

    async def test_a_wait_that_is_granted_while_the_client_closes_holds_nothing(self) -> None:
        for after in range(20):
            tenure = await self.async_client()
            first = self.other.mutex(self.name).acquire()
            task = asyncio.create_task(tenure.mutex(self.name, ttl="600s").acquire())
            await self.eventually(self.waiting, "it waits")
            first.release()
            await asyncio.sleep(after / 4000)
            await tenure.close()
            try:
                hold = await task
            except Closed:
                pass
            else:
                with self.assertRaises(Lost):
                    await hold.release()
            await self.eventually(self.is_free, "it is free")

    async def test_a_release_after_closing_frees_what_was_held(self) -> None:
        hold = await self.aio.mutex(self.name, ttl="600s").acquire()
        await self.aio.close()
        self.assertFalse(self.is_free())
        with self.assertRaises(Lost) as lost:
            await hold.release()
        self.assertEqual(lost.exception.ended, "closed")
        self.assertTrue(self.is_free())

    async def test_waits_of_another_event_loop_end_too(self) -> None:
        first = self.other.mutex(self.name).acquire()
        loop = asyncio.get_running_loop()
        request = self.aio.mutex(self.name)
        elsewhere = loop.run_in_executor(None, lambda: asyncio.run(request.acquire()))
        await self.eventually(self.waiting, "it waits")
        await self.aio.close()
        with self.assertRaises(Closed):
            await elsewhere
        first.release()

    async def test_closing_the_client_ends_the_candidacy(self) -> None:
        with self.other.election(self.name):
            terms: list[int] = []

            async def stand() -> None:
                async for term in self.aio.elect(self.name):
                    terms.append(term.fence)

            task = asyncio.create_task(stand())
            await self.eventually(lambda: self.waiting(kind="election"), "it stands")
            await self.aio.close()
            await task
            self.assertEqual(terms, [])


class Onces(AsyncCase):
    async def test_the_second_caller_gets_the_outcome_of_the_first(self) -> None:
        async def work(run: AsyncRun) -> Any:
            run.check()
            return {"fence": run.fence}

        first = await self.aio.once(self.name).run(work)
        self.assertEqual(await self.aio.once(self.name).run(work), first)
        self.assertEqual(await self.aio.once(self.name).begin(), Settled(first))

    async def test_work_that_raises_has_not_happened_and_cancelled_work_is_unsettled(self) -> None:
        async def fail(run: AsyncRun) -> None:
            raise KeyError

        async def sleep(run: AsyncRun) -> None:
            await asyncio.sleep(PATIENCE)

        with self.assertRaises(KeyError):
            await self.aio.once(self.name).run(fail)
        task = asyncio.create_task(self.aio.once(self.name).run(sleep))
        await asyncio.sleep(0.5)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        with self.assertRaises(Unsettled):
            await self.aio.once(self.name).run(fail)
