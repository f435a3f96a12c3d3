"""Held-out loss and downstream tasks, measured in JAX on the weights as they are being trained.

    heldout = HeldOut("c4_en", lambda: documents(np.fromfile(path, np.uint32), end=100257), loss_fn, every=10_000)
    tasks = Downstream(None, logits_fn, tokenizer, every=10_000)      # None: the eight tasks of OLMo 3 7B
    for step, batch in …:
        …
        heldout(run, step, params)
        tasks(run, step, params)

Call them on every process at every step, on the thread that trains. They run on the steps that were asked for, report
to the run, and never raise from there. Importing this package does not import jax.
"""

from trainer_hooks.evals.documents import documents
from trainer_hooks.evals.downstream import Downstream, DownstreamResult
from trainer_hooks.evals.heldout import HeldOut, HeldOutResult, next_token_loss
from trainer_hooks.evals.olmo_eval import EIGHT_TASKS, load_task, task_keys
from trainer_hooks.evals.scores import TaskResult
from trainer_hooks.evals.tasks import Item, Task

__all__ = [
    "EIGHT_TASKS",
    "Downstream",
    "DownstreamResult",
    "HeldOut",
    "HeldOutResult",
    "Item",
    "Task",
    "TaskResult",
    "documents",
    "load_task",
    "next_token_loss",
    "task_keys",
]
