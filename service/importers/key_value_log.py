"""Printed logs of small trainers, one line per step: nanoGPT, llm.c, modded-nanogpt, Megatron and their kin.

A line is a word for the step, its number, and names with values: `iter 5: loss 10.81, time 310ms`,
`s:250 tel:6.3097`, `step:1/1530 train_loss:10.8258`, `step 0 | loss: 10.95 | lr 8.4e-07`, `0 val 10.9522`.
Metrics are named `<word>/<name>`, or `<word> of/<name>` where the line also says of how many steps, because that tells
which convention of steps it follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.importers.rows import Account, Row

NAME = "key_value_log"
VALUE = r"[-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
STEP = re.compile(
    r"(?:^|[\s(\[])(?P<word>step|iter|iteration|global_step|s)(?:\s*[:=]\s*|\s+)(?P<step>\d+)(?P<of>\s*/\s*\d+)?(?=[\s:,|)\]]|$)",
    re.IGNORECASE,
)
STEP_OF = re.compile(r"^(?P<word>)(?P<step>\d+)(?P<of>/\d+)\s")
PLAIN = re.compile(rf"^(?P<step>\d+)\s+(?P<name>[A-Za-z]\w*)\s+(?P<value>{VALUE})\s*$", re.IGNORECASE)
PIECE = re.compile(
    rf"^(?P<name>[A-Za-z][\w ./()%-]*?)\s*(?:[:=]\s*|\s)(?P<value>{VALUE})\s*(?:ms|s|%|)$", re.IGNORECASE
)
PAIR = re.compile(rf"(?P<name>[A-Za-z][\w./()%-]*)\s*[:=]\s*(?P<value>{VALUE})(?:ms|s|m|%|)(?=\s|$)", re.IGNORECASE)


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are such a log, None if they are not."""
    hits = [line for line in head if any(True for _ in _pairs(line))]
    return f"lines such as `{hits[0].strip()[:60]}`" if hits else None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows in the log's order. Other lines are counted."""
    for line in lines:
        account.lines += 1
        found = list(_pairs(line))
        if not line.endswith("\n") and found:  # the last number may be cut: it is not known to be whole
            account.truncated += 1
            found = found[:-1]
        elif not found and line.strip():
            account.skip(account.lines)
        yield from found


def _pairs(line: str) -> Iterator[Row]:
    plain = PLAIN.match(line)
    if plain:
        yield Row(int(plain["step"]), f"plain/{plain['name']}", float(plain["value"]))
        return
    start = STEP.search(line) or STEP_OF.match(line)
    if start is None:
        return
    word, step = f"{start['word'].lower()}{' of' if start['of'] else ''}".strip(), int(start["step"])
    rest = line[start.end() :].strip().lstrip(":)],|").strip()
    if re.search(r"[,|]", rest):
        matches = (PIECE.match(piece.strip()) for piece in re.split(r"[,|]", rest))
        found = [match for match in matches if match]
    else:
        found = list(PAIR.finditer(rest))
    for match in found:
        yield Row(step, f"{word}/{match['name'].strip()}", float(match["value"]))
