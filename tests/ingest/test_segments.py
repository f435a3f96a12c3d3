"""Where a live run lies on its project's token axis."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, select

from service.database.engine import reading
from service.database.models import Run
from service.references.shipped import install_shipped
from tests.ingest.store_client import Store


@pytest.mark.parametrize(
    ("stage", "offset"),
    [("stage1", 0.0), ("stage2", 5_929_965_715_456.0), ("stage3", 6_029_966_311_424.0), ("another", 0.0)],
)
def test_a_stage_begins_where_its_reference_says(store: Store, engine: Engine, stage: str, offset: float) -> None:
    """Also a stage of which the reference has no curve, as stage 3 of OLMo 3 7B."""
    install_shipped(engine)
    store.start(f"run-{stage}", stage=stage, reference="olmo3-7b")
    with reading(engine) as session:
        run = session.scalars(select(Run).where(Run.name == f"run-{stage}")).one()
    assert run.token_offset == offset
