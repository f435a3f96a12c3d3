"""Hugging Face's trainer_state.json: `log_history`, a list of records with a step each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from service.importers.blocks import Block, blocks_of
from service.importers.documents import begins_document, load, objects
from service.importers.formats import Format, Head, Source
from service.importers.rows import EMPTY_LINE, Account, Row, Texts, plain, whole

NAME = "hf_trainer"
KEY = re.compile(r'"(?:log_history|is_world_process_zero|best_model_checkpoint|is_hyper_param_search)"\s*:')


def recognise(head: Head) -> str | None:
    """Why a file is a trainer state, None if it is not."""
    found = begins_document(head) and any(KEY.search(line) for line in head.lines)
    return "a JSON object with `log_history`" if found else None


def read(source: Source, account: Account) -> Iterator[Block]:
    """The records in their order."""
    yield from blocks_of(_rows(source, account))


def _rows(source: Source, account: Account) -> Iterator[Row]:
    history = load(source).get("log_history")
    texts = Texts()
    for record in objects(history):
        account.lines += 1
        step = whole(str(record.get("step")))
        values = [(name, plain(value)) for name, value in record.items() if name not in ("step", "epoch")]
        texts.numbers.update(name for name, value in values if value is not None)
        texts.count.update(name for name, value in values if value is None and isinstance(record[name], str))
        known = [(name, value) for name, value in values if value is not None]
        if step is None or step < 0 or not known:
            account.refuse(EMPTY_LINE, f"record {account.lines} of log_history", max(len(known), 1))
        else:
            yield from (Row(step, name, value) for name, value in known)
    texts.tell(account)


FORMAT = Format(NAME, "Hugging Face trainer_state.json", recognise, read)
