"""What the three stages share: the queues between them, the leases, and the word to stop."""

from __future__ import annotations

import queue
import threading

from models.lease import Held
from worker.admission import Admission
from worker.events import Event, ReadyJob
from worker.leases import Leases
from worker.priority import Rooms

#: Steps that publish may lag behind the engine before the engine waits.
_EVENTS_BOUND = 256


class Pipeline:
    """intake ── ready ──> engine ── events ──> publish."""

    def __init__(self, rooms: Rooms, leases: Leases) -> None:
        self.stopping = threading.Event()
        self.admission = Admission(rooms)
        self.leases = leases
        #: Bounded by admission: intake takes no more of each lane than the engine has seats for.
        self.ready: queue.SimpleQueue[ReadyJob] = queue.SimpleQueue()
        #: None is the last thing put in.
        self.events: queue.Queue[Event | None] = queue.Queue(maxsize=_EVENTS_BOUND)
        #: Claims that the engine shall drop; unbounded, since only claims of this worker come here.
        self.aborts: queue.SimpleQueue[Held] = queue.SimpleQueue()
