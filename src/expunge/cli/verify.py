# SPDX-License-Identifier: Apache-2.0
"""Commands that check: ``verify`` from outside, ``audit`` from inside a registry.

``verify`` needs only the file and the public keys; ``audit`` opens private records.
"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import ExpungeError, InvalidInput
from .options import FOLDER, Folder, ModelName, note, open_registry, read_file
from .output import (
    DONE,
    NOT_VALID,
    CommandFailed,
    Result,
    explain,
    find_exit_code,
    format_count,
    format_list,
    wrap,
)

if TYPE_CHECKING:
    from ..ledger.export import CheckResult


def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="The files to check.")
    ],
    *,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PEM",
            help="The operator's public keys; get them from the operator's site. A "
            "certificate is not signed and needs none.",
        ),
    ] = None,
    seen: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A receipt or export from elsewhere that must be of the same ledger; "
            "may be repeated.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The private record of a certificate, if you have it."
        ),
    ] = None,
) -> Result:
    """Check whether a receipt, ledger export or certificate is valid.

    It works offline, from the file and the public keys alone: no registry, no database.
    It exits with 0 if the file is valid and with 6 if it is not. Of several files it
    prints a line each, and exits with the worst code.
    """
    from ..ledger.export import FileToCheck, check_file

    if record is not None and len(files) > 1:
        raise InvalidInput(
            f"--record with {len(files)} files; a record goes with one "
            "certificate: give that file alone"
        )
    pem = None if key is None else read_file(key)
    others = [FileToCheck(path, read_file(path)) for path in seen or ()]
    private = None if record is None else read_file(record)

    def check(path: Path) -> "CheckResult":
        file = FileToCheck(path, read_file(path))
        return check_file(file, pem=pem, seen=others, record=private)

    if len(files) == 1:
        result = check(files[0])
        data = result_to_json(result)
        return Result(data, describe_result(files[0], result), code=find_code(result))
    checked: list[dict[str, Any]] = []
    lines, codes = [], []
    n_failed = 0
    for path in files:
        try:
            result = check(path)
        except (ExpungeError, CommandFailed) as error:
            # One that cannot be checked must not hide the others.
            reason, code = explain(error), find_exit_code(error)
            failure = {"valid": None, "error": reason, "code": code}
            checked.append({"file": str(path)} | failure)
            lines.append(f"NOT CHECKED: {path}: {reason.removeprefix(f'{path} ')}")
            codes.append(code)
            n_failed += 1
        else:
            failures = "; ".join(result.verdict.failures)
            checked.append({"file": str(path)} | result_to_json(result))
            lines.append(f"{head_of(path, result)}{failures and f': {failures}'}")
            codes.append(find_code(result))
    worst = max(codes)
    total = format_count(len(files), "file")
    failed = CommandFailed(f"{n_failed} of {total} could not be checked", worst)
    return Result(
        {"valid": worst == DONE, "files": checked},
        lines,
        ["verify one file to see what was checked, and on what terms"],
        code=worst,
        error=failed if n_failed else None,
    )


def find_code(result: "CheckResult") -> int:
    """Return the exit code of a check."""
    return DONE if result.verdict.valid else NOT_VALID


def result_to_json(result: "CheckResult") -> dict[str, Any]:
    """Return the result of a check as JSON data."""
    return {
        "kind": result.kind,
        "valid": result.verdict.valid,
        "resaved": getattr(result.verdict, "resaved", False),
        "says": result.says,
        "findings": result.verdict.findings,
        "failures": result.verdict.failures,
        "provided": result.provided,
        "not_covered": result.not_covered,
    }


def head_of(file: Path, result: "CheckResult") -> str:
    """Return the outcome of a check in a line."""
    outcome = "VALID" if result.verdict.valid else "NOT VALID"
    return f"{outcome}: {file}, {result.kind}"


def describe_result(file: Path, result: "CheckResult") -> str:
    """Return the result of a check as text."""
    parts = [head_of(file, result), wrap(result.says)]
    lists = {
        "Checked, and it holds:": result.verdict.findings,
        "It holds provided that": result.provided,
        "It says nothing about": result.not_covered,
    }
    parts += [
        f"{title}\n{format_list(texts)}" for title, texts in lists.items() if texts
    ]
    return "\n\n".join(parts)


def audit(
    name: ModelName,
    *,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", help="Releases to draw on each side, e.g. 20000."),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the private record to a file."),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Open the private record behind a model's release, for an auditor.

    It checks the certificate against the record, and the ledger against its signatures.
    With --trials it also tests the removal of one row: it draws that many releases with
    the row removed and with the model retrained, and tries to tell them apart. The
    output depends on rows, so keep it with the record. It exits with 6 if a check
    fails.
    """
    from ..disk import write_new_file
    from ..ledger import check_export
    from ..promise.verification import verify as verify_certificate

    report = None
    with open_registry(registry) as opened:
        model = opened.model(name)
        note(opened, "open private record", name)
        private = opened.models.record(name)
        verdicts = {
            "certificate": verify_certificate(model.certificate_, private),
            "ledger": check_export(opened.ledger.export(), opened.keys.public_pem()),
        }
        if trials is not None:
            if model.budget is None:
                raise InvalidInput(
                    f"model {name!r} was fitted without a budget, so there is nothing "
                    "to test; omit --trials"
                )
            from ..audit import AuditOptions
            from ..audit import audit as try_removal

            case = opened.models.case(name)
            report = try_removal(case, AuditOptions(model.budget, n_draws=trials))
    if record is not None:
        try:
            write_new_file(record, private.to_json().encode())
        except FileExistsError:
            raise InvalidInput(f"{record} already exists; give another file") from None
    data: dict[str, Any] = {
        kind: {"valid": verdict.valid, "says": verdict.says}
        for kind, verdict in verdicts.items()
    }
    parts = [
        f"{kind}: {'VALID' if verdict.valid else 'NOT VALID'}\n{wrap(verdict.says)}"
        for kind, verdict in verdicts.items()
    ]
    valid = all(verdict.valid for verdict in verdicts.values())
    if report is not None:
        data["trial"] = asdict(report) | {"passes": report.passes}
        heading = f"trial: {'PASSES' if report.passes else 'FAILS'}"
        parts.append(f"{heading}\n{wrap(report.shows)}")
        parts.append(f"It does not show\n{format_list(report.does_not_show)}")
        valid = valid and report.passes
    return Result(data, "\n\n".join(parts), code=DONE if valid else NOT_VALID)
