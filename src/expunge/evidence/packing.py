# SPDX-License-Identifier: Apache-2.0
"""Packing: receipts, proofs and what is known besides about some requests.

The ledger is read once for entries that name releases and extensions, notifications and
the access log once for all requests, so a pack takes time that grows with the number of
its requests and the length of those, and not with their product.
"""

import json
import re
import zipfile
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from ..exceptions import InvalidInput, needing
from ..ledger import (
    Entry,
    HoldEnded,
    Receipt,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestExtended,
)
from ..ledger.documents import day_of
from ..ledger.entries import Head
from ..ledger.packs import (
    EXTRACT,
    KEYS,
    MANIFEST,
    NOT_SHOWN,
    PAGE,
    EvidencePack,
    receipt_path,
)
from ..ledger.receipts import rules
from ..registry import PageWanted, Registry
from ..registry.now import today
from ..rights.calendar import parse_day

with needing("cli", "an evidence pack"):
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

OURS = Path(__file__).parent
SHARED = OURS.parent / "service" / "static"
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of every part: the file tells no time
KINDS = (RequestExtended, HoldEnded, ReleasesSuperseded, ReleaseWithdrawn)


def requests_between(registry: Registry, since: str, *, until: str) -> list[str]:
    """Return the requests that were answered from one day to another, in order."""
    first, last = parse_day(since).isoformat(), parse_day(until).isoformat()
    if first > last:
        raise InvalidInput(f"the period ends on {last}, before it begins on {first}")
    found: list[tuple[int, str]] = []
    after = ""
    while True:
        wanted = PageWanted(("completed",), after=after, most=1000)
        page = registry.requests.page(wanted)
        found += [
            (one.completed or 0, one.request)
            for one in page.lines
            if first <= day_of(one.completed or 0) <= last
        ]
        after = page.next
        if not after:
            return [request for _, request in sorted(found)]


def pack_evidence(
    registry: Registry,
    requests: Sequence[str],
    *,
    to: IO[bytes],
    since: str = "",
    until: str = "",
    language: str = "en",
) -> EvidencePack:
    """Write evidence about answered requests as a ZIP, and return what it holds.

    Parameters
    ----------
    registry
        That answered them.
    requests
        Their ids.
    to
        Where the ZIP is written.
    since, until
        The period that it is about, if it is about one.
    language
        Of the letters.
    """
    from ..letters import choose_kind, gather_facts, write_letter

    head_text = registry.ledger.head()
    if head_text is None or not requests:
        raise InvalidInput("there is no answered request to give evidence of")
    head = Head.from_json(head_text)
    receipts = {one: _require_receipt(registry, one) for one in requests}
    found = {one: Receipt.from_json(text) for one, text in receipts.items()}
    parts: dict[str, bytes] = {}
    entries = _select_entries(registry, found)
    told, looked = _read_deliveries(registry, found), _read_trail(registry, found)
    statuses = registry.requests.statuses(requests)
    growth: dict[str, tuple[str, ...]] = {}
    for request, receipt in found.items():
        place = f"requests/{request}"
        parts[receipt_path(request)] = receipts[request].encode()
        facts = gather_facts(
            statuses[request], receipts[request], kind=choose_kind(statuses[request])
        )
        letter = write_letter(facts, registry.folder, language=language)
        parts[f"{place}/letter.html"] = letter.encode()
        for name, certificate in receipt.certificates.items():
            parts[f"{place}/certificate-{name}.json"] = certificate.to_json().encode()
        parts[f"{place}/deliveries.json"] = _dump(told[request])
        parts[f"{place}/access.json"] = _dump(looked[request])
        parts[f"{place}/processing.txt"] = _describe_processing(receipt).encode()
        growth[request] = registry.ledger.prove_growth(receipt.head.size, head.size)
    ordered = sorted(entries.values(), key=lambda one: one.sequence)
    parts[EXTRACT] = _dump(
        {
            "entries": [one.to_json() for one in ordered],
            "proofs": [
                registry.ledger.prove_inclusion(one.sequence, head.size)
                for one in ordered
            ],
            "growth": growth,
        }
    )
    parts[KEYS] = registry.keys.public_pem().encode()
    parts[PAGE] = make_page().encode()
    pack = registry.ledger.sign_pack(
        EvidencePack(
            day=today().isoformat(),
            since=since,
            until=until,
            requests=tuple(requests),
            head=head,
            parts={path: sha256(data).hexdigest() for path, data in parts.items()},
            key=head.key,
        )
    )
    with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as archive:
        for path, data in {MANIFEST: pack.to_json().encode(), **parts}.items():
            archive.writestr(zipfile.ZipInfo(path, _EPOCH), data)
    return pack


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _require_receipt(registry: Registry, request: str) -> str:
    text = registry.requests.receipt(request)
    if text is None:
        raise InvalidInput(
            f"request {request} is not answered, so there is no evidence of how; wait "
            "until it is completed"
        )
    return text


def _select_entries(
    registry: Registry, found: Mapping[str, Receipt]
) -> dict[int, Entry]:
    """Return the entries about requests and the releases that they superseded."""
    made = {
        digest
        for receipt in found.values()
        for digest in receipt.entry.certificates.values()
    }
    chosen: dict[int, Entry] = {
        receipt.entry.sequence: receipt.entry for receipt in found.values()
    }
    gone: set[str] = set()
    later: list[ReleaseWithdrawn] = []
    for entry in registry.ledger.find(*KINDS):
        if isinstance(entry, RequestExtended | HoldEnded) and entry.request in found:
            chosen[entry.sequence] = entry
        if isinstance(entry, ReleasesSuperseded) and entry.by in made:
            chosen[entry.sequence] = entry
            gone.update(entry.certificates)
        if isinstance(entry, ReleaseWithdrawn):
            later.append(entry)
    chosen |= {one.sequence: one for one in later if one.certificate in gone}
    return chosen


def _read_deliveries(
    registry: Registry, found: Mapping[str, Receipt]
) -> Mapping[str, list[dict[str, Any]]]:
    """Return whom a service told about each request: hosts, and how it ended."""
    told: dict[str, list[dict[str, Any]]] = defaultdict(list)
    after = ""
    while True:
        page = registry.deliveries.page(after=after, most=1000)
        for one in page.lines:
            if one.request in found:
                told[one.request].append(
                    {
                        "event": one.event,
                        "host": one.host,
                        "state": one.state,
                        "attempts": one.attempts,
                        "day": day_of(one.since),
                    }
                )
        after = page.next
        if not after:
            return told


def _read_trail(
    registry: Registry, found: Mapping[str, Receipt]
) -> Mapping[str, list[dict[str, Any]]]:
    """Return who looked at each request, or acted on it, and on which day."""
    looked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in _all_lines(registry):
        if one.target in found:
            looked[one.target].append(
                {
                    "line": one.sequence,
                    "day": day_of(one.time),
                    "actor": one.actor,
                    "action": one.action,
                }
            )
    return looked


def _all_lines(registry: Registry) -> Iterator[Any]:
    start = 0
    while lines := registry.access.trail(start, 1000):
        yield from lines
        start = lines[-1].sequence + 1


def _describe_processing(receipt: Receipt) -> str:
    """Return a line for the record of processing activities (GDPR Art. 30)."""
    entry, handling = receipt.entry, receipt.handling
    models = ", ".join(receipt.certificates) or "none"
    recipients = ", ".join(handling.recipients) or "none stated"
    until = handling.backups_until or "not stated"
    return (
        f"Request {entry.request}: {entry.right}, {entry.regime}, asked "
        f"{entry.submitted}, answered {entry.day}, due {entry.deadline}, outcome "
        f"{entry.outcome}{f' ({entry.reason})' if entry.reason else ''}. Processing: "
        f"training of the models {models}. Recipients: {recipients}. Erasure: "
        f"{', '.join(handling.destroyed) or 'nothing'}; backups expire: {until}. "
        f"Kept: {handling.retained or 'no rows'}; kept out of later training: "
        f"{handling.exclusion or 'no'} {handling.excluded_until}".rstrip()
        + ".\n"
    )


@cache
def make_page() -> str:
    """Return the page that checks packs and receipts without a network."""
    environment = Environment(
        loader=FileSystemLoader(OURS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (SHARED / "check.js").read_text(encoding="utf-8") + _IMPORT.sub(
        "", (OURS / "verify.js").read_text(encoding="utf-8")
    )
    style = (SHARED / "check.css").read_text(encoding="utf-8")
    known = rules() | {"not_shown": NOT_SHOWN}
    spelled = json.dumps(known).replace("<", "\\u003c")
    return environment.get_template("verify.html.j2").render(
        script=Markup(script),
        style=Markup(style),
        script_hash=_hash_source(script),
        style_hash=_hash_source(style),
        rules=Markup(spelled),
    )


def _hash_source(text: str) -> str:
    """Return the hash by which a policy names what stands in the page."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
