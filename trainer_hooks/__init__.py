"""Streams losses, evaluations and row fingerprints of a training run to Pacenote, without ever harming the run.

run = trainer_hooks.start("olmo3-7b-v7x", project="olmo3-7b", reference="olmo3-7b", tokens_per_step=4_194_304)
run.log(step, {"train/ce_loss": loss})
run.finish()
"""

__version__ = "0.1.0"

from trainer_hooks.run import FinishReport, Run, start

__all__ = ["FinishReport", "Run", "__version__", "start"]
