# SPDX-License-Identifier: Apache-2.0
"""DROP: hashes as published, lists matched as one batch, answers byte for byte."""

import json
import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from expunge.cli.output import DONE, DUE, WRONG_INPUT
from expunge.drop import DropApi, DropError, match_lists, read_list
from expunge.exceptions import InvalidInput
from expunge.ledger import RequestCompleted
from expunge.registry import ForgottenInData, Registry, Request, rebuild_journal
from expunge.rights.drop import drop_hash, hash_identifier, list_forms
from tests.calling import call, copied
from tests.platforms import KEY, Platform, running
from tests.registries import (
    by_name,
    data,
    data_without,
    estimator,
    registry_at,
    set_clock,
    today,
)

# As the platform publishes them, version 1.2.0.
PUBLISHED: list[tuple[str, dict[str, str], str]] = [
    (
        "Email",
        {"email": " Anna.Smith@Domain.com"},
        "KA18MT/ph6IHYjzT9zwETySDQyvSh87YuoSBpOQtkhE=",
    ),
    (
        "Phone",
        {"phone": "+1(415)555-9317"},
        "vGM7y5n+hBXRSEAklhHDPCbysyNgYTmXdMcagGUOY8E=",
    ),
    (
        "Phone",
        {"phone": "+84(90)123 4567"},
        "ptzVkgbv9DonwvPCHmXmJ2SEOaolSh37z3ZzY/Gmm+U=",
    ),
    (
        "Phone",
        {"phone": "+354(123)4567"},
        "Btrzydf5K6ALAKKXJGFHSx7u5bDzHC9WlVYtpq1n2rY=",
    ),
    (
        "NDZ",
        {"first": "Danielle", "last": "Johnson", "birth": "1985-07-04", "zip": "91790"},
        "PQOfn1RffEKmqMmNAzDKKaoZCwxWbQZkQzPWmQo9REA=",
    ),
    (
        "NameVIN",
        {"first": "Eve", "last": "Genesis", "vin": "1HGCM82633A004352"},
        "rtnDuXIe63jXYQQXW5r07GJ7lSsrib8+46QuKFwkOmk=",
    ),
]
ITEMS = tuple(f"Ab3dEf7hIj{n:02d}" for n in range(20))
DAY = "20260312"


def name_of(kind: str) -> str:
    return f"{DAY}_4821_{kind}.csv"


def write_list(
    folder: Path, kind: str, hashes: Mapping[str, str], *, end: str = "\n"
) -> Path:
    """Write a list: hashes by number."""
    folder.mkdir(exist_ok=True)
    path = folder / name_of(kind)
    lines = ["ID,Hash", *(f"{item},{hashed}" for item, hashed in hashes.items())]
    path.write_text("".join(f"{line}{end}" for line in lines), newline="")
    return path


def email(name: str) -> str:
    return hash_identifier("Email", {"email": f"{name}@example.org"})


class TestHashes:
    @pytest.mark.parametrize(("name", "values", "hashed"), PUBLISHED)
    def test_are_those_published(
        self, name: str, values: dict[str, str], *, hashed: str
    ) -> None:
        assert hash_identifier(name, values) == hashed

    @pytest.mark.parametrize(
        ("given", "standard"),
        [
            ("91790-3771", "91790"),
            ("M1B 1A1", "m1b1a"),
            (" 00712345", "71234"),
            (" 00300-9999", "300"),
        ],
    )
    def test_of_zip_codes(self, given: str, standard: str) -> None:
        people = {"first": "Juan Pablo", "last": "Martinez", "birth": "1776-07-04"}
        parts = ("juanpablo", "martinez", "17760704", standard)
        whole = drop_hash("".join(map(drop_hash, parts)))
        assert hash_identifier("NDZ", people | {"zip": given}) == whole

    @pytest.mark.parametrize(
        ("given", "standard"),
        [
            ("O'Brien-Smith", "obriensmith"),
            ("José", "jose"),
            ("Straße", "strasse"),
            ("ŁUKASZ", "lukasz"),
            ("İzmir", "izmir"),
            ("Ægir Þór", "aegirthor"),
            ("田中", "田中"),
            ("김", "김"),
        ],
    )
    def test_of_names(self, given: str, standard: str) -> None:
        car = {"last": "x", "vin": "1HGCM82633A004352"}
        plain = hash_identifier("NameVIN", car | {"first": given})
        parts = (standard, "x", "1hgcm82633a004352")
        assert plain == drop_hash("".join(map(drop_hash, parts)))

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("Email", {"email": "nobody"}),
            ("Phone", {"phone": "none"}),
            ("MAID", {"maid": "abc"}),
            ("CTVID", {"ctvid": "a-b"}),
            ("NameVIN", {"first": "Иван", "last": "x", "vin": "1HGCM82633A004352"}),
            ("NameVIN", {"first": "Ivan", "last": "x", "vin": "short"}),
            ("NDZ", {"first": "a", "last": "b", "birth": "04/07/1985", "zip": "1"}),
            ("NDZ", {"first": "a", "last": "b", "birth": "1949-02-30", "zip": "1"}),
            ("NDZ", {"first": "a", "last": "b", "birth": "1949-02-03", "zip": "-"}),
        ],
    )
    def test_of_nothing_are_refused_unseen(
        self, name: str, values: dict[str, str]
    ) -> None:
        with pytest.raises(InvalidInput) as refusal:
            hash_identifier(name, values)
        shown = [word for word in values.values() if len(word) > 3]
        assert not any(word in str(refusal.value) for word in shown)

    def test_an_id_may_be_an_identifier(self) -> None:
        maid = "6D92078A-8246-4BA4-AE5B-76104861E7DC"
        found = {
            word: [name for name, _ in list_forms(word)]
            for word in (
                "ada@example.org",
                "+1 415 555 9317",
                maid,
                "customer 17",
                "4155559317",
                "@",
            )
        }
        assert [*found.values()] == [["Email"], ["Phone"], ["MAID"], [], [], ["Email"]]
        ((_, form),) = list_forms("+1 415 555 9317")
        assert form.kind == "drop-phone" and form.hashed


class TestLists:
    def test_are_read_as_downloaded(self, tmp_path: Path) -> None:
        hashes = {ITEMS[0]: email("ada"), ITEMS[1]: email("bob")}
        plain = read_list(write_list(tmp_path / "a", "Email", hashes))
        windows = write_list(tmp_path / "b", "Email", hashes, end="\r\n")
        windows.write_bytes(b"\xef\xbb\xbf" + windows.read_bytes())
        assert read_list(windows).listed == plain.listed
        assert (plain.name, plain.day) == ("Email", "2026-03-12")
        empty = read_list(write_list(tmp_path / "c", "NDZ", {}))
        assert empty.listed == ()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "does not begin with the line ID,Hash"),
            ("Id;Hash\n", "does not begin"),
            (f"ID,Hash\n{ITEMS[0]},abc\n", "line 2 is not a number and a hash"),
            (f"ID,Hash\nAda,{email('ada')}\n", "line 2 is not"),
            (f"ID,Hash\n{ITEMS[0]},{email('a')}\n{ITEMS[0]},{email('b')}\n", "twice"),
            (f"ID,Hash\n{ITEMS[0]},{email('a')},1\n", "line 2 is not"),
            ('ID,Hash\n"a\n', "no CSV file"),
        ],
    )
    def test_others_are_refused(self, tmp_path: Path, text: str, *, why: str) -> None:
        path = tmp_path / name_of("Email")
        path.write_text(text)
        with pytest.raises(InvalidInput, match=why):
            read_list(path)

    @pytest.mark.parametrize("name", ["list.csv", "20261301_1_Email.csv", "x.zip"])
    def test_need_their_name(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("ID,Hash\n")
        with pytest.raises(InvalidInput, match=r"named like|no day of the calendar"):
            read_list(tmp_path / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry whose people have identifiers."""
    folder = tmp_path_factory.mktemp("made")
    registry_at(folder / "registry").close()
    lines = [
        "person,mail,tel",
        "person 1,ada@example.org,+1 415 555 9317",
        "person 2,bob@example.org,",
        "person 3,home@example.org,",
        "person 4,home@example.org,",
        "person 5,,+1 415 555 0005",
        *(f"person {n},p{n}@example.org," for n in range(6, 60)),
        "person 0,p0@example.org,",
    ]
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    call_import = ("drop", "import", folder / "people.csv", "--email", "mail")
    done = call(*call_import, "--phone", "tel", "-r", folder / "registry")
    assert (done.code, done.out) == (DONE, "60 identifiers known\n"), done
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made / "registry", tmp_path, monkeypatch)


LISTS = {
    "Email": {
        ITEMS[0]: email("ada"),
        ITEMS[1]: email("nobody"),
        ITEMS[2]: email("home"),
        ITEMS[3]: email("bob"),
    },
    "Phone": {
        ITEMS[4]: hash_identifier("Phone", {"phone": "4155559317"}),
        ITEMS[5]: hash_identifier("Phone", {"phone": "999 999 9999"}),
    },
}


def write_lists() -> list[Path]:
    return [write_list(Path("lists"), kind, some) for kind, some in LISTS.items()]


class TestMatch:
    def test_answers_as_one_batch_byte_for_byte(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            registry.requests.submit(
                [
                    Request(
                        ("person 2",),
                        right="hold",
                        reason="legal-duty",
                        until="2999-01-01",
                    )
                ]
            )
        done = call("drop", "match", *write_lists(), "--yes")
        assert done.code == DONE, done
        assert done.out.startswith("1 exempted, 2 deleted, 1 opted out, 2 not found\n")
        answers = Path("drop-answers")
        assert (answers / name_of("Email")).read_bytes() == (
            b"Id,Status\nAb3dEf7hIj00,3\nAb3dEf7hIj01,5\nAb3dEf7hIj02,4\n"
            b"Ab3dEf7hIj03,2\n"
        )
        phone = (answers / name_of("Phone")).read_bytes()
        assert phone == b"Id,Status\nAb3dEf7hIj04,3\nAb3dEf7hIj05,5\n"
        with Registry.open(folder) as registry:
            every = registry.ledger.entries()
            asked = [one for one in every if isinstance(one, RequestCompleted)]
            by_drop = [one for one in asked if one.regime == "drop"]
            assert len(by_drop) == 2  # Ada once, for both of her numbers
            assert {one.deadline for one in by_drop} == {"2026-04-26"}
            held = registry.requests.find_models(["person 1", "person 3", "person 4"])
            assert [bool(names) for names in held.values()] == [False, True, True]
        again = call("drop", "match", *write_lists(), "--yes", "--json").json
        assert (again["deleted"], again["exempted"], again["not_found"]) == (2, 1, 2)
        assert sorted(one.name for one in answers.iterdir()) == [
            name_of("Email"),
            name_of("Phone"),
        ]

    def test_asks_for_nobody_twice_if_it_is_killed(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What a list asked for is recorded before anybody is asked for."""
        lists = [*map(read_list, write_lists())]

        class Killed(BaseException):
            """As good as dead."""

        def kill(*_: object, **__: object) -> None:
            raise Killed

        with Registry.open(folder) as registry:
            monkeypatch.setattr(registry.requests, "submit", kill)
            with pytest.raises(Killed):
                match_lists(registry, lists)
        with Registry.open(folder) as registry:
            assert registry.status().n_requests == 0
            monkeypatch.setattr(registry.requests, "apply", kill)
            with pytest.raises(Killed):
                match_lists(registry, lists)
            assert registry.status().n_requests == 2
        with Registry.open(folder) as registry:
            waiting = match_lists(registry, lists)
            assert len(waiting.waiting) == 2
            registry.requests.apply()
            found = match_lists(registry, lists)
            assert found.answers == {
                **{ITEMS[0]: 3, ITEMS[1]: 5, ITEMS[2]: 4, ITEMS[3]: 3},
                **{ITEMS[4]: 3, ITEMS[5]: 5},
            }
            assert registry.status().n_requests == 2

    def test_writes_what_changed_as_an_amendment(self, folder: Path) -> None:
        lists = write_lists()
        assert call("drop", "match", *lists, "--yes").code == DONE
        Path("more.csv").write_text("person,mail\nperson 7,nobody@example.org\n")
        assert call("drop", "import", "more.csv", "--email", "mail").code == DONE
        done = call("drop", "match", *lists, "--yes", "--json")
        amended = f"{DAY}_4821_Email_amend1.csv"
        assert done.json["files"][name_of("Email")].endswith(amended)
        amendment = Path("drop-answers") / amended
        assert amendment.read_bytes() == b"Id,Status\nAb3dEf7hIj01,3\n"

    def test_status_says_the_days(self, folder: Path) -> None:
        assert call("drop", "status").code == WRONG_INPUT
        call("drop", "match", *write_lists(), "--yes")
        done = call("drop", "status", "--json")
        assert done.code == DUE
        said = json.loads(done.out.splitlines()[0])
        assert (said["downloaded"], said["due"]) == ("2026-03-12", "2026-04-26")


class TestLaterFits:
    """Hashes of people who were not found stay out."""

    def fit(self, registry: Registry, people: list[str]) -> None:
        X, y, _ = data()
        owners = [people[i % len(people)] for i in range(len(X))]
        registry.fit("later", estimator(), X, y, subjects=owners)

    def test_refuse_addresses_numbers_and_aliases(self, folder: Path) -> None:
        assert call("drop", "match", *write_lists(), "--yes").code == DONE
        others = [f"p{n}@example.org" for n in range(6, 60)]
        with Registry.open(folder) as registry:
            for word in (
                "Nobody@Example.org",
                "nobody@example.org ",
                "+1 999 999-9999",
            ):
                with pytest.raises(ForgottenInData):
                    self.fit(registry, [*others, word])
            assert registry.exclusions.find_kept_out([*others, "nobody@example.org"])
            # An alias that came later leads to somebody under another id.
            Path("more.csv").write_text("person,mail\nperson 7,nobody@example.org\n")
            assert call("drop", "import", "more.csv", "--email", "mail").code == DONE
            with pytest.raises(ForgottenInData):
                self.fit(registry, ["person 7", "person 8"])
            self.fit(registry, others)

    def test_need_an_option_for_bare_ids(self, folder: Path) -> None:
        with Registry.open(folder) as registry:
            X, y, owners = data_without("person 1")
            strange = [f"stranger {n}" for n in range(len(owners))]
            rows = {"X": X, "y": y, "subjects": strange}
            registry.fit("before", estimator(), **rows)
            assert call("drop", "match", *write_lists(), "--yes").code == DONE
            with pytest.raises(InvalidInput, match="bare ids that cannot be compared"):
                registry.fit("later", estimator(), **rows)
            registry.fit("later", estimator(), **rows, unchecked=True)
            # Whose identifiers were imported can be compared.
            rest = data_without("person 1", "person 2")
            registry.fit("known", estimator(), **by_name(rest))

    def test_until_the_person_withdraws(self, folder: Path) -> None:
        assert call("drop", "match", *write_lists(), "--yes").code == DONE
        removed = Path(name_of("Removed"))
        removed.write_text(f"ID,Hash,ListType\n{ITEMS[1]},{email('nobody')},Email\n")
        done = call("drop", "match", removed, "--yes")
        assert "1 withdrawn identifiers keep nobody out any more" in done.err
        assert not [*Path("drop-answers").glob("*Removed*")]
        others = [f"p{n}@example.org" for n in range(6, 60)]
        with Registry.open(folder) as registry:
            self.fit(registry, [*others, "nobody@example.org"])

    @pytest.mark.parametrize("how", ["compact", "rebuild", "restore", "rotate"])
    def test_whatever_becomes_of_the_registry(
        self, folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backup = folder.with_name("backup")
        shutil.copytree(folder, backup)
        assert call("drop", "match", *write_lists(), "--yes").code == DONE
        if how == "rebuild":
            journal = folder / "journal"
            journal.write_bytes(journal.read_bytes()[:-9])
            rebuild_journal(folder)
        if how == "restore":
            with Registry.restore(folder, backup):
                pass
        with Registry.open(folder) as registry:
            if how == "rotate":
                registry.keys.rotate_tag_key()
            if how == "compact":
                set_clock(monkeypatch, today() + timedelta(days=2))
                assert registry.compact_journal(1) > 0
            for word in ("nobody@example.org", "+1 999 999-9999"):
                assert registry.exclusions.find_kept_out([word]) == {word: "same"}
        if how == "rotate":  # an alias has the newest tag
            Path("more.csv").write_text("person,mail\nperson 7,nobody@example.org\n")
            assert call("drop", "import", "more.csv", "--email", "mail").code == DONE
            with Registry.open(folder) as registry:
                assert registry.exclusions.find_kept_out(["person 7"])


class TestApi:
    def test_a_whole_cycle(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lists = {path.name: path.read_bytes() for path in write_lists()}
        lists[name_of("NDZ")] = b"ID,Hash\n"
        with running(Platform(lists)) as platform:
            there = ("--address", platform.address)
            assert call("drop", "download", *there).code == WRONG_INPUT  # no key
            monkeypatch.setenv("EXPUNGE_DROP_KEY", KEY)
            done = call("drop", "download", *there, "--json")
            assert done.code == DONE, done
            files = done.json["files"]
            assert {Path(file).name for file in files} == {*lists}
            again = call("drop", "download", *there)
            assert "409" in again.err and "upload an answer" in again.err
            matched = call("drop", "match", *files, "--yes", "--json").json
            answers = [*matched["files"].values()]
            assert len(answers) == 2  # an empty list needs no answer
            platform.lists = {name: lists[name] for name in matched["files"]}
            sent = call("drop", "upload", *answers, *there)
            assert sent.code == DONE, sent
            email_answer = platform.taken[name_of("Email")]
            assert email_answer.startswith(b"Id,Status\nAb3dEf7hIj00,3\n")
            twice = call("drop", "upload", *answers, *there)
            assert twice.code == WRONG_INPUT and "Duplicate file." in twice.err
            amended = call("drop", "upload", answers[0], "--amend", *there)
            assert amended.code == DONE and len(platform.amended) == 1
            platform.lists = {}
            assert call("drop", "download", *there).out == "nothing new\n"

    def test_waits_as_it_is_told(self, tmp_path: Path) -> None:
        lists = {name_of("Email"): f"ID,Hash\n{ITEMS[0]},{email('ada')}\n".encode()}
        codes = [
            (202, {"Retry-After": "7"}),
            (429, {"Retry-After": "11"}),
            (429, {}),
            (503, {"Retry-After": "99999"}),
        ]
        waited: list[float] = []
        with running(Platform(lists, codes)) as platform:
            api = DropApi(KEY, platform.address, pause=waited.append)
            assert len(api.download(tmp_path)) == 1
        assert waited == [7.0, 11.0, 30.0, 600.0]

    def test_gives_up_in_the_end(self, tmp_path: Path) -> None:
        with running(Platform(codes=[(202, {"Retry-After": "1"})] * 9)) as platform:
            api = DropApi(KEY, platform.address, pause=lambda _: None)
            with pytest.raises(DropError, match="still prepares") as refusal:
                api.download(tmp_path, attempts=3)
        assert refusal.value.code == 202 and len(platform.asked) == 3

    @pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 418])
    def test_does_not_repeat_what_is_refused(self, tmp_path: Path, code: int) -> None:
        with running(Platform(codes=[(code, {})])) as platform:
            api = DropApi(KEY, platform.address)
            with pytest.raises(DropError, match=f"answered {code}") as refusal:
                api.download(tmp_path)
        assert refusal.value.code == code and len(platform.asked) == 1
        assert KEY not in str(refusal.value) + repr(api)

    def test_a_wrong_key_and_nobody_there(self, tmp_path: Path) -> None:
        with running(Platform()) as platform:
            with pytest.raises(DropError, match="API key is missing or wrong"):
                DropApi("wrong", platform.address).download(tmp_path)
        with pytest.raises(DropError, match="did not answer"):
            DropApi(KEY, platform.address).download(tmp_path)
        with pytest.raises(InvalidInput, match="begins with https"):
            DropApi(KEY, "http://api.example.org")

    @pytest.mark.parametrize("name", ["../up.csv", "a/b.csv", "list.exe"])
    def test_takes_no_other_files(self, tmp_path: Path, name: str) -> None:
        with running(Platform({name: b"x"})) as platform:
            with pytest.raises(DropError, match="which is no list"):
                DropApi(KEY, platform.address).download(tmp_path / "lists")
        assert not (tmp_path / "up.csv").exists()
