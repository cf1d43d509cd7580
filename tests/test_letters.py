# SPDX-License-Identifier: Apache-2.0
"""Letters: what a request and its receipt say, by templates that may be replaced."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from expunge.cli.output import DONE, WRONG_INPUT
from expunge.letters import (
    KINDS,
    LetterFailed,
    choose_kind,
    gather_facts,
    list_languages,
    write_letter,
)
from expunge.registry import Registry, Request
from expunge.rights.calendar import add_working_days, parse_day
from expunge.rights.standing import REASONS, RIGHTS
from tests.calling import call
from tests.corpus import REQUESTS, make_receipt
from tests.registries import by_name, data, estimator

PEOPLE = ("person 1", "person 2", "person 3", "person 4", "person 5", "person 6")


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Registry, dict[str, str]]]:
    """Lend a registry with a request of every kind, by what became of it."""
    folder = tmp_path_factory.mktemp("letters") / "registry"
    with Registry.create(
        folder, backup_days=35, recipients=["Mail & Sons"], excluded_days=800
    ) as registry:
        registry.fit("churn", estimator(), **by_name(data()))
        asked = {
            "acknowledgement": Request(("person 1",), regime="ccpa"),
            "extended": Request(("person 2",)),
            "refused": Request(("person 3",)),
            "done": Request(("person 4",)),
            "nothing-found": Request(("nobody",)),
        }
        registry.requests.accept(
            [asked["done"], asked["nothing-found"]], strangers=True
        )
        registry.requests.apply()
        rest = [asked[name] for name in ("acknowledgement", "extended", "refused")]
        registry.requests.accept(rest)
        day = registry.requests.status(asked["extended"].request).submitted
        registry.requests.extend(asked["extended"].request, "complex", notified=day)
        registry.requests.refuse(asked["refused"].request, "legal-duty")
        yield registry, {name: one.request for name, one in asked.items()}


def letter(
    made: tuple[Registry, dict[str, str]], name: str, *, kind: str = "", **more: str
) -> str:
    registry, requests = made
    status = registry.requests.status(requests[name])
    receipt = registry.requests.receipt(requests[name])
    language = more.pop("language", "en")
    chosen = kind or choose_kind(status)
    facts = gather_facts(status, receipt, kind=chosen, **more)
    return write_letter(facts, registry.folder, language=language)


def words_of(html: str) -> str:
    """Return the text of a letter."""
    body = html[html.index("<body>") :]
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


class TestWords:
    @pytest.mark.parametrize("language", ["en", "de"])
    def test_each_request_gets_its_letter(
        self, made: tuple[Registry, dict[str, str]], language: str
    ) -> None:
        for name in ("acknowledgement", "extended", "refused", "done", "nothing-found"):
            html = letter(made, name, language=language)
            assert f'lang="{language}"' in html and "@media print" in html
            assert made[1][name] in html
            assert "person" not in words_of(html).replace("personal", "").lower()
            assert "<script" not in html and "http:" not in html
            assert not re.search(r"[a-zäöüß)][.:][A-ZÄÖÜ]", words_of(html))

    def test_say_what_the_receipt_says(
        self, made: tuple[Registry, dict[str, str]]
    ) -> None:
        said = words_of(letter(made, "done"))
        share = "is right at most 73.2 % of the time after seeing this release"
        assert share in said and "(epsilon 1, delta 1e-05)" in said
        assert "The influence of your data on the published parameters of churn" in said
        assert "Backups expire on" in said and "recipients of your data: Mail &" in said
        assert "excluded from all later training until" in said
        german = words_of(letter(made, "done", language="de"))
        assert "in höchstens 73,2 % der Fälle recht" in german
        assert "Der Einfluss Ihrer Daten" in german
        nothing = words_of(letter(made, "nothing-found"))
        assert (
            "found nothing in our models' data under what you gave us"
            in nothing.replace("&#39;", "'")
        )
        refused = words_of(letter(made, "refused"))
        assert "a legal duty requires the processing" in refused
        assert "You may complain to a supervisory authority" in refused
        later = words_of(letter(made, "extended"))
        assert "because it is complex" in later and "go to court" in later

    def test_to_recipients_name_nobody(
        self, made: tuple[Registry, dict[str, str]]
    ) -> None:
        notice = words_of(
            letter(made, "done", kind="recipient", recipient="Mail & Sons")
        )
        assert "Article 19 of the GDPR" in notice and "Mail &amp; Sons" in notice
        with pytest.raises(
            ValueError, match="by the receipt these are told: Mail & Sons"
        ):
            letter(made, "done", kind="recipient", recipient="Somebody")

    def test_none_is_written_before_its_time(
        self, made: tuple[Registry, dict[str, str]]
    ) -> None:
        for name, kind in (
            ("acknowledgement", "done"),
            ("acknowledgement", "extended"),
            ("extended", "acknowledgement"),
            ("done", "acknowledgement"),
            ("done", "refused"),
            ("nothing-found", "done"),
            ("done", "sonnet"),
        ):
            with pytest.raises(ValueError, match="give"):
                letter(made, name, kind=kind)

    @pytest.mark.parametrize("language", ["en", "de"])
    def test_every_receipt_and_word_is_covered(
        self, made: tuple[Registry, dict[str, str]], language: str
    ) -> None:
        """No outcome, reason, right or law leaves a template without a word."""
        registry, requests = made
        status = registry.requests.status(requests["done"])
        for name in REQUESTS:
            receipt = make_receipt(name)
            entry = receipt.entry
            kinds = {"nothing found": "nothing-found", "refused": "refused"}
            kind = kinds.get(entry.outcome, "done")
            one = replace(
                status,
                right=entry.right,
                regime=entry.regime,
                outcome=entry.outcome,
                reason=entry.reason,
            )
            facts = gather_facts(one, receipt.to_json(), kind=kind)
            html = write_letter(facts, registry.folder, language=language)
            assert not re.search(r"[a-zäöüß)][.:][A-ZÄÖÜ]", words_of(html))
        folder = Path(__file__).parents[1] / "src/expunge/letters/templates" / language
        words = (folder / "words.j2").read_text()
        assert all(f'"{word}": ' in words for word in (*RIGHTS, *filter(None, REASONS)))
        named = {
            path.name.removesuffix(".html.j2") for path in folder.glob("*.html.j2")
        }
        assert named == {*KINDS}

    def test_californias_ten_working_days(self) -> None:
        for asked, by in (
            ("2026-03-02", "2026-03-16"),
            ("2026-03-06", "2026-03-20"),
            ("2026-03-07", "2026-03-20"),
        ):
            assert str(add_working_days(parse_day(asked), 10)) == by


class TestTemplates:
    @pytest.fixture
    def own(self, made: tuple[Registry, dict[str, str]]) -> Iterator[Path]:
        folder = made[0].folder / "letters"
        (folder / "en").mkdir(parents=True)
        yield folder
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()

    def test_may_be_replaced(
        self, made: tuple[Registry, dict[str, str]], own: Path
    ) -> None:
        (own / "en/done.html.j2").write_text(
            '{% extends "letter.html.j2" %}{% block title %}Gone{% endblock %}'
            "{% block text %}{{ letter.models[0] }} {{ operator.name }}{% endblock %}"
            "{% block reference %}{% endblock %}"
        )
        (own / "fr").mkdir()
        (own / "fr/done.html.j2").write_text("Voil\u00e0 {{ letter.answered | day }}")
        (own / "operator.json").write_text('{"name": "<b>Us</b>", "contact": "x"}')
        said = letter(made, "done")
        assert "churn &lt;b&gt;Us&lt;/b&gt;" in said and "<b>" not in said
        assert list_languages(made[0].folder) == ["de", "en", "fr"]
        assert letter(made, "done", language="fr").startswith("Voil\u00e0 20")
        (own / "operator.json").write_text("[]")
        with pytest.raises(LetterFailed, match=r"operator\.json is not JSON"):
            letter(made, "done")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("a\nb {{ letter.name }}", "line 2: .*has no attribute 'name'"),
            ("a\n\n{% if %}", "line 3: "),
            ("{{ 1 / 0 }}", "line 1: division by zero"),
            ("\n{{ letter.__class__.__mro__ }}", "line 2: "),
            ("{{ letter.models.append(1) }}", "line 1: "),
            ("{% for i in range(10**9) %}{% endfor %}", "line 1: "),
            ("{% include 'done.html.j2' %}", "includes itself"),
            ("{% extends 'none.html.j2' %}", "none.html.j2"),
            ("{{ 'x' * 9000000 }}", "letter of 9000000 characters"),
            ("{% include '../../keys/tags-0' %}", "tags-0"),
        ],
    )
    def test_that_fail_are_said_with_their_line(
        self, made: tuple[Registry, dict[str, str]], own: Path, *, text: str, why: str
    ) -> None:
        (own / "en/done.html.j2").write_text(text)
        with pytest.raises(LetterFailed, match=why) as refusal:
            letter(made, "done")
        assert "nothing was written" in str(refusal.value)


class TestCommand:
    def test_writes_a_file_or_none(
        self, made: tuple[Registry, dict[str, str]], tmp_path: Path
    ) -> None:
        registry, requests = made
        there = ("-r", registry.folder)
        file = tmp_path / "letter.html"
        done = call("letter", requests["acknowledgement"], *there, "--to", file)
        assert done.code == DONE and "the tenth working day" in done.err
        assert "We have received your request" in file.read_text()
        again = call("letter", requests["acknowledgement"], *there, "--to", file)
        assert again.code != DONE
        german = call("letter", requests["refused"], *there, "--language", "de")
        assert "Wir haben das am" in german.out
        asked = ("letter", requests["done"], *there)
        assert call(*asked, "--kind", "refused").code == WRONG_INPUT
        assert call(*asked, "--language", "xx").code == WRONG_INPUT
        notice = call(*asked, "--recipient", "Mail & Sons", "--json").json
        assert notice["kind"] == "recipient"
