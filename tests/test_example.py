# SPDX-License-Identifier: Apache-2.0
"""The example of the service has all that its pages can show, and is valid."""

from pathlib import Path

import pytest

from expunge.demo import example
from expunge.demo.example import COPY, prepare_example
from expunge.exceptions import InvalidInput
from expunge.ledger import check_export
from expunge.registry import Registry
from expunge.rights import Identifier

from .registries import require_consistent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("example") / "demo"
    prepare_example(found)
    return found


def test_it_has_all_that_pages_can_show(folder: Path) -> None:
    with Registry.open(folder / "registry") as registry:
        status = registry.status()
        assert registry.count_requests().stages == {
            "accepted": 2,
            "cancelled": 1,
            "completed": status.n_completed,
        }
        late, new = status.pending
        assert late.is_overdue and "all planned releases" in late.error
        assert not new.is_overdue and not new.error
        assert status.set_aside.n_held == status.set_aside.n_restricted == 1
        (left,) = status.outstanding
        assert [name for _, name in left.shipped] == [COPY]
        assert {token.scopes for token in registry.access.tokens()} == {
            ("request",),
            ("operate",),
            ("audit",),
        }
        address = Identifier("email", "patient-0001@example.org")
        assert set(registry.aliases.find([address]).values()) <= {"patient-0001"}


def test_all_of_it_stands(folder: Path) -> None:
    with Registry.open(folder / "registry") as registry:
        require_consistent(registry)
        export, keys = registry.ledger.export(), registry.keys.public_pem()
        assert check_export(export, keys).valid
        assert registry.access.check_trail().valid
        days = [entry.day for entry in registry.ledger.entries()]
        assert len(set(days)) > 8


def test_a_later_start_goes_on_with_it(folder: Path) -> None:
    with Registry.open(folder / "registry") as registry:
        before = registry.status().n_requests
    assert prepare_example(folder) == folder / "registry"
    with Registry.open(folder / "registry") as registry:
        assert registry.status().n_requests == before + 1


def test_one_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(folder: Path) -> None:
        (folder / "registry").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(example, "write_history", end)
    with pytest.raises(KeyboardInterrupt):
        prepare_example(tmp_path / "demo")
    assert not list(tmp_path.iterdir())


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(InvalidInput, match="in use for something else"):
        prepare_example(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
