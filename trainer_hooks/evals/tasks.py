"""Multiple-choice and gold-continuation tasks as token requests, as AI2's in-loop evaluations make them of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

Metric = Literal["acc", "len_norm", "bpb", "ce_loss"]
METRICS = ("acc", "len_norm", "bpb", "ce_loss")
Encode = Callable[[list[str]], list[list[int]]]
"""Texts → token ids, no special tokens added."""


class Item(NamedTuple):
    """One question: its context (or one for each choice), the continuations to choose from, the true one's index."""

    context: str | Sequence[str]
    continuations: Sequence[str]
    answer: int


class Sizes(NamedTuple):
    """Lengths a log-probability is divided by: `v1` without the first character (usually a space), `v2` with it."""

    characters_v1: int
    bytes_v1: int
    characters_v2: int
    bytes_v2: int


class Choice(NamedTuple):
    """One continuation of one item. Equal contexts share their memory."""

    item: int
    choice: int
    context: NDArray[np.int32]
    continuation: NDArray[np.int32]
    sizes: Sizes


@dataclass(frozen=True)
class Task:
    """A task in tokens.

    Attributes:
        key: names its metrics, `downstream/<key>/accuracy`.
        metric: how it is scored: "acc" (highest log-probability), "len_norm" (highest per character), or, where only
            the true continuation is given, "bpb" or "ce_loss".
        choices: ordered by item, then by choice.
        answers: (items,) the index of the true choice.
        one_pass: every continuation is one token, so all choices of an item are read off one forward pass.
    """

    key: str
    metric: Metric
    choices: tuple[Choice, ...]
    answers: NDArray[np.int64]
    one_pass: bool = False

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"task {self.key}: metric must be one of {', '.join(METRICS)}, not {self.metric!r:.60}")
        if not self.key or "/" in self.key:
            raise ValueError(f"a task needs a key without slashes, not {self.key!r:.60}")
        if not len(self.answers):
            raise ValueError(f"task {self.key} has no items")
        counts = np.bincount([c.item for c in self.choices], minlength=len(self.answers))
        if len(counts) != len(self.answers) or (self.answers < 0).any() or (self.answers >= counts).any():
            raise ValueError(f"task {self.key}: an item has no choice, or its answer is none of its choices")
        for choice in self.choices:
            if not choice.context.size or not choice.continuation.size:
                raise ValueError(f"task {self.key}, item {choice.item}: context or continuation is empty")
            if self.one_pass and choice.continuation.size != 1:
                raise ValueError(
                    f"task {self.key}, item {choice.item}: the tokenizer makes {choice.continuation.size} tokens of a"
                    " choice; use the form that scores each choice by itself"
                )

    @property
    def ranked(self) -> bool:
        """Whether choices are ranked, so that there are right and wrong items."""
        return self.metric in ("acc", "len_norm")

    @property
    def eval_set_id(self) -> str:
        """Identity of what is measured: tokens, lengths, answers and metric."""
        digest = blake2b(f"{self.metric} {self.one_pass}".encode(), digest_size=8)
        digest.update(self.answers.astype("<i8").tobytes())
        for c in self.choices:
            head = np.array([c.item, c.choice, c.context.size, c.continuation.size, *c.sizes], "<i8")
            for part in (head, c.context, c.continuation):
                digest.update(part.tobytes())
        return digest.hexdigest()

    @classmethod
    def of_texts(
        cls,
        key: str,
        items: Iterable[Item],
        tokenizer: Any,
        *,
        metric: Metric = "acc",
        one_pass: bool = False,
        bos: int | None = None,
    ) -> Task:
        """Tokenizes items: context and continuation each by itself, no special tokens, `bos` in front if there is one.

        `tokenizer`: a `tokenizers.Tokenizer`, a transformers tokenizer, or a function text → token ids.
        """
        held = [(item, _contexts(item)) for item in items]
        encode = encoder(tokenizer)
        contexts = _encoded([text for _, several in held for text in several], encode)
        if bos is not None:
            contexts = {text: _with_bos(ids, bos) for text, ids in contexts.items()}
        continuations = _encoded([text for item, _ in held for text in item.continuations], encode)
        choices = [
            Choice(number, index, contexts[context], continuations[text], _sizes(text))
            for number, (item, several) in enumerate(held)
            for index, (context, text) in enumerate(zip(several, item.continuations, strict=True))
        ]
        return cls(key, metric, tuple(choices), np.array([item.answer for item, _ in held], np.int64), one_pass)

    @classmethod
    def of_tokens(cls, key: str, choices: Any, answers: Any, *, context: int) -> Task:
        """From integers (items, choices, length), the first `context` of them being the context, and (items,) answers.

        Lengths in characters and bytes are not known and count as tokens.
        """
        rows = np.asarray(choices)
        if rows.ndim != 3 or rows.dtype.kind not in "ui" or not 0 < context < rows.shape[2]:
            raise ValueError(f"task {key}: choices must be integers (items, choices, length > context)")
        rows = rows.astype(np.int32)
        sizes = Sizes(*[rows.shape[2] - context] * 4)
        made = tuple(
            Choice(item, choice, row[:context], row[context:], sizes)
            for item, several in enumerate(rows)
            for choice, row in enumerate(several)
        )
        return cls(key, "acc", made, np.asarray(answers, np.int64))


def encoder(tokenizer: Any) -> Encode:
    """How a tokenizer turns texts into ids without adding special tokens.

    Raises TypeError for what is no tokenizer.
    """
    module = type(tokenizer).__module__.split(".")[0]
    if module == "tokenizers":
        return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]
    if hasattr(tokenizer, "batch_decode"):  # transformers
        return lambda texts: cast("list[list[int]]", tokenizer(texts, add_special_tokens=False)["input_ids"])
    if callable(tokenizer):
        call = cast("Callable[[str], Sequence[int]]", tokenizer)
        return lambda texts: [list(call(text)) for text in texts]
    raise TypeError(
        "tokenizer must be a tokenizers.Tokenizer, a transformers tokenizer or a function from text to token ids,"
        f" not {type(tokenizer).__name__}"
    )


def _encoded(texts: list[str], encode: Encode) -> dict[str, NDArray[np.int32]]:
    """Every distinct text and its tokens."""
    distinct = list(dict.fromkeys(texts))
    return {text: np.array(ids, np.int32) for text, ids in zip(distinct, encode(distinct), strict=True)}


def _contexts(item: Item) -> Sequence[str]:
    return [item.context] * len(item.continuations) if isinstance(item.context, str) else item.context


def _with_bos(ids: NDArray[np.int32], bos: int) -> NDArray[np.int32]:
    return ids if ids.size and ids[0] == bos else np.concatenate([np.array([bos], np.int32), ids])


def _sizes(text: str) -> Sizes:
    return Sizes(len(text) - 1, len(text[1:].encode()), len(text), len(text.encode()))
