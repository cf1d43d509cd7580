# SPDX-License-Identifier: Apache-2.0
"""What a stranger needs to check our documents, written from the standards alone.

Nothing here imports expunge: canonical JSON by RFC 8785, inclusion proofs by RFC 9162,
and signatures by Ed25519. ``docs/certificate.md`` describes the same steps.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def canonical(value: Any) -> str:
    """Return the canonical JSON of parsed JSON data (RFC 8785, section 3.2)."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    if isinstance(value, int | float):
        return _number(float(value))
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        pairs = (f"{canonical(key)}:{canonical(value[key])}" for key in keys)
        return f"{{{','.join(pairs)}}}"
    return f"[{','.join(map(canonical, value))}]"


def _character(character: str) -> str:
    code = ord(character)
    return SHORT.get(code, character if code >= 0x20 else f"\\u{code:04x}")


def _number(real: float) -> str:
    """Return Number::toString of ECMAScript, by the cases of ECMA-262, 6.1.6.1.20."""
    if real == 0.0:
        return "0"
    sign, found, exponent = Decimal(repr(real)).normalize().as_tuple()
    assert isinstance(exponent, int)
    digits = "".join(map(str, found))
    k, n = len(digits), len(digits) + exponent
    if k <= n <= 21:
        text = digits + "0" * (n - k)
    elif 0 < n <= 21:
        text = f"{digits[:n]}.{digits[n:]}"
    elif -6 < n <= 0:
        text = f"0.{'0' * -n}{digits}"
    else:
        rest = f".{digits[1:]}" if k > 1 else ""
        text = f"{digits[0]}{rest}e{n - 1:+d}"
    return "-" * sign + text


def root_of(leaf: bytes, place: int, size: int, proof: Sequence[bytes]) -> bytes:
    """Return the root that an inclusion proof leads to (RFC 9162, section 2.1.3.2)."""
    here, last, root = place, size - 1, sha256(b"\x00" + leaf).digest()
    for sibling in proof:
        assert last > 0
        if here % 2 or here == last:
            root = sha256(b"\x01" + sibling + root).digest()
            while not here % 2 and here:
                here, last = here // 2, last // 2
        else:
            root = sha256(b"\x01" + root + sibling).digest()
        here, last = here // 2, last // 2
    assert last == 0
    return root


def read_keys(pem: str) -> list[Ed25519PublicKey]:
    """Return the keys in a PEM text."""
    blocks = re.findall(
        "-----BEGIN PUBLIC KEY-----.*?-----END PUBLIC KEY-----", pem, re.DOTALL
    )
    keys = [load_pem_public_key(block.encode()) for block in blocks]
    assert all(isinstance(key, Ed25519PublicKey) for key in keys)
    return keys  # type: ignore[return-value]


def require_signed(document: dict[str, Any], key: Ed25519PublicKey) -> None:
    """Raise InvalidSignature unless the document is signed by this key."""
    rest = {name: document[name] for name in document if name != "signature"}
    key.verify(bytes.fromhex(document["signature"]), canonical(rest).encode())


def require_receipt(text: str, key: Ed25519PublicKey) -> None:
    """Raise unless a receipt is signed, proven and holds the certificates it names."""
    receipt = json.loads(text)
    entry, head = receipt["entry"], receipt["head"]
    assert canonical(receipt) == text
    require_signed(receipt, key)
    require_signed(head, key)
    proof = [bytes.fromhex(sibling) for sibling in receipt["proof"]]
    leaf = canonical(entry).encode()
    root = root_of(leaf, entry["sequence"], head["size"], proof)
    assert root.hex() == head["root"]
    for model, certificate in receipt["certificates"].items():
        digest = sha256(canonical(certificate).encode()).hexdigest()
        assert digest == entry["certificates"][model]
