"""What MaxText prints: `completed step: N, seconds: …, loss: …` and evaluations. Three decimals only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.importers.formats import line_format
from service.importers.rows import Account, Row, number

NAME = "maxtext_stdout"
VALUE = r"[-+]?(?:nan|inf|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
PLACEHOLDERS = ("lm_loss", "perplexity")  # printed as 0.000 where MaxText has none (older models, DPO)
CONTAINED = "MaxText prints three decimals, and no z-loss of training: where it is used, the train loss contains it"
ABSENT = "a 0.000 that stands where MaxText has no such value"
STEP = re.compile(r"completed (?:profiler activation/deactivation )?step: (?P<step>\d{1,18}), (?P<rest>.*)")
EVAL = re.compile(r"(?:Completed eval after train step|eval metrics after step:) (?P<step>\d{1,18}), (?P<rest>.*)")
PAIR = re.compile(rf"(?P<name>[A-Za-z_][\w/]*(?: [\w/]+)*)(?:: |=)(?P<value>{VALUE})(?=,|\s|$)", re.IGNORECASE)


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are MaxText's, None if they are not."""
    return "lines that begin with `completed step:`" if any(STEP.search(line) for line in head) else None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows in the log's order; evaluations are named `eval/…`. Other lines are counted."""
    account.note(CONTAINED)
    for line in lines:
        account.lines += 1
        train, evaluation = STEP.search(line), EVAL.search(line)
        found = train or evaluation
        if found is None:
            if line.strip():
                account.skip(account.lines)
            continue
        rest, known = found["rest"], 0
        if not line.endswith("\n"):  # the last number may be cut: it is not known to be whole
            account.cut_off(account.lines)
            rest = rest[: rest.rfind(",") + 1]
        prefix = "" if train else "eval/"
        for pair in PAIR.finditer(rest):
            name, value = pair["name"].strip(), number(pair["value"])
            if value is None:
                continue
            known += 1
            if train and value == 0.0 and name in PLACEHOLDERS:
                account.refuse(ABSENT, f"line {account.lines}")
                continue
            yield Row(int(found["step"]), prefix + name, value)
        if not known and line.endswith("\n"):
            account.skip(account.lines)


FORMAT = line_format(NAME, "MaxText's stdout", recognise, read)
