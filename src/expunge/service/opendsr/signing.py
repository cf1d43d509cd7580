# SPDX-License-Identifier: Apache-2.0
"""Signing: the certificate of an OpenDSR processor, and signatures under it.

    signature = base64(RSA-PKCS1-v1_5-SHA256(body))

The body is signed byte for byte as it is sent. Those who check a signature get the
certificate from discovery and compare its name with the processor's domain, some by the
common name and some by the alternative names. So both must hold the domain, and a
certificate that controllers would refuse is refused here, at the start, where an
operator sees it.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from ...exceptions import InvalidInput
from ...ledger.keys import read_secret
from ..settings import OpenDsrSettings

SHORTEST_KEY = 2048  # bits of an RSA key
CERTIFICATE_PATH = "/v2/certificate.pem"


@dataclass(frozen=True, slots=True, repr=False)
class Processor:
    """Who answers: a domain, its certificate, and the key that signs.

    Parameters
    ----------
    domain
        Of the processor, such as ``opendsr.example.com``; answers name it.
    certificate
        In PEM, followed by those that issued it, if the file has them.
    key
        Of the certificate.
    """

    domain: str
    certificate: bytes
    key: rsa.RSAPrivateKey = field(compare=False)

    def __post_init__(self) -> None:
        """Refuse a certificate that those who check signatures would refuse."""
        leaf = _read_certificate(self.certificate)
        _require_key(leaf, self.key)
        _require_names(leaf, self.domain)
        if leaf.issuer == leaf.subject:
            raise InvalidInput(
                f"the certificate of {self.domain} is self-signed, which OpenDSR "
                "forbids; have it issued by an authority that your controllers trust"
            )
        now = datetime.now(UTC)
        if not leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc:
            raise InvalidInput(
                f"the certificate of {self.domain} is valid from "
                f"{leaf.not_valid_before_utc:%Y-%m-%d} to "
                f"{leaf.not_valid_after_utc:%Y-%m-%d}; renew it"
            )

    @property
    def certificate_url(self) -> str:
        """Where the certificate is published."""
        return f"https://{self.domain}{CERTIFICATE_PATH}"

    def sign(self, body: bytes) -> str:
        """Return the signature of a body, in base64."""
        signature = self.key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        return b64encode(signature).decode("ascii")

    def make_headers(self, edition: str, body: bytes) -> dict[str, str]:
        """Return the headers that say who sends a body, and sign it."""
        return {
            f"X-{edition}-Processor-Domain": self.domain,
            f"X-{edition}-Signature": self.sign(body),
        }


def open_processor(settings: OpenDsrSettings) -> Processor:
    """Return the processor whose files, both in PEM, the settings name."""
    try:
        published = settings.certificate.read_bytes()
    except OSError as error:
        raise InvalidInput(
            f"certificate {settings.certificate} cannot be read: {error.strerror}"
        ) from None
    return Processor(settings.domain, published, _read_key(settings.key))


def _read_key(path: Path) -> rsa.RSAPrivateKey:
    """Return the RSA key in a file."""
    pem = read_secret(path)
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InvalidInput(
            f"key file {path} holds no unencrypted RSA key in PEM; OpenDSR signs with "
            "RSA, so give such a key and its certificate"
        )
    return key


def _read_certificate(pem: bytes) -> x509.Certificate:
    """Return the first certificate of a PEM text."""
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError:
        raise InvalidInput(
            "the OpenDSR certificate is not a certificate in PEM; give the file that "
            "begins with -----BEGIN CERTIFICATE-----"
        ) from None


def _require_key(leaf: x509.Certificate, key: rsa.RSAPrivateKey) -> None:
    """Refuse a key that is short, or of another certificate."""
    if key.key_size < SHORTEST_KEY:
        raise InvalidInput(
            f"the OpenDSR key has {key.key_size} bits; make one of at least "
            f"{SHORTEST_KEY}, and have a certificate issued for it"
        )
    if leaf.public_key() != key.public_key():
        raise InvalidInput(
            "the OpenDSR key is not that of the certificate; give the two that belong "
            "together, the processor's own certificate first in its file"
        )


def _require_names(leaf: x509.Certificate, domain: str) -> None:
    """Refuse a certificate that does not name the domain in both places."""
    common = [
        name.value for name in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ]
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        others = names.value.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        others = []
    if common != [domain] or domain not in others:
        raise InvalidInput(
            f"the certificate has the common name {', '.join(map(str, common))!r} and "
            f"the alternative names {', '.join(others)!r}; those who check signatures "
            f"look for {domain!r} in both, so have one issued with it"
        )
