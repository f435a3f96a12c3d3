from __future__ import annotations

from sqlalchemy import Engine

from service.broker import Broker


class Committer:
    def __init__(self, engine: Engine, broker: Broker) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
