# SPDX-License-Identifier: Apache-2.0
"""Words: how figures are spoken of, in the terminal and on the page alike."""

from ...certificate import Certificate
from .values import Outlook, Setting, Step, Story


def milliseconds(seconds: float) -> str:
    """Return a time, with two digits where it is short."""
    value = 1e3 * seconds
    return f"{value:.0f} ms" if value >= 10.0 else f"{value:.2g} ms"


def ratio(numerator: float, denominator: float) -> str:
    """Return how many times as large one figure is as another."""
    value = numerator / denominator
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def percent(share: float) -> str:
    """Return a share of one, to a tenth of a percent."""
    return f"{100.0 * share:.1f}%"


def people(setting: Setting) -> str:
    """Return who the data are about."""
    return (
        f"{setting.n_people} patients with {setting.n_features} measurements each, "
        "from scikit-learn's breast cancer data. "
        f"{setting.n_held_out} others are in no model: they give the features their "
        "scale, since preprocessing fitted on the people in the model would not be "
        "unlearned, and they test its accuracy"
    )


def promise(paper: Certificate) -> str:
    """Return the contract in a sentence."""
    return (
        f"epsilon {paper.epsilon:g}, delta {paper.delta:g}, for each release on its "
        f"own; noise of standard deviation {paper.sigma:g} on every parameter. The "
        f"model may be {paper.radius_budget:.2g} from retraining"
    )


def nearness(story: Story) -> str:
    """Return how close to retraining every answer was."""
    answers = story.answers
    inside = sum(step.distance <= step.radius <= story.budget for step in answers)
    return (
        f"at most {max(step.distance for step in answers):.2g} from retraining. In "
        f"{inside} of {len(answers)} releases the distance is within the certified "
        f"radius, at most {max(step.radius for step in answers):.2g}, and that within "
        f"the budget of {story.budget:.2g}"
    )


def accuracies(story: Story) -> str:
    """Return what the released model is worth, before and after."""
    before, after = story.fit, story.batch
    return (
        f"released {percent(before.accuracy)} before, {percent(after.accuracy)} after "
        f"{after.n_forgotten} removals; retrained without noise "
        f"{percent(after.retrained_accuracy)}"
    )


def speeds(story: Story) -> tuple[str, ...]:
    """Return what times were measured, and how they compare."""
    times = story.typical
    return (
        f"a whole request, answered alone: {milliseconds(times.alone)}; in a batch of "
        f"{story.n_batch}: {milliseconds(times.in_batch)} a person, a ratio of "
        f"{ratio(times.alone, times.in_batch)}",
        f"the removal alone: {milliseconds(times.removal)}; scikit-learn's fit to the "
        f"remaining people: {milliseconds(times.retraining)}, a ratio of "
        f"{ratio(times.retraining, times.removal)}",
    )


def decisions(steps: tuple[Step, ...]) -> str:
    """Return how often the registry did what to keep the contract."""
    made = [step.decision for step in steps]
    counts = {word: made.count(word) for word in dict.fromkeys(made)}
    return ", ".join(f"{word} ({number})" for word, number in counts.items())


def first_sentence(text: str) -> str:
    """Return how a text begins."""
    return text.partition(". ")[0].rstrip(".")


def plan(outlook: Outlook) -> str:
    """Return how many people may leave, in short."""
    counts = "; ".join(
        f"{one.kind} {one.without_rows} and {one.with_rows}" for one in outlook.foreseen
    )
    return (
        "so many may leave before the remaining rows are looked at, and before the "
        f"model is moved towards retraining: {counts}"
    )


def outcome(story: Story) -> list[tuple[str, str]]:
    """Return what came of it, as lines with headings."""
    opened, shipped = story.opened, story.shipped
    return [
        (
            "Forgotten",
            f"{len(story.requests)} people one by one and {story.n_batch} together",
        ),
        ("Retraining", f"the model is {nearness(story)}"),
        ("Accuracy", accuracies(story)),
        *(("Time", sentence) for sentence in speeds(story)),
        ("Release", f"number {shipped.number} left as {shipped.name}"),
        (
            "Receipts",
            f"{story.n_receipts} of {story.batch.n_forgotten} stand, checked with the "
            f"public key alone. One of them: {first_sentence(opened.says)}",
        ),
        *(
            ("Forgery", f"{forgery.done}. {first_sentence(forgery.says)}")
            for forgery in story.forgeries
        ),
        (
            "Limits",
            f"of {len(opened.not_covered)} things a receipt says nothing, "
            f"{opened.not_covered[0].partition(':')[0]} among them; the report has all",
        ),
        *(("FAILED", failure) for failure in story.failures()),
    ]
