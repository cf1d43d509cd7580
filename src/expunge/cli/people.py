# SPDX-License-Identifier: Apache-2.0
"""Commands on people: who somebody is, and all that is held of one person."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ..exceptions import InvalidInput
from .options import FOLDER, Folder, open_registry, operator, read_file
from .output import DONE, UNKNOWN, Result, TextTable, format_count

Words = Annotated[
    list[str],
    typer.Argument(metavar="ID", help="Ids, or aliases such as email:ada@example.org."),
]


def who(ids: Words, *, registry: Folder = FOLDER) -> Result:
    """Say what is known of people, before they are answered.

    For each: the models that hold rows, and whether these are in use, restricted or
    held; requests that wait; and whether somebody else is spelled almost so. The access
    log says that you looked, and not at whom. The exit code is 7 if nothing is held of
    any of them.
    """
    with open_registry(registry) as opened:
        found = opened.people.look(ids, by=operator())
    rows, notes = [], []
    tried = ", ".join(found.tried)
    for one in found.people:
        rows += [(row.place, row.until or "-", row.model, one.word) for row in one.rows]
        if not one.rows:
            before = "; somebody of this id was forgotten" if one.forgotten else ""
            notes.append(f"{one.word}: nothing found, looked for as {tried}{before}")
        if one.near is not None:
            almost = f" as {one.near}" if one.near else ""
            notes.append(f"{one.word}: somebody else is held almost so{almost}")
        if one.requests:
            waiting = format_count(len(one.requests), "request")
            notes.append(f"{one.word}: {waiting} waiting: {' '.join(one.requests)}")
    table = TextTable(("rows", "until", "model", "person"), rows)
    data = {"people": [one.to_json() for one in found.people], "tried": found.tried}
    return Result(data, table, notes, code=DONE if rows else UNKNOWN)


def export(
    ids: Words,
    *,
    to: Annotated[
        Path, typer.Option(metavar="FILE", help="File to write, for you alone to read.")
    ],
    seal: Annotated[
        Path | None,
        typer.Option(
            "--for",
            metavar="CERT",
            help="Encrypt it for this certificate (X.509, PEM, RSA): openssl cms "
            "-decrypt -inform DER -inkey KEY opens it.",
        ),
    ] = None,
    registry: Folder = FOLDER,
) -> Result:
    """Write all that is held of one person to a file, with their rows.

    It answers who asks for their data, or to take them elsewhere. The ids are of one
    person. Nothing of it is kept in the registry, and the access log says that you took
    it out.
    """
    certificate = None if seal is None else read_file(seal)
    if to.exists():
        raise InvalidInput(f"{to} exists; give the name of a new file")
    with open_registry(registry) as opened:
        text = opened.people.account(ids, by=operator())
    data = (text + "\n").encode()
    if certificate is not None:
        data = seal_for(certificate, data)
    descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    models = sorted({one["model"] for one in json.loads(text)["models"]})
    said = f"wrote {to}: what {format_count(len(models), 'model')} hold"
    return Result({"file": str(to), "models": models}, said)


def seal_for(certificate: bytes, data: bytes) -> bytes:
    """Return data as only the owner of a certificate can open it, as CMS."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

    try:
        owner = x509.load_pem_x509_certificate(certificate)
        builder = pkcs7.PKCS7EnvelopeBuilder().set_data(data).add_recipient(owner)
    except (ValueError, TypeError):
        raise InvalidInput(
            "--for names no X.509 certificate in PEM with an RSA key; make one with "
            "openssl req -x509 -newkey rsa:3072 -keyout key.pem -out cert.pem"
        ) from None
    return builder.encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
