"""The loss on a fixed set of held-out rows, exact to the token."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from trainer_hooks.evals.evaluation import Evaluation, Report, callable_or
from trainer_hooks.evals.program import Program, Shapes, pad_rows

Convention = Literal["exact", "olmo_core"]
MOST_BYTES = 4 * 2**30  # of rows held in memory: a held-out set is read whole and kept
LARGEST_TOKEN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """`loss` in nats per token, over `tokens` counted tokens of `rows` rows."""

    loss: float
    tokens: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """One batch: `tokens` (rows, length) int32; `scored` (rows, length - 1): which next tokens count into the sum."""

    tokens: NDArray[np.int32]
    scored: NDArray[np.bool_]


def next_token_loss(logits_fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A `loss_fn` from `logits_fn(weights, tokens) -> (rows, length, vocabulary)`: −log p of each next token.

    Computed in float32 from logits of any precision; without z-loss.
    """

    def losses(weights: Any, tokens: Any) -> Any:
        import jax
        import jax.numpy as jnp

        logits = logits_fn(weights, tokens)[:, :-1].astype(jnp.float32)
        gold = jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1)[..., 0]
        return jax.nn.logsumexp(logits, axis=-1) - gold

    return losses


class HeldOut(Evaluation[HeldOutResult]):
    """Token-weighted cross-entropy over a fixed set: logs `heldout/<name>/ce_loss` and the id of the set's content.

    The loss of every token is computed in float32 on the devices and added in float64 on the host, so that the result
    depends neither on how rows were batched nor on how many devices there are, beyond what the model itself does.

    Args:
        name: of the set: `c4_en` gives `heldout/c4_en/ce_loss`.
        batches: the set, or better a function that gives it, so that a file missing on one host does no harm. Each
            batch is an int array (rows, length) or a mapping {"tokens": that, "mask": bool (rows, length)}; the mask
            says which tokens are text. All of it on every process. One compilation for each different shape.
        loss_fn: (weights, tokens (rows, length)) -> losses (rows, length - 1) in nats, the t-th that of token t + 1
            given those up to t; traced by jit. `next_token_loss` makes one from a model's logits.
        every: a number of steps, or the very steps.
        convention: "exact": the mean over all tokens that have one before them in their row. "olmo_core": as AI2's
            in-loop evaluation since April 2025, where a row's last token counts as one with loss 0: the sum is divided
            by all tokens of text, so the value is lower by rows / tokens (0.2 % at 450 tokens a document).
        sharding: how rows lie on devices: a `NamedSharding` that splits the first axis only. By default over all
            devices of the weights' mesh.
        strict: raise where otherwise a warning is logged; for tests.
    """

    def __init__(
        self,
        name: str,
        batches: Any,
        loss_fn: Callable[[Any, Any], Any],
        every: int | Collection[int],
        *,
        convention: Convention = "exact",
        sharding: Any = None,
        strict: bool = False,
    ) -> None:
        super().__init__(name, every, strict)
        if convention not in ("exact", "olmo_core"):
            raise ValueError(f'convention must be "exact" or "olmo_core", not {convention!r:.60}')
        self.convention: Convention = convention
        self._rows: list[_Rows] = []
        self._count = 0
        self._program = Program(loss_fn, sharding)
        self._multiple = 1
        self._load(lambda: self._take(callable_or(batches)))

    @property
    def metric(self) -> str:
        """The name under which the loss is logged."""
        return f"heldout/{self.name}/ce_loss"

    def rows(self) -> Iterator[dict[str, NDArray[Any]]]:
        """The set's text, for `Run.watch_heldout`: `tokens` and `mask` (rows, length) of each batch."""
        for rows in self._rows:
            # A row's first token has none before it, so it is not scored: it is text where the second is.
            yield {"tokens": rows.tokens, "mask": np.concatenate([rows.scored[:, :1], rows.scored], axis=1)}

    def _take(self, batches: Iterable[Any]) -> None:
        hashes: list[bytes] = []
        held = 0
        for number, batch in enumerate(batches):
            tokens, mask = _checked(batch, f"batch {number} of {self.name}")
            held += tokens.nbytes + mask.nbytes
            if held > MOST_BYTES:
                raise ValueError(
                    f"{self.name} is larger than {MOST_BYTES / 2**30:.0f} GiB; evaluate a fixed part of it"
                )
            scored = mask[:, 1:] if self.convention == "exact" else mask[:, 1:] & mask[:, :-1]
            self._count += int((scored if self.convention == "exact" else mask).sum())
            self._rows.append(_Rows(tokens, scored))
            hashes += [_row_hash(t, m) for t, m in zip(tokens, mask, strict=True) if m.any()]
        if not any(rows.scored.any() for rows in self._rows):
            raise ValueError(f"{self.name} has no token to score")
        digest = blake2b(b"".join(sorted(hashes)), digest_size=8).hexdigest()
        self.eval_set_id = digest if self.convention == "exact" else f"{digest}-{self.convention}"
        self._count_rows = len(hashes)

    def _shapes(self) -> set[Shapes]:
        return {((self._padded(rows), np.dtype(np.int32)),) for rows in self._rows}

    def _padded(self, rows: _Rows) -> tuple[int, int]:
        count, length = rows.tokens.shape
        return -(-count // self._multiple) * self._multiple, length

    def _identity(self) -> str:
        return f"{self.name} {self.eval_set_id} {[rows.tokens.shape for rows in self._rows]}"

    def _prepare(self, weights: Any) -> None:
        self._multiple = self._program.rows_multiple(weights)
        self._program.prepare(weights, sorted(self._shapes(), key=str))

    def _batches(self) -> Iterator[tuple[NDArray[Any], ...]]:
        for rows in self._rows:
            yield (pad_rows(rows.tokens, self._padded(rows)[0]),)

    def _measure(self, weights: Any, report: Report) -> HeldOutResult:
        sums: list[float] = []
        for rows, losses in zip(self._rows, self._program.run(weights, self._batches()), strict=True):
            losses = losses[: len(rows.tokens)]
            if losses.shape != rows.scored.shape:
                raise ValueError(f"loss_fn gave losses {losses.shape} for targets {rows.scored.shape}")
            kept = np.where(rows.scored, losses, 0.0)  # what lies on padding may be anything
            sums += kept.sum(axis=1, dtype=np.float64).tolist()
        loss = math.fsum(sums) / self._count if all(map(math.isfinite, sums)) else float(np.sum(sums)) / self._count
        report.metrics[self.metric] = loss
        report.eval_sets[self.metric] = self.eval_set_id
        return HeldOutResult(loss, self._count, self._count_rows)


def _checked(batch: Any, where: str) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Tokens and mask of one batch, private and of fixed dtypes. Raises ValueError."""
    fields = cast("Mapping[str, Any]", batch) if isinstance(batch, Mapping) else {"tokens": batch}
    if "tokens" not in fields:
        raise ValueError(f"{where} has no tokens, only {', '.join(fields) or 'nothing'}")
    tokens = np.asarray(fields["tokens"])
    if tokens.ndim != 2 or tokens.dtype.kind not in "ui" or tokens.shape[1] < 2:
        raise ValueError(f"{where} must be integers (rows, length ≥ 2), not {tokens.dtype}{list(tokens.shape)}")
    if tokens.size and (tokens.min() < 0 or tokens.max() > LARGEST_TOKEN):
        raise ValueError(f"{where} holds tokens outside 0 … 2**31 - 1")
    mask = np.asarray(fields.get("mask", np.ones(tokens.shape, np.bool_)))
    if mask.shape != tokens.shape or (mask.dtype.kind != "b" and not np.isin(mask, (0, 1)).all()):
        raise ValueError(f"{where}: the mask must be booleans {tokens.shape}, not {mask.dtype}{list(mask.shape)}")
    return tokens.astype(np.int32), mask.astype(np.bool_)


def _row_hash(tokens: NDArray[np.int32], mask: NDArray[np.bool_]) -> bytes:
    """Identity of one row, however it is padded: its tokens up to the last of text, and the mask if it has holes."""
    end = int(np.flatnonzero(mask)[-1]) + 1
    digest = blake2b(tokens[:end].astype("<u4").tobytes(), digest_size=8)
    if not mask[:end].all():
        digest.update(np.packbits(mask[:end]).tobytes())
    return digest.digest()
