"""`python -m tests.fuzz [--seconds 600] [--target NAME]`: every harness for its share of the time, two at once.

What is found is kept in build/fuzz/findings; the corpus stays in build/fuzz, and the next time goes on with it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from invariants import TARGETS, seeds

AT_ONCE = 2
TIMEOUT = 20  # seconds for one input: more is a hang
LARGEST = 8192  # bytes of an input
WORDS = (
    "step",
    "iter",
    "iteration",
    "global_step",
    "loss=",
    "loss: ",
    "nan",
    "1e5",
    "1,234.5",
    "1.0D+00",
    "[step=1/2,",
)
MORE = (
    '{"step": 1, ',
    '"metrics": {',
    '"log_history": [',
    "completed step: 1, ",
    "epoch",
    "\\x00",
    "\\xff\\xfe",
    "\\x1f\\x8b",
)


def main() -> int:
    """Run the harnesses; 1 if one of them found something."""
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--target", choices=[*TARGETS, "import"], action="append")
    given = parser.parse_args()
    targets: list[str] = given.target or [*TARGETS, "import"]
    folder = Path("build") / "fuzz"
    (folder / "findings").mkdir(parents=True, exist_ok=True)
    words = folder / "words"
    words.write_text("".join('"' + word.replace('"', '\\"') + '"\n' for word in (*WORDS, *MORE)))
    share = max(given.seconds * min(AT_ONCE, len(targets)) // len(targets), 1)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = list(pool.map(lambda target: fuzz(target, folder, share), targets))
    for target, status in zip(targets, statuses, strict=True):
        print(f"{target:8} {'nothing found' if status == 0 else f'FOUND SOMETHING, see {folder / target}.log'}")
    return int(any(statuses))


def fuzz(target: str, folder: Path, seconds: int) -> int:
    """One harness; its exit status."""
    corpus = folder / target
    corpus.mkdir(exist_ok=True)
    for place, content in enumerate(seeds(target)):
        (corpus / f"seed{place}").write_bytes(content)
    command = [sys.executable, str(Path(__file__).with_name("harness.py")), target, str(corpus)]
    options = [f"-max_total_time={seconds}", f"-timeout={TIMEOUT}", f"-max_len={LARGEST}", "-rss_limit_mb=4096"]
    found = [f"-artifact_prefix={folder / 'findings'}/{target}-", f"-dict={folder / 'words'}", "-print_final_stats=1"]
    with (folder / f"{target}.log").open("w") as log:
        return subprocess.run([*command, *options, *found], stdout=log, stderr=log, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
