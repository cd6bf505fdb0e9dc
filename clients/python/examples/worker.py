"""A service with standbys, on asyncio: `python worker.py`, in several terminals.

One works; when it is stopped, killed or cut off, another takes over. The work is cancelled when the term is lost, before
anyone else can lead.
"""

import asyncio
import os
import signal

from tenure_client import AsyncTenure, Lost


async def work(term: int) -> None:
    try:
        while True:
            print(f"works, term {term}", flush=True)  # guard what it writes with the term
            await asyncio.sleep(0.2)
    finally:
        print(f"has stopped, term {term}", flush=True)


async def serve(tenure: AsyncTenure) -> None:
    async for term in tenure.elect("reports", value=f"pid {os.getpid()}", ttl="5s"):
        async with term:
            try:
                await term.run(work(term.fence))
            except Lost as lost:
                print(f"lost: {lost.ended}", flush=True)


async def main() -> None:
    url = os.environ.get("TENURE_URL", "http://127.0.0.1:7117")
    async with AsyncTenure(url, token=os.environ.get("TENURE_TOKEN")) as tenure:
        serving = asyncio.create_task(serve(tenure))
        # On SIGTERM the work stops first, and then the term is released: the next one starts at that moment.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
