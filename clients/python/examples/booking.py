"""Books a table once, however many processes try: `python booking.py TABLE GUEST`.

The lock keeps bookings of a table apart, and the database refuses the fence of a process that was paused for so long
that it lost the lock and did not notice.
"""

import os
import sqlite3
import sys

from tenure_client import Busy, Tenure

SCHEMA = "CREATE TABLE IF NOT EXISTS seats (seat TEXT PRIMARY KEY, guest TEXT, fence INTEGER NOT NULL DEFAULT 0)"


def book(tenure: Tenure, database: sqlite3.Connection, seat: str, guest: str) -> str:
    try:
        with tenure.mutex(f"seat:{seat}", ttl="10s", wait="5s", reason=f"booking for {guest}") as hold:
            with database:
                database.execute("INSERT OR IGNORE INTO seats (seat) VALUES (?)", (seat,))
            (taken_by,) = database.execute("SELECT guest FROM seats WHERE seat = ?", (seat,)).fetchone()
            if taken_by is not None:
                return f"{seat} is taken by {taken_by}"
            hold.check()  # before what cannot be taken back
            with database:
                change = "UPDATE seats SET guest = ?, fence = ? WHERE seat = ? AND fence < ?"
                booked = database.execute(change, (guest, hold.fence, seat, hold.fence)).rowcount
            return f"{seat} is booked for {guest}" if booked else f"{seat} was booked meanwhile"
    except Busy as busy:
        return f"{seat} is being booked by {busy.holder.owner if busy.holder else 'somebody'}: try again"


if __name__ == "__main__":
    database = sqlite3.connect(os.environ.get("BOOKINGS", "bookings.sqlite"), timeout=10)
    database.execute(SCHEMA)
    tenure = Tenure(os.environ.get("TENURE_URL", "http://127.0.0.1:7117"), token=os.environ.get("TENURE_TOKEN"))
    print(book(tenure, database, *sys.argv[1:3]))
