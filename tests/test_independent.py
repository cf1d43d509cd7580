# SPDX-License-Identifier: Apache-2.0
"""Our documents, checked by somebody who has the standards and not the library."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from cryptography.exceptions import InvalidSignature

from expunge.promise.certificate import Certificate
from tests import certificates
from tests.independent import canonical, read_keys, require_receipt, require_signed
from tests.test_ledger import HEAD, NEW, OLD
from tests.test_receipt import TEXT, alone, resigned

(KEY,) = read_keys(NEW.public.to_pem())
# A text beyond ASCII, and figures that JSON spells in its own way.
FOREIGN = replace(
    certificates.EACH,
    not_covered=(*certificates.EACH.not_covered, "caf\u00e9 \U0001f600 \u2028 \x7f"),
)


@pytest.mark.parametrize("certificate", [*certificates.ALL, FOREIGN])
def test_certificate(certificate: Certificate) -> None:
    text = canonical(json.loads(certificate.to_json()))
    assert text == certificate.to_json()
    assert sha256(text.encode()).hexdigest() == certificate.digest()


def test_head() -> None:
    text = HEAD.to_json()
    assert canonical(json.loads(text)) == text
    require_signed(json.loads(text), KEY)
    with pytest.raises(InvalidSignature):
        require_signed(json.loads(text) | {"day": "2030-01-01"}, KEY)


def test_receipt() -> None:
    require_receipt(TEXT, KEY)
    with pytest.raises(InvalidSignature):
        require_receipt(canonical(json.loads(TEXT) | {"proof": []}), KEY)
    with pytest.raises(AssertionError):
        require_receipt(resigned(proof=("00" * 32,)).to_json(), KEY)


@pytest.mark.parametrize("certificate", [certificates.EACH, FOREIGN])
def test_receipt_with_one_certificate(certificate: Certificate) -> None:
    receipt = alone(certificate)
    (key,) = read_keys(OLD.public.to_pem())
    require_receipt(receipt.to_json(), key)
