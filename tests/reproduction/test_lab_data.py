"""The shipped corpus is the one described, and nothing held out is trained on."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from reproduction import lab
from reproduction.lab import corpus, evals
from reproduction.lab.corpus import DATA, Corpus


@pytest.fixture(scope="module")
def texts() -> Corpus:
    return corpus.load()


def test_shipped_files_are_those_that_source_md_names() -> None:
    table = dict(re.findall(r"^\| (\S+) \|.*`([0-9a-f]{64})` \|$", (DATA / "SOURCE.md").read_text(), re.MULTILINE))
    assert {"corpus.npz", "tokenizer.json"} <= table.keys()
    for name, digest in table.items():
        assert sha256((DATA / name).read_bytes()).hexdigest() == digest, name


def test_about_a_tenth_of_the_documents_of_each_domain_is_held_out(texts: Corpus) -> None:
    for domain in corpus.DOMAINS:
        out, kept = (len(texts.documents(heldout=h, domain=domain)) for h in (True, False))
        assert 0.04 < out / (out + kept) < 0.2, domain
    assert len(texts.names) == len(set(texts.names)) == 368


def test_held_out_text_is_nowhere_in_the_rows(texts: Corpus) -> None:
    train = np.concatenate(texts.documents(heldout=False)).astype("<u2").tobytes()
    for document in texts.documents(heldout=True):
        for start in range(0, len(document) - 64, len(document) // 8):
            assert document[start : start + 64].astype("<u2").tobytes() not in train
    for window in evals.build(texts).windows:
        assert window.astype("<u2").tobytes() not in train


def test_rows_hold_the_training_documents_once(texts: Corpus) -> None:
    stream = np.concatenate([np.append(d, corpus.END_OF_TEXT_ID) for d in texts.documents(heldout=False)])
    expected = stream[: len(stream) // 128 * 128].reshape(-1, 128)
    np.testing.assert_array_equal(np.unique(texts.rows, axis=0), np.unique(expected, axis=0))
    assert len(np.unique(texts.rows, axis=0)) == len(texts.rows) == len(expected)
    assert (texts.rows != expected).any()  # shuffled


def test_a_run_reads_no_row_of_the_base_checkpoint(texts: Corpus) -> None:
    base, run = lab.base_rows(texts), lab.run_rows(texts, 3200)
    assert len(base) == 8000
    assert len(np.unique(np.concatenate([base, run]), axis=0)) == 11_200
    np.testing.assert_array_equal(run[:10], lab.run_rows(texts, 10))
    for n in (0, len(texts.rows)):
        with pytest.raises(ValueError, match="rows asked for"):
            lab.run_rows(texts, n)


def test_a_corpus_is_built_from_texts_without_training_on_the_held_out_ones(tmp_path: Path) -> None:
    names = [f"{year}_someone" for year in range(1790, 1830)]
    heldout = next(name for name in names if corpus.is_heldout(name))
    texts = {name: f"Fellow citizens of the year {name[:4]}!" for name in names}
    for folder, special in (("a", "zyzzyva " * 50), ("b", "something else entirely " * 20)):
        corpus.build(texts | {heldout: special}, tmp_path / folder)
    assert (tmp_path / "a" / "tokenizer.json").read_bytes() == (tmp_path / "b" / "tokenizer.json").read_bytes()

    from tokenizers import Tokenizer

    built = corpus.load(tmp_path / "a" / "corpus.npz")
    decode = Tokenizer.from_file(str(tmp_path / "a" / "tokenizer.json")).decode
    assert {name: decode(built.document(i)).strip() for i, name in enumerate(built.names)} == {
        name: (special if name == heldout else texts[name]).strip() for name in texts for special in ["zyzzyva " * 50]
    }
    assert [decode([t]) for t in np.flatnonzero(built.starts_word)][-1].startswith(" ")


def test_texts_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="unpack the npm package"):
        corpus.read_texts(tmp_path, tmp_path)
