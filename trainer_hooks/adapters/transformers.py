"""The Hugging Face Trainer: `Trainer(…, callbacks=[PacenoteCallback(name="my-run", project="olmo3-7b")])`."""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from trainer_hooks.adapters.attached import Attached, harmless


class PacenoteCallback(TrainerCallback):
    """Takes what the trainer logs on the first process. `arguments` are those of `trainer_hooks.start`, with `name`."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self.attached: Attached | None = None

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if state.is_world_process_zero:
            self.attached = Attached("hf_trainer", self.arguments)
            name, config = getattr(args, "run_name", None) or "transformers", {"arguments": args.to_dict()}
            if getattr(named.get("model"), "config", None) is not None:
                config["model"] = named["model"].config.to_dict()
            self.attached.open(name=name, start_step=state.global_step, config=config)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **named: Any) -> None:
        if self.attached is not None:
            self.attached.log(state.global_step, logs or {})

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self.attached is not None:
            path = f"{args.output_dir}/checkpoint-{state.global_step}"
            self.attached.call("event", state.global_step, "checkpoint", path)

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        if self.attached is not None:
            self.attached.finish()
