"""A proxy in front of a server's socket, that loses replies, keeps them back, or is as good as no server."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_READ_BYTES = 2**16


@dataclass(slots=True)
class _Loss:
    """A reply that is to be lost: to which request, what it must hold, and whether it has happened."""

    request: re.Pattern[bytes]
    holding: bytes
    happened: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Listens on a Unix socket and passes everything on to another one, as long as nothing else is asked."""

    def __init__(self, target: Path, at: Path) -> None:
        self.path = at
        self._target = target
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._loss: _Loss | None = None
        #: Set while replies may pass.
        self._open = threading.Event()
        self._open.set()
        self._listener: socket.socket | None = None
        self.mend()

    def lose_reply(self, request: bytes, *, holding: bytes = b"") -> threading.Event:
        """Swallow the next reply that holds something, to a request that matches, and end that connection.

        What a connection sends from now on, and what it waits for now, is one text to the pattern, with `.`
        for every byte. Returns an event that is set when it has happened, just before the connection ends.
        """
        loss = _Loss(re.compile(request, re.DOTALL), holding)
        with self._lock:
            self._loss = loss
            links = list(self._links)
        for link in links:
            link.begin_text()
        return loss.happened

    @property
    def is_to_lose(self) -> bool:
        """Whether a reply is to be lost that has not come yet."""
        return self._loss is not None

    def hold(self) -> None:
        """Keep all replies back until `release`."""
        self._open.clear()

    def release(self) -> None:
        """Let replies pass again, and first those that were kept back."""
        self._open.set()

    def cut(self) -> None:
        """End all connections, and take no new ones until `mend`."""
        if self._listener is not None:
            # Wakes the thread that waits for connections, which closing it alone would not.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            self.path.unlink()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def mend(self) -> None:
        """Take connections again."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        # Whoever the server runs as may connect.
        self.path.chmod(0o777)
        listener.listen(100)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), name="proxy", daemon=True).start()

    def close(self) -> None:
        """End everything; again is harmless."""
        self.release()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(str(self._target))
            except OSError:
                client.close()
                server.close()
                continue
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()

    def _asked(self, text: bytes) -> bool:
        """Whether the next reply to whoever has sent this may be the one to lose."""
        loss = self._loss
        return loss is not None and loss.request.search(text) is not None

    def _is_lost(self, reply: bytes) -> bool:
        with self._lock:
            loss = self._loss
            if loss is None or loss.holding not in reply:
                return False
            self._loss = None
        loss.happened.set()
        return True

    def _ended(self, link: _Link) -> None:
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection through the proxy: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        #: What was sent since there was something to lose, and since the last reply.
        self._text = b""
        self._request = b""
        self._is_awaited = False

    def start(self) -> None:
        for run in (self._pass_requests, self._pass_replies):
            threading.Thread(target=run, name="proxy", daemon=True).start()

    def begin_text(self) -> None:
        """Begin a new text for the pattern, with the request that waits for its reply."""
        self._text = self._request
        self._look()

    def close(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy._ended(self)

    def _look(self) -> None:
        if self._text and self._proxy._asked(self._text):
            self._text = b""
            self._is_awaited = True

    def _pass_requests(self) -> None:
        with suppress(OSError):
            while data := self._client.recv(_READ_BYTES):
                self._request += data
                # Kept only while it matters: it grows with all that the connection sends.
                self._text = self._text + data if self._proxy.is_to_lose else b""
                self._look()
                self._server.sendall(data)
        self.close()

    def _pass_replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(_READ_BYTES):
                self._request = b""
                self._proxy._open.wait()
                if self._is_awaited:
                    self._is_awaited = False
                    if self._proxy._is_lost(data):
                        break
                self._client.sendall(data)
        self.close()
