"""How the processes of one launch come to the same segment id, without a collective and without waiting for ever.

JAX's own key-value store (of `jax.distributed`) is asked, not a broadcast: a collective hangs the whole job when only
some processes call `start`. Where there is no such store, PACENOTE_LAUNCH_ID says what is one launch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from trainer_hooks.segment import Place
from trainer_hooks.spool import Spool
from trainer_hooks.stores import Store
from trainer_hooks.tally import LOG, text_of

NAMESPACE = uuid.UUID("6b1f9a52-6c1e-5d0e-9b59-3f7c0d1a7e11")
FIRST_PROCESS_SECONDS = 30.0  # the other processes wait so long for process 0 to speak for all
CALL_SECONDS = 10.0  # for one call of the store
STARTS = 10_000  # of one name in one launch


class Launch(NamedTuple):
    """A segment as every process of the launch knows it. `body` is empty where this launch has no valid description."""

    id: str
    body: bytes


def launch(place: Place, names: tuple[Any, ...], body: dict[str, Any] | None, wanted: bool, store: Store) -> Launch:
    """The id and body that all processes of this launch use for the run of these `names`.

    `body` None: this process has none to offer; `wanted` False: it will not use the answer. Process 0 never waits.
    Raises RuntimeError where another process can learn no id: it must not open a segment of its own, which would
    supersede that of process 0.
    """
    encoded = json.dumps(body, separators=(",", ":"), allow_nan=False) if body is not None else ""
    mine = Launch(str(uuid.uuid4()), encoded.encode())
    shared = os.environ.get("PACENOTE_LAUNCH_ID")
    client = _key_value_client() if place.jax is not None and place.processes > 1 else None
    if client is not None:
        key = hashlib.blake2b(repr(names).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()
        wait = wanted and body is not None
        try:
            return _in_time(lambda: _agree(client, f"pacenote/{key}", place.process, mine, wait))
        except Exception as error:
            if place.process > 0:
                raise RuntimeError(f"no segment id from process 0: {text_of(error)}") from error
            if wanted:
                LOG.warning("pacenote: the other processes cannot learn this run's segment: %s", text_of(error))
            return mine
    if shared and body is not None and wanted:
        return Launch(_id_of_launch(shared, body, place.process, store), mine.body)
    if place.process > 0:
        raise RuntimeError("call jax.distributed.initialize before start, or set PACENOTE_LAUNCH_ID")
    return mine


def _key_value_client() -> Any:
    """The client of `jax.distributed`; None without one."""
    module = sys.modules.get("jax._src.distributed")
    return getattr(getattr(module, "global_state", None), "client", None)


def _agree(client: Any, key: str, process: int, mine: Launch, wait: bool) -> Launch:
    """Takes what is under the key of this start; puts `mine` there if it is the first. Raises what the client raises.

    Every process calls `start` as often, so its n-th start under these names belongs to the n-th of the others.
    """
    number = next(n for n in range(STARTS) if _put(client, f"{key}/{n}/{process}", "started"))
    place = f"{key}/{number}"
    offer = mine.id + mine.body.decode()
    if process > 0:
        if not wait:
            return mine
        try:
            return _parse(client.blocking_key_value_get(place, int(FIRST_PROCESS_SECONDS * 1000)))
        except Exception as error:
            LOG.warning("pacenote: process 0 did not call start for this run in time: %s", text_of(error))
    if _put(client, place, offer):
        return mine
    return _parse(client.blocking_key_value_get(place, int(CALL_SECONDS * 1000)))


def _put(client: Any, key: str, value: str) -> bool:
    """Sets a key; False if it was set before. Raises what else the client raises."""
    try:
        client.key_value_set(key, value)
    except Exception as error:
        if "ALREADY_EXISTS" in str(error):
            return False
        raise
    return True


def _parse(offer: str) -> Launch:
    return Launch(str(uuid.UUID(offer[:36])), offer[36:].encode())


def _in_time(call: Callable[[], Launch]) -> Launch:
    """The result of `call`, or TimeoutError: the store's coordinator may hang, and then `start` must not."""
    results: list[Launch | BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work, name="pacenote-launch", daemon=True)
    thread.start()
    thread.join(FIRST_PROCESS_SECONDS + 2 * CALL_SECONDS)
    if not results:
        raise TimeoutError("jax.distributed does not answer")
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]


def _id_of_launch(shared: str, body: dict[str, Any], process: int, store: Store) -> str:
    """The id that PACENOTE_LAUNCH_ID gives; another one at every start if the variable did not change.

    Two starts under one id would send different content under the same keys, and write into the same spool.
    """
    names = [shared, *(body[k] for k in ("project", "run", "stage", "kind"))]
    for again in range(STARTS):
        key = json.dumps(names + [again] * (again > 0), separators=(",", ":"))
        segment = str(uuid.uuid5(NAMESPACE, key))
        try:
            unused = store.claim(Spool(segment, process).part(0))
        except OSError:  # no spool, so nothing to tell by
            unused = True
        if unused:
            if again:
                LOG.warning("pacenote: PACENOTE_LAUNCH_ID was used by %d earlier starts; it must be new at each", again)
            return segment
    raise RuntimeError("PACENOTE_LAUNCH_ID was used too often")
