# SPDX-License-Identifier: Apache-2.0
"""Where the figures were measured: processor, libraries, BLAS and its threads."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from threadpoolctl import threadpool_info

import expunge

from .report import Section, Table

LIBRARIES = ("numpy", "scipy", "scikit-learn", "glum")


def processor() -> str:
    """Return the processor's name, from the kernel where it tells."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def describe() -> Section:
    """Return the environment as a section."""
    facts = [
        ("processor", f"{processor()}, {os.cpu_count()} visible"),
        ("python", f"{platform.python_version()} on {platform.system()}"),
        ("expunge", expunge.__version__),
        *((name, version(name)) for name in LIBRARIES),
    ]
    for pool in threadpool_info():
        name = f"{pool['internal_api']} {pool.get('version') or ''}".strip()
        facts.append((name, f"{pool['num_threads']} thread(s), {pool['prefix']}"))
    return Section("Environment", [Table(("what", "found"), facts)])
