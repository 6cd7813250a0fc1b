"""Which ids were seen, of any number of them, in little memory."""

from __future__ import annotations

import hashlib
import sqlite3

#: What is kept in memory of them; the rest is in a temporary file.
_CACHE_KIBIBYTES = 8192
#: Long enough that no two ids of any file share one.
_DIGEST_BYTES = 16


class SeenIds:
    """A set of ids that may be larger than the memory. Close it after use: its file goes with it."""

    def __init__(self) -> None:
        # The empty name is a database of this connection alone: SQLite writes to disk what does not fit into
        # its cache, and the file has no name by which it could be left behind.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for setting in (f"cache_size = -{_CACHE_KIBIBYTES}", "journal_mode = OFF", "synchronous = OFF"):
            self._connection.execute(f"PRAGMA {setting}").close()
        self._connection.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._connection.execute("BEGIN")

    def add(self, id_: str) -> bool:
        """Say whether an id is new, and remember it."""
        digest = hashlib.blake2b(id_.encode(), digest_size=_DIGEST_BYTES).digest()
        return self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1

    def close(self) -> None:
        self._connection.close()
