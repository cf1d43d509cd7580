# SPDX-License-Identifier: Apache-2.0
"""Reports: what they count, and to whom they must not be shown."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from expunge.cli.output import DONE, WRONG_INPUT
from expunge.registry import Registry, Request
from expunge.reports import count_requests_between, report_to_csv, report_to_html
from tests.calling import call
from tests.registries import by_name, data, estimator, set_clock

FIRST = date(2026, 1, 31)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Lend a registry with requests of two laws, answered in and out of time."""
    folder = tmp_path_factory.mktemp("reports")
    with (
        pytest.MonkeyPatch.context() as patch,
        Registry.create(folder / "registry", backup_days=30) as registry,
    ):
        set_clock(patch, FIRST)
        registry.fit("churn", estimator(), **by_name(data()))
        registry.models.ship("churn", folder / "churn.safetensors")
        asked = [
            *(Request((f"person {n}",), regime="ccpa") for n in range(3)),
            Request(("person 4",)),
            Request(("person 5",)),
            Request(("person 6",), right="restrict"),
            Request(("nobody",), regime="ccpa"),
        ]
        registry.requests.accept(asked, strangers=True)
        ids = [one.request for one in asked]
        registry.requests.extend(ids[4], "many", notified=FIRST)
        registry.requests.refuse(ids[2], "unfounded")
        registry.requests.cancel(ids[3])
        set_clock(patch, FIRST + timedelta(days=50))
        registry.requests.apply()
        registry.requests.accept([Request(("person 7",))])
        yield registry


class TestCounts:
    def test_are_those_of_the_requests(
        self, made: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_clock(monkeypatch, FIRST + timedelta(days=50))
        found = count_requests_between(made, "2026-01-01", until="2026-12-31")
        assert (found.n_requests, found.n_answered, found.n_open) == (8, 5, 2)
        assert (found.n_cancelled, found.n_extended, found.n_overdue) == (1, 1, 0)
        # The restriction was due after 28 days, and California's after 45; what was
        # extended waits.
        assert found.n_late == 4
        assert found.median_days == 50.0
        assert found.by_right == {"erase": 7, "restrict": 1}
        assert found.by_regime == {"ccpa": 4, "gdpr": 4}
        assert found.by_outcome == {"done": 3, "nothing found": 1, "refused": 1}
        assert found.by_month == {"2026-01": 7, "2026-03": 1}
        assert found.refused == {"unfounded": 1}
        deletions = found.ccpa["requests to delete"]
        assert (deletions.received, deletions.complied, deletions.denied) == (4, 2, 2)
        assert deletions.median_days == 50.0
        (model,) = found.models
        assert model.copies == ("churn.safetensors",)

    def test_of_a_period_alone(self, made: Registry) -> None:
        assert (
            count_requests_between(made, "2026-02-01", until="2026-03-31").n_requests
            == 1
        )
        nothing = count_requests_between(made, "2025-01-01", until="2025-12-31")
        assert nothing.n_requests == 0 and nothing.median_days is None
        with pytest.raises(ValueError, match="before it begins"):
            count_requests_between(made, "2026-02-01", until="2026-01-31")


class TestWriting:
    def test_say_to_whom_they_must_not_be_shown(self, made: Registry) -> None:
        found = count_requests_between(made, "2026-01-01", until="2026-12-31")
        html, table = report_to_html(found), report_to_csv(found)
        for text in (html, table):
            assert "Do not publish it or show it to people who send requests" in text
            assert "person 4" not in text
        assert "@media print" in html and "<script" not in html
        rows = list(csv.reader(io.StringIO(table)))
        assert ["requests", "answered late", "4"] in rows
        assert ["CCPA, requests to delete", "denied", "2"] in rows
        assert all(len(row) == 3 for row in rows)

    def test_no_cell_is_a_formula(self, made: Registry) -> None:
        found = count_requests_between(made, "2026-01-01", until="2026-12-31")
        (model,) = found.models
        evil = replace(model, copies=("=cmd|' /C calc'!A0",))
        (row,) = [
            row
            for row in csv.reader(
                io.StringIO(report_to_csv(replace(found, models=[evil])))
            )
            if row[0] == "copies outstanding"
        ]
        assert row[2].startswith("'=")


class TestCommands:
    def test_report(self, made: Registry, tmp_path: Path) -> None:
        there = ("-r", made.folder)
        done = call("report", "--until", "2026-12-31", *there)
        assert done.code == DONE and "median days to answer" in done.out
        assert "Do not publish it" in " ".join(done.err.split())
        assert call("report", "--as", "csv", *there).out.startswith(
            "group,figure,value"
        )
        assert call("report", "--json", *there).json["by_right"]["restrict"] == 1
        page = tmp_path / "report.html"
        assert call("report", *there, "--to", page).code == DONE
        assert page.read_text().startswith("<!doctype html>")
        assert call("report", "--from", "x", *there).code == WRONG_INPUT

    def test_processing(self, made: Registry, tmp_path: Path) -> None:
        there = ("-r", made.folder)
        said = call("processing", "churn", *there).out
        assert "to be filled in by you" in said and "within 30 days" in said
        assert "right at most 73.2 % of the time after seeing the model" in said
        assert "person 4" not in said and "people: " not in said
        page = tmp_path / "churn.html"
        assert call("processing", "churn", *there, "--to", page).code == DONE
        assert call("processing", "none", *there).code == WRONG_INPUT


class TestCalendar:
    def test_has_every_day_once(self, tmp_path: Path) -> None:
        folder = tmp_path / "registry"
        with Registry.create(folder) as registry:
            registry.fit("churn", estimator(), **by_name(data()))
            why = "legal-claims"
            held = Request(("person 1",), right="hold", reason=why, until="2999-05-06")
            apart = Request(("person 2",), right="restrict")
            registry.requests.submit([held, apart])
            asked = Request(("person 3",), submitted="2026-01-31")
            registry.requests.accept([asked])
        (due, ends) = call("calendar", "-r", folder, "--json").json["days"]
        assert (due["day"], ends["day"]) == ("2026-02-28", "2999-05-06")
        path = tmp_path / "days.ics"
        for _ in range(2):
            assert call("calendar", "-r", folder, "--to", path).code == DONE
        lines = path.read_bytes().split(b"\r\n")
        assert lines[0] == b"BEGIN:VCALENDAR" and lines[-2:] == [b"END:VCALENDAR", b""]
        assert all(len(line) <= 75 for line in lines)
        assert lines.count(b"BEGIN:VEVENT") == lines.count(b"TRIGGER:-P7D") == 2
        assert b"DTSTART;VALUE=DATE:20260228" in lines
        whole = path.read_bytes().replace(b"\r\n ", b"").decode()
        assert f"Answer request {asked.request[:12]} (erase\\, gdpr)" in whole
        assert "person" not in whole
        rows = call("holds", "-r", folder, "--json").json["holds"]
        assert [(one["place"], one["until"]) for one in rows] == [
            ("held", "2999-05-06"),
            ("restricted", ""),
        ]
        assert {one["request"] for one in rows} == {held.request, apart.request}
