"""The worker as a whole: builds the stages, runs each in its thread, and ends them in order."""

from __future__ import annotations

import os
import signal
import socket
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from engine.checkpoint import locate_checkpoint
from engine.config import EngineConfig
from engine.protocol import Engine
from engine.token_bytes import TokenBytes
from engine.tokenizer import Tokenizer
from models.backoff import Backoff
from models.errors import ServiceUnavailable
from models.fleet import WorkerCard
from models.lease import Held, entries_of
from models.rescue import give_back, give_back_crashed
from models.settings import Settings
from models.signals import Listener, Signal
from models.version import headrace_version
from worker.connections import Connections
from worker.engine_config import engine_config
from worker.engine_keeper import EngineKeeper
from worker.gauge import Gauge
from worker.intake import Intake
from worker.leases import Leases
from worker.loop import EngineLoop
from worker.meter import Meter
from worker.pipeline import Pipeline
from worker.prepare import Preparer
from worker.priority import rooms_of
from worker.progress import Progress
from worker.publish import Publisher
from worker.quarantine import Quarantine
from worker.sharing_engine import sharing
from worker.stages import Stages
from worker.upkeep import Upkeep
from worker.window import WindowLimits
from worker.window_reader import WindowReader

_log = structlog.get_logger()

#: How often a worker's figures are read.
_FIGURES_SECONDS = 5.0


#: Loads what an engine needs; what it returns makes an engine, as often as one is needed.
PrepareEngine = Callable[[EngineConfig], Callable[[], Engine]]


def run_worker(settings: Settings, prepare: PrepareEngine) -> int:
    """Work until SIGTERM, and return the exit code: 1 if a part of the worker broke.

    Raises StartupError or EngineError where it cannot start, ValueError for settings that do not go together.
    """
    config = engine_config(settings)
    worker_id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
    with ExitStack() as stack:
        connections = Connections.open(settings, worker_id)
        stack.callback(connections.close)
        tokenizer = Tokenizer.load(locate_checkpoint(settings.model, settings.checkpoint_dir))
        progress = Progress()
        build = prepare(config)
        keeper = EngineKeeper(sharing(build) if settings.share_identical else build, progress=progress)
        leases = Leases(settings, worker_id, progress)
        stack.callback(leases.stop)
        pipeline = Pipeline(rooms_of(keeper.engine), leases)
        runtime = Runtime(settings, connections, keeper=keeper, tokenizer=tokenizer, pipeline=pipeline)
        return runtime.run(worker_id, progress)


class Runtime:
    """One worker, from its first window to its last."""

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        *,
        keeper: EngineKeeper,
        tokenizer: Tokenizer,
        pipeline: Pipeline,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._keeper = keeper
        self._limits = keeper.engine.limits
        self._device = keeper.engine.device
        self._tokenizer = tokenizer
        self._pipeline = pipeline
        self._crash_backoff = Backoff(settings.crash_backoff_seconds)
        self._stages = Stages(pipeline.stopping)

    def run(self, worker_id: str, progress: Progress) -> int:
        """Join the fleet, work until told to stop, and return the exit code."""
        leases = self._pipeline.leases
        with ExitStack() as stack:
            cancels = Listener(
                self._settings.queue_url,
                self._settings.redis_namespace,
                Signal.CANCEL,
                lambda ids: self._abort(leases.find(ids)),
            )
            cancels.start()
            stack.callback(cancels.stop)
            leases.listen(self._abort, self._lose_heartbeat)
            self._connections.fleet.join(self._card(worker_id))
            stack.callback(_tried, lambda: self._connections.fleet.leave(worker_id))
            stack.callback(_tried, self._connections.consumer.leave)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self._stages.ask_to_stop())
            _log.info("worker_ready", worker_id=worker_id, model=self._settings.served_name)
            self._work(progress)
        return 1 if self._stages.failed else 0

    def _work(self, progress: Progress) -> None:
        """Run the stages until told to stop; then end them from first to last."""
        stages, pipeline = self._stages, self._pipeline
        meter, gauge = Meter(), Gauge()
        loop = EngineLoop(
            pipeline,
            keeper=self._keeper,
            progress=progress,
            meter=meter,
            gauge=gauge,
            drain_seconds=self._settings.drain_seconds,
        )
        caretaker = stages.start("upkeep", lambda: self._upkeep(meter, gauge).run(pipeline.stopping))
        feeder = stages.start("intake", self._intake().run)
        computer = stages.start("engine", loop.run)
        storer = stages.start("publish", self._publisher().run)
        stages.wait()
        _log.info("worker_stopping")
        stages.join(feeder)
        stages.join(computer)
        if not stages.failed:
            pipeline.events.put(None)
        stages.join(storer)
        stages.join(caretaker)
        _tried(self._give_back)
        _tried(self._connections.dispatcher.dispatch)

    def _give_back(self) -> None:
        """Return what was claimed and not finished; another worker can take it at once."""
        held = self._pipeline.leases.all()
        if held:
            # Of a stage that broke, only those that had come into the engine can be at fault.
            crashed = self._pipeline.leases.begun() if self._stages.failed else set()
            database = self._connections.database
            give_back_crashed(database, crashed.intersection(held), backoff=self._crash_backoff)
            give_back(database, set(held) - crashed)
            _log.info("jobs_given_back", num_jobs=len(held))
            self._connections.consumer.acknowledge(entries_of(held))

    def _abort(self, leases: Sequence[Held]) -> None:
        for held in leases:
            self._pipeline.aborts.put(held)

    def _lose_heartbeat(self) -> None:
        if not self._pipeline.stopping.is_set():
            _log.error("heartbeat_died")
            self._stages.fail()

    def _upkeep(self, meter: Meter, gauge: Gauge) -> Upkeep:
        upkeep = Upkeep(
            database=self._connections.database,
            consumer=self._connections.consumer,
            dispatcher=self._connections.dispatcher,
            signals=self._connections.signals,
            lease_seconds=self._settings.lease_seconds,
            crash_backoff=self._crash_backoff,
        )
        upkeep.also(_FIGURES_SECONDS, lambda: self._pipeline.leases.report({**meter.read(), **gauge.read()}))
        return upkeep

    def _publisher(self) -> Publisher:
        return Publisher(
            self._pipeline,
            database=self._connections.database,
            consumer=self._connections.consumer,
            signals=self._connections.signals,
            token_bytes=TokenBytes(self._tokenizer).of,
            crash_backoff=self._crash_backoff,
            retry_backoff=Backoff(self._settings.retry_backoff_seconds),
        )

    def _intake(self) -> Intake:
        settings, consumer = self._settings, self._connections.consumer
        limits = WindowLimits(
            max_jobs=settings.limits.max_jobs,
            max_tokens=self._limits.num_cache_tokens,
            max_wait_seconds=settings.limits.max_wait_seconds,
            close_when_idle=settings.profile == "latency",
        )
        return Intake(
            self._pipeline,
            database=self._connections.database,
            consumer=consumer,
            signals=self._connections.signals,
            reader=WindowReader(consumer, limits, self._pipeline.stopping),
            preparer=Preparer(
                self._tokenizer,
                max_model_len=self._limits.max_model_len,
                default_max_tokens=settings.default_max_tokens,
                share_identical=settings.share_identical,
            ),
            quarantine=Quarantine(
                self._pipeline,
                database=self._connections.database,
                model=settings.served_name,
                worker_id=consumer.name,
                lease_seconds=settings.lease_seconds,
                max_jobs=self._limits.max_num_seqs,
            ),
            lease_seconds=settings.lease_seconds,
        )

    def _card(self, worker_id: str) -> WorkerCard:
        return WorkerCard(
            id=worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            model=self._settings.served_name,
            max_model_len=self._limits.max_model_len,
            device=self._device,
            version=headrace_version(),
        )


def _tried(do: Callable[[], object]) -> None:
    """Do something at the end that others will make up for if it cannot be done."""
    try:
        do()
    except ServiceUnavailable as error:
        _log.warning("shutdown_incomplete", error=error.message)
