"""Printed logs of small trainers, one line per step: nanoGPT, llm.c, modded-nanogpt, Megatron and their kin.

A line is a word for the step, its number, and names with values: `iter 5: loss 10.81, time 310ms`,
`s:250 tel:6.3097`, `step:1/1530 train_loss:10.8258`, `step 0 | loss: 10.95 | lr 8.4e-07`, `0 val 10.9522`.
Metrics are named `<word>/<name>`, or `<word> of/<name>` where the line also says of how many steps, because that tells
which convention of steps it follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from service.importers.formats import line_format
from service.importers.rows import Account, Row, number
from service.importers.stamps import leading_time
from service.importers.tokens_said import hear

NAME = "key_value_log"
LONGEST_LINE = 4096  # a longer line is config or code
VALUE = r"[-+]?(?:nan|inf(?:inity)?|(?:\d[\d,]*\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?)"
STEP = re.compile(
    r"(?:^|[\s(\[|])(?P<word>step|iter|iteration|global_step|s)(?:\s*[:=]\s*|\s+)(?P<step>\d{1,3}(?:,\d{3})+|\d{1,18})(?P<of>\s*/\s*[\d,]+)?(?=[\s:,|)\]]|$)",
    re.IGNORECASE,
)
STEP_OF = re.compile(r"^(?P<word>)(?P<step>\d{1,18})(?P<of>/\d+)\s")
PLAIN = re.compile(rf"^(?P<step>\d{{1,18}})\s+(?P<name>[A-Za-z]\w*)\s+(?P<value>{VALUE})\s*$", re.IGNORECASE)
NAMED = re.compile(r"[A-Za-z][\w ./()%-]*")
PIECE = re.compile(
    rf"^(?P<name>[A-Za-z][\w ./()%-]*?)\s*(?:[:=]\s*|\s)(?P<value>{VALUE})\s*(?:ms|s|%|)$", re.IGNORECASE
)
PAIR = re.compile(rf"(?P<name>[A-Za-z][\w./()%-]*)\s*[:=]\s*(?P<value>{VALUE})(?:ms|s|m|%|)(?=\s|$)", re.IGNORECASE)
SPLIT = re.compile(r"\s*\|\s*|,(?!\d)\s*")
# build-nanogpt prints its evaluations before the line of the step whose weights they are of.
AHEAD = re.compile(rf"^(?P<name>validation loss|HellaSwag accuracy): (?:\d+/\d+=)?(?P<value>{VALUE})\s*$")


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are such a log, None if they are not."""
    hits = [line for line in head if pairs(line)]
    return f"lines such as `{hits[0].strip()[:60]}`" if hits else None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows in the log's order. Other lines are counted."""
    ahead: list[tuple[str, float, int]] = []
    for line in lines:
        account.lines += 1
        early = AHEAD.match(line)
        if early is not None and line.endswith("\n") and (value := number(early["value"])) is not None:
            ahead.append((early["name"], value, account.lines))
            continue
        found = pairs(line)
        if found and ahead:
            yield from (Row(found[0].step, f"step/{name}", value, found[0].time) for name, value, _ in ahead)
            ahead.clear()
        if not line.endswith("\n") and found:  # the last number may be cut: it is not known to be whole
            account.cut_off(account.lines)
            found = found[:-1]
        elif not found and line.strip():
            account.skip(account.lines)
            hear(line, account)
        yield from found
    for _, _, line_number in ahead:
        account.skip(line_number)


def pairs(line: str) -> list[Row]:
    """The values of one line, empty if it is no such line."""
    if len(line) > LONGEST_LINE:
        return []
    plain = PLAIN.match(line)
    if plain:
        return _rows(int(plain["step"]), "plain", [(plain["name"], number(plain["value"]))], None)
    start = STEP.search(line) or STEP_OF.match(line)
    if start is None:
        return []
    word = f"{start['word'].lower()}{' of' if start['of'] else ''}".strip()
    rest = line[start.end() :].strip().lstrip(":)],|").strip()
    pieces = SPLIT.split(rest)
    if len(pieces) > 1:
        found = [pair for pair in map(_piece, pieces) if pair]
    else:
        found = [(match["name"], number(match["value"])) for match in PAIR.finditer(rest)]
        found = found or [pair for pair in [_piece(rest)] if pair]
    return _rows(int(start["step"].replace(",", "")[:18]), word, found, leading_time(line))


def _piece(piece: str) -> tuple[str, float | None] | None:
    """The name and the value of what stands between two bars or commas."""
    name, _, text = piece.partition(":")
    if text and "_" not in text and _is_name(name := name.rstrip()):  # mostly; PIECE says the same, and takes long
        try:
            return name, float(text)
        except ValueError:
            pass
    match = PIECE.match(piece)
    return (match["name"].strip(), number(match["value"])) if match else None


@lru_cache(1024)
def _is_name(text: str) -> bool:
    return NAMED.fullmatch(text) is not None


def _rows(step: int, word: str, found: list[tuple[str, float | None]], time: float | None) -> list[Row]:
    return [Row(step, f"{word}/{name}", value, time) for name, value in found if value is not None]


FORMAT = line_format(NAME, "printed log: nanoGPT, llm.c, modded-nanogpt, Megatron", recognise, read)
