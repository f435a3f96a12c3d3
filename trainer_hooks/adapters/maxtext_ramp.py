"""MaxText's growing batch (utils/rampup_batch.py), which its configuration holds the figures of."""

from __future__ import annotations

from typing import Any


def ramp(config: Any) -> list[tuple[int, int]] | None:
    """(first update, tokens per update) of a growing batch; None without one (utils/rampup_batch.py)."""
    if not getattr(config, "enable_rampup_batch_size", False):
        return None
    devices, update = int(config.num_target_devices), 1
    size, step, end = (
        int(devices * number)
        for number in (
            config.per_device_batch_size_start,
            config.per_device_batch_size_increment,
            config.per_device_batch_size,
        )
    )
    samples = config.global_rampup_samples / ((end - size) // step)
    rates: list[tuple[int, int]] = []
    while size < end:
        rates.append((update, size * config.max_target_length))
        update, size = update + -int(-samples // size), size + step
    return [*rates, (update, end * config.max_target_length)]
