# SPDX-License-Identifier: Apache-2.0
"""A processor signs what it sends, and starts with a good certificate alone."""

from base64 import b64decode
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from expunge.exceptions import ExpungeError, InvalidInput
from expunge.service.opendsr import Processor, open_processor
from expunge.service.settings import OpenDsrSettings

from .opendsr_keys import DOMAIN, Wanted, authority, issue, make_key, write_pair

KEY = make_key("processor")


def test_a_signature_is_checked_with_the_certificate(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, KEY, issue(KEY) + authority())
    processor = open_processor(OpenDsrSettings(DOMAIN, certificate, key))
    public = x509.load_pem_x509_certificate(processor.certificate).public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    signature = b64decode(processor.sign(b"what is sent"))
    public.verify(signature, b"what is sent", padding.PKCS1v15(), hashes.SHA256())
    assert processor.certificate_url == f"https://{DOMAIN}/v2/certificate.pem"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Wanted(common="example.com"), "look for 'opendsr.example.com' in both"),
        (Wanted(names=["example.com"]), "look for"),
        (Wanted(names=["*.example.com"]), "look for"),
        (Wanted(names=[]), "look for"),
        (Wanted(self_signed=True), "self-signed"),
        (Wanted(days=(-9, -1)), "renew it"),
        (Wanted(days=(1, 9)), "renew it"),
    ],
)
def test_a_certificate_that_controllers_would_refuse_is_refused(
    wanted: Wanted, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Processor(DOMAIN, issue(KEY, wanted), KEY)


def test_the_key_must_be_that_of_the_certificate() -> None:
    with pytest.raises(InvalidInput, match="not that of the certificate"):
        Processor(DOMAIN, issue(make_key("other")), KEY)
    # The file of a chain begins with the processor's own certificate.
    with pytest.raises(InvalidInput, match="not that of the certificate"):
        Processor(DOMAIN, authority() + issue(KEY), KEY)


def test_a_short_key_is_refused() -> None:
    short = make_key("short", 1024)
    with pytest.raises(InvalidInput, match="1024 bits"):
        Processor(DOMAIN, issue(short), short)


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, KEY, b"nothing")
    with pytest.raises(InvalidInput, match="not a certificate in PEM"):
        open_processor(OpenDsrSettings(DOMAIN, certificate, key))
    with pytest.raises(InvalidInput, match="cannot be read"):
        open_processor(OpenDsrSettings(DOMAIN, tmp_path / "none", key))
    elliptic = ec.generate_private_key(ec.SECP256R1())
    key.write_bytes(
        elliptic.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    with pytest.raises(InvalidInput, match="no unencrypted RSA key"):
        open_processor(OpenDsrSettings(DOMAIN, certificate, key))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, KEY, issue(KEY))
    key.chmod(0o644)
    with pytest.raises(ExpungeError, match="chmod 600"):
        open_processor(OpenDsrSettings(DOMAIN, certificate, key))


def test_the_key_is_not_shown() -> None:
    assert "key" not in repr(Processor(DOMAIN, issue(KEY), KEY)).lower()
