"""Where points live: the journal as they arrive, chunks once sealed; receipts make every retry harmless."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from service.database.models.base import Base, Key


class Receipt(Base):
    """One accepted request. The same key with the same digest again is a duplicate, with another one a conflict."""

    __tablename__ = "receipt"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"), primary_key=True, autoincrement=False)
    process: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)  # batches | fingerprints | items | events | finish
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    digest: Mapped[bytes] = mapped_column(LargeBinary(8))


class Metric(Base):
    """A metric's small number inside its run. `eval_set` is the evaluation set that its latest batch declared."""

    __tablename__ = "metric"
    __table_args__ = (UniqueConstraint("run_id", "name"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(256))
    eval_set: Mapped[str | None] = mapped_column(String(256))


class Journal(Base):
    """One accepted batch, all its metrics packed together (`service.series.journal`), in order of arrival (`id`)."""

    __tablename__ = "journal"
    __table_args__ = (Index("ix_journal_run_id_id", "run_id", "id"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"))
    received_at: Mapped[float]
    steps: Mapped[int]
    points: Mapped[int]
    payload: Mapped[bytes]


class Chunk(Base):
    """At most 8,192 sealed points of one series, sorted by step (`service.series.chunks` packs and unpacks them).

    A lane is what one segment wrote of one series, about the weights of one segment. Inside a lane `number` grows with
    arrival, and only the last chunk holds fewer than 8,192 points. The small columns and the summary stand before the
    packed arrays, so that an overview does not walk over them on disk.
    """

    __tablename__ = "chunk"
    __table_args__ = (
        Index(
            "ix_chunk_run_id_metric_id_open",
            "run_id",
            "metric_id",
            sqlite_where=text("points < 8192"),
            postgresql_where=text("points < 8192"),
        ),
    )

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), primary_key=True, autoincrement=False)
    metric_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"))
    weights_segment_id: Mapped[int | None] = mapped_column(ForeignKey("segment.id"))  # of late evaluations
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    points: Mapped[int]
    repeats: Mapped[bool]  # whether a step stands in it more than once
    cell: Mapped[int]  # steps per cell of the summary, a power of two; 0 without a summary
    summary: Mapped[bytes]
    steps: Mapped[bytes]
    values: Mapped[bytes]


class Fingerprint(Base):
    """Sampled hashes that one host sent at once, in parallel with their steps, and the runs of steps it saw."""

    __tablename__ = "fingerprint"
    __table_args__ = (Index("ix_fingerprint_run_id_kind_id", "run_id", "kind", "id"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"))
    kind: Mapped[str] = mapped_column(String(16))  # rows | windows | heldout_hits
    host: Mapped[int]
    set_name: Mapped[str | None] = mapped_column(String(256))
    sample: Mapped[int] = mapped_column(BigInteger)
    points: Mapped[int]
    steps: Mapped[bytes]  # int64 (n,), by pcodec
    hashes: Mapped[bytes]  # uint64 (n,): of rows little endian, for nothing makes them shorter; else by pcodec
    seen: Mapped[bytes]  # int64 (m, 3): from_step, to_step, rows per step
    windows: Mapped[int | None] = mapped_column(BigInteger)  # of a held-out set: how many are looked for
    counts: Mapped[bytes | None]  # of held-out hits: int64 (n,) windows in the row, by pcodec


class ItemResult(Base):
    """Per-item results of one task at one checkpoint: `correct` holds n bits, lowest bit first."""

    __tablename__ = "item_result"
    __table_args__ = (Index("ix_item_result_run_id_task_step", "run_id", "task", "step"),)

    id: Mapped[int] = mapped_column(Key, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    segment_id: Mapped[int] = mapped_column(ForeignKey("segment.id"))
    task: Mapped[str] = mapped_column(String(256))
    step: Mapped[int] = mapped_column(BigInteger)
    items: Mapped[int]
    correct: Mapped[bytes]
