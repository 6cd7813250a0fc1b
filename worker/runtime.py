"""The worker as a whole: builds the stages, runs each in its thread, and ends them in order."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Sequence

import structlog

from engine.checkpoint import locate_checkpoint
from engine.config import EngineConfig
from engine.engine import build_engine
from engine.protocol import Engine
from engine.token_bytes import TokenBytes
from engine.tokenizer import Tokenizer
from models.consumer import Consumer
from models.database import Database
from models.dispatch import Dispatcher
from models.errors import ServiceUnavailable, StartupError
from models.fleet import Fleet, WorkerCard
from models.lease import give_back
from models.migrate import require_migrated
from models.queue import JobQueue
from models.settings import Settings
from models.signals import Listener, Signal, Signals
from models.version import headrace_version
from worker.intake import Intake
from worker.leases import Leases
from worker.loop import EngineLoop
from worker.meter import Meter
from worker.pipeline import Pipeline
from worker.prepare import Preparer
from worker.progress import Progress
from worker.publish import Publisher
from worker.upkeep import Upkeep
from worker.window import WindowLimits
from worker.window_reader import WindowReader

_log = structlog.get_logger()

#: How often a worker's figures are read.
_FIGURES_SECONDS = 5.0
_MAX_WINDOW_TOKENS = 2**31


class Runtime:
    """One worker, from its first window to its last."""

    def __init__(self, settings: Settings) -> None:
        if settings.redis_url is None:
            raise StartupError(
                "no Redis: set HEADRACE_REDIS_URL, or use `headrace up`, which starts an embedded one"
            )
        self._settings = settings
        self._url = settings.redis_url
        self._id = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"
        self._database = Database(settings.sql_url)
        require_migrated(self._database)
        self._queue = JobQueue(self._url, settings.redis_namespace)
        self._signals = Signals(self._url, settings.redis_namespace)
        self._consumer = Consumer(self._queue, self._url, model=settings.served_name, name=self._id)
        self._fleet = Fleet(self._database)
        self._failed = threading.Event()

    def run(self) -> int:
        """Work until SIGTERM, and return the exit code: 1 if a part of the worker broke."""
        engine = build_engine(engine_config(self._settings))
        progress = Progress()
        leases = Leases(self._settings, self._id, progress)
        pipeline = Pipeline(engine.room(), leases)
        self._stop_on_signals(pipeline)
        leases.listen(lambda ids: _abort(pipeline, ids), lambda: self._lose_heartbeat(pipeline))
        cancels = Listener(
            self._url,
            self._settings.redis_namespace,
            Signal.CANCEL,
            lambda ids: _abort(pipeline, ids),
        )
        cancels.start()
        self._fleet.join(self._card(engine))
        _log.info("worker_ready", worker_id=self._id, model=self._settings.served_name)
        self._work(engine, pipeline, progress)
        cancels.stop()
        leases.stop()
        self._try(lambda: self._fleet.leave(self._id))
        self._database.close()
        return 1 if self._failed.is_set() else 0

    def _work(self, engine: Engine, pipeline: Pipeline, progress: Progress) -> None:
        """Run the stages until told to stop; then end them from first to last."""
        meter = Meter()
        dispatcher = self._dispatcher()
        upkeep = self._upkeep(dispatcher)
        upkeep.also(_FIGURES_SECONDS, lambda: pipeline.leases.report(meter.read()))
        loop = EngineLoop(
            pipeline,
            engine=engine,
            progress=progress,
            meter=meter,
            drain_seconds=self._settings.drain_seconds,
        )
        tokenizer = Tokenizer.load(locate_checkpoint(self._settings.model, self._settings.checkpoint_dir))
        publisher = Publisher(
            pipeline,
            database=self._database,
            consumer=self._consumer,
            signals=self._signals,
            token_bytes=TokenBytes(tokenizer).of,
        )
        caretaker = self._start("upkeep", lambda: upkeep.run(pipeline.stopping), pipeline)
        feeder = self._start("intake", self._intake(engine, pipeline, tokenizer).run, pipeline)
        computer = self._start("engine", loop.run, pipeline)
        storer = self._start("publish", publisher.run, pipeline)
        pipeline.stopping.wait()
        _log.info("worker_stopping", worker_id=self._id)
        for thread in (feeder, computer):
            thread.join()
        pipeline.events.put(None)
        storer.join()
        caretaker.join()
        self._try(lambda: self._give_back(pipeline))
        self._try(dispatcher.dispatch)

    def _give_back(self, pipeline: Pipeline) -> None:
        """Return what was claimed and not finished; another worker can take it at once."""
        held = pipeline.leases.all()
        if held:
            give_back(self._database, held)
            _log.info("jobs_given_back", num_jobs=len(held))
            self._consumer.acknowledge([lease.entry for lease in held])

    def _start(self, name: str, run: Callable[[], None], pipeline: Pipeline) -> threading.Thread:
        def guarded() -> None:
            try:
                run()
            except Exception:
                # A stage that ended alone would leave a worker that looks alive and does nothing.
                _log.exception("stage_failed", stage=name)
                self._failed.set()
                pipeline.stopping.set()

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def _stop_on_signals(self, pipeline: Pipeline) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: pipeline.stopping.set())

    def _lose_heartbeat(self, pipeline: Pipeline) -> None:
        if not pipeline.stopping.is_set():
            _log.error("heartbeat_died", worker_id=self._id)
            self._failed.set()
            pipeline.stopping.set()

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except ServiceUnavailable as error:
            _log.warning("shutdown_incomplete", error=error.message)

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(
            self._database,
            self._queue,
            model=self._settings.served_name,
            depth=self._settings.dispatch_depth,
        )

    def _upkeep(self, dispatcher: Dispatcher) -> Upkeep:
        return Upkeep(
            database=self._database,
            consumer=self._consumer,
            dispatcher=dispatcher,
            signals=self._signals,
            lease_seconds=self._settings.lease_seconds,
        )

    def _intake(self, engine: Engine, pipeline: Pipeline, tokenizer: Tokenizer) -> Intake:
        settings = self._settings
        limits = WindowLimits(
            max_jobs=settings.limits.max_jobs,
            max_tokens=_MAX_WINDOW_TOKENS,
            max_wait_seconds=settings.limits.max_wait_seconds,
            close_when_idle=settings.profile == "latency",
        )
        return Intake(
            pipeline,
            database=self._database,
            consumer=self._consumer,
            signals=self._signals,
            reader=WindowReader(self._consumer, limits, pipeline.stopping),
            preparer=Preparer(
                tokenizer,
                max_model_len=engine.limits.max_model_len,
                default_max_tokens=settings.default_max_tokens,
            ),
            lease_seconds=settings.lease_seconds,
        )

    def _card(self, engine: Engine) -> WorkerCard:
        return WorkerCard(
            id=self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            model=self._settings.served_name,
            max_model_len=engine.limits.max_model_len,
            device="cpu",
            version=headrace_version(),
        )


def engine_config(settings: Settings) -> EngineConfig:
    """Translate the settings into the engine's own."""
    return EngineConfig(
        model=settings.model,
        cache_dir=settings.checkpoint_dir,
        max_num_seqs=settings.limits.max_num_seqs,
        max_model_len=settings.max_model_len,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        kv_cache_bytes=settings.kv_cache_bytes,
        num_threads=settings.num_threads,
    )


def _abort(pipeline: Pipeline, job_ids: Sequence[str]) -> None:
    for job_id in job_ids:
        pipeline.aborts.put(job_id)
