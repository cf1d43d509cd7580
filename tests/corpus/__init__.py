# SPDX-License-Identifier: Apache-2.0
"""One file for each kind of document, with each notable content; their bytes stay.

Keys and salts are fixed, and signatures of Ed25519 are the same each time. A figure
that special functions give may differ in its last bits on another machine: then the
stored one stays, as far as ``verify`` lets it.

``python -m tests.corpus`` writes files that are missing, and no other: the bytes of a
document change by a decision (``docs/decisions``), and then by hand.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from math import inf, isclose
from pathlib import Path
from typing import Any

from expunge import (
    L1,
    L2,
    ElasticNet,
    GroupLasso,
    HalfSquared,
    Huber,
    Logistic,
    Multinomial,
    NuclearNorm,
    Objective,
    OneVsRest,
    SquaredHinge,
)
from expunge.ledger import (
    Entry,
    EntryProof,
    Handling,
    Head,
    HoldEnded,
    KeyRotated,
    Ledger,
    ModelRegistered,
    ModelRemoved,
    Receipt,
    RecordsExpired,
    ReleaseMade,
    ReleasesSuperseded,
    ReleaseWithdrawn,
    RequestCompleted,
    RequestExtended,
    Restored,
    SigningKey,
    TrailSealed,
    describe_guarantee,
    export,
    issue_receipt,
    sign,
)
from expunge.ledger.ledger import hash_entry
from expunge.ledger.merkle import build_nodes, consistency_proof, inclusion_proof
from expunge.ledger.receipts import list_destroyed, state_exclusion, state_method
from expunge.promise.accountant import (
    Accountant,
    Added,
    Event,
    Fitted,
    Removed,
    TunedOnData,
    TunedRemovably,
    Untuned,
    release_event,
)
from expunge.promise.budget import Budget
from expunge.promise.certificate import Certificate, certify
from expunge.promise.noise import Source
from expunge.promise.scope import (
    EXACT,
    EXACT_ASSUMPTIONS,
    NOT_COVERED,
    PREPROCESSING,
    Scope,
)
from expunge.promise.verification import AGREEMENT, Record
from expunge.rights.regimes import legal_basis, regime_named

FOLDER = Path(__file__).parent
OLD, NEW = SigningKey(bytes([1]) * 32), SigningKey(bytes([2]) * 32)
BUDGET = Budget(epsilon=1.0, delta=1e-5, sigma=0.1)
JOINT = Budget(epsilon=0.5, delta=1e-6, sigma=0.3, releases=12, row_norm=1.0)
RIDGE = Objective(Logistic(), L2(), alpha=1e-3, intercept=True)
PLAIN = Scope()
TUNED = (TunedRemovably(certified=True),)


def make_record(**changes: Any) -> Record:
    """Return the record of a removal that was accepted at once."""
    stated: dict[str, Any] = {
        "radius": 1e-3,
        "radius_kind": "measured-local",
        "decisions": ("accepted",),
        "n_samples": 400,
        "n_removed": 3,
        "timings": {"forget": 0.25},
        "salt": bytes(range(32)),
        "selection": "none",
    }
    return Record(**stated | changes)


RECORDS = {
    "accepted": make_record(),
    "choice-not-known": make_record(selection="not known"),
    "polished": make_record(
        radius=1.25e-7, radius_kind="residual-local", decisions=("polished 2 times",)
    ),
    "retrained": make_record(
        radius=3e-12,
        radius_kind="residual",
        decisions=("polished 9 times", "retrained"),
    ),
    "two-steps": make_record(radius_kind="two-step", n_removed=0, timings={}),
    "measured": make_record(radius_kind="measured"),
    "unbounded": make_record(radius=inf, radius_kind="a-priori", decisions=()),
    "exact": make_record(radius=0.0, radius_kind="exact"),
    "certified-choice": make_record(
        choice=((1e-3, 0.125, 0.25), (1.0, 0.5, None)), selection="certified"
    ),
    "recomputed-choice": make_record(
        choice=((1e-3, 0.25, 0.25),), selection="recomputed"
    ),
}


def make_certificate(
    budget: Budget | None = BUDGET,
    source: Source | None = "secure",
    *events: Event,
    objective: Objective = RIDGE,
    scope: Scope = PLAIN,
    record: str = "accepted",
    untuned: bool = True,
) -> Certificate:
    """Return the certificate of a release, after a fit that was released and events."""
    release = release_event(budget, source)
    before: tuple[Event, ...] = (Fitted(9), Untuned()) if untuned else (Fitted(9),)
    account = reduce(
        Accountant.compose, (*before, release, *events, release), Accountant(budget)
    )
    return certify(
        account,
        objective,
        scope=scope,
        noise_source=source,
        commitment=RECORDS[record].commitment(),
    )


def list_certificates() -> Iterator[tuple[str, Certificate]]:
    """Yield certificates by name."""
    gone = Removed(2)
    yield "fit", make_certificate()
    yield "each-release", make_certificate(BUDGET, "secure", gone)
    yield "all-releases", make_certificate(JOINT, "secure", gone, Added(1))
    yield "seeded", make_certificate(replace(BUDGET, allow_seeded=True), "seeded", gone)
    yield "unprotected", make_certificate(BUDGET, "seeded", gone)
    bare = make_certificate(None, None, gone)
    yield "no-budget", bare
    unknown = make_certificate(record="choice-not-known", untuned=False)
    yield "choice-not-known", unknown
    chosen = TunedOnData("grid search")
    yield "chosen-on-data", make_certificate(BUDGET, "secure", chosen, gone)
    yield (
        "certified-choice",
        make_certificate(BUDGET, "secure", *TUNED, gone, record="certified-choice"),
    )
    yield (
        "recomputed-choice",
        make_certificate(
            BUDGET,
            "secure",
            TunedRemovably(certified=False),
            record="recomputed-choice",
        ),
    )
    yield (
        "exact",
        bare.replace(
            status="exact",
            assumptions=EXACT_ASSUMPTIONS,
            not_covered=(*NOT_COVERED, PREPROCESSING, EXACT),
            commitment=RECORDS["exact"].commitment(),
        ),
    )
    scopes = {
        "declared-classes": Scope(classes="declared", classes_weighted=True),
        "learnt-classes": Scope(classes="learnt", rows_kept=False, counted_apart=True),
        "pipeline": Scope(mechanism="jackknife", preprocessed=True),
        "guessed-columns": Scope(preprocessed=True, columns_guessed=True),
        "guessed-quanta": Scope(preprocessed=True, quanta_guessed=True),
        "registry": Scope(in_registry=True),
        "nobody": Scope(in_registry=True, has_people=False),
        "files": Scope(mechanism="retrain", rows_in_files=True),
        "lake": Scope(in_registry=True, rows_in_files=True, source="visits"),
    }
    for name, scope in scopes.items():
        yield name, make_certificate(BUDGET, "secure", gone, scope=scope)
    objectives = {
        "lasso": Objective(HalfSquared(), L1(), alpha=1e-7, ridge=1e-21),
        "elastic-net": Objective(Huber(1.35), ElasticNet(0.25), alpha=0.1),
        "group-lasso": Objective(
            SquaredHinge(), GroupLasso([0, 0, 1]), 1e21, ridge=0.5
        ),
        "softmax": Objective(Multinomial(3), L2(), 0.1, scaling="sum", C=0.3),
        "nuclear-norm": Objective(Multinomial(3), NuclearNorm(), 0.1, ridge=1.0),
        "one-vs-rest": Objective(OneVsRest(3), L2(), 1e-50),
    }
    for name, objective in objectives.items():
        yield name, make_certificate(BUDGET, "secure", gone, objective=objective)


def keep_figures(name: str, made: Certificate) -> Certificate:
    """Return a certificate with the stored figures where only the last bits differ."""
    file = FOLDER / "certificates" / f"{name}.json"
    if not file.exists() or made.epsilon is None:
        return made
    stored = json.loads(file.read_bytes())
    figures = {
        name: stored[name]
        for name in ("tau", "radius_budget")
        if isclose(stored[name], getattr(made, name), rel_tol=AGREEMENT)
    }
    return made.replace(**figures)


CERTIFICATES = {name: keep_figures(name, made) for name, made in list_certificates()}


def request(name: str, models: Iterable[str] = (), **changes: Any) -> dict[str, Any]:
    """Return what an entry says of a request; models are named like certificates."""
    stated: dict[str, Any] = {
        "request": name.encode().hex().ljust(32, "0")[:32],
        "certificates": {model: CERTIFICATES[model].digest() for model in models},
        "n_subjects": 1,
        "submitted": "2024-02-26",
        "accepted": "2024-02-27",
        "deadline": "2024-03-26",
        "right": "erase",
        "regime": "gdpr",
        "outcome": "done",
        "reason": "",
    }
    return stated | changes


REQUESTS: Mapping[str, dict[str, Any]] = {
    "erased": request("erased", ["each-release", "all-releases"]),
    "erased-two": request("erased-two", ["fit"], n_subjects=2, regime="uk-gdpr"),
    "erased-in-california": request(
        "california", ["registry"], regime="ccpa", deadline="2024-04-11"
    ),
    **{
        f"erased-by-{regime}": request(regime, ["registry"], regime=regime)
        for regime in ("drop", "swiss", "lgpd", "dpdp", "pdpa-sg", "pdpa-th")
    },
    "erased-late": request("late", ["seeded"], deadline="2024-02-28"),
    "erased-in-files": request("files", ["lake"]),
    "erased-by-fitting-again": request("again", ["files"]),
    "erased-exactly": request("exactly", ["exact"]),
    "erased-exactly-and-not": request("both", ["exact", "each-release"]),
    "erased-without-promise": request("bare", ["no-budget", "fit"]),
    "nothing-found": request("stranger", outcome="nothing found", n_subjects=0),
    "partly": request("partly", ["pipeline"], outcome="partly", reason="hold"),
    "objected": request("objected", ["learnt-classes"], right="object"),
    "restricted": request("restricted", ["declared-classes"], right="restrict"),
    "lifted": request("lifted", ["certified-choice"], right="lift"),
    "lifted-into-another-fit": request(
        "too late", right="lift", outcome="partly", reason="fitted-again"
    ),
    "rectified": request("rectified", ["recomputed-choice"], right="rectify"),
    "held": request("held", ["chosen-on-data", "softmax"], right="hold"),
    "hold-ended": request("ended", right="end-hold"),
    "extended": request("extended", ["lasso"], deadline="2024-05-26"),
    **{
        f"refused-{reason}": request(
            reason, outcome="refused", reason=reason, right=right
        )
        for reason, right in {
            "hold": "rectify",
            "not-restricted": "lift",
            "not-held": "end-hold",
            "legal-duty": "erase",
            "public-interest": "erase",
            "research": "object",
            "legal-claims": "erase",
            "unidentified": "erase",
            "unfounded": "restrict",
            "not-applicable": "erase",
        }.items()
    },
}
HANDLING: Mapping[str, dict[str, Any]] = {
    "erased": {
        "copies": {"each-release": ("churn-1.onnx", "\u00e9t\u00e9.npz")},
        "recipients": ("Mail Ltd", "\u00c9tudes SA"),
    },
    "erased-two": {
        "exclusion": "until the day stated",
        "excluded_until": "2026-03-01",
    },
    "partly": {"retained": "legal-claims", "retained_until": "2029-12-31"},
    "restricted": {"retained": "restriction"},
    "held": {"retained": "legal-duty"},
    "extended": {"extended": "complex", "notified": "2024-03-01"},
}


def list_entries() -> Iterator[tuple[str, Entry]]:
    """Yield the entries of a ledger by name, as they came."""
    digest, other = (CERTIFICATES[name].digest() for name in ("fit", "each-release"))
    stamp: dict[str, Any] = {"day": "2024-02-29"}
    named = stamp | {"model": "each-release", "certificate": digest}
    numbers = iter(range(100))

    def numbered(kind: Any, **stated: Any) -> Entry:
        made: Entry = kind(sequence=next(numbers), **stated)
        return made

    yield "model-registered", numbered(ModelRegistered, **named)
    asked = stamp | {"request": REQUESTS["extended"]["request"]}
    for reason in ("complex", "many"):
        extended = {"notified": "2024-02-28", "deadline": "2024-05-26"}
        entry = numbered(RequestExtended, **asked, reason=reason, **extended)
        yield f"request-extended-{reason}", entry
    for name, stated in REQUESTS.items():
        yield f"request-{name}", numbered(RequestCompleted, **stamp, **stated)
    yield "release-made", numbered(ReleaseMade, **named)
    both: dict[str, Any] = {"certificates": (digest, other), "by": other}
    superseded = stamp | {"model": "Model_1.b-c"} | both
    yield "releases-superseded", numbered(ReleasesSuperseded, **superseded)
    yield "release-withdrawn", numbered(ReleaseWithdrawn, **named)
    public = NEW.public.raw.hex()
    rotation: Any = numbered(KeyRotated, **stamp, public=public)
    yield "key-rotated", sign(rotation, OLD)
    stamp = {"day": "2024-03-01"}
    yield "hold-ended", numbered(HoldEnded, **stamp, request="ab" * 16)
    yield "trail-sealed", numbered(TrailSealed, **stamp, n_lines=2**53 - 1, last=digest)
    expired = stamp | {"requests": "2022-03-01", "exclusions": "", "n_lines": 2}
    yield "records-expired", numbered(RecordsExpired, **expired)
    yield "restored", numbered(Restored, **stamp, taken="1970-01-01", n_replayed=0)
    yield "model-removed", numbered(ModelRemoved, **stamp | named | stamp)


ENTRIES = dict(list_entries())
LEAVES = [hash_entry(entry) for entry in ENTRIES.values()]


def make_ledger(size: int) -> Ledger:
    """Return the ledger of the first entries."""
    first = [*ENTRIES.values()][:size]
    return reduce(Ledger.append, first, Ledger.empty(OLD.public))


LEDGER = make_ledger(len(ENTRIES))
BEFORE = next(e.sequence for e in ENTRIES.values() if isinstance(e, KeyRotated))
HEADS = {
    "empty": make_ledger(0).head(OLD, "2024-02-29"),
    "one": make_ledger(1).head(OLD, "2024-02-29"),
    "before-rotation": make_ledger(BEFORE).head(OLD, "2024-02-29"),
    "after-rotation": LEDGER.head(NEW, "9999-12-31"),
}


def make_receipt(name: str) -> Receipt:
    """Return the receipt of a request: two in three under the newest head."""
    entry: Any = ENTRIES[f"request-{name}"]
    old = entry.sequence % 3 == 0
    head = HEADS["before-rotation" if old else "after-rotation"]
    proof = inclusion_proof(build_nodes(LEAVES), entry.sequence, size=head.size)
    held = {model: CERTIFICATES[model] for model in entry.certificates}
    destroyed = list_destroyed(
        entry.right,
        entry.outcome,
        reason=entry.reason,
        changed=bool(held),
        in_files="lake" in held,
    )
    exclusion = state_exclusion(entry.right, entry.outcome)
    stated: dict[str, Any] = {
        "basis": legal_basis(entry.right, regime_named(entry.regime)) or "",
        "destroyed": destroyed,
        "backups_until": "2024-04-04" if destroyed else "",
        "retained": "",
        "retained_until": "",
        "copies": {},
        "extended": "",
        "notified": "",
        "guarantee": describe_guarantee(entry.right, held.values()),
        "exclusion": exclusion,
        "excluded_until": "",
        "method": state_method(exclusion, held.values()),
        "recipients": (),
    }
    return issue_receipt(
        entry,
        held,
        handling=Handling(**stated | HANDLING.get(name, {})),
        place=EntryProof(head, proof),
        key=OLD if old else NEW,
    )


def make_proofs() -> dict[str, Any]:
    """Return proofs over the ledger, as JSON data."""
    nodes, size = build_nodes(LEAVES), len(LEAVES)
    inclusion = [
        {"index": i, "size": n, "proof": [h.hex() for h in proof]}
        for n in (1, 2, 7, size)
        for i in {0, n // 2, n - 1}
        for proof in [inclusion_proof(nodes, i, size=n)]
    ]
    consistency = [
        {"old": old, "new": new, "proof": [h.hex() for h in proof]}
        for old, new in ((0, size), (1, size), (6, 7), (8, size), (BEFORE, size))
        for proof in [consistency_proof(nodes, old, new=new)]
    ]
    roots = {n: make_ledger(n).frontier.tree().root.hex() for n in range(size + 1)}
    leaves = [leaf.hex() for leaf in LEAVES]
    return {
        "leaves": leaves,
        "roots": [roots[n] for n in range(size + 1)],
        "inclusion": inclusion,
        "consistency": consistency,
    }


def make_corpus() -> dict[str, bytes]:
    """Return the content of every file by its path in the folder."""
    documents: Mapping[str, Mapping[str, Any]] = {
        "certificates": CERTIFICATES,
        "records": RECORDS,
        "entries": ENTRIES,
        "heads": HEADS,
        "receipts": {name: make_receipt(name) for name in REQUESTS},
    }
    corpus = {
        f"{folder}/{name}.json": document.to_json().encode()
        for folder, found in documents.items()
        for name, document in found.items()
    }
    entries = [*ENTRIES.values()]
    pages: list[Entry | Head] = [*entries[:BEFORE], HEADS["before-rotation"]]
    pages += [*entries[BEFORE:], HEADS["after-rotation"]]
    return corpus | {
        "ledger.jsonl": export(pages),
        "public.pem": LEDGER.keys.to_pem().encode(),
        "first-key.pem": OLD.public.to_pem().encode(),
        "proofs.json": (json.dumps(make_proofs(), indent=1) + "\n").encode(),
    }
