# SPDX-License-Identifier: Apache-2.0
"""The browser's check of a receipt comes to the verdict of the library, offline."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import rfc8785
from playwright.sync_api import Browser, Page

from expunge.exceptions import InvalidInput
from expunge.ledger import Receipt, check_receipt, sign
from expunge.ledger.receipts import NOT_COVERED, rules, without_newline
from expunge.promise.verification import verify
from expunge.service.rendering import make_check_page, read_static
from tests import certificates
from tests.corpus import FOLDER
from tests.test_ledger import NEW, OLD, STRANGER
from tests.test_receipt import DEEP, PEM, RECEIPT, TEXT, alone

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

OLD_PEM, NEW_PEM = OLD.public.to_pem(), NEW.public.to_pem()
ALONE = alone(certificates.EACH).to_json()
RUN = """async ([script, rules, cases]) => {
  const {checkReceipt} = await import(`data:text/javascript;base64,${script}`);
  const verdicts = [];
  for (const [text, pem] of cases) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const found = await checkReceipt(bytes, pem, rules);
    const {valid, resaved, findings, failures, notCovered} = found;
    verdicts.push([valid, resaved, findings, failures, notCovered]);
  }
  return verdicts;
}"""


class Seen(NamedTuple):
    """What one of the two said of a receipt, less what the browser leaves out."""

    valid: bool
    resaved: bool
    findings: tuple[str, ...]
    not_covered: tuple[str, ...]


Case = tuple[bytes, str]


@pytest.fixture(scope="module")
def offline(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "check.html"
    path.write_text(make_check_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def judge(chromium: Browser, offline: Path) -> Iterator[Callable[..., list[Seen]]]:
    """Return the check of many receipts by the script, in the page."""
    context = chromium.new_context(offline=True, bypass_csp=True)
    page = context.new_page()
    page.goto(offline.as_uri())
    script = base64.b64encode(read_static("check.js").encode()).decode()

    def run(cases: list[Case]) -> list[Seen]:
        given = [(base64.b64encode(text).decode(), pem) for text, pem in cases]
        found = page.evaluate(RUN, [script, rules(), given])
        assert all(valid == (not failures) for valid, *_, failures, _ in found)
        return [
            Seen(valid, resaved, tuple(findings), tuple(uncovered))
            for valid, resaved, findings, _, uncovered in found
        ]

    yield run
    context.close()


def by_library(text: bytes, pem: str) -> Seen:
    """Return what the library finds, without what certificates say by themselves."""
    try:
        verdict = check_receipt(text, pem)
    except InvalidInput:  # of the list of keys
        return Seen(False, False, (), ())
    if verdict.resaved:
        return Seen(False, True, (), ())
    try:
        held = Receipt.from_json(without_newline(text)).certificates
    except InvalidInput:
        held = {}
    inner = {name: verify(one) for name, one in held.items()}
    own = {
        f"{name}: {said}"
        for name, one in inner.items()
        for said in (*one.findings, *one.failures)
    }
    failures = [said for said in verdict.failures if said not in own]
    findings = tuple(said for said in verdict.findings if said not in own)
    covered = verdict.not_covered if not failures else ()
    return Seen(not failures, False, findings, covered)


def compare(judge: Callable[..., list[Seen]], cases: list[Case]) -> int:
    """See that both agree on every receipt; return how many are valid."""
    n_valid = 0
    for start in range(0, len(cases), 250):
        share = cases[start : start + 250]
        for case, theirs in zip(share, judge(share), strict=True):
            ours = by_library(*case)
            if ours.valid and not check_receipt(*case).valid:
                # Only the certificate's own figures are wrong, which is not checked.
                ours = ours._replace(not_covered=theirs.not_covered)
            assert theirs == ours, case
            n_valid += theirs.valid
    return n_valid


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in JSON data, parts that hold others too."""
    if path:
        yield path
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for name, part in inner:
        yield from leaves(part, (*path, name))


def others(value: Any) -> list[Any]:
    """Return values that could stand in the place of one."""
    if isinstance(value, str):
        day = [value[:-2] + "31", "2023-02-30"] if value[:2] == "20" else []
        return [value + "x", "", value[::-1], *day]
    if isinstance(value, bool | None):
        return [not value, 0]
    if isinstance(value, int | float):
        return [value + 1, -value, value + 0.5, None, str(value)]
    if isinstance(value, list):
        return [value[1:], [*value, *value[:1]], {}]
    return [{}, value | {"ada": 1}, []]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of JSON data with another value at one place."""
    copy = json.loads(json.dumps(document))
    place = copy
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copy


def signed(document: Any) -> bytes:
    """Return the receipt, and its head, signed by the operator whatever they say."""
    for part in (document.get("head"), document):
        if isinstance(part, dict):
            part.pop("signature", None)
            part["signature"] = NEW.sign(rfc8785.dumps(part)).hex()
    return rfc8785.dumps(document)


def altered(text: str) -> Iterator[bytes]:
    """Yield the receipt with every value in it replaced, and signed or not."""
    document = json.loads(text)
    for path in leaves(document):
        value: Any = document
        for name in path:
            value = value[name]
        for other in others(value):
            damaged = changed(document, path, other)
            yield rfc8785.dumps(damaged)
            yield signed(damaged)


def test_valid_receipts(judge: Callable[..., list[Seen]]) -> None:
    cases = [(TEXT.encode(), PEM), (TEXT.encode(), NEW_PEM)]
    for one in certificates.ALL:
        text = alone(one).to_json().encode()
        cases += [(text, PEM), (text, OLD_PEM)]  # retired by one list, not by the other
    cases += [(text + end, pem) for text, pem in cases for end in (b"\n", b"\r\n")]
    assert compare(judge, cases) == len(cases)
    (seen,) = judge(cases[:1])
    assert seen.not_covered[: len(NOT_COVERED)] == NOT_COVERED


def test_receipts_of_the_corpus(judge: Callable[..., list[Seen]]) -> None:
    """Every right, outcome, status and reason, by the keys of both and of either."""
    keys = [(FOLDER / name).read_text() for name in ("public.pem", "first-key.pem")]
    texts = [file.read_bytes() for file in sorted(FOLDER.glob("receipts/*.json"))]
    assert compare(judge, [(text, keys[0]) for text in texts]) == len(texts) > 25
    assert 0 < compare(judge, [(text, keys[1]) for text in texts]) < len(texts)


def test_every_value_altered(judge: Callable[..., list[Seen]]) -> None:
    cases = [(text, NEW_PEM) for text in altered(TEXT)]
    assert len(cases) > 900
    # What the operator signs and only a certificate contradicts is left to the library.
    assert compare(judge, cases) < len(cases) // 10


def test_every_kind_of_damage(judge: Callable[..., list[Seen]]) -> None:
    data = ALONE.encode()
    texts = [
        *(data[:end] for end in range(0, len(data), 97)),
        *(
            data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
            for i in range(0, len(data), 41)
        ),
        *(
            b"",
            b"{}",
            b"null",
            b"[]",
            data + b"\n\n",
            data + b"\r",
            b" " + data,
            b"\xff",
        ),
        *(b"\xef\xbb\xbf" + data, ALONE.encode("utf-16"), b"[" * 100_000),
        json.dumps(json.loads(ALONE), indent=2).encode(),
        ALONE.replace('"size":2', '"size":2.0').encode(),
        ALONE.replace('"size":2', '"size":2,"size":2').encode(),
        ALONE.replace('"objective":{', '"objective":{"a":' + DEEP + ",").encode(),
        ALONE.replace('"version":1}', '"version":1,"__proto__":{}}').encode(),
    ]
    assert compare(judge, [(text, PEM) for text in texts]) == 0


def test_half_a_character_is_refused_even_if_signed(
    judge: Callable[..., list[Seen]],
) -> None:
    document = json.loads(ALONE)
    document["certificates"]["churn"]["mechanism"] = "HALF"
    whole = signed(document).replace(b'"HALF"', b'"\\ud800"')
    before, _, after = whole.rpartition(b'"signature":"')
    payload = before + after.partition(b'",')[2]
    forged = before + b'"signature":"' + NEW.sign(payload).hex().encode()
    assert compare(judge, [(forged + b'",' + after.partition(b'",')[2], NEW_PEM)]) == 0


def test_every_list_of_keys(judge: Callable[..., list[Seen]]) -> None:
    text = TEXT.encode()
    first, second = OLD.public.to_pem(), NEW.public.to_pem()
    rotated = PEM.replace("Signs-To: 20", "Signs-To: {}").replace(
        "From: 21", "From: {}"
    )
    lists = [
        *(PEM, first, second, STRANGER.public.to_pem(), "", "no key", first + second),
        *(rotated.format(*pair) for pair in [(30, 31), (24, 25), (19, 21), (20, 20)]),
        PEM.replace("Signs-From: 0\n", ""),
        PEM.replace("Signs-From: 0", "signs-from: 0"),
        PEM.replace("Signs-From: 0", "Signs-From: 00"),
        PEM.replace("Signs-From: 0", "Signs-From: 0 "),
        PEM.replace("Signs-From: 0", "Signs-From: 0\u00a0"),
        PEM.replace("Signs-From: 0", "A remark\rSigns-From: 0"),
        PEM.replace("Signs-From: 0", "Signs-From: 0\nSigns-From: 0"),
        PEM.replace("\n", "\r\n"),
        PEM + "Signs-To: 40\n",
        PEM.replace("MCow", "MCox"),
        f"Signs-From: 0\nSigns-To: 5\n{second}Signs-From: 6\n{second}",
        "Signs-From: 0\n" + second.replace("PUBLIC KEY", "PRIVATE KEY"),
    ]
    stolen = sign(RECEIPT, OLD).to_json().encode()
    cases = [(one, pem) for one in (text, ALONE.encode(), stolen) for pem in lists]
    assert 0 < compare(judge, cases) < len(cases) // 2


def test_words_of_a_guarantee(judge: Callable[..., list[Seen]]) -> None:
    """Figures are written as the library does, ties between digits included."""
    figures = [1.0, 0.5, 0.1, 8.0, 2**-10, 1e-5, 1e-7, 3 * 2**-9, 12.345678, 0.0]
    cases = []
    for epsilon in figures:
        for delta in (1e-5, 2**-10, 0.9999999, 1.5e-300):
            held = certificates.EACH.replace(epsilon=epsilon, delta=delta)
            cases.append((alone(held).to_json().encode(), OLD_PEM))
    assert compare(judge, cases) == len(cases)


def test_page_from_a_file(page: Page, offline: Path, tmp_path: Path) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    receipt, keys = tmp_path / "receipt.json", tmp_path / "public.pem"
    receipt.write_text(TEXT)
    keys.write_text(PEM)
    page.goto(offline.as_uri())
    page.get_by_label("The receipt").set_input_files(receipt)
    page.get_by_label("public keys").set_input_files(keys)
    page.get_by_role("button", name="Check").click()
    page.get_by_role("heading", name="The receipt is valid").wait_for()
    assert page.get_by_text("entry 11 of a ledger of 25").count() == 1
    assert page.get_by_text("run expunge verify").count() == 1
    receipt.write_text(TEXT.replace('"n_subjects":1', '"n_subjects":2'))
    page.get_by_label("The receipt").set_input_files(receipt)
    page.get_by_role("button", name="Check").click()
    page.get_by_role("heading", name="The receipt is not valid").wait_for()
    assert sent == [offline.as_uri()]


def test_page_cannot_reach_a_network(page: Page, offline: Path) -> None:
    page.goto(offline.as_uri())
    refused = page.evaluate("fetch('https://example.org').then(() => 0, () => 1)")
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert refused and policy is not None and "connect-src" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
