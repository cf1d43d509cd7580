# SPDX-License-Identifier: Apache-2.0
"""Packs of evidence: checked offline by library and browser, and never when altered."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.sync_api import Browser, FilePayload, Page
from playwright.sync_api import Request as PageRequest

from expunge.cli.output import DONE, NOT_VALID, WRONG_INPUT
from expunge.evidence import make_page, pack_evidence, requests_between
from expunge.ledger.packs import EvidencePack, check_pack, read_parts
from expunge.registry import Registry, Request
from tests.calling import call
from tests.registries import by_name, data, estimator

Parts = dict[str, bytes]
DAY = "1970-01-01"


def made_at(folder: Path, name: str) -> tuple[Registry, list[str]]:
    """Return a registry with some answered requests, its key rotated in between."""
    registry = Registry.create(folder / name, recipients=["Mail Ltd"])
    registry.fit("churn", estimator(), **by_name(data()))
    registry.models.ship("churn", folder / f"{name}.safetensors")
    asked = [Request((f"person {n}",)) for n in range(4)]
    registry.requests.submit(asked[:2])
    registry.keys.rotate_signing_key()
    registry.requests.submit(asked[2:])
    registry.access.record([("ada", "look at request", asked[0].request)])
    return registry, [one.request for one in asked]


class Given:
    """An honest pack about two requests, one before and one after a rotation."""

    def __init__(self, folder: Path) -> None:
        self.registry, every = made_at(folder, "ours")
        self.other, others = made_at(folder, "theirs")
        self.first, self.third = every[0], every[2]
        self.requests = [self.first, self.third]
        self.data = self.packed(self.registry, self.requests)
        self.foreign = self.packed(self.other, [others[0]])
        self.foreign_request = others[0]
        self.pem = self.registry.keys.public_pem()
        self.parts = read_parts(self.data)
        self.pack = EvidencePack.from_json(self.parts["pack.json"])

    @staticmethod
    def packed(registry: Registry, requests: list[str]) -> bytes:
        file = io.BytesIO()
        pack_evidence(registry, requests, to=file)
        return file.getvalue()

    def signed(self, parts: Mapping[str, bytes], **changes: object) -> bytes:
        """Return other parts, signed by the operator as if they were honest."""
        rest = {path: one for path, one in parts.items() if path != "pack.json"}
        digests = {path: sha256(one).hexdigest() for path, one in rest.items()}
        pack = self.pack.replace(parts=digests, **changes)
        text = self.registry.ledger.sign_pack(pack).to_json()
        return zipped({"pack.json": text.encode(), **rest})

    def path(self, request: str, name: str = "receipt.json") -> str:
        return f"requests/{request}/{name}"


def zipped(parts: Mapping[str, bytes], kind: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as archive:
        for path, one in parts.items():
            archive.writestr(path, one)
    return file.getvalue()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    found = Given(tmp_path_factory.mktemp("packs"))
    yield found
    found.registry.close()
    found.other.close()


def altered(data: bytes) -> bytes:
    """Return a part with one bit changed in its middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def list_tampered(given: Given) -> Iterator[tuple[str, bytes, str, str]]:
    """Yield altered packs by name: the file, the keys, and why it is refused."""
    pem, parts, one, two = given.pem, given.parts, given.first, given.third
    for path in parts:
        if path != "pack.json":
            changed = zipped(parts | {path: altered(parts[path])})
            yield f"altered {path}", changed, pem, f"{path} was altered"
            rest = {name: part for name, part in parts.items() if name != path}
            yield f"dropped {path}", zipped(rest), pem, f"{path} is missing"
    swapped = {given.path(one): parts[given.path(two)]}
    yield "swapped", zipped(parts | swapped), pem, f"{given.path(one)} was altered"
    yield "added", zipped(parts | {"more.txt": b"x"}), pem, "more.txt was added"
    text = parts["pack.json"].decode()
    for what, old, new in (
        ("day", f'"day":"{given.pack.day}"', f'"day":"{DAY}"'),
        ("requests", f'"{one}","{two}"', f'"{one}"'),
        (
            "size",
            f'"size":{given.pack.head.size}',
            f'"size":{given.pack.head.size - 1}',
        ),
        ("digest", sha256(parts["keys.pem"]).hexdigest(), "0" * 64),
    ):
        assert old in text
        pack = text.replace(old, new).encode()
        signed = "is not signed by key"
        yield f"manifest {what}", zipped(parts | {"pack.json": pack}), pem, signed
    for what, pack, why in (
        ("no manifest", b"{}", "not a pack as it was made"),
        ("spelling", f" {text}".encode(), "not a pack as it was made"),
        (
            "another kind",
            text.replace("evidence pack", "receipt").encode(),
            "not a pack",
        ),
    ):
        yield what, zipped(parts | {"pack.json": pack}), pem, why
    foreign = read_parts(given.foreign)
    yield "another ledger", given.foreign, pem, "not in the list of keys"
    yield "another's keys", given.data, given.other.keys.public_pem(), "not in the list"
    first_key = pem[: pem.index("-----END PUBLIC KEY-----") + 24].partition("-----")
    old_key = "-----" + first_key[2] + "\n"
    yield "an old key", given.data, old_key, "is not in the list of keys"
    yield "packed again", zipped(parts, zipfile.ZIP_DEFLATED), pem, "packed again by"
    yield "cut off", given.data[:-30], pem, "is no ZIP file, or is damaged"
    yield "no zip", b"PK nothing", pem, "is no ZIP file, or is damaged"
    # What the operator's key signed, and is not so.
    receipt = given.path(one)
    other = parts | {receipt: parts[given.path(two)]}
    yield "of another request", given.signed(other), pem, f"is that of {two}"
    none = {name: part for name, part in parts.items() if name != receipt}
    yield "no receipt", given.signed(none), pem, f"no receipt of request {one}"
    theirs = foreign[given.path(given.foreign_request)]
    strange = parts | {receipt: theirs}
    why = f"the receipt of request {one} is not valid: it names key"
    yield "their receipt", given.signed(strange), pem, why
    extract = json.loads(parts["ledger.json"])

    def with_extract(**changes: object) -> bytes:
        stated = json.dumps(extract | changes).encode()
        return given.signed(parts | {"ledger.json": stated})

    late = json.loads(extract["entries"][0]) | {"day": "2000-01-01"}
    spelled = json.dumps(late, sort_keys=True, separators=(",", ":"))
    moved = [spelled, *extract["entries"][1:]]
    yield (
        "no entry",
        with_extract(entries=[], proofs=[]),
        pem,
        "has no entry of request",
    )
    yield "an entry made up", with_extract(entries=moved), pem, "of the extract is not"
    proofs = [*reversed(extract["proofs"])]
    yield "another proof", with_extract(proofs=proofs), pem, "of the extract is not in"
    yield "no growth", with_extract(growth={}), pem, "they are not one ledger"
    grown = {one: extract["growth"][two], two: extract["growth"][one]}
    yield "swapped growth", with_extract(growth=grown), pem, "they are not one ledger"
    broken = given.signed(parts | {"ledger.json": b"[]"})
    yield "no extract", broken, pem, "ledger.json"


class TestPython:
    def test_an_honest_pack_is_valid(self, given: Given) -> None:
        verdict = check_pack(given.data, given.pem)
        assert verdict.valid, verdict.says
        assert "evidence about 2 requests. Each receipt is valid" in verdict.says
        assert (
            "It does not prove that what the operator states was done" in verdict.says
        )

    def test_holds_what_an_authority_asks_for(self, given: Given) -> None:
        names = {path.rpartition("/")[2] for path in given.parts}
        assert names == {
            *("pack.json", "keys.pem", "ledger.json", "verify.html", "receipt.json"),
            *("letter.html", "certificate-churn.json", "deliveries.json"),
            *("access.json", "processing.txt"),
        }
        access = json.loads(given.parts[given.path(given.first, "access.json")])
        assert [(one["actor"], one["action"]) for one in access] == [
            ("ada", "look at request")
        ]
        kinds = {
            json.loads(text)["kind"]
            for text in json.loads(given.parts["ledger.json"])["entries"]
        }
        assert kinds == {"request completed", "releases superseded"}
        assert not any(
            b"person 0" in part or b"person 2" in part
            for path, part in given.parts.items()
            if path.startswith("requests/")
        )

    def test_altered_packs_are_refused_with_the_reason(self, given: Given) -> None:
        n = 0
        for name, pack, pem, why in list_tampered(given):
            verdict = check_pack(pack, pem)
            assert not verdict.valid and why in verdict.says, (name, verdict.says)
            n += 1
        assert n >= 40

    def test_of_a_period(self, given: Given) -> None:
        every = requests_between(given.registry, "2000-01-01", until="9000-01-01")
        assert len(every) == 4 and {*given.requests} <= {*every}
        assert requests_between(given.registry, DAY, until=DAY) == []
        with pytest.raises(ValueError, match="before it begins"):
            requests_between(given.registry, "2026-02-02", until="2026-02-01")


class TestCommand:
    def test_packs_and_verifies(self, given: Given, tmp_path: Path) -> None:
        there = ("-r", given.registry.folder)
        file, key = tmp_path / "evidence.zip", tmp_path / "public.pem"
        key.write_text(given.pem)
        done = call("evidence", given.first, *there, "--to", file)
        assert (done.code, done.out) == (DONE, f"evidence about 1 request in {file}\n")
        assert call("verify", file, "--key", key).code == DONE
        kept = file.read_bytes()
        assert call("evidence", given.first, *there, "--to", file).code != DONE
        assert file.read_bytes() == kept
        file.write_bytes(altered(kept))
        assert call("verify", file, "--key", key).code == NOT_VALID
        whole = tmp_path / "all.zip"
        period = ("--from", "2000-01-01", "--until", "9000-01-01")
        assert (
            call("evidence", *period, *there, "--to", whole, "--json").json[
                "n_requests"
            ]
            == 4
        )
        assert call("verify", whole, "--key", key).code == DONE
        for wrong in (
            (),
            ("--from", "2000-01-01"),
            (given.first, *period),
            ("x" * 32,),
        ):
            failed = call("evidence", *wrong, *there, "--to", tmp_path / "none.zip")
            assert failed.code != DONE
        assert not (tmp_path / "none.zip").exists()
        assert call("evidence", "0" * 31, *there).code == WRONG_INPUT


@pytest.fixture(scope="module")
def verify(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bytes, str, str], str]]:
    """Return the page in a real browser without a network: what it says of a file."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "verify.html").write_text(make_page(), encoding="utf-8")
    context = chromium.new_context(offline=True)
    page: Page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def note(call: PageRequest) -> None:
        if "http" in call.url:
            errors.append(call.url)

    page.on("request", note)
    page.goto((folder / "verify.html").as_uri())

    def check(data: bytes, pem: str, name: str = "evidence.zip") -> str:
        page.locator("[data-verdict]").evaluate("place => place.replaceChildren()")
        for field, kept, what in (
            ("pack", name, data),
            ("keys", "public.pem", pem.encode()),
        ):
            file: FilePayload = {"name": kept, "mimeType": "x/x", "buffer": what}
            page.set_input_files(f"[name={field}]", files=[file])
        page.click("button")
        page.wait_for_selector("[data-verdict] h2")
        assert errors == []
        return page.inner_text("[data-verdict]")

    yield check
    context.close()


class TestBrowser:
    def test_an_honest_pack_is_accepted(
        self, given: Given, verify: Callable[..., str]
    ) -> None:
        said = verify(given.data, given.pem)
        assert said.startswith("The pack is valid")
        for sentence in check_pack(given.data, given.pem).findings:
            assert sentence in said
        assert "It does not prove that what the operator states was done" in said

    def test_a_receipt_with_a_final_newline_is_accepted(
        self, given: Given, verify: Callable[..., str]
    ) -> None:
        receipt = given.parts[given.path(given.third)]
        for end in (b"", b"\n", b"\r\n"):
            said = verify(receipt + end, given.pem, "receipt.json")
            assert said.startswith("The receipt is valid")
        said = verify(receipt + b"\n\n", given.pem, "receipt.json")
        assert said.startswith("The receipt is not valid")

    def test_altered_packs_are_refused_with_the_reason(
        self, given: Given, verify: Callable[..., str]
    ) -> None:
        for name, pack, pem, why in list_tampered(given):
            said = verify(pack, pem)
            assert said.startswith("The pack is not valid"), (name, said)
            assert why in said, (name, said)
