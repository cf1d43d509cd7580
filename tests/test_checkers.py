# SPDX-License-Identifier: Apache-2.0
"""One verdict on a receipt: of the command, of the page that is kept, of the ledger."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from playwright.sync_api import Browser

from expunge.ledger import Receipt, sign
from expunge.ledger.receipts import rules
from expunge.service.rendering import make_check_page, read_static
from tests.calling import call
from tests.registries import registry_at
from tests.services import serve_in_process
from tests.test_ledger import STRANGER
from tests.test_service_check import changed, leaves, others
from tests.visitors import post, sign_in

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

RUN = """async ([script, rules, pem, cases]) => {
  const {checkReceipt} = await import(`data:text/javascript;base64,${script}`);
  const verdicts = [];
  for (const text of cases) {
    const bytes = new TextEncoder().encode(text);
    const {valid, resaved} = await checkReceipt(bytes, pem, rules);
    verdicts.push(valid ? "is valid" : resaved ? "saved again" : "is not valid");
  }
  return verdicts;
}"""
VALID, RESAVED, FAILS = "is valid", "saved again", "is not valid"


def make_corpus(text: str) -> dict[str, tuple[str, str]]:
    """Return documents made of a receipt, each with the verdict on it, by name."""
    document: dict[str, Any] = json.loads(text)
    receipt = Receipt.from_json(text)
    backwards = dict(reversed(document.items()))
    swapped = text.replace(f'"root":"{receipt.head.root}"', f'"root":"{"0" * 64}"')
    strange = receipt.replace(head=sign(receipt.head, STRANGER))
    corpus = {
        "as issued": (text, VALID),
        "newline": (text + "\n", VALID),
        "newline of Windows": (text + "\r\n", VALID),
        "two newlines": (text + "\n\n", RESAVED),
        "space in front": (" " + text, RESAVED),
        "mark of the encoding": ("\ufeff" + text, RESAVED),
        "indented": (json.dumps(document, indent=2), RESAVED),
        "indented, with a newline": (json.dumps(document, indent=2) + "\n", RESAVED),
        "other order": (json.dumps(backwards, separators=(",", ":")), RESAVED),
        "number with a point": (
            text.replace('"n_subjects":1', '"n_subjects":1.0'),
            RESAVED,
        ),
        "indented and altered": (
            json.dumps(changed(document, ("entry", "n_subjects"), 2), indent=2),
            FAILS,
        ),
        "forged signature": (text.replace(receipt.signature, "0" * 128), FAILS),
        "of another key": (sign(receipt, STRANGER).to_json(), FAILS),
        "head of another key": (sign(strange, STRANGER).to_json(), FAILS),
        "forged head": (swapped, FAILS),
        "forged around a real head": (
            text.replace(
                f'"request":"{receipt.entry.request}"', f'"request":"{"0" * 32}"'
            ),
            FAILS,
        ),
        "field twice, the same": (
            text.replace('"n_subjects":1', '"n_subjects":1,"n_subjects":1'),
            FAILS,
        ),
        "field twice, another": (
            text.replace('"n_subjects":1', '"n_subjects":2,"n_subjects":1'),
            FAILS,
        ),
        "field twice, escaped": (
            text.replace('"n_subjects":1', '"n_subjects":1,"n_subj\\u0065cts":1'),
            FAILS,
        ),
        "nothing": ("", FAILS),
        "no receipt": ("{}", FAILS),
        "a list": (f"[{text}]", FAILS),
    }
    for share in (1, 50, 99):
        corpus[f"cut after {share}%"] = (text[: len(text) * share // 100], FAILS)
    for path in leaves(document):
        value: Any = document
        for name in path:
            value = value[name]
        damaged = changed(document, path, others(value)[0])
        if damaged != document:
            corpus[f"altered: {path}"] = (rfc8785.dumps(damaged).decode(), FAILS)
    return corpus


@pytest.fixture(scope="module")
def chromium_page(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    kept = tmp_path_factory.mktemp("kept") / "check.html"
    kept.write_text(make_check_page(), encoding="utf-8")
    context = chromium.new_context(offline=True, bypass_csp=True)
    page = context.new_page()
    page.goto(kept.as_uri())
    yield page
    context.close()


def ask_command(text: str, keys: Path) -> str:
    """Return the verdict of ``expunge verify``."""
    file = keys.with_name("receipt.json")
    file.write_bytes(text.encode())
    done = call("verify", file, "--key", keys, "--json")
    found = done.json
    assert (done.code == 0) == found["valid"]
    return VALID if found["valid"] else RESAVED if found["resaved"] else FAILS


def test_all_say_the_same(chromium_page: Any, tmp_path: Path) -> None:
    with (
        registry_at(tmp_path / "registry") as registry,
        serve_in_process(registry) as service,
    ):
        text = registry.forget(["person 3"])
        registry.forget(["person 4"])  # the ledger goes on
        pem = registry.keys.public_pem()
        corpus = make_corpus(text)
        assert len(corpus) > 150
        assert len({document for document, _ in corpus.values()}) == len(corpus)
        (keys := tmp_path / "public.pem").write_text(pem)
        sign_in(service, "audit")
        script = base64.b64encode(read_static("check.js").encode()).decode()
        documents = [document for document, _ in corpus.values()]
        by_page = chromium_page.evaluate(RUN, [script, rules(), pem, documents])
        for (name, (document, verdict)), kept in zip(
            corpus.items(), by_page, strict=True
        ):
            assert (name, kept) == (name, verdict)
            assert (name, ask_command(document, keys)) == (name, verdict)
            shown = post(service, "/ledger", head=document).text
            assert f"<h2>The receipt {words(verdict)}</h2>" in shown, name


def words(verdict: str) -> str:
    return "was saved again" if verdict == RESAVED else verdict
