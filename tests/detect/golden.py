"""Small numeric slices of real logs (tests/golden, each with its SOURCE.md)."""

from pathlib import Path

import pandas as pd

from service.detect.inputs import Series

GOLDEN = Path(__file__).parent.parent / "golden"


def load(name: str, tokens_per_step: float) -> dict[str, Series]:
    """Metric -> series of one golden CSV (columns step, metric, value)."""
    table = pd.read_csv(GOLDEN / f"{name}.csv")
    return {
        str(metric): Series(
            part["step"].to_numpy("int64"),
            part["step"].to_numpy("float64") * tokens_per_step,
            part["value"].to_numpy("float64"),
        )
        for metric, part in table.groupby("metric")
    }
