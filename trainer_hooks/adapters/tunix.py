"""tunix and metrax: a logging backend, and the listener for everything that passes `jax.monitoring`.

    MetricsLoggerOptions(log_dir=…, backend_kwargs={"custom_backend": [lambda: PacenoteBackend(name="my-run", …)]})

or, beside tunix's own backends and without touching its options: `listen(name="my-run", …)` before the trainer is made.
"""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

from trainer_hooks.adapters.attached import Attached


class PacenoteBackend:
    """A `metrax.logging.LoggingBackend`. `arguments` are those of `trainer_hooks.start`, with `name`."""

    def __init__(self, **arguments: Any) -> None:
        self.attached = Attached("tunix", arguments)

    def log_scalar(self, event: str, value: Any, **named: Any) -> None:
        """Takes what has a step; jax's own events, `/jax/…`, have none or are no metric of the training."""
        step = named.get("step")
        if step is None or event.startswith("/jax/"):
            return
        name = event.lstrip("/")
        self.attached.log(int(step), {name: value}, evaluation="/eval/" in f"/{name}")

    def close(self) -> None:
        self.attached.finish()


def listen(**arguments: Any) -> PacenoteBackend:
    """Registers a backend for all scalars of this process; close it at the end. Call it on process 0 alone."""
    import jax

    backend = PacenoteBackend(**arguments)
    jax.monitoring.register_scalar_listener(backend.log_scalar)
    return backend
