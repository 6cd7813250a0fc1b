"""Celery's settings: Redis as a broker that may lose or double any message, and nothing but Redis."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

#: The only queue.
QUEUE = "background"

#: Chores done at the same time: four that wait for SQL and Redis and compute next to nothing, and two that
#: work on batches for as long as there are any.
_NUM_THREADS = 6

#: A message that nobody has acknowledged for so long is delivered again, and it is looked for such messages
#: every so often: kombu's own throttle would make it ten times as long.
_VISIBILITY_SECONDS = 120
_RESTORE_SECONDS = 5

#: Longest time that one command may take; above the second for which a read of the queue blocks.
_SOCKET_SECONDS = 5.0
_CONNECT_SECONDS = 1.0


def celery_settings(redis_url: str, namespace: str) -> dict[str, Any]:
    """Return the configuration of the app.

    Threads, since a fork would carry connections of SQL and Redis along, and chores that wait in turn would
    hold up each other. They know no hard time limit; chores have none to fear, as every command and every
    statement has its own, and the lease of one that hangs runs out.
    """
    return {
        "broker_url": broker_url(redis_url),
        "broker_use_ssl": _ssl_options(redis_url),
        "broker_transport_options": {
            "global_keyprefix": f"{namespace}:celery:",
            "visibility_timeout": _VISIBILITY_SECONDS,
            "unacked_restore_interval": _RESTORE_SECONDS,
            "unacked_restore_throttle": 1,
            "socket_timeout": _SOCKET_SECONDS,
            "socket_connect_timeout": _CONNECT_SECONDS,
        },
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "accept_content": ["json"],
        "task_serializer": "json",
        # The nameless exchange: a named one has its bindings in Redis, which may vanish.
        "task_default_queue": QUEUE,
        "task_default_exchange": "",
        "task_default_exchange_type": "direct",
        "task_default_routing_key": QUEUE,
        # What is lost on the way is sent again in the next period.
        "task_publish_retry": False,
        "task_ignore_result": True,
        "task_acks_late": True,
        "worker_pool": "threads",
        "worker_concurrency": _NUM_THREADS,
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
    }


def broker_url(redis_url: str) -> str:
    """Return a URL by which kombu finds what redis-py finds by `redis_url`.

    They differ in the scheme of sockets and in where the database's number and the password may stand; kombu
    refuses options that it does not know, and a semicolon parts two brokers.
    """
    parts = urlsplit(redis_url)
    query = dict(parse_qsl(parts.query))
    is_socket = parts.scheme == "unix"
    number = query.get("db") or (not is_socket and parts.path.strip("/")) or "0"
    credentials, _, place = parts.netloc.rpartition("@")
    if "password" in query:
        credentials = f"{quote(query.get('username', ''), safe='')}:{quote(query['password'], safe='')}"
    options = {name: value for name, value in query.items() if name.startswith("ssl_")}
    netloc = f"{credentials}@{place}" if credentials else place
    if is_socket:
        url = f"redis+socket://{netloc}{parts.path}?virtual_host={number}"
    else:
        url = f"{parts.scheme}://{netloc}/{number}" + (f"?{urlencode(options)}" if options else "")
    return url.replace(";", "%3B")


def _ssl_options(redis_url: str) -> dict[str, Any] | None:
    """Check certificates, as redis-py does unless told otherwise; kombu would check none."""
    parts = urlsplit(redis_url)
    if parts.scheme != "rediss" or "ssl_" in parts.query:
        return None
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED}
