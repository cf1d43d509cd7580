# SPDX-License-Identifier: Apache-2.0
"""Features of street digits: loaders, maps, what they cost, and where they are kept."""

import sys
from dataclasses import replace
from math import exp, inf, log, nan
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import VARIABLE, DataNotFound
from benchmarks.features import (
    Digits,
    Extractor,
    FeatureMap,
    Features,
    Histogram,
    Scattering,
    Spent,
    accuracy,
    coverage,
    load_features,
    svhn_3_vs_8,
)
from benchmarks.features.cache import key
from benchmarks.features.grey import standardise, unit_rows
from benchmarks.features.group import NOMINAL, largest_group
from benchmarks.features.scattering import MARGIN, low_pass, morlet
from benchmarks.features.svhn import FILES, paths
from expunge.exceptions import MissingExtra

FIXED: list[Histogram | Scattering] = [Histogram(), Scattering()]


def stripes(angle: float, n: int = 1) -> np.ndarray:
    """Return colour images that rise and fall along one direction."""
    y, x = np.mgrid[:32, :32]
    wave = np.sin(0.75 * np.pi * (np.cos(angle) * x + np.sin(angle) * y))
    image = np.rint(127.5 + 100.0 * wave).astype(np.uint8)
    return np.repeat(np.repeat(image[None, :, :, None], 3, axis=3), n, axis=0)


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def digits(rng: np.random.Generator) -> Digits:
    """Return threes of vertical stripes and eights of horizontal ones, with grain."""

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        clean = np.concatenate([stripes(0.0, n), stripes(np.pi / 2, n)])
        grain = rng.integers(0, 28, clean.shape, dtype=np.uint8)
        return clean + grain, np.repeat([-1.0, 1.0], n)

    return Digits(*part(40), *part(10))


@pytest.fixture
def folder(tmp_path: Path, digits: Digits) -> Path:
    """Return a folder with the digits as files."""
    (tmp_path / "svhn").mkdir()
    for name, X, y in (
        (FILES[0], digits.train_images, digits.train_labels),
        (FILES[1], digits.test_images, digits.test_labels),
    ):
        np.savez(tmp_path / name, X=X, y=np.where(y > 0, 8, 3).astype(np.uint8))
    return tmp_path


class TestDigits:
    def test_eight_is_positive(self, folder: Path, digits: Digits) -> None:
        read = svhn_3_vs_8(folder)
        for found, wanted in zip(read, digits, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert read.train_labels[[0, -1]].tolist() == [-1.0, 1.0]

    def test_missing_file_is_named(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)
        (folder / FILES[1]).unlink()
        with pytest.raises(DataNotFound, match=r"svhn/svhn_3v8_test\.npz is wanted"):
            svhn_3_vs_8(folder)

    def test_other_digits_and_shapes_are_refused(self, folder: Path) -> None:
        X, y = np.zeros((2, 32, 32, 3), np.uint8), np.array([3, 5], np.uint8)
        np.savez(folder / FILES[0], X=X, y=y)
        with pytest.raises(ValueError, match=r"train\.npz: y holds \[3, 5\]"):
            svhn_3_vs_8(folder)
        np.savez(folder / FILES[0], X=X[:, :28], y=y)
        with pytest.raises(ValueError, match=r"shape \(2, 28, 32, 3\)"):
            svhn_3_vs_8(folder)


class TestGrey:
    def test_each_image_is_standardised_alone(self, images: np.ndarray) -> None:
        grey = standardise(images)
        np.testing.assert_allclose(grey.mean(axis=(1, 2)), 0.0, atol=1e-6)
        np.testing.assert_allclose(grey.std(axis=(1, 2)), 1.0, atol=1e-5)

    def test_brightness_and_contrast_do_not_matter(self) -> None:
        dim = stripes(0.4) // 4
        np.testing.assert_allclose(
            standardise(2 * dim + 30), standardise(dim), atol=1e-5
        )

    def test_flat_image_is_zero(self) -> None:
        for level in (0, 77, 255):
            flat = np.full((1, 32, 32, 3), level, np.uint8)
            assert not standardise(flat).any()

    def test_rows_have_unit_norm_unless_zero(self) -> None:
        values = np.array([[[3.0, 4.0]], [[0.0, 0.0]]], dtype=np.float32)
        np.testing.assert_allclose(unit_rows(values), [[0.6, 0.8], [0.0, 0.0]])


class TestFixedMaps:
    @pytest.mark.parametrize(("fixed", "columns"), [(FIXED[0], 576), (FIXED[1], 1024)])
    def test_rows_have_unit_norm(
        self, fixed: Histogram | Scattering, columns: int, images: np.ndarray
    ) -> None:
        rows = fixed.rows(images)
        assert rows.shape == (6, columns)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-14)

    @pytest.mark.parametrize("fixed", FIXED)
    def test_row_depends_on_its_image_alone(
        self, fixed: Histogram | Scattering, images: np.ndarray
    ) -> None:
        rows = fixed.rows(images)
        np.testing.assert_allclose(fixed.rows(images[2:3])[0], rows[2], atol=1e-6)

    @pytest.mark.parametrize("fixed", FIXED)
    def test_light_on_dark_equals_dark_on_light(
        self, fixed: Histogram | Scattering, images: np.ndarray
    ) -> None:
        np.testing.assert_allclose(
            fixed.rows(255 - images), fixed.rows(images), atol=1e-5
        )

    @pytest.mark.parametrize("fixed", FIXED)
    def test_both_parts_are_mapped_and_cost_nothing(
        self, fixed: Histogram | Scattering, digits: Digits
    ) -> None:
        features = fixed(digits)
        assert features.spent is None
        np.testing.assert_array_equal(features.test.X, fixed.rows(digits.test_images))
        np.testing.assert_array_equal(features.train.y, digits.train_labels)

    @pytest.mark.parametrize("fixed", FIXED)
    def test_flat_image_has_no_features(self, fixed: Histogram | Scattering) -> None:
        assert not fixed.rows(np.full((1, 32, 32, 3), 9, np.uint8)).any()


class TestHistogram:
    @pytest.mark.parametrize(
        ("across", "down"), [(3, 0), (3, 1), (2, 3), (0, 3), (-1, 3), (-3, 1), (4, -1)]
    )
    def test_slope_is_shared_between_the_two_nearest_directions(
        self, across: int, down: int
    ) -> None:
        y, x = np.mgrid[:32, :32]
        ramp = across * x + down * y
        image = (ramp - ramp.min()).astype(np.uint8)
        row = Histogram().rows(np.repeat(image[None, :, :, None], 3, axis=3))
        lower, nearer = divmod(9.0 * (np.arctan2(down, across) / np.pi % 1.0), 1.0)
        wanted = np.zeros(9)
        wanted[int(lower)], wanted[(int(lower) + 1) % 9] = 1.0 - nearer, nearer
        by_direction = row.reshape(9, 64).sum(axis=1)
        np.testing.assert_allclose(by_direction / by_direction.sum(), wanted, atol=1e-4)

    def test_gradient_is_counted_in_its_cell(self) -> None:
        image = np.zeros((1, 32, 32, 3), np.uint8)
        image[0, 9:11, 21:23] = 255  # inside the cell of rows 8 to 11, columns 20 to 23
        cells = Histogram().rows(image).reshape(9, 8, 8).sum(axis=0)
        assert np.argwhere(cells > 0.0).tolist() == [[2, 5]]

    def test_cell_must_divide_the_image(self, images: np.ndarray) -> None:
        with pytest.raises(ValueError, match="cell=5 does not divide"):
            Histogram(cell=5).rows(images)


class TestScattering:
    @pytest.mark.parametrize("scale", [1.0, 2.0])
    def test_wavelet_has_no_mean_and_passes_its_own_frequency(
        self, scale: float
    ) -> None:
        spectrum = morlet(48, scale, 0.0)
        assert abs(spectrum[0, 0]) < 1e-6
        peak = np.unravel_index(np.abs(spectrum).argmax(), spectrum.shape)
        assert peak[0] == 0
        assert abs(peak[1] - 48 * 0.375 / scale) <= 2
        assert 0.8 < np.abs(spectrum).max() < 1.2

    def test_low_pass_keeps_a_constant(self) -> None:
        smooth = low_pass(32, 2)
        assert smooth.shape == (8, 32 + 2 * MARGIN)
        np.testing.assert_allclose(smooth.sum(axis=1), 1.0, rtol=1e-6)
        np.testing.assert_allclose(smooth, smooth[::-1, ::-1], rtol=1e-5)

    @pytest.mark.parametrize("direction", range(8))
    def test_stripes_excite_the_wavelet_along_them(self, direction: int) -> None:
        half = stripes(np.pi * direction / 8)
        half[:, :, 16:] = 127  # flat on the right, so that centring leaves something
        channels = Scattering().rows(half).reshape(2, 8, 8, 8)
        left = channels[..., :3].mean(axis=(2, 3))
        assert left[0].argmax() == direction

    def test_each_channel_is_centred_in_its_image(self, images: np.ndarray) -> None:
        channels = Scattering().rows(images).reshape(6, 16, 64)
        np.testing.assert_allclose(channels.mean(axis=2), 0.0, atol=1e-7)

    def test_batches_do_not_show(
        self, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = Scattering().rows(images)
        monkeypatch.setattr("benchmarks.features.scattering.BATCH", 4)
        np.testing.assert_allclose(Scattering().rows(images), whole, atol=1e-6)


EXTRACTOR = Spent(0.1, 1e-5)
HEAD = Spent(1.0, 1e-5)


class TestGroup:
    @pytest.mark.parametrize("n_rows", [0, 1, 2, 30])
    def test_group_pays_for_each_of_its_rows(self, n_rows: int) -> None:
        group = EXTRACTOR.of_group(n_rows)
        assert group.epsilon == pytest.approx(0.1 * n_rows)
        assert group.delta == pytest.approx(n_rows * exp(0.1 * (n_rows - 1)) * 1e-5)

    def test_group_formula_covers_the_chain_of_single_rows(self) -> None:
        epsilon, delta = EXTRACTOR.epsilon, EXTRACTOR.delta
        chain = 0.0
        for _ in range(12):
            chain = delta + exp(epsilon) * chain
        assert chain <= EXTRACTOR.of_group(12).delta

    def test_huge_group_neither_overflows_nor_exceeds_one(self) -> None:
        assert EXTRACTOR.of_group(10**6).delta == 1.0
        assert Spent(0.1, 0.0).of_group(10**6).delta == 0.0

    def test_head_and_extractor_add_up(self) -> None:
        total = coverage(HEAD, EXTRACTOR, 10).total
        assert total.epsilon == pytest.approx(2.0)
        assert total.delta == pytest.approx(1e-5 + 1e-4 * exp(0.9))

    def test_extractor_that_never_saw_the_data_is_free(self) -> None:
        answer = coverage(HEAD, None, 5000)
        assert answer.total == HEAD
        assert not answer.vacuous
        assert "covers the whole model: epsilon 1, delta 1e-05" in answer.sentence

    def test_right_guesses_are_what_randomised_response_allows(self) -> None:
        # Answering truly with this probability is (log 3, 0)-private, exactly.
        answer = coverage(Spent(log(3.0), 0.0), None, 1)
        assert answer.right_guesses == pytest.approx(0.75)
        # Showing everything with probability delta, and nothing else, is (0, delta).
        assert coverage(Spent(0.0, 0.2), None, 1).right_guesses == pytest.approx(0.6)

    def test_sentence_names_the_comparison_and_its_price(self) -> None:
        sentence = coverage(HEAD, EXTRACTOR, 1).sentence
        for part in (
            "forgot 1 row,",
            "at most 75.03 % of the time",
            "the extractor was not retrained",
            "retraining both",
            "epsilon 1.1, delta 2e-05",
            "takes epsilon 0.1, delta 1e-05",
            "Not covered",
            "ideal noise",
        ):
            assert part in sentence
        assert "next to nothing" not in sentence

    @pytest.mark.parametrize("n_removed", [100, 1000])
    def test_vacuous_promise_is_called_so(self, n_removed: int) -> None:
        answer = coverage(HEAD, EXTRACTOR, n_removed)
        assert answer.vacuous
        assert "promises next to nothing" in answer.sentence
        assert "retrain the extractor" in answer.sentence

    def test_weak_head_alone_is_called_vacuous_too(self) -> None:
        sentence = coverage(Spent(8.0, 1e-5), None, 1).sentence
        assert "give the head a smaller epsilon" in sentence

    def test_largest_group_is_the_last_that_is_not_vacuous(self) -> None:
        most = largest_group(EXTRACTOR)
        nothing = Spent(0.0, 0.0)
        assert coverage(nothing, EXTRACTOR, most).right_guesses <= NOMINAL
        assert coverage(nothing, EXTRACTOR, most + 1).right_guesses > NOMINAL
        with pytest.raises(ValueError, match="spends nothing"):
            largest_group(nothing)

    @pytest.mark.parametrize("pair", [(-0.1, 0.0), (inf, 0.0), (1.0, 1.1), (1.0, nan)])
    def test_nonsense_is_refused(self, pair: tuple[float, float]) -> None:
        with pytest.raises(ValueError, match=r"(epsilon|delta)=.*; it must"):
            Spent(*pair)
        with pytest.raises(ValueError, match="n_removed=-1"):
            coverage(HEAD, EXTRACTOR, -1)
        with pytest.raises(ValueError, match="n_rows=-2"):
            EXTRACTOR.of_group(-2)


class TestCache:
    def test_second_call_reads_the_file(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = tmp_path / "kept" / "here"
        first = load_features(kept, Histogram(), folder)
        monkeypatch.setattr(Histogram, "__call__", None)
        again = load_features(kept, Histogram(), folder)
        for one, other in ((first.train, again.train), (first.test, again.test)):
            np.testing.assert_array_equal(one.X, other.X)
            np.testing.assert_array_equal(one.y, other.y)
        assert again.spent is None
        assert [path.suffix for path in kept.iterdir()] == [".npz"]

    def test_spent_is_kept(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = Histogram()(svhn_3_vs_8(folder))

        def costly(self: Histogram, digits: Digits) -> Features:
            return Features(made.train, made.test, EXTRACTOR)

        monkeypatch.setattr(Histogram, "__call__", costly)
        load_features(folder, Histogram(), folder)
        assert load_features(folder, Histogram(), folder).spent == EXTRACTOR

    def test_whatever_decides_the_features_is_in_the_key(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = paths(folder)
        maps: list[FeatureMap] = [
            Histogram(),
            Histogram(directions=8),
            Scattering(),
            Extractor(),
            Extractor(seed=1),
            Extractor.untrained(),
        ]
        keys = {key(feature_map, data) for feature_map in maps}
        monkeypatch.setattr("benchmarks.features.cache.version", lambda name: "99")
        keys.add(key(Histogram(), data))
        data[1].write_bytes(data[1].read_bytes() + b"x")
        keys.add(key(Histogram(), data))
        monkeypatch.setattr(sys.modules[Histogram.__module__], "__file__", data[0])
        keys.add(key(Histogram(), data))
        assert len(keys) == len(maps) + 3

    @pytest.mark.parametrize("damage", [b"", b"nonsense", b"PK\x03\x04 cut short"])
    def test_damaged_file_is_computed_afresh(self, folder: Path, damage: bytes) -> None:
        kept = folder / "kept"
        whole = load_features(kept, Histogram(), folder)
        (path,) = kept.iterdir()
        path.write_bytes(damage)
        np.testing.assert_array_equal(
            load_features(kept, Histogram(), folder).test.X, whole.test.X
        )
        assert path.stat().st_size > 1000

    def test_interrupted_write_leaves_nothing(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(path: Path, **arrays: np.ndarray) -> None:
            path.write_bytes(b"half")
            raise KeyboardInterrupt

        monkeypatch.setattr(np, "savez", interrupted)
        kept = folder / "kept"
        with pytest.raises(KeyboardInterrupt):
            load_features(kept, Histogram(), folder)
        assert list(kept.iterdir()) == []


class TestAccuracy:
    def test_easy_digits_are_told_apart(self, digits: Digits) -> None:
        assert accuracy.accuracies(Histogram()(digits), (1e-2, 1e-3)) == [100.0, 100.0]

    def test_target_is_at_the_named_alpha_or_at_the_best(self) -> None:
        percents = (80.0, 90.96, 92.0, 89.0)
        named = accuracy.target("scattering", percents)
        best = accuracy.target("gradient histogram", percents)
        assert (named.value, best.value) == (91.0, 92.0)
        assert named.reached

    def test_section_says_when_the_promise_is_vacuous(self) -> None:
        text = str(accuracy.coverage_section(EXTRACTOR))
        assert "promises next to nothing" in text
        assert f"vacuous past {largest_group(EXTRACTOR)} removed rows" in text

    def test_gain_is_the_mean_of_pairs(self) -> None:
        untrained = np.array([[70.0] * 4, [80.0] * 4])
        trained = untrained + np.array([[1.0, 2.0, 0.0, -4.0], [3.0, 2.0, 0.0, -2.0]])
        text = accuracy.gain(trained, untrained)
        assert "same 2 networks" in text
        assert "+2.0 (1.0) at alpha 0.001, +2.0 (0.0)" in text
        assert "-3.0 (1.0) at alpha 1e-06" in text

    def test_repeats_are_a_mean_and_a_deviation(self) -> None:
        percents = np.array([[80.0] * 4, [82.0] * 4])
        cells = accuracy.MapAccuracy(percents, 256, EXTRACTOR).cells
        assert cells == ("256", "0.1000", *["81.0 (1.4)"] * 4)
        alone = accuracy.MapAccuracy(percents[:1], 576, None).cells
        assert alone == ("576", "none", *["80.0"] * 4)

    def test_missing_extra_is_a_note(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        sections = [str(section) for section in accuracy.run(folder, folder / "kept")]
        assert len(sections) == 1
        assert "gradient histogram" in sections[0]
        assert "untrained extractor left out" in sections[0]

    def test_missing_extra_says_how_to_get_it(
        self, digits: Digits, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(MissingExtra, match="pip install --group deep"):
            Extractor()(digits)


class TestExtractor:
    @pytest.fixture(autouse=True)
    def deep(self) -> None:
        pytest.importorskip("torch")
        pytest.importorskip("opacus")

    small = Extractor(epochs=2, batch=16, noise_multiplier=2.0)

    def test_untrained_network_has_256_unit_features(self, digits: Digits) -> None:
        features = Extractor.untrained()(digits)
        assert features.spent is None
        assert features.train.X.shape == (80, 256)
        np.testing.assert_allclose(np.linalg.norm(features.test.X, axis=1), 1.0)

    def test_untrained_network_never_sees_the_training_rows(
        self, digits: Digits
    ) -> None:
        other = digits._replace(
            train_images=digits.train_images[::-1], train_labels=-digits.train_labels
        )
        one, two = Extractor.untrained()(digits), Extractor.untrained()(other)
        np.testing.assert_array_equal(one.test.X, two.test.X)

    def test_training_repeats_itself_and_moves_the_features(
        self, digits: Digits
    ) -> None:
        one, again = self.small(digits), self.small(digits)
        np.testing.assert_array_equal(one.train.X, again.train.X)
        np.testing.assert_array_equal(one.test.X, again.test.X)
        first = replace(self.small, epochs=0)(digits)
        assert np.abs(one.test.X - first.test.X).max() > 1e-3
        reseeded = replace(self.small, seed=1)(digits)
        assert np.abs(one.test.X - reseeded.test.X).max() > 1e-3

    def test_torch_is_left_as_it_was_found(self, digits: Digits) -> None:
        torch = pytest.importorskip("torch")
        torch.manual_seed(5)
        threads, wanted = torch.get_num_threads(), torch.rand(3)
        torch.manual_seed(5)
        self.small(digits)
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.rand(3), wanted)

    def test_spent_falls_with_noise_and_agrees_with_another_accountant(
        self, digits: Digits
    ) -> None:
        dp = pytest.importorskip("dp_accounting")
        pld = pytest.importorskip("dp_accounting.pld")
        spent = self.small(digits).spent
        quieter = replace(self.small, noise_multiplier=4.0)(digits).spent
        assert spent is not None and quieter is not None
        assert spent.delta == self.small.delta
        assert quieter.epsilon < spent.epsilon
        # 80 rows in batches of 16: rate 1/5, five steps a pass.
        step = dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(2.0))
        accountant = pld.PLDAccountant()
        accountant.compose(dp.SelfComposedDpEvent(step, 10))
        assert spent.epsilon == pytest.approx(
            accountant.get_epsilon(spent.delta), abs=5e-3
        )

    def test_defaults_cost_a_tenth_on_the_real_number_of_rows(self) -> None:
        prv = pytest.importorskip("opacus.accountants").PRVAccountant()
        default, n_rows = Extractor(), 13542
        passes = -(-n_rows // default.batch)
        prv.history = [
            (default.noise_multiplier, 1.0 / passes, default.epochs * passes)
        ]
        with pytest.warns(UserWarning, match="Optimal order"):
            epsilon = prv.get_epsilon(default.delta, eps_error=0.002)
        assert 0.09 < epsilon <= 0.1
