# SPDX-License-Identifier: Apache-2.0
"""Data of the benchmarks: found, read and encoded, never fetched.

Files are looked for in the folder given on the command line, then in the one that
``EXPUNGE_DATA`` names.
"""

import gzip
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

VARIABLE = "EXPUNGE_DATA"
IDX_UNSIGNED_BYTES = 8

DOSE = "Therapeutic Dose of Warfarin"
INDICATION = "Indication for Warfarin Treatment"
NUMERIC = ("Height (cm)", "Weight (kg)", "Target INR")
# Identifier and label; two outcomes measured under the dose; two free texts. The
# "QC" columns repeat genotypes for the few patients that were typed twice.
NOT_FEATURES = (
    "PharmGKB Subject ID",
    DOSE,
    "Subject Reached Stable Dose of Warfarin",
    "INR on Reported Therapeutic Dose of Warfarin",
    "Comorbidities",
    "Medications",
)
HIGH_DOSE = 30.0
# Columns of Adult: age, years of education, gains, losses, hours; and the words.
ADULT_NUMBERS = (0, 4, 10, 11, 12)
ADULT_WORDS = (1, 3, 5, 6, 7, 8, 9, 13)
RARE = 10


class DataNotFound(FileNotFoundError):
    """A data file is in none of the folders looked at."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Dataset:
    """A design and labels of -1 and +1."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.y)


def find(name: str, data_dir: Path | None = None) -> Path:
    """Return the path of a data file, or raise DataNotFound naming it."""
    variable = os.environ.get(VARIABLE)
    folders = [data_dir, Path(variable) if variable else None]
    for folder in folders:
        if folder is not None and (folder / name).is_file():
            return folder / name
    looked = ", ".join(str(folder) for folder in folders if folder) or "no folder"
    raise DataNotFound(
        f"{name} is wanted and was not found (looked in: {looked}); pass "
        f"--data-dir, or set {VARIABLE}, to the folder that holds {name}"
    )


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array in a gzipped idx file of unsigned bytes."""
    with gzip.open(path) as file:
        raw = file.read()
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != IDX_UNSIGNED_BYTES:
        raise ValueError(f"{path.name} is not an idx file of unsigned bytes")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4).astype(int)
    values = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    return values.reshape(tuple(shape))


def mnist_3_vs_8(data_dir: Path | None = None, *, test: bool = False) -> Dataset:
    """Return MNIST's digits 3 and 8 for training or test, of unit norm; 8 is +1."""
    part = "t10k" if test else "train"
    images = read_idx(find(f"mnist/{part}-images-idx3-ubyte.gz", data_dir))
    labels = read_idx(find(f"mnist/{part}-labels-idx1-ubyte.gz", data_dir))
    chosen = (labels == 3) | (labels == 8)
    X = images[chosen].reshape(int(chosen.sum()), -1).astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Dataset(X, np.where(labels[chosen] == 8, 1.0, -1.0))


def warfarin(data_dir: Path | None = None) -> Dataset:
    """Return the 5528 patients with a dose, encoded; above 30 mg a week is +1."""
    path = find("warfarin/warfarin.csv", data_dir)
    frame = pd.read_csv(path, encoding="utf-8-sig").dropna(how="all")
    return encode_warfarin(frame.dropna(axis=1, how="all"))


def encode_warfarin(frame: pd.DataFrame) -> Dataset:
    """Return the table as numbers.

    Height, weight and target INR are standardised, missing ones put at the mean
    and flagged. The indication gives a flag for each of its eight codes. Every
    other column gives a flag for each value, "missing" among them. A flag that
    fewer than ten patients have, or lack, is dropped.
    """
    frame = frame.dropna(subset=[DOSE])
    standardised, flags = [], []
    for name in frame.columns:
        if name in NOT_FEATURES or "QC" in name:
            continue
        column = frame[name]
        if name in NUMERIC:
            standardised.append(_standardise(column))
            flags.append(_flag(column.isna()))
        elif name == INDICATION:
            text = column.fillna("").astype(str)
            flags += [_flag(text.str.contains(code)) for code in "12345678"]
            flags.append(_flag(column.isna()))
        else:
            text = column.astype(object).where(column.notna(), "missing").astype(str)
            flags += [_flag(text == value) for value in sorted(text.unique())]
    X = np.column_stack([*standardised, *_common(flags)])
    return Dataset(X, np.where(frame[DOSE].to_numpy() > HIGH_DOSE, 1.0, -1.0))


def _standardise(column: "pd.Series[Any]") -> NDArray[np.float64]:
    """Return (value - mean) / deviation, zero where missing."""
    values = column.to_numpy(dtype=np.float64)
    scaled: NDArray[np.float64] = (values - np.nanmean(values)) / np.nanstd(values)
    return np.where(np.isnan(values), 0.0, scaled)


def _flag(column: "pd.Series[Any]") -> NDArray[np.float64]:
    """Return ones where true."""
    return column.to_numpy().astype(np.float64)


def _common(flags: Iterable[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """Return the flags that neither too few nor all but too few have."""
    return [flag for flag in flags if RARE <= flag.sum() <= len(flag) - RARE]


def adult(data_dir: Path | None = None) -> tuple[Dataset, Dataset]:
    """Return Adult's training and test people, encoded; above 50K a year is +1.

    Numbers are standardised and clipped at three deviations, every other column
    gives a flag for each value, "missing" among them. The survey's own weight is
    left out.
    """
    return encode_adult(*_read_adult(data_dir))


def raw_adult(data_dir: Path | None = None) -> list[tuple[pd.DataFrame, Any]]:
    """Return Adult's training and test people as they are, and who earns above 50K."""
    tables = []
    for frame in _read_adult(data_dir):
        rich = frame[14].str.startswith(">50K").to_numpy().astype(int)
        table = frame.drop(columns=14)
        table.columns = pd.Index([f"c{name}" for name in table.columns])
        tables.append((table, rich))
    return tables


def _read_adult(data_dir: Path | None) -> list[pd.DataFrame]:
    """Return both tables, with gaps where a value is unknown."""
    return [
        pd.read_csv(
            find(f"adult/adult.{part}.gz", data_dir),
            header=None,
            skipinitialspace=True,
            na_values="?",
            skiprows=skipped,
        )
        for part, skipped in (("data", 0), ("test", 1))
    ]


def encode_adult(train: pd.DataFrame, test: pd.DataFrame) -> tuple[Dataset, Dataset]:
    """Return both tables as numbers, scaled and coded as the first one says."""
    parts: list[list[NDArray[np.float64]]] = [[], []]
    for name in ADULT_NUMBERS:
        mean, deviation = train[name].mean(), train[name].std()
        for columns, frame in zip(parts, (train, test), strict=True):
            values = frame[name].to_numpy(dtype=np.float64)
            columns.append(np.clip((values - mean) / deviation, -3.0, 3.0))
    for name in ADULT_WORDS:
        for word in sorted(train[name].fillna("missing").astype(str).unique()):
            for columns, frame in zip(parts, (train, test), strict=True):
                columns.append(_flag(frame[name].fillna("missing") == word))
    labels = [
        np.where(frame[14].str.startswith(">50K").to_numpy(), 1.0, -1.0)
        for frame in (train, test)
    ]
    designs = [np.column_stack(columns) for columns in parts]
    return Dataset(designs[0], labels[0]), Dataset(designs[1], labels[1])
