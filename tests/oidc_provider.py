# SPDX-License-Identifier: Apache-2.0
"""A small identity provider to test with: everybody who asks is let in."""

import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from time import time
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "expunge", "hush"


@dataclass
class TestProvider:
    """What the provider says of the person who signs in, and how it lies."""

    __test__ = False

    claims: dict[str, Any] = field(default_factory=lambda: {"groups": ["privacy"]})
    changes: dict[str, Any] = field(default_factory=dict)
    issuer: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048))
    signer: RSAKey | None = None
    asked: dict[str, dict[str, str]] = field(default_factory=dict)
    algorithm: str = "RS256"

    def make_token(self, asked: dict[str, str]) -> str:
        """Return the signed claims of a person."""
        now = int(time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "17",
            "preferred_username": "ada",
            "nonce": asked["nonce"],
            "iat": now,
            "exp": now + 300,
        }
        claims |= self.claims | self.changes
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.algorithm == "none":
            parts = [json.dumps(one).encode() for one in ({"alg": "none"}, claims)]
            words = [urlsafe_b64encode(one).decode().rstrip("=") for one in parts]
            return ".".join([*words, ""])
        return jwt.encode({"alg": "RS256"}, claims, self.signer or self.key)


def make_provider_app(provider: TestProvider) -> FastAPI:
    """Return the provider as an application."""
    app = FastAPI()

    @app.get("/.well-known/openid-configuration")
    def discover() -> dict[str, Any]:
        return {
            "id_token_signing_alg_values_supported": ["none", "HS256", "RS256"],
            "issuer": provider.issuer,
            "authorization_endpoint": f"{provider.issuer}/authorize",
            "token_endpoint": f"{provider.issuer}/token",
            "jwks_uri": f"{provider.issuer}/keys",
        }

    @app.get("/authorize")
    def authorize(call: Request) -> Response:
        asked = dict(call.query_params)
        assert asked["code_challenge_method"] == "S256"
        provider.asked["the code"] = asked
        back = urlencode({"code": "the code", "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}")

    @app.post("/token")
    async def give_token(call: Request) -> Response:
        form = dict(await call.form())
        asked = provider.asked.pop(str(form["code"]), None)
        digest = sha256(str(form["code_verifier"]).encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        if asked is None or challenge != asked["code_challenge"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = {"access_token": "x", "token_type": "Bearer", "expires_in": 300}
        return JSONResponse({**token, "id_token": provider.make_token(asked)})

    @app.get("/keys")
    def show_keys() -> dict[str, Any]:
        return {"keys": [provider.key.as_dict(private=False)]}

    return app
