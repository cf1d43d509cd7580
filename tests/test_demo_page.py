# SPDX-License-Identifier: Apache-2.0
"""The demo's template: it states no figure of its own, and knows every name it uses."""

import re
from importlib.resources import files

from jinja2 import meta

from expunge.demo.page import TEMPLATE, make_environment

TEXT = files("expunge.demo").joinpath(TEMPLATE).read_text(encoding="utf-8")
JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
MARKUP = re.compile(r"<style>.*?</style>|<[^>]*>", re.DOTALL)


def test_every_figure_is_computed_from_the_result() -> None:
    words = MARKUP.sub("", JINJA.sub("", TEXT))
    assert "What a request leaves of a person" in words
    assert not re.findall(r"\d+", words)


def test_page_is_filled_from_what_is_passed_alone() -> None:
    wanted = meta.find_undeclared_variables(make_environment().parse(TEXT))
    assert wanted == {"result", "said", "plot", "cards"}


def test_everything_is_escaped() -> None:
    assert not re.findall(r"\|\s*safe|autoescape", TEXT)
