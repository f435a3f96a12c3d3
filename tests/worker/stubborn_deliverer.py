"""Run as a process: claims what is due in the database named first, says so, and never comes to sending it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping

from service.broker import Broker
from service.channels.sending import Reply, Sender
from service.channels.vault import Vault
from service.database.engine import open_engine
from service.worker.deliver import Deliverer

KEY = "dGVzdHMgb25seTogbm90IGEga2V5IHRvIGtlZXAhISE="


class Stubborn(Sender):
    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        print(headers["webhook-id"], flush=True)
        threading.Event().wait()
        raise AssertionError


if __name__ == "__main__":
    engine = open_engine(sys.argv[1])
    Deliverer(
        engine, Broker(), Stubborn(allow_private=True), lambda: Vault(KEY), lease=float(sys.argv[2])
    ).deliver_due()
    threading.Event().wait()
