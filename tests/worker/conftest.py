from __future__ import annotations

from collections.abc import Iterator

import pytest
from http_receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
