"""What DeepSpeed prints: `[Rank 0] step=…, lr=[…]`, `global_step=…, CurrSamplesPerSec=…`, its RLHF losses, and, where a
trainer such as Megatron prints between them, that trainer's lines too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from service.importers.formats import line_format
from service.importers.key_value_log import LONGEST_LINE, pairs
from service.importers.rows import Account, Row, number
from service.importers.stamps import leading_time

NAME = "deepspeed"
NUMBER = r"[-+]?(?:nan|inf|\d+\.?\d*(?:[eE][-+]?\d+)?)"
RANK = re.compile(r"\[Rank \d+\] step=(?P<step>\d{1,18}), (?P<rest>.*)")
TIMER = re.compile(r"(?:^|[\s/])global_step=(?P<step>\d{1,18}), (?P<rest>.*SamplesPerSec=.*)")
RLHF = re.compile(r"epoch: ?\d+ ?\| ?step: ?(?P<step>\d{1,18}) ?\| ?(?P<rest>.*)")
PAIR = re.compile(rf"(?P<name>[A-Za-z]\w*)\s?[:=]\s?\[?(?P<value>{NUMBER})(?:GB)?(?=[\s,|\]]|$)", re.IGNORECASE)
OVERFLOW = re.compile(r"overflow", re.IGNORECASE)


def recognise(head: Sequence[str]) -> str | None:
    """Why these first lines are DeepSpeed's, None if they are not."""
    for line in head:
        if len(line) <= LONGEST_LINE and (RANK.search(line) or TIMER.search(line) or RLHF.search(line)):
            return f"lines such as `{line.strip()[:70]}`"
    return None


def read(lines: Iterator[str], account: Account) -> Iterator[Row]:
    """Rows in the log's order; of lists of learning rates the first. Overflows are counted in a note."""
    overflows = 0
    for line in lines:
        account.lines += 1
        found = _rows(line)
        if not line.endswith("\n") and found:  # the last number may be cut
            account.cut_off(account.lines)
            found = found[:-1]
        elif not found and line.strip():
            overflows += OVERFLOW.search(line) is not None
            account.skip(account.lines)
        yield from found
    if overflows:
        account.note(f"{overflows:,} lines tell of an overflow that skipped a step")


def _rows(line: str) -> list[Row]:
    if len(line) > LONGEST_LINE:
        return []
    for word, pattern in (("step", RANK), ("global_step", TIMER), ("rlhf", RLHF)):
        found = pattern.search(line)
        if found is None:
            continue
        time = leading_time(line)
        values = [(pair["name"], number(pair["value"])) for pair in PAIR.finditer(found["rest"])]
        return [Row(int(found["step"]), f"{word}/{name}", value, time) for name, value in values if value is not None]
    return pairs(line)


FORMAT = line_format(NAME, "DeepSpeed's stdout", recognise, read)
