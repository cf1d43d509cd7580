# SPDX-License-Identifier: Apache-2.0
"""``expunge fit --loss``: counts and amounts with exposures, from fit to prediction."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from expunge import PiecewiseExponential, PoissonRegressor
from expunge.cli.output import DONE, WRONG_INPUT
from expunge.registry import Registry
from tests.calling import call, copied, make_registry, whole


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a registry once."""
    return make_registry(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the registry to change, which is the default."""
    return copied(made, tmp_path, monkeypatch)


@pytest.fixture
def unchanged(folder: Path) -> Callable[[], bool]:
    """Return a function that tells whether the registry is as it was."""
    before = whole(folder)
    return lambda: whole(folder) == before


def policies(n: int = 1200) -> pd.DataFrame:
    """Return policies with claims over years, costs and offsets."""
    rng = np.random.default_rng(0)
    age, power = rng.normal(size=n), rng.normal(size=n)
    years = rng.uniform(0.1, 2.0, size=n)
    claims = rng.poisson(years * np.exp(0.5 + 0.4 * age))
    return pd.DataFrame(
        {
            "driver": [f"d{i // 2}" for i in range(n)],
            "age": age,
            "power": power,
            "years": years,
            "size": np.log(years),
            "claims": claims,
            "cost": claims * rng.gamma(2.0, 50.0, size=n),
            "bill": rng.gamma(2.0, 50.0, size=n),
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a file with policies."""
    path = tmp_path / "policies.csv"
    policies().to_csv(path, index=False)
    return path


ABOUT = ("--subject", "driver", "--no-trial", "--sigma", "0.01", "--alpha", "0.01")
FEATURES = ("--drop", "cost", "--drop", "bill")


def fit(name: str, table: Path, target: str, *options: str) -> Any:
    others = {"claims", "cost", "bill", "size"} - {target, *options}
    dropped = [word for other in sorted(others) for word in ("--drop", other)]
    return call("fit", name, table, "--target", target, *ABOUT, *dropped, *options)


@pytest.mark.parametrize("column", ["years", "size"])
def test_rates_are_fitted_added_corrected_and_predicted(
    folder: Path, table: Path, tmp_path: Path, column: str
) -> None:
    given = "exposure" if column == "years" else "offset"
    drop = ("--drop", "years") if column == "size" else ()
    done = fit(
        "rates", table, "claims", "--loss", "poisson", f"--{given}", column, *drop
    )
    assert done.code == DONE and "poisson" in done.out
    said = call("schema", "rates", "--json").json
    assert said[given] == column and said["subject"] == "driver"
    assert [one["name"] for one in said["schema"]["columns"] if one["kind"] == "number"]
    more = policies().tail(4).assign(driver="new")
    more.to_csv(tmp_path / "more.csv", index=False)
    assert call("add", "rates", tmp_path / "more.csv").code == DONE
    right = policies().head(2).assign(claims=[0, 1])
    right.to_csv(tmp_path / "right.csv", index=False)
    asked = ("rectify", "d0", "rates", tmp_path / "right.csv", "--yes")
    assert call(*asked).code == DONE
    assert call("forget", "d7", "--yes").code == DONE
    whole = pd.concat([right, policies().iloc[2:14], policies().iloc[16:], more])
    with Registry.open(folder) as registry:
        found = registry.model("rates")
        again = found.get_params()["preprocessing"]
        exact = PoissonRegressor(alpha=0.01, preprocessing=again)
        exact.fit(whole, whole["claims"], **{given: whole[column]})
        assert np.abs(found.coef_ - exact.coef_).max() < 0.08
        assert found.certificate_.status == "certified"
    printed = call("predict", "rates", table)
    rates = [float(line) for line in printed.out.splitlines()[1:]]
    assert len(rates) == 1200 and min(rates) > 0.0


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("bill", ("--loss", "gamma")),
        ("cost", ("--loss", "tweedie", "--power", "1.6", "--exposure", "years")),
        ("claims", ("--loss", "negative-binomial", "--dispersion", "0.5")),
        ("bill", ("--loss", "quantile", "--quantile", "0.9", "--width", "5")),
    ],
)
def test_every_loss_is_fitted_and_tried(
    folder: Path, table: Path, target: str, options: tuple[str, ...]
) -> None:
    policies(4000).to_csv(table, index=False)  # enough people to try it on some
    others = {"claims", "cost", "bill", "size"} - {target}
    dropped = [word for other in sorted(others) for word in ("--drop", other)]
    about = ("--target", target, "--subject", "driver", *dropped, *options)
    done = call("fit", "model", table, *about)
    assert (
        done.code == DONE and "nearer to the truth than the best constant" in done.out
    )
    assert "guessed from the target" not in done.out
    with Registry.open(folder) as registry:
        kind = type(registry.model("model")).__name__
        assert kind.startswith(options[1].partition("-")[0].capitalize())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--loss", "gamma"), "response 0 is not positive; Gamma takes amounts"),
        (("--exposure", "years"), "--exposure is for counts, amounts and quantiles"),
        (
            ("--loss", "poisson", "--exposure", "age"),
            "an exposure that is not positive",
        ),
        (("--loss", "poisson", "--power", "1.5"), "--power is for --loss tweedie"),
        (("--loss", "poisson", "--task", "classification"), "give only one of them"),
        (("--loss", "poisson", "--alphas", "1,0.1"), "--loss poisson with --alphas"),
        (("--loss", "tweedie", "--power", "3"), "is not convex"),
        (
            ("--loss", "poisson", "--exposure", "years", "--offset", "size"),
            "pass one of them",
        ),
        (("--loss", "quantile", "--exposure", "years"), "Pinball predicts no rate"),
    ],
)
def test_mistakes_are_one_sentence_and_change_nothing(
    table: Path,
    unchanged: Callable[[], bool],
    options: tuple[str, ...],
    message: str,
) -> None:
    refused = fit("model", table, "claims", *options)
    assert refused.code == WRONG_INPUT, refused.out
    assert message in " ".join((refused.out + refused.err).split())
    assert unchanged()


def test_negative_counts_are_refused(
    tmp_path: Path, unchanged: Callable[[], bool]
) -> None:
    rows = policies()
    rows.loc[3, "claims"] = -1
    rows.to_csv(tmp_path / "bad.csv", index=False)
    refused = fit("model", tmp_path / "bad.csv", "claims", "--loss", "poisson")
    assert refused.code == WRONG_INPUT and unchanged()
    assert "response -1 is negative" in refused.out + refused.err


def patients(n: int = 600) -> pd.DataFrame:
    """Return until when patients were seen, and whether they relapsed then."""
    rng = np.random.default_rng(3)
    age = rng.integers(30, 90, n)
    event = 12.0 * rng.exponential(size=n) / np.exp(0.03 * (age - 60))
    end = rng.uniform(3.0, 36.0, n)
    table = {"patient": [f"p{i}" for i in range(n)], "age": age}
    seen = np.minimum(event, end).round(2) + 0.01
    return pd.DataFrame(
        table | {"months": seen, "relapsed": (event <= end).astype(int)}
    )


SURVIVAL = ("--target", "relapsed", "--subject", "patient", "--sigma", "0.01")
TIMES = ("--loss", "survival", "--time", "months", "--breaks", "6,12")


def test_survival_is_fitted_added_corrected_and_predicted(
    folder: Path, tmp_path: Path
) -> None:
    path, more, right = (tmp_path / f"{name}.csv" for name in ("all", "more", "right"))
    table = patients()
    table.to_csv(path, index=False)
    done = call("fit", "relapse", path, *SURVIVAL, *TIMES, "--alpha", "0.01")
    assert done.code == DONE and "survival is not tried" in done.out
    assert call("schema", "relapse", "--json").json["time"] == "months"
    new = table.head(2).assign(patient="new")
    new.to_csv(more, index=False)
    assert call("add", "relapse", more).code == DONE
    assert call("forget", "p7", "--yes").code == DONE
    other = table.iloc[[5]].assign(months=3.0, relapsed=1)
    other.to_csv(right, index=False)
    assert call("rectify", "p5", "relapse", right, "--yes").code == DONE
    left = pd.concat([table.drop([5, 7]), new, other])
    with Registry.open(folder) as registry:
        found = registry.model("relapse")
        again = found.get_params()["preprocessing"]
    exact = PiecewiseExponential(breaks=(6.0, 12.0), alpha=0.01, preprocessing=again)
    exact.fit(left[["age"]], left[["months", "relapsed"]].to_numpy())
    assert found.certificate_.status == "certified"
    assert np.abs(found.coef_ - exact.coef_).max() < 0.08
    printed = call("predict", "relapse", path, "--beside", "patient").out.splitlines()
    heads = "patient,prediction,no event until 6,no event until 12"
    assert printed[0] == heads and len(printed) == 601
    at = [float(one) for one in printed[1].split(",")[1:]]
    assert 1.0 > at[1] > at[2] > 0.0
    back = call("fit", "again", path, *SURVIVAL, *TIMES)
    assert back.code != DONE and "line 9:" in back.err  # p7, with all intervals


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"months": 0.0}, TIMES, "column 'months', lines 2, 3, 4 and .*: a time that"),
        ({"relapsed": 2}, TIMES, "the same target in every row"),
        ({"relapsed": 0}, TIMES, "the same target in every row"),
        (
            {"relapsed": ["no", "yes"] * 45},
            TIMES,
            "give 1 if the event happened at that time, or 0",
        ),
        ({}, TIMES[:2], "--loss survival without --time; give both"),
        ({}, TIMES[2:4], "--time without --loss survival; give both"),
        ({}, TIMES[4:], "--breaks is for --loss survival; give both"),
        ({}, (*TIMES[:4], "--breaks", "a"), "--breaks 'a'; give numbers separated"),
        ({}, (*TIMES[:4], "--breaks", "2,1"), "times in ascending order"),
        ({"size": 2.0}, (*TIMES, "--exposure", "size"), "the times are the exposures"),
    ],
)
def test_mistakes_about_survival_are_one_sentence(
    unchanged: Callable[[], bool],
    tmp_path: Path,
    change: Any,
    options: Any,
    message: str,
) -> None:
    path = tmp_path / "all.csv"
    patients(90).assign(**change).to_csv(path, index=False)
    refused = call("fit", "relapse", path, *SURVIVAL, *options)
    assert refused.code != DONE and re.search(message, refused.err), refused.err
    assert not (tmp_path / "all.schema.json").exists()
    assert unchanged()


def test_everybody_may_have_the_event(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    patients(90).assign(relapsed=True).to_csv(path, index=False)
    assert call("fit", "relapse", path, *SURVIVAL, *TIMES).code == DONE
