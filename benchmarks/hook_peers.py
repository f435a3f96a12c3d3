"""The same 20 scalars through the trackers that are installed, and through the hook as MaxText's adapter calls it."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Callable
from typing import Any

Log = Callable[[int, dict[str, float]], object]
Finish = Callable[[], object]
PEERS = {
    "clu": "clu, TensorBoard, asynchronous",
    "tensorboardX": "tensorboardX",
    "trackio": "trackio, local",
    "wandb": "wandb, offline",
    "mlflow": "mlflow, local files",
}


def installed(python: str) -> dict[str, str]:
    """Peers that an interpreter can import, with their titles."""
    code = f"from importlib.util import find_spec; print(*[name for name in {list(PEERS)} if find_spec(name)])"
    found = subprocess.run([python, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return {name: PEERS[name] for name in found}


def open_peer(case: str, folder: str) -> tuple[Log, Finish]:
    """What logs one step of scalars with a peer, as its users do, and what ends it. Files go under `folder`."""
    return {
        "clu": _clu,
        "tensorboardX": _tensorboard_x,
        "trackio": _trackio,
        "wandb": _wandb,
        "mlflow": _mlflow,
    }[case](folder)


def open_adapter() -> tuple[Log, Finish]:
    """One call of MaxText's `write_metrics`, which the adapter wraps and which here does nothing else."""
    from trainer_hooks.adapters.attached import Attached, around

    attached = Attached("maxtext", {"name": "benchmark", "project": "benchmark", "tokens_per_step": 1024})

    class MetricLogger:
        def write_metrics(self, metrics: dict[str, Any], step: int, metric_type: str = "train") -> None:
            pass

    def write(logger: MetricLogger, metrics: dict[str, Any], step: int, kind: str = "train") -> None:
        attached.log(step, {**metrics["scalar"], **metrics["scalars"]}, evaluation=kind == "eval")

    around(MetricLogger, "write_metrics", before=write)
    attached.open(start_step=0)
    logger = MetricLogger()

    def log(step: int, metrics: dict[str, float]) -> None:
        logger.write_metrics({"scalar": metrics, "scalars": {}}, step, "train")

    return log, attached.finish


def _clu(folder: str) -> tuple[Log, Finish]:
    from clu import metric_writers

    writer = metric_writers.AsyncWriter(metric_writers.SummaryWriter(folder))
    return writer.write_scalars, writer.close


def _tensorboard_x(folder: str) -> tuple[Log, Finish]:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(folder)

    def log(step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def _trackio(folder: str) -> tuple[Log, Finish]:
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    run = trackio.init(project="benchmark", embed=False)
    return lambda step, metrics: run.log(metrics, step=step), run.finish


def _wandb(folder: str) -> tuple[Log, Finish]:
    import wandb

    run = wandb.init(project="benchmark", mode="offline", dir=folder, settings=wandb.Settings(silent=True))
    return lambda step, metrics: run.log(metrics, step=step), run.finish


def _mlflow(folder: str) -> tuple[Log, Finish]:
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.start_run()
    return lambda step, metrics: mlflow.log_metrics(metrics, step=step, synchronous=False), mlflow.end_run
