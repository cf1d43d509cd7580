# SPDX-License-Identifier: Apache-2.0
"""Devices of torch to put rows on: the processor, and a GPU where there is one.

Where torch is missing, tests that need it are skipped, and say so. Under
``EXPUNGE_REQUIRE_TORCH`` they fail instead, so that nobody takes a skip for a pass.
"""

import importlib.util
import os

import pytest

REQUIRED = "EXPUNGE_REQUIRE_TORCH"
DEVICES = ("cpu", "cuda")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """Return the name of a device that there is."""
    if importlib.util.find_spec("torch") is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"torch is not installed, and {REQUIRED} is set; install it")
        pytest.skip(
            f"NOT TESTED: torch is not installed; set {REQUIRED} to fail instead"
        )
    import torch

    name = str(request.param)
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("NOT TESTED: there is no CUDA device")
    return name
