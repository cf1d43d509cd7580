# SPDX-License-Identifier: Apache-2.0
"""Certificates to test an OpenDSR processor with, made on the spot."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

DOMAIN = "opendsr.example.com"
LOOPBACK = "127.0.0.1"


@cache
def make_key(name: str, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the key of somebody: the same within one run of the tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def to_pem(key: rsa.RSAPrivateKey) -> bytes:
    """Return a key as its file holds it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@dataclass(frozen=True)
class Wanted:
    """A certificate to be issued."""

    common: str = DOMAIN
    names: Sequence[str] = (DOMAIN,)
    days: tuple[int, int] = (-1, 30)
    self_signed: bool = False


def issue(key: rsa.RSAPrivateKey, wanted: Wanted | None = None) -> bytes:
    """Return a certificate in PEM, by the authority of the tests unless self-signed."""
    wanted = wanted or Wanted()
    subject = _name(wanted.common)
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if wanted.self_signed else _name("Test authority"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=wanted.days[0]))
        .not_valid_after(now + timedelta(days=wanted.days[1]))
    )
    if wanted.names:
        others = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ip_address(name))
                if name == LOOPBACK
                else x509.DNSName(name)
                for name in wanted.names
            ]
        )
        builder = builder.add_extension(others, critical=False)
    signer = key if wanted.self_signed else make_key("authority")
    return _encode(builder.sign(signer, hashes.SHA256()))


def authority() -> bytes:
    """Return the certificate of the authority of the tests."""
    key, now = make_key("authority"), datetime.now(UTC)
    name = _name("Test authority")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=60))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _encode(made)


def write_pair(
    folder: Path, key: rsa.RSAPrivateKey, certificate: bytes
) -> tuple[Path, Path]:
    """Write a certificate and its key; return both paths."""
    published, secret = folder / "certificate.pem", folder / "key.pem"
    published.write_bytes(certificate)
    secret.touch(0o600)
    secret.write_bytes(to_pem(key))
    return published, secret


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _encode(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
