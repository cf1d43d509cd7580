# SPDX-License-Identifier: Apache-2.0
"""The command ``fit``: to a table in memory, or to files read block by block."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import CannotFit, ExpungeError, InvalidInput
from .estimators import (
    BudgetOptions,
    LossName,
    ModelKind,
    ModelOptions,
    parse_classes,
)
from .exact import RECOMMENDERS, ExactOptions, read_user_items, require_numbers
from .models import read_columns
from .options import (
    FOLDER,
    Drop,
    Folder,
    KeepRows,
    ModelName,
    OthersIds,
    Unchecked,
    WithoutForgotten,
    Yes,
    open_registry,
    require_file,
)
from .output import (
    Result,
    TextTable,
    confirm,
    count_releases_left,
    describe_promise,
    format_count,
    format_pairs,
    format_people,
    model_to_json,
    print_note,
    show_named_progress,
    show_progress,
)
from .rows import explain_forgotten, explain_near, label_rows

if TYPE_CHECKING:
    from ..long import LongTable
    from ..registry import LeftOut, ModelStatus, Registry
    from ..tables import Schema, TrainingTable


ENDING = ".schema.json"
MEBIBYTE = 1 << 20
FIT_LABELS = ("looking for people who left", "fitting", "storing", "erasing")


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options that say what is fitted, and to whose rows."""

    target: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column that the model predicts; needed but with --model ease and "
            "popularity.",
            show_default=False,
        ),
    ] = ""
    subject: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of ids that say whose row it is."),
    ] = None
    subject_kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="What the ids are, such as email or phone: they are kept in the one "
            "normal form of that kind, and people are found by it, raw or hashed. id: "
            "ids are compared as they are (default, unless they are addresses).",
        ),
    ] = None
    no_subject: Annotated[
        bool,
        typer.Option(
            "--no-subject",
            help="The rows belong to nobody: nobody can be forgotten from the model.",
        ),
    ] = False
    weight: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of weights; not a feature."),
    ] = None
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that says for how long, or over how much, each count or "
            "amount was collected; with --loss.",
        ),
    ] = None
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that is added to what the features say; with --loss.",
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column that says until when each person was seen; with --loss "
            "survival, and a target that is 1 if the event happened then, or 0.",
        ),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="All classes that the target may have, separated by commas: declared "
            "in advance, so that a class without rows stays in the model. Without this "
            "option a class leaves the model with its last row.",
        ),
    ] = None
    drop: Drop = None
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Treat a column as words, even if it looks like numbers; may be "
            "repeated.",
        ),
    ] = None
    text: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Read the words of this column, hashed, and no other column.",
        ),
    ] = None
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B",
            help="Take what a row has in these two columns of words as one category "
            "more; may be repeated.",
        ),
    ] = None
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read from this file what each column is."),
    ] = None
    write_schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write to this file what each column is (default: beside the table, "
            "with the ending .schema.json).",
        ),
    ] = None
    no_trial: Annotated[
        bool,
        typer.Option(
            "--no-trial",
            help="Do not fit a second model to find out what accuracy to expect.",
        ),
    ] = False
    tuned_by: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Declare what chose alpha, columns or the budget by looking at these "
            "rows, e.g. 'grid search'. Removals do not undo that choice, so nothing is "
            "promised. Not needed with --alphas, which chooses again.",
        ),
    ] = None
    untuned: Annotated[
        bool,
        typer.Option(
            "--untuned",
            help="Declare that neither alpha nor columns nor the budget were chosen by "
            "looking at these rows. Otherwise certificates say that it is not known.",
        ),
    ] = False
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the model of this name.")
    ] = False
    readmit: Annotated[
        bool,
        typer.Option(
            "--readmit",
            help="Accept people who were forgotten before, because they came back.",
        ),
    ] = False
    without_forgotten: WithoutForgotten = False
    exact: OthersIds = False
    unchecked: Unchecked = False


@dataclass(frozen=True, kw_only=True)
class LakeOptions:
    """Options of tables that may stay in their files."""

    keep_rows: Annotated[
        KeepRows,
        typer.Option(
            help="registry: keep the rows, sealed. lake: keep only where each "
            "person's rows are, and read your Parquet files when an answer needs them. "
            "never: the same, and read nothing again but the rows of those who leave."
        ),
    ] = KeepRows.registry
    source: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Public name of the files: receipts say that this source still holds "
            "people who left (default: the name of the model).",
        ),
    ] = None
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="MIB",
            min=1,
            help="How many MiB of rows may be in memory while files are read (default: "
            "256).",
        ),
    ] = None
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Fit on the workers of a Dask cluster, at dask://HOST:PORT. They must "
            "see the files under the same paths. With --keep-rows lake or never.",
        ),
    ] = None


@dataclass(frozen=True)
class Fit:
    """All that a fit is asked for.

    Attributes
    ----------
    name, files
        Of the model, and of the table.
    options, estimator, budget, lake, sums
        What the command line says.
    yes, folder
        Whether to ask nothing, and where the registry is.
    """

    name: str
    files: Sequence[Path]
    options: DataOptions
    estimator: ModelOptions
    budget: BudgetOptions
    lake: LakeOptions
    yes: bool
    folder: Path
    sums: ExactOptions = field(default_factory=ExactOptions)


def fit(
    name: ModelName,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="The table: CSV, Parquet or Arrow; or Parquet files, or their folder.",
        ),
    ],
    *,
    options: DataOptions,
    estimator: ModelOptions,
    budget: BudgetOptions,
    lake: LakeOptions,
    sums: ExactOptions,
    yes: Yes = False,
    registry: Folder = FOLDER,
) -> Result:
    """Fit a model to a table, and keep it so that it can forget.

    Text, dates and missing values are taken care of: it prints what it does with each
    column, and writes that to a schema file that you can edit and give back with
    --schema. The first release is made under a budget: what it promises, and the noise
    that pays for it, are fixed before the data are seen. With --no-budget nothing is
    promised.

    Several Parquet files, a folder of them, and a table with --keep-rows lake or never,
    are read block by block and may be larger than memory; their columns must be numbers
    and are used as they are.
    """
    sums.require_columns()
    if sums.model in RECOMMENDERS:
        options = replace(options, subject=sums.user)
    elif not options.target:
        raise InvalidInput("what does the model predict? name the column with --target")
    if options.subject is None and not options.no_subject:
        raise InvalidInput(
            "whose rows are these? name the column of ids with --subject, or give "
            "--no-subject if nobody needs to be forgotten from the model"
        )
    if options.no_subject and (options.subject is not None or options.readmit):
        other = "--readmit" if options.subject is None else "--subject"
        raise InvalidInput(f"--no-subject with {other}; give only one of them")
    if options.untuned and (options.tuned_by is not None or estimator.is_tuned):
        other = "--tuned-by" if options.tuned_by is not None else "--alphas or --search"
        raise InvalidInput(f"--untuned with {other}; give only one of them")
    estimator.require_time(options.time)
    if options.without_forgotten and (options.no_subject or options.readmit):
        other = "--no-subject" if options.no_subject else "--readmit"
        raise InvalidInput(f"--without-forgotten with {other}; give only one of them")
    asked = Fit(name, files, options, estimator, budget, lake, yes, registry, sums)
    if sums.model is not None:
        return fit_exact(asked)
    kept = lake.keep_rows is KeepRows.registry and lake.engine is None
    if kept and len(files) == 1 and not files[0].is_dir():
        return fit_table(asked)
    return fit_files(asked)


def _name_option(error: CannotFit) -> CannotFit:
    """Return a refused fit with the option in place of Python's argument."""
    if error.change is None:
        return error
    name, value = error.change
    if name not in ("sigma", "tau", "alpha", "C", "alphas", "penalize_intercept"):
        return error
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, tuple):
        option += f" {','.join(f'{each:g}' for each in value)}"
    elif isinstance(value, float):
        option += f" {value:g}"
    named = type(error)(f"{str(error).rpartition('; ')[0]}; {option} works")
    named.change = error.change
    return named


def fit_table(asked: Fit) -> Result:
    """Fit to a table in memory; say what was done with each column."""
    from ..registry import ForgottenInData
    from ..tables import Roles, read_schema, read_table
    from ..tables.schema import RARE_BELOW
    from ..tables.trial import try_model

    options, (file,) = asked.options, asked.files
    require_file(file)
    if options.schema is not None:
        require_file(options.schema)
    folder = options.write_schema and options.write_schema.absolute().parent
    if folder and not folder.is_dir():
        raise InvalidInput(
            f"--write-schema {options.write_schema}: there is no such folder; make it"
        )
    given = None if options.schema is None else read_schema(options.schema)
    if given is not None and options.text is not None:
        raise InvalidInput("--text with --schema, which says what is text; omit it")
    roles = Roles(
        target=options.target,
        subject=options.subject,
        weight=options.weight,
        exposure=options.exposure,
        offset=options.offset,
        time=options.time,
        drop=tuple(options.drop or ()),
        category=tuple(options.category or ()),
        text=options.text,
        pairs=tuple(_read_pair(one) for one in options.pair or ()),
        task=asked.estimator.choose_task(),
    )
    table = read_table(file, roles, schema=given)
    if options.subject_kind is None and table.subjects:
        _require_plain_ids(table.subjects, f"{options.subject!r} of {file}")
    classes = table.schema.classes
    if options.classes is not None:
        if classes is not None:
            raise InvalidInput("--classes, but the schema declares them; omit it")
        classes = tuple(parse_classes(options.classes, table.y))
    budget = asked.budget.build_budget()
    kind, model = asked.estimator.build_for_table(table, classes=classes, budget=budget)
    if options.untuned:
        model.set_params(selection="none")
    labelled = label_rows(model, table)
    with open_registry(asked.folder) as registry:
        _require_nobody_named(registry, asked, files=[file])
        _confirm_replacement(asked)
        if options.readmit and table.subjects:
            registry.requests.readmit(table.subjects)
        store = registry.models.refit if options.replace else registry.fit
        try:
            left_out = store(
                asked.name,
                model,
                labelled.X,
                labelled.y,
                subjects=labelled.subjects,
                sample_weight=labelled.weight,
                search=options.tuned_by,
                without_forgotten=options.without_forgotten,
                subject_kind=options.subject_kind or "id",
                exact=options.exact,
                unchecked=options.unchecked,
                columns=_describe_columns(table.schema, options),
            )
        except ForgottenInData as error:
            advice = "state with --readmit that they came back"
            raise explain_forgotten(error, labelled, advice=advice) from None
        except CannotFit as error:
            raise _name_option(error) from None
        fitted = {model.name: model for model in registry.status().models}[asked.name]
    written = options.write_schema
    if given is None or written is not None:
        written = write_schema(table.schema, file, asked=written)
    trial = None
    if options.no_trial:
        expect = "not tried, as you asked"
    else:
        try:
            trial = try_model(model, table)
            expect = trial.describe()
        except ExpungeError as error:
            expect = f"not known: {error}"

    guessed = " (guessed from the target; choose with --task or --kind)"
    chosen = asked.estimator.loss
    named = asked.estimator.kind is not ModelKind.auto or chosen is not LossName.auto
    is_guess = not named and options.schema is None
    n_rows = len(labelled.y) - left_out.n_rows
    owners = "without owners" if table.subjects is None else _of_people(fitted)
    n_features = format_count(len(table.schema.used), "feature")
    done = [
        (column.name, column.kind, column.describe()) for column in table.schema.columns
    ]
    for one in table.schema.pairs:
        rare = f"those in fewer than {RARE_BELOW} rows together"
        done.append((" & ".join(one), "pair", f"one-hot, categories learnt, {rare}"))
    loss = [("loss", chosen.value)] if chosen is not LossName.auto else []
    pairs: list[tuple[str, object]] = [
        ("model", fitted.name),
        ("kind", f"{kind}{guessed if is_guess else ''}"),
        *loss,
        ("rows", f"{n_rows} {owners}, {n_features}"),
        ("release", fitted.number),
        ("promise", describe_promise(fitted.certificate)),
        ("expect", expect),
    ]
    keys = ("name", "kind", "done")
    score = trial and {
        name: getattr(trial, name) for name in ("score", "guess", "noise")
    }
    data = {
        "kind": kind.value,
        "task": table.schema.task,
        "n_rows": n_rows,
        "left_out": left_out._asdict(),
        "n_without_target": table.n_without_target,
        "columns": [dict(zip(keys, one, strict=True)) for one in done],
        "schema": None if written is None else str(written),
        "trial": score,
    }
    columns = TextTable(("column", "kind", "what is done"), done)
    notes = [*_list_remarks(table, left_out, written=written), *_list_warnings(asked)]
    text: list[str | TextTable] = [columns, "", format_pairs(pairs)]
    return _return_fit(fitted, data, text=text, notes=notes)


def fit_exact(asked: Fit) -> Result:
    """Fit a model of exact sums to a table in memory, its numbers as they are."""
    from ..registry import ForgottenInData
    from ..tables import Roles, read_table

    options, sums, (file, *others) = asked.options, asked.sums, asked.files
    assert sums.model is not None
    subjects: list[str] | None
    if others or asked.lake.keep_rows is not KeepRows.registry:
        raise InvalidInput(
            f"--model {sums.model.value} takes one table in memory; give one file, and "
            "leave --keep-rows out"
        )
    if asked.budget != BudgetOptions():
        raise InvalidInput(
            f"--model {sums.model.value} has no budget, because it has no noise; omit "
            "the options of a budget"
        )
    if sums.model in RECOMMENDERS:
        model = sums.build()
        X, y, subjects = read_user_items(file, sums)
        weight, what = None, "pair"
    else:
        require_file(file)
        roles = Roles(
            target=options.target,
            subject=options.subject,
            weight=options.weight,
            drop=tuple(options.drop or ()),
            task=sums.task,
        )
        table = read_table(file, roles)
        require_numbers(table, sums.model.value)
        classes = None
        if options.classes is not None:
            classes = parse_classes(options.classes, table.y)
        model = sums.build(alpha=asked.estimator.alpha, classes=classes)
        X, y, weight = table.X, table.y, table.weight
        subjects, what = table.subjects, "row"
    if options.subject_kind is None and subjects:
        _require_plain_ids(subjects, f"{options.subject!r} of {file}")
    with open_registry(asked.folder) as registry:
        _require_nobody_named(registry, asked, files=[file])
        _confirm_replacement(asked)
        if options.readmit and subjects:
            registry.requests.readmit(subjects)
        store = registry.models.refit if options.replace else registry.fit
        try:
            left_out = store(
                asked.name,
                model,
                X,
                y,
                subjects=subjects,
                sample_weight=weight,
                search=options.tuned_by,
                without_forgotten=options.without_forgotten,
                subject_kind=options.subject_kind or "id",
                exact=options.exact,
                unchecked=options.unchecked,
            )
        except ForgottenInData as error:
            raise InvalidInput(
                f"{file} holds rows of {format_people(error.n_people)} who were "
                "forgotten; leave them out with --without-forgotten, or state with "
                "--readmit that they came back"
            ) from None
        fitted = {model.name: model for model in registry.status().models}[asked.name]
    owners = "without owners" if subjects is None else _of_people(fitted)
    n_rows = format_count(len(X) - left_out.n_rows, what)
    pairs: list[tuple[str, object]] = [
        ("model", fitted.name),
        ("kind", sums.model.value),
        ("rows", f"{n_rows} {owners}"),
        ("release", fitted.number),
        ("promise", describe_promise(fitted.certificate)),
    ]
    data = {"kind": sums.model.value, "left_out": left_out._asdict()}
    return _return_fit(fitted, data, text=[format_pairs(pairs)], notes=[])


def fit_files(asked: Fit) -> Result:
    """Fit to Parquet files that are read block by block."""
    from ..long.parquet import find_files
    from ..registry import ForgottenInData, Lake

    options, lake = asked.options, asked.lake
    refused = {
        "schema": options.schema,
        "write-schema": options.write_schema,
        "category": options.category,
        "text": options.text,
        "pair": options.pair,
        "alphas": asked.estimator.alphas,
        "class-weight": asked.estimator.class_weight,
        "exposure": options.exposure,
        "offset": options.offset,
        "time": options.time,
    }
    for option, value in refused.items():
        if value:
            raise InvalidInput(
                f"--{option} is for a table in memory; these "
                "files are read block by block: give one file and --keep-rows "
                "registry, or omit it"
            )
    with open_registry(asked.folder) as registry, _open_files(asked) as table:
        _require_nobody_named(registry, asked, files=find_files(asked.files))
        kind, model = _build_long_model(asked, table)
        _confirm_replacement(asked)
        if options.readmit:
            for _, owners, _ in table.read_owners():
                back = registry.requests.find_forgotten(owners)
                if back:
                    registry.requests.readmit(back)
        source = Lake(table, lake.keep_rows.value, lake.source, lake.engine)
        store = registry.models.refit if options.replace else registry.fit
        try:
            with show_named_progress("fitting") as report:

                def tell(done: int, total: int) -> None:
                    report(FIT_LABELS[min(done, total - 1)], done, total)

                left_out = store(
                    asked.name,
                    model,
                    source,
                    search=options.tuned_by,
                    without_forgotten=options.without_forgotten,
                    subject_kind=options.subject_kind or "id",
                    exact=options.exact,
                    unchecked=options.unchecked,
                    on_progress=tell,
                )
        except ForgottenInData as error:
            rows = format_count(len(error.rows), "row")
            raise InvalidInput(
                f"the files hold {rows} of {format_people(error.n_people)} who were "
                "forgotten; a fit would bring them back: leave them out with "
                "--without-forgotten, or state with --readmit that they came "
                f"back{explain_near(error)}"
            ) from None
        except CannotFit as error:
            raise _name_option(error) from None
        fitted = {model.name: model for model in registry.status().models}[asked.name]
        n_rows = len(table)
    named = lake.source or asked.name
    stays = lake.keep_rows is not KeepRows.registry
    owners = _of_people(fitted) if options.subject else "without owners"
    pairs: list[tuple[str, object]] = [
        ("model", fitted.name),
        ("kind", kind.value),
        ("rows", f"{n_rows} {owners}"),
        ("release", fitted.number),
        ("promise", describe_promise(fitted.certificate)),
    ]
    notes = []
    if left_out.n_rows:
        rows = format_count(left_out.n_rows, "row")
        notes.append(f"left out: {rows} of people who left before")
    notes.append("columns are used as they are: nothing was encoded or scaled")
    if stays:
        pairs.append(("rows stay in", f"the files of source {named}"))
        notes.append(
            "expunge does not change these files when people leave; expunge lake "
            f"rewrite {asked.name} does, when you ask for it"
        )
    data = {
        "kind": kind.value,
        "n_rows": n_rows,
        "left_out": left_out._asdict(),
        "keep_rows": lake.keep_rows.value,
        "source": named,
    }
    return _return_fit(fitted, data, text=[format_pairs(pairs)], notes=notes)


def _return_fit(
    fitted: "ModelStatus",
    data: dict[str, Any],
    *,
    text: Sequence[str | TextTable],
    notes: Sequence[str],
) -> Result:
    """Return the result of a fit; warn if the budget has no release left."""
    warnings = []
    if count_releases_left(fitted.certificate) == 0:
        releases = format_count(fitted.certificate.releases or 0, "release")
        warnings.append(
            f"warning: the budget allows {releases}, and this is the last one: no "
            f"request can be applied to {fitted.name}; fit it again with more "
            "--releases"
        )
    return Result(model_to_json(fitted) | data, text, notes, warnings)


def _of_people(fitted: "ModelStatus") -> str:
    return f"of {format_people(fitted.n_people)}"


def _require_nobody_named(
    registry: "Registry", asked: Fit, *, files: Sequence[Path]
) -> None:
    """Refuse tables without owners, if a column names people who left."""
    from ..tables.people import read_possible_ids

    if not asked.options.no_subject or asked.options.exact:
        return
    models = registry.status().models
    schemas = [read_columns(registry, model.name) for model in models]
    known = {schema.subject for schema in schemas if schema and schema.subject}
    for file in files:
        columns = read_possible_ids(file, asked.options.target, known=known)
        for column, ids in columns:
            back = registry.requests.find_forgotten(ids, near=True) if ids else ()
            if back:
                raise InvalidInput(
                    f"--no-subject, and column {column!r} of {file} names "
                    f"{format_people(len(back))} who were forgotten: their rows "
                    f"would come back; give --subject {column!r} "
                    "--without-forgotten, or --exact if the column does not say "
                    "whose row it is"
                )


def _confirm_replacement(asked: Fit) -> None:
    if asked.options.replace:
        confirm(f"Replace model {asked.name}, and erase its rows?", yes=asked.yes)


def _require_plain_ids(subjects: Sequence[str], column: str) -> None:
    """Raise if ids are addresses, and nobody said whether they are just ids.

    Hashes of such ids, which nothing tells from a stranger's, would find nobody.
    """
    from ..rights.identifiers import ADDRESSES, normal_form

    ids = dict.fromkeys(subjects)
    for kind in ADDRESSES:
        if all(normal_form(kind, subject) is not None for subject in ids):
            raise InvalidInput(
                f"column {column} has nothing but values of "
                f"kind {kind}: give --subject-kind {kind}, and people are found by "
                "any spelling of theirs, raw or hashed; or --subject-kind id, if "
                "ids are compared as they are"
            )


def _read_pair(text: str) -> tuple[str, str]:
    """Return the two columns of a pair such as "profession,region"."""
    names = [name.strip() for name in text.split(",")]
    if len(names) != 2:
        raise InvalidInput(
            f"--pair {text!r}; give two columns separated by a comma, or write "
            '"pairs" into a schema if their names hold commas'
        )
    return names[0], names[1]


def _describe_columns(schema: "Schema", options: DataOptions) -> str:
    """Return what later tables for the model must look like."""
    from ..tables.schema import LEFT_OUT, ROLES, TableSchema, make_column

    known = {column.name for column in schema.columns}
    dropped = [
        make_column(name, LEFT_OUT, why="as you asked")
        for name in options.drop or ()
        if name not in known
    ]
    whole = replace(schema, columns=(*schema.columns, *dropped))
    roles = (getattr(options, name) for name in ROLES)
    return TableSchema(whole, *roles).to_json()


def _list_remarks(
    table: "TrainingTable", left_out: "LeftOut", *, written: Path | None
) -> list[str]:
    """Return what a person should look at."""
    from ..tables.schema import TEXT

    notes = []
    if table.n_without_target:
        rows = format_count(table.n_without_target, "row")
        target = table.schema.target
        notes.append(f"left out: {rows} without a target, column {target!r}")
    if left_out.n_merged:
        n = format_count(left_out.n_merged, "id")
        notes.append(
            f"merged: {n} that other ids are spellings of, by the kind of the ids"
        )
    if left_out.n_rows:
        rows = format_count(left_out.n_rows, "row")
        people = format_people(left_out.n_people)
        notes.append(f"left out: {rows} of {people} who left before")
    texts = [one.name for one in table.schema.used if one.kind == TEXT]
    if texts and table.guessed and len(table.schema.used) > 1:
        notes.append(
            f"looks like free text: {texts[0]!r}, whose words are hashed; --drop "
            f"{texts[0]} leaves them out, and --text {texts[0]} fits a model of them "
            "alone"
        )
    if written is not None:
        notes.append(
            f"{written} says what each column is, as guessed from the rows; "
            "edit it and fit with --schema to declare it yourself"
        )
    return notes


def _list_warnings(asked: Fit) -> list[str]:
    """Return what was given up by the options."""
    notes = []
    if asked.options.no_subject:
        notes.append("The model has no people: nobody can be forgotten from it.")
    if asked.options.tuned_by is not None:
        notes.append(
            "Removals do not undo a choice made by looking at the rows: nothing is "
            "promised."
        )
    if asked.budget.no_budget:
        notes.append(
            "Without a budget nothing is promised about what a release reveals."
        )
    return notes


def write_schema(schema: "Schema", table: Path, *, asked: Path | None) -> Path | None:
    """Write a schema where it was asked for, or beside its table; return where.

    A file beside the table that says something else is left as it is, because somebody
    may have edited it. The model is fitted by now, so a folder that cannot be written
    to is no failure.
    """
    from ..tables.files import SUFFIXES

    text = schema.to_json()
    if asked is not None:
        asked.write_text(text, encoding="utf-8")
        return asked
    # Without .csv, .csv.gz and the like.
    end = max(len(end) for end in SUFFIXES if table.name.lower().endswith(end))
    path = table.with_name(table.name[:-end] + ENDING)
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            print_note(
                f"{path} is another schema, which was not used and stays as it is; "
                "use it with --schema, or write this one with --write-schema"
            )
            return None
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print_note(f"{path} was not written ({error.strerror}); use --write-schema")
        return None
    return path


def _open_files(asked: Fit) -> "LongTable":
    """Look through the files once, and return them as a table."""
    from ..long import open_parquet
    from ..long.parquet import find_files, read_names
    from ..long.raw_table import DEFAULT_MEMORY

    options, lake = asked.options, asked.lake
    for path in asked.files:
        require_file(path)
    features = None
    if options.drop:
        names = read_names(find_files(list(asked.files))[0])
        for name in options.drop:
            if name not in names:
                raise InvalidInput(f"--drop {name}: the files have no such column")
        roles = (options.target, options.subject, options.weight)
        others = {*options.drop, *roles}
        features = [name for name in names if name not in others]
    with show_progress("reading", unit="rows") as report:
        return open_parquet(
            list(asked.files),
            features=features,
            memory=DEFAULT_MEMORY if lake.memory is None else lake.memory * MEBIBYTE,
            # Workers read the files themselves.
            cache=lake.engine is None,
            on_progress=report,
            target=options.target,
            subject=options.subject,
            weight=options.weight,
        )


def _build_long_model(asked: Fit, table: "LongTable") -> tuple[ModelKind, Any]:
    """Return the kind of model for files, and the unfitted estimator."""
    import numpy as np

    from ..tables.training import guess_task

    counted = table.count_targets()
    targets = np.array([0.5]) if counted is None else np.array(list(counted))
    task = asked.estimator.choose_task()
    if task is None:
        task = "regression" if counted is None else guess_task(targets)
    declared = asked.options.classes
    classes = None if declared is None else parse_classes(declared, targets)
    kind = asked.estimator.choose_kind(task, len(classes or targets))
    model = asked.estimator.build_estimator(kind, asked.budget.build_budget())
    if asked.options.untuned:
        model.set_params(selection="none")
    if classes is not None:
        model.set_params(classes=classes)
    return kind, model
