# SPDX-License-Identifier: Apache-2.0
"""``expunge alias``, and requests that name people by their aliases."""

import json
from hashlib import sha256
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from expunge.cli.output import DATA_MISSING, DONE, UNKNOWN, WRONG_INPUT
from expunge.registry import Registry
from expunge.rights import Identifier
from tests.calling import call, copied, make_registry, person

REQUEST = "0123456789abcdef" * 2
HEADER = "person,kind,value\n"
HASHED = sha256(b"eve@example.org").hexdigest()
ALIASES = (
    f"{HEADER}{person(1)},email,Ada@Example.org\n{person(1)},phone,+44 20 7946 0958\n"
    f"{person(2)},email,sha256:{HASHED}\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


@pytest.fixture
def named(folder: Path) -> Path:
    """Return one with aliases of the first two people."""
    Path("aliases.csv").write_text(ALIASES)
    assert call("alias", "import", "aliases.csv").code == DONE
    return folder


class TestImport:
    def test_counts_are_told(self, folder: Path) -> None:
        Path("aliases.csv").write_text(ALIASES)
        done = call("alias", "import", "aliases.csv")
        assert (done.code, done.out, done.err) == (DONE, "3 aliases added\n", "")
        more = f"{ALIASES}{person(3)},customer,17\n"
        Path("aliases.csv").write_text(more)
        done = call("alias", "import", "aliases.csv")
        assert (done.out, done.err) == ("1 alias added\n", "3 known already\n")
        assert call("alias", "count").out == "4 aliases\n"
        assert call("alias", "count", "--json").json == {"n_aliases": 4}

    def test_json(self, folder: Path) -> None:
        assert call("forget", person(2)).code == DONE
        Path("aliases.csv").write_text(ALIASES)
        done = call("alias", "import", "aliases.csv", "--json")
        assert done.json == {"n_added": 2, "n_known": 0, "n_left_out": 1}
        done = call("alias", "import", "aliases.csv")
        assert "1 left out, of people who were forgotten" in done.err

    def test_columns_can_have_other_names(self, folder: Path) -> None:
        table = pa.table({"who": [person(1)], "how": ["customer"], "what": [17]})
        pq.write_table(table, "aliases.parquet")
        names = ("--person-column", "who", "--kind-column", "how")
        call_it = ("alias", "import", "aliases.parquet", *names)
        done = call(*call_it)
        assert done.code == WRONG_INPUT and "'value'" in done.err
        assert call(*call_it, "--value-column", "what").code == DONE
        assert call("alias", "find", "customer:17").out == f"{person(1)}\n"
        done = call(*call_it, "--value-column", "who")
        assert done.code == WRONG_INPUT and "name a column for each" in done.err

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("patient-1,email,ada", "one @"),
            ("patient-1,phone,020 7946 0958", "international form"),
            ("patient-1,Email,ada@example.org", "lower-case word"),
            ("patient-1,email,sha256:00", "not a SHA-256"),
            ("patient-1,email,", "a value is missing"),
            ("patient-1,,ada@example.org", "a value is missing"),
            (",email,ada@example.org", "empty"),
            ("NA,email,ada@example.org", "missing value"),
        ],
    )
    def test_bad_line_is_named_and_nothing_imported(
        self, folder: Path, line: str, said: str
    ) -> None:
        Path("aliases.csv").write_text(f"{ALIASES}{line}\n{person(3)},customer,17\n")
        done = call("alias", "import", "aliases.csv")
        assert done.code == WRONG_INPUT
        assert "aliases.csv" in done.err and "line 5" in done.err and said in done.err
        assert "ada" not in done.err.lower() and "7946" not in done.err
        assert call("alias", "count").out == "0 aliases\n"

    def test_ambiguous_lines_are_named(self, named: Path) -> None:
        lines = f"{person(3)},customer,17\n{person(4)},email,eve@example.org\n"
        Path("more.csv").write_text(HEADER + lines)
        done = call("alias", "import", "more.csv")
        assert done.code == WRONG_INPUT
        assert "more.csv, line 3: 1 line with an alias" in done.err
        assert "eve" not in done.err and "patient" not in done.err
        Path("more.csv").write_text(f"{HEADER}a,customer,1\nb,customer,1\n")
        assert (
            "more.csv, lines 2, 3: 2 lines" in call("alias", "import", "more.csv").err
        )
        assert call("alias", "count").out == "3 aliases\n"

    def test_missing_file(self, folder: Path) -> None:
        assert call("alias", "import", "none.csv").code == DATA_MISSING


class TestFindAndRemove:
    def test_ids_are_printed_in_order(self, named: Path) -> None:
        words = (
            "email:eve@example.org",
            "phone:+442079460958",
            "email:ADA@example.org",
        )
        ids = [person(2), person(1), person(1)]
        assert call("alias", "find", *words).out.splitlines() == ids
        assert call("alias", "find", *words, "--json").json == {"ids": ids}
        assert call("alias", "find", f"email:sha256:{HASHED}").out == f"{person(2)}\n"

    def test_strangers_are_counted(self, named: Path) -> None:
        words = ("email:eve@example.org", "email:x@example.org")
        done = call("alias", "find", *words, "--json")
        assert (done.code, done.out) == (UNKNOWN, "")
        assert "1 of 2 aliases" in json.loads(done.err)["error"]

    @pytest.mark.parametrize("command", ["find", "remove"])
    @pytest.mark.parametrize("word", [person(1), f"id:{person(1)}"])
    def test_id_is_no_alias(self, named: Path, command: str, word: str) -> None:
        done = call("alias", command, word)
        assert done.code == WRONG_INPUT and "write a kind and a value" in done.err

    def test_remove(self, named: Path) -> None:
        words = ("email:ada@example.org", "email:x@example.org")
        done = call("alias", "remove", *words)
        assert done.out == "1 alias removed, 1 not known here\n"
        assert call("alias", "remove", *words, "--json").json == {"n_removed": 0}
        assert call("alias", "count").out == "2 aliases\n"
        assert call("forget", "--dry-run", person(1)).code == DONE


class TestForget:
    def test_alias_names_its_person(self, named: Path) -> None:
        done = call("forget", "email:ADA@example.org", "phone:+442079460958")
        assert done.code == DONE and done.err == "1 person removed from 2 models\n"
        with Registry.open(named) as registry:
            assert registry.requests.find_forgotten([person(1)]) == (person(1),)
            assert registry.aliases.count() == 1
        done = call("forget", "email:ada@example.org")
        assert done.code == UNKNOWN
        assert "1 id not known here ('email:ada@example.org')" in done.err

    def test_files_may_list_aliases(self, named: Path) -> None:
        words = [
            "email:eve@example.org",
            person(3),
            f"email:sha256:{HASHED}",
            person(2),
        ]
        Path("ids.txt").write_text("\n".join(words))
        done = call("forget", "--from", "ids.txt", "--receipts", "answers")
        assert done.code == DONE and "2 people removed" in done.words
        index = Path("answers/index.csv").read_text().splitlines()[1:]
        requests = [line.split(",")[1] for line in index]
        assert len(index) == 4 and len(set(requests)) == 2
        assert requests[0] == requests[2] == requests[3] != requests[1]

    def test_dry_run_and_unknown_ones(self, named: Path) -> None:
        words = ("email:eve@example.org", "email:nobody@example.org")
        done = call("forget", "--dry-run", "--skip-unknown", "--json", *words)
        assert (done.json["n_people"], done.json["n_unknown"]) == (2, 1)
        done = call("forget", *words)
        assert done.code == UNKNOWN and "email:nobody@example.org" in done.err
        assert call("forget", "--skip-unknown", *words).code == DONE
        with Registry.open(named) as registry:
            eve = Identifier("email", HASHED, hashed=True)
            assert registry.aliases.find([eve]) == {}

    def test_malformed_alias_is_told(self, named: Path) -> None:
        done = call("forget", "email:ada")
        assert done.code == WRONG_INPUT and "one @" in done.err

    def test_request_is_sent_again_under_the_id(self, named: Path) -> None:
        alias = "email:ada@example.org"
        first = call("forget", alias, "--request", REQUEST)
        assert first.code == DONE
        assert call("forget", person(1), "--request", REQUEST).out == first.out
        # The alias went with its person, so nothing says who that was.
        assert call("forget", alias, "--request", REQUEST).code == WRONG_INPUT
