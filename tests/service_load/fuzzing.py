# SPDX-License-Identifier: Apache-2.0
"""Fuzzing: calls drawn from the API's own description, right and wrong ones.

No call fails inside, every answer fits its schema, and what was sent comes back in no
answer and no line of the log: some strings of each call are replaced by a canary.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from .asking import PATH
from .crowd import MODEL, SCOPES, Crowd, lend_store, name_person
from .processes import Plan, serve

CANARY = "canary.7f3a@example.org"
MARK = "canary.7f3a"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
REPLACED = 0.2  # share of strings that become canaries
# A token's name and a model's files are no people, and come back.
NAMED = ("/tokens",)


@dataclass(frozen=True)
class FuzzPlan:
    """How many calls."""

    n_cases: int = 11_000
    store: str = "sqlite"
    seed: int = 0


@dataclass
class Findings:
    """What went wrong, each once with an example, and what was answered."""

    faults: dict[str, str] = field(default_factory=dict)
    codes: Counter[tuple[str, int]] = field(default_factory=Counter)

    @property
    def n_cases(self) -> int:
        """How many calls were made."""
        return sum(self.codes.values())

    def note(self, fault: str, example: object) -> None:
        """Remember a fault."""
        self.faults.setdefault(fault, str(example)[:800])


def plant(value: Any, chance: Random) -> Any:
    """Return a value in which some strings are the canary."""
    if isinstance(value, str) and chance.random() < REPLACED:
        return chance.choice((CANARY, f"{CANARY}\n", MARK))
    if isinstance(value, Mapping):
        return {
            (CANARY if chance.random() < REPLACED / 4 else name): plant(part, chance)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [plant(part, chance) for part in value]
    return value


class Fuzzer:
    """Sends cases and judges the answers.

    Parameters
    ----------
    address, tokens
        Of the service, and one for each scope.
    chance
        Which token, and where the canary is.
    """

    def __init__(self, address: str, tokens: dict[str, str], chance: Random) -> None:
        self._address, self._tokens, self._chance = address, tokens, chance
        self._session = requests.Session()
        self._ids: list[str] = []
        self.found = Findings()

    def send(self, case: Any) -> None:
        """Make a call and note what is wrong with the answer."""
        name = f"{case.method} {case.path}"
        if self._chance.random() < 0.5:
            self._aim(case)
        elif not case.path.endswith(NAMED):
            self._plant(case)
        token = self._tokens[self._chance.choice(SCOPES)]
        headers = {"Authorization": f"Bearer {token}"}
        try:
            response = case.call(
                base_url=self._address, session=self._session, headers=headers
            )
        except (UnicodeEncodeError, requests.exceptions.InvalidHeader):
            return  # no client could send it
        self.found.codes[name, response.status_code] += 1
        if name == f"POST {PATH}" and response.status_code == 201:
            self._ids.append(response.json()["id"])
        text = response.content.decode(errors="replace")
        if MARK in text or MARK in str(response.headers):
            self.found.note(f"{name}: an answer names a person", text)
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                kind = f"{name}: {type(failure).__name__}, {response.status_code}"
                self.found.note(kind, f"{failure}\n{case.body!r}\n{text}")

    def _aim(self, case: Any) -> None:
        """Let a call be about what there is, so that more of the service is reached."""
        chance = self._chance
        aims = {"name": MODEL, "number": "1"}
        if self._ids:
            aims["request"] = chance.choice(self._ids)
        for name in case.path_parameters or {}:
            case.path_parameters[name] = aims.get(name, case.path_parameters[name])
        if case.path == PATH and isinstance(case.body, dict):
            someone = chance.choice(
                ({"email": CANARY}, {"id": name_person(chance.randrange(400))})
            )
            case.body = {**case.body, "people": [someone]}
            for field in ("id", "rows", "until", "submitted", "reason"):
                if chance.random() < 0.7:
                    case.body.pop(field, None)

    def _plant(self, case: Any) -> None:
        """Put the canary into a call."""
        chance = self._chance
        case.path_parameters = {
            name: CANARY if chance.random() < REPLACED else value
            for name, value in (case.path_parameters or {}).items()
        }
        case.query = plant(case.query, chance)
        case.body = plant(case.body, chance)


def fuzz(plan: FuzzPlan) -> Findings:
    """Send calls to a service; return what went wrong."""
    crowd = Crowd(n_people=200, n_features=4, seed=plan.seed)
    with TemporaryDirectory() as name, lend_store(plan.store) as url:
        folder = Path(name) / "registry"
        tokens = crowd.build(folder, url)
        started = Plan(folder, 1)
        with serve(started) as (service, _):
            fuzzer = Fuzzer(service.address, tokens, Random(plan.seed))
            schema = schemathesis.openapi.from_url(
                f"{service.address}/api/v1/openapi.json"
            )
            operations: list[Any] = list(schema.get_all_operations())
            share = ceil(plan.n_cases / (2 * len(operations)))
            for operation in (one.ok() for one in operations):
                for mode in GenerationMode.POSITIVE, GenerationMode.NEGATIVE:
                    run_cases(operation, mode, fuzzer=fuzzer, count=share)
        log = started.log.read_text()
    found = fuzzer.found
    if MARK in log:
        line = next(line for line in log.splitlines() if MARK in line)
        found.note("the log names a person", line)
    if "Traceback" in log or '"failed"' in log:
        lines = [one for one in log.splitlines() if '"failed"' in one]
        found.note("the log has a failure", "\n".join(lines[:3]))
    return found


def run_cases(operation: Any, mode: Any, *, fuzzer: Fuzzer, count: int) -> None:
    """Send so many cases of an operation."""

    @seed(1)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def send(case: Any) -> None:
        fuzzer.send(case)

    try:
        send()
    except Exception as error:
        if "Unsatisfiable" not in type(error).__name__:  # it has nothing to get wrong
            raise


def print_fuzzing(options: Any) -> int:
    """Fuzz, and print what went wrong."""
    plan = FuzzPlan(options.count or 11_000, options.store, options.seed)
    found = fuzz(plan)
    for (name, code), count in sorted(found.codes.items()):
        print(f"{count:6} {code} {name}")
    for fault, example in found.faults.items():
        print(f"\n{fault}\n{example}")
    print(f"\n{found.n_cases} calls, {len(found.faults)} faults")
    return int(bool(found.faults))
