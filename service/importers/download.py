"""Downloads one file into a folder, as it comes; a download that breaks off goes on where it was."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx

from service.importers.rows import LogError

MOST_REDIRECTS = 10
TRIES = 5
Told = Callable[[int, int | None], None]  # bytes so far, and in all where the server says


def shown(address: str) -> str:
    """An address without the password that may stand in it."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def download(address: str, folder: Path, told: Told, wait: float = 1.0) -> Path:
    """The file at an address, in `folder`, named as its address is. `wait`: seconds before the next of some tries.

    Raises:
        LogError: no such file, no answer, too many redirects, a web page instead of a log, or no room.
    """
    name = Path(unquote(urlsplit(address).path)).name
    path = folder / (re.sub(r"[^\w. -]", "_", name)[-120:].strip(". ") or "download")
    state = _State()
    with httpx.Client(timeout=60.0, headers={"User-Agent": "pacenote"}) as client:
        for left in reversed(range(TRIES)):
            try:
                with path.open("ab") as file:
                    if _more(client, address, file, state, told):
                        return path
            except httpx.TransportError as error:
                state.why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            except OSError as error:
                raise LogError(f"{shown(address)}: cannot be kept in {folder} ({error.strerror})") from error
            if left:
                time.sleep(wait)
                wait *= 2
    raise LogError(f"{shown(address)}: cannot be downloaded, tried {TRIES} times ({state.why})")


class _State:
    """What one try leaves to the next: the server's name for this content, and why it ended."""

    def __init__(self) -> None:
        self.tag = ""
        self.why = ""


def _more(client: httpx.Client, address: str, file: BinaryIO, state: _State, told: Told) -> bool:
    """Download what is missing; False where it may be tried again."""
    have = file.seek(0, 2)
    headers = {"Accept-Encoding": "identity"}
    if have and state.tag:
        headers |= {"Range": f"bytes={have}-", "If-Range": state.tag}
    with _opened(client, address, headers) as response:
        if response.status_code in (408, 429) or response.status_code >= 500:
            state.why = f"status {response.status_code}"
            return False
        if response.status_code >= 400:
            raise LogError(f"{shown(address)}: status {response.status_code} {response.reason_phrase}")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise LogError(
                f"{shown(address)}: a web page, and no log; give the address of the file itself{_raw(address)}"
            )
        if response.status_code != 206:
            file.truncate(0)
            have = 0
        state.tag = response.headers.get("ETag", "") if "Content-Encoding" not in response.headers else ""
        if state.tag.startswith("W/"):
            state.tag = ""
        size = response.headers.get("Content-Length", "")
        total = have + int(size) if size.isdigit() and "Content-Encoding" not in response.headers else None
        for piece in response.iter_bytes():
            file.write(piece)
            have += len(piece)
            told(have, total)
    return True


@contextmanager
def _opened(client: httpx.Client, address: str, headers: dict[str, str]) -> Generator[httpx.Response]:
    """The answer after its redirects, none of which may leave https for http."""
    try:
        request = client.build_request("GET", address, headers=headers)
        response = client.send(request, stream=True)
        for _ in range(MOST_REDIRECTS):
            following = response.next_request
            if following is None:
                break
            response.close()
            if request.url.scheme == "https" and following.url.scheme != "https":
                raise LogError(f"{shown(address)}: leads from https to {following.url.scheme}, which is refused")
            request = following
            response = client.send(request, stream=True)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise LogError(f"{shown(address)}: no address of http or https ({error})") from error
    try:
        if response.next_request is not None:
            raise LogError(f"{shown(address)}: leads on more than {MOST_REDIRECTS} times")
        yield response
    finally:
        response.close()


def _raw(address: str) -> str:
    """What to ask for instead, where it is known."""
    parts = urlsplit(address)
    if parts.hostname == "github.com" and "/blob/" in parts.path:
        return f" (https://raw.githubusercontent.com{parts.path.replace('/blob/', '/', 1)})"
    if parts.hostname == "huggingface.co" and "/blob/" in parts.path:
        return f" (https://huggingface.co{parts.path.replace('/blob/', '/resolve/', 1)})"
    return ""
