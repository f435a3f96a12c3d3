"""A reference out of an import: the log's runs go through a database of their own into a bundle.

So an imported reference is what `reference build` makes of the same runs, and is carried elsewhere as any other is.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Engine, select

from service.database.engine import open_engine, reading
from service.database.migrate import ensure_schema
from service.database.models import Run
from service.importers.folders import Group
from service.importers.job import STORED_BEFORE, Options, Preview, Report, kept_points, store
from service.importers.rows import LogError
from service.importers.text import Progress
from service.references.building import About, Origin, StageWish, build

EVERY = "all"  # as the name of a sibling: every other run
Bar = Callable[[Group], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which run of the previews is the reference, and which are its healthy reruns, by name: (preview, name in log)."""

    main: tuple[int, str]
    siblings: dict[str, tuple[int, str]]


def choose(previews: Sequence[Preview], run: str | None, siblings: Sequence[str]) -> Chosen:
    """Sort the runs of a log into the reference and its reruns.

    Raises:
        LogError: it is not said which run is meant, or there is none of a name.
    """
    places = {
        name or preview.group.name: (index, name)
        for index, preview in enumerate(previews)
        for name in preview.plan.runs
    }
    known = ", ".join(list(places)[:8]) + (" …" if len(places) > 8 else "")
    main = next(iter(places)) if run is None else run
    if run is None and len(places) > 1:
        raise LogError(
            f"A reference is one run; the log holds {len(places)} ({known}). Take one with --run, for example "
            f"--run '{main}', and its reruns with --sibling NAME, or --sibling {EVERY}"
        )
    if main not in places:
        raise LogError(f"there is no run {main!r}; there are {known}")
    named = [name for name in places if name != main] if EVERY in siblings else list(siblings)
    for name in named:
        if name not in places or name == main:
            raise LogError(f"--sibling {name}: there is no such other run; there are {known}")
    return Chosen(places[main], {name: places[name] for name in named})


def version_of(previews: Sequence[Preview], chosen: Chosen, options: Options, about: Sequence[str]) -> str:
    """Tells this content, read and described so, from every other."""
    made = hashlib.blake2b(digest_size=6)
    taken = [chosen.main, *chosen.siblings.values()]
    for index in dict.fromkeys(index for index, _ in taken):
        made.update(previews[index].version(options).encode())
    for text in (*(name for _, name in taken), options.stage, *about):
        made.update(f"{len(text)}:{text}".encode())
    return made.hexdigest()


def write_imported(
    target: Path,
    previews: Sequence[Preview],
    chosen: Chosen,
    options: Options,
    about: About,
    bar: Bar,
    say: Callable[[str], None],
) -> list[Report]:
    """Write the bundle to the folder `target`, which must not exist. Returns what became of the rows of each preview.

    Raises:
        LogError: a log changed or cannot be read any more, or no train loss is known in it.
        ValidationError: what is said about the reference does not hold together.
    """
    with _scratch() as engine:
        reports: list[Report] = []
        for index, preview in enumerate(previews):
            own = replace(options, project=f"log {index}", name=None, role="run")
            with bar(preview.group) as progress:
                reports.append(store(engine, preview, own, progress=progress))

        def origin(place: tuple[int, str]) -> Origin:
            preview = previews[place[0]]
            goal, _ = reports[place[0]].runs[preview.run_name(place[1], replace(options, name=None), 1)[:256]]
            with reading(engine) as session:
                run = session.scalars(select(Run).where(Run.uuid == goal.run)).one()
                session.expunge(run)
                return run

        siblings = {safe_name(name): [origin(place)] for name, place in chosen.siblings.items()}
        if len(siblings) < len(chosen.siblings):
            raise LogError(f"two siblings would have one name: {', '.join(chosen.siblings)}")
        wish = StageWish(options.stage, [origin(chosen.main)], siblings, options.tokens_per_step)
        build(target, about, [wish], {}, engine, say)
    return [replace(report, runs={}) for report in reports]


def stored_before(previews: Sequence[Preview]) -> list[Report]:
    """The reports where this version is installed already."""
    reports: list[Report] = []
    for preview in previews:
        refused = preview.account.refused.copy()
        refused[STORED_BEFORE] += sum(kept_points(run) for run in preview.plan.runs.values())
        reports.append(Report(preview.read, 0, 0, 0, refused, dict(preview.account.places), {}))
    return reports


def safe_name(text: str) -> str:
    """A name that is good for a reference's slug, or a file."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "reference"


@contextmanager
def _scratch() -> Generator[Engine]:
    with tempfile.TemporaryDirectory(prefix="pacenote-import-") as folder:
        engine = open_engine(f"sqlite:///{Path(folder) / 'import.db'}")
        try:
            ensure_schema(engine)
            yield engine
        finally:
            engine.dispose()
