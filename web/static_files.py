"""Our scripts and styles, and Plotly's script, all from this process: no build step, no other server."""

from __future__ import annotations

import gzip
import hashlib
import threading
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent / "static"
FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}

router = APIRouter(include_in_schema=False)


class ImmutableFiles(StaticFiles):
    """Files under an address that names their content, so that browsers never ask twice."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """The file, cacheable for ever."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(FOREVER)
        return response


@cache
def static_path() -> str:
    """Where our files are mounted; changes with any byte of them."""
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(STATIC).as_posix().encode() + b"\0" + path.read_bytes())
    return f"/static/{digest.hexdigest()}"


@cache
def plotly_path() -> str:
    """The address of Plotly's script; names the version of the Python package it comes from."""
    return f"/plotly/{version('plotly')}/plotly.min.js"


def plotly_file() -> Path:
    """The script inside the installed `plotly` package, found without importing it (that takes a second)."""
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


class _Compressed:
    """The gzipped script, made once and kept (1.5 MB)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._body: bytes | None = None

    def get(self) -> bytes:
        with self._lock:
            if self._body is None:
                self._body = gzip.compress(plotly_file().read_bytes(), 9, mtime=0)
            return self._body


_compressed = _Compressed()


def prepare() -> None:
    """Compress Plotly's script beside everything else, before the first page asks for it."""
    threading.Thread(target=_compressed.get, name="compress-plotly", daemon=True).start()


@router.get("/plotly/{release}/plotly.min.js")
def plotly_script(request: Request, release: str) -> Response:
    """Plotly's script, whatever release is asked for: an old page gets the installed one."""
    headers = (FOREVER if release == version("plotly") else {"Cache-Control": "no-cache"}) | {"Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return FileResponse(plotly_file(), media_type="text/javascript", headers=headers)
    return Response(_compressed.get(), media_type="text/javascript", headers=headers | {"Content-Encoding": "gzip"})
