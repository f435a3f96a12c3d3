"""A report as one page of HTML: nothing is loaded, nothing runs, and its data stand in it, to be checked."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from service.reports import figures, words
from service.reports.document import Report, ReportError, from_json, to_json

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 6  # checkpoints side by side
FILTERS = (
    "number", "whole", "tokens", "percent", "span", "moment", "measured", "limit", "short", "pairs", "setting",
    "rule_title",
)  # fmt: skip
_DATA = re.compile(r'<pre id="data" hidden>(.*?)</pre>', re.DOTALL)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update({name: getattr(words, name) for name in FILTERS})
    made.filters["capitalize_first"] = _capital
    return made


def _capital(text: str) -> str:
    """A sentence's first letter; `capitalize` would make the rest small."""
    return text[:1].upper() + text[1:]


@cache
def style() -> str:
    """The page's style."""
    return (TEMPLATES / "report.css").read_text()


@cache
def policy() -> str:
    """Its Content-Security-Policy: the one style that stands in it, known by its hash, and nothing else at all."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def to_html(report: Report) -> str:
    """The page: a pure function of the report."""
    drawn = [
        (chart, figures.figure(chart, report, i), figures.legend(chart, report))
        for i, chart in enumerate(report.charts)
    ]
    parts = _parts(len(report.checkpoints))
    return _environment().get_template("report.html").render(
        r=report, w=words, style=style(), policy=policy(), parts=parts,
        data=Markup(escape(to_json(report), quote=False)),
        large=[one for one in drawn if not one[0].key.startswith("task ")],
        small=[one for one in drawn if one[0].key.startswith("task ")],
    )  # fmt: skip


def _parts(checkpoints: int) -> list[slice]:
    """Evenly filled tables of at most COLUMNS checkpoints."""
    tables = -(-checkpoints // COLUMNS)
    ends = [round(i * checkpoints / max(tables, 1)) for i in range(tables + 1)]
    return [slice(low, high) for low, high in pairwise(ends)]


def from_html(text: str) -> Report:
    """The report that stands in a page.

    Raises:
        ReportError: there is none in it.
    """
    found = _DATA.search(text)
    if found is None:
        raise ReportError("this page holds no report's data")
    return from_json(unescape(found.group(1)))
