# SPDX-License-Identifier: Apache-2.0
"""Protocols and sign-in by others stand apart: who does not use them loads none."""

import subprocess
import sys

APART = ("expunge.service.opendsr", "expunge.service.oidc")
STORY = """
import sys, tempfile
from pathlib import Path
from expunge.registry import Registry
from expunge.service.app import create_app
from expunge.service.settings import ServiceSettings

with tempfile.TemporaryDirectory() as folder:
    with Registry.create(Path(folder) / "registry") as registry:
        create_app(registry, ServiceSettings())
print([name for name in {apart} if name in sys.modules])
"""


def test_a_plain_service_loads_neither() -> None:
    story = STORY.format(apart=(*APART, "authlib", "itsdangerous"))
    done = subprocess.run(
        [sys.executable, "-c", story], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
