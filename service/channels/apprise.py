"""E-mail and every other service that Apprise reaches, by an Apprise address (mailto://, ntfy://, pagerduty://, …).

Apprise opens its own connections. Addresses that reach this machine's desktop or files are refused, redirects are not
followed, and a host that leads to a private address is refused unless private channels are allowed; but the name is
resolved again by Apprise itself, so the other kinds are the safer ones where one fits.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from service.alerts.message import cut
from service.channels.kind import Outgoing, PictureForm
from service.channels.safety import MAX_URL, UnsafeAddressError, is_public, refusal
from service.channels.sending import TIMEOUT, Reply, Sender, SendError
from service.channels.texts import SIGNS, one_line, subject_line, title_line

LOCAL = frozenset(
    ("dbus", "glib", "gnome", "kde", "qt", "macosx", "windows", "syslog", "blink1", "vapid", "signald", "deltachat")
)
READS_FILES = frozenset(("template", "keyfile", "pgpkey", "pgp", "attach", "path", "subfile"))
TYPES = {"alert.firing": "failure", "alert.updated": "warning", "alert.resolved": "success", "channel.test": "info"}
_log = logging.getLogger("apprise")
# Apprise turns plain text into the markup of services that declare one, but not every one of them escapes all of it,
# and some that declare plain text show it as markup. So what they would take as tags, links, entities or mentions of
# people is written so that no service does, and everybody still can read it.
_NO_MARKUP = (
    (re.compile("<"), "‹"),
    (re.compile(">"), "›"),
    (re.compile(r"&(?=#?\w+;)"), "＆"),
    (re.compile(r"@(?=\S)"), "@\u200b"),
    (re.compile(r"\](?=[(\[])"), "] "),
)


class Apprise:
    """Sends a title and plain text. There is no answer to read: Apprise says yes or no."""

    name = "apprise"
    picture: PictureForm | None = "inside"

    def secret(self, given: str | None) -> str | None:
        if given is not None:
            raise ValueError("is not used by apprise channels: leave it out")
        return None

    def check(self, url: str, *, allow_private: bool) -> None:
        if len(url) > MAX_URL:
            raise UnsafeAddressError(f"longer than {MAX_URL} characters")
        scheme = url.partition("://")[0].lower()
        if scheme in LOCAL:
            raise UnsafeAddressError(f"{scheme}:// reaches this machine only")
        refused = READS_FILES.intersection(name.lower() for name, _ in parse_qsl(urlsplit(url).query, True))
        if refused:
            raise UnsafeAddressError(f"must not carry {min(refused)}=, which reads a file of this machine")
        plugin = _plugin(url)
        if not allow_private:
            _check_hosts(plugin)

    def shown(self, url: str) -> str:
        try:
            plugin = _plugin(url)
        except UnsafeAddressError:
            return f"{url.partition('://')[0]}://…"
        return str(plugin.url(privacy=True)).partition("?")[0]

    def deliver(self, sender: Sender, outgoing: Outgoing) -> Reply:
        try:
            self.check(outgoing.url, allow_private=sender.allow_private)
        except UnsafeAddressError as error:
            raise SendError(f"The address {error}") from error
        plugin = _plugin(outgoing.url)
        title, body = written(outgoing.message, int(plugin.title_maxlen), int(plugin.body_maxlen))
        outcome = _Outcome()
        thread = threading.Thread(
            target=outcome.send,
            args=(plugin, title, body, TYPES[outgoing.message["type"]], outgoing.picture),
            daemon=True,
        )
        thread.start()
        thread.join(TIMEOUT)
        if thread.is_alive():
            raise SendError(f"No answer within {TIMEOUT:g} s")
        if not outcome.delivered:
            raise SendError(f"Apprise could not send it: {outcome.said or 'it does not say why'}")
        return Reply(200, {}, b"")


def written(message: Mapping[str, Any], title_limit: int, body_limit: int) -> tuple[str, str]:
    """Title and text of a message inside a service's limits; a service without titles gets both as the text."""
    title = harmless(title_line(message))
    lines = [harmless(line) for line in message["summary"] if line.strip()]
    lines += [f"{harmless(fact['label'])}: {harmless(fact['text'])}" for fact in message["facts"]]
    links = [f"Alert: {message['alert']['url']}", f"Run: {message['run']['url']}"] if "alert" in message else []
    tail = "\n".join([*([harmless(subject_line(message))] if links else []), *links])
    if title_limit <= 0:
        lines = [title, *lines]
    kept = title if title_limit <= 0 else cut(title, title_limit)
    head = cut("\n".join(lines), max(body_limit - len(tail) - 2, len(SIGNS["alert.firing"]) + 1))
    return ("" if title_limit <= 0 else kept), cut(f"{head}\n\n{tail}".strip(), body_limit)


def harmless(text: str) -> str:
    """One line that no service takes for more than text, whatever markup it shows."""
    line = one_line(text)
    for mark, instead in _NO_MARKUP:
        line = mark.sub(instead, line)
    return line


class _Outcome(logging.Handler):
    """Sends in one thread and keeps what Apprise logs there: it gives no other reason for a failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.delivered = False
        self.said = ""
        self._thread = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.said = cut(one_line(record.getMessage()), 300)

    def send(self, plugin: Any, title: str, body: str, kind: str, picture: bytes | None) -> None:
        more = {"attach": _attached(picture)} if picture is not None and plugin.attachment_support else {}
        self._thread = threading.get_ident()
        _log.addHandler(self)
        try:
            self.delivered = bool(plugin.notify(title=title, body=body, notify_type=kind, body_format="text", **more))
        except Exception as error:  # a plugin may raise anything
            self.said = f"{type(error).__name__}: {one_line(str(error))}"
        finally:
            _log.removeHandler(self)


def _plugin(url: str) -> Any:
    import apprise  # takes a third of a second, and most services never need it

    asset = apprise.AppriseAsset(app_id="Pacenote", app_desc="Pacenote", http_redirects=False, secure_logging=True)
    plugin = cast("Any", apprise.Apprise).instantiate(url, asset=asset, suppress_exceptions=True)
    if plugin is None:
        raise UnsafeAddressError("is no address that Apprise knows; see https://github.com/caronc/apprise/wiki")
    return plugin


def _attached(picture: bytes) -> Any:
    import apprise
    from apprise.attachment.memory import AttachMemory

    attachment = apprise.AppriseAttachment()
    attachment.add(AttachMemory(picture, name="gap.png", mimetype="image/png"))
    return attachment


def _check_hosts(plugin: Any) -> None:
    """Refuse hosts that lead to private addresses. Some services keep a key where others keep a host: no name then."""
    for host in {getattr(plugin, name, None) for name in ("host", "smtp_host")}:
        if not isinstance(host, str) or not host:
            continue
        deadline = time.monotonic() + TIMEOUT
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        if time.monotonic() > deadline:
            raise UnsafeAddressError(f"names the host {host}, which takes too long to resolve")
        for entry in found:
            if not is_public(str(entry[4][0])):
                raise UnsafeAddressError(f"leads to a refused one: {refusal(str(entry[4][0]))}")
