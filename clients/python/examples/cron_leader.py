"""Runs a job every few seconds on one of many hosts: `python cron_leader.py SECONDS`, in several terminals.

Stop or kill the one that runs the jobs, and another one takes over.
"""

import os
import signal
import socket
import sys

from tenure_client import Tenure

tenure = Tenure(os.environ.get("TENURE_URL", "http://127.0.0.1:7117"), token=os.environ.get("TENURE_TOKEN"))


def stop(*_: object) -> None:
    raise SystemExit  # ends the wait or the job; the term is released on the way out


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    every = float(sys.argv[1])
    for term in tenure.elect("cron", value=f"{socket.gethostname()}:{os.getpid()}", ttl="5s"):
        with term:
            print(f"leads, term {term.fence}", flush=True)
            while not term.lost.wait(every):
                term.check()
                print(f"job of term {term.fence}", flush=True)
        print("does not lead any more", flush=True)


if __name__ == "__main__":
    main()
