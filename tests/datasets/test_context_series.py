import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fewone.datasets import LoadOptions, load
from fewone.datasets.context_series import draw_contexts, draw_hard_contexts, generate_task
from fewone.sampling import EpisodeSampler

SUITES = ("sts-context", "sts-context-hard")


def test_a_task_allows_three_kinds_and_its_anomalies_carry_one_of_the_others():
    for context in draw_contexts(20, np.random.default_rng(0)):
        allowed, forbidden = context.normal.any(0), context.anomalous.any(0)
        assert (allowed.sum(), forbidden.sum()) == (3, 7)
        assert not (allowed & forbidden).any()
        assert (context.normal.sum(1) == 1).all()
        assert (context.anomalous.sum(1) == 1).all()
        assert context.normal.shape == context.anomalous.shape == (60, 10)


def test_in_the_hard_suite_five_kinds_are_allowed_and_windows_carry_one_or_two():
    for context in draw_hard_contexts(20, np.random.default_rng(0)):
        allowed, forbidden = context.normal.any(0), context.anomalous.any(0)
        assert (allowed.sum(), forbidden.sum()) == (5, 5)
        assert not (allowed & forbidden).any()
        for carried in (context.normal, context.anomalous):
            assert np.bincount(carried.sum(1), minlength=3).tolist() == [0, 30, 30]


@pytest.mark.parametrize("draw", [draw_contexts, draw_hard_contexts])
@pytest.mark.parametrize("count", [20, 60, 300])
def test_over_the_tasks_every_kind_is_exactly_as_often_normal_as_anomalous(draw, count):
    contexts = draw(count, np.random.default_rng(1))
    normal, anomalous = (np.sum([getattr(one, label).sum(0) for one in contexts], axis=0) for label in LABELS)
    assert len(contexts) == count
    assert (normal == anomalous).all()


LABELS = ("normal", "anomalous")


def test_in_the_hard_suite_the_same_holds_for_every_pair_of_kinds():
    contexts = draw_hard_contexts(60, np.random.default_rng(1))
    together = [
        np.sum([getattr(one, label).T.astype(int) @ getattr(one, label) for one in contexts], 0) for label in LABELS
    ]
    assert (together[0] == together[1]).all()
    assert together[0][0, 1] > 0


def simple_features(windows):
    """(n, 128) -> moments, steps, and the spectrum of each window: more than any one-liner looks at."""
    spectrum = np.log(np.abs(np.fft.rfft(windows))[:, :24] + 0.1)
    steps = np.abs(np.diff(windows))
    moments = [windows.max(1), windows.min(1), windows.std(1), (windows**3).mean(1), (np.diff(windows) ** 3).mean(1)]
    return np.column_stack([*moments, steps.max(1), steps.mean(1), spectrum])


def draw_queries(splits, tasks):
    batch = EpisodeSampler(10, 20, preparation=splits.preparation).draw_evaluation(tasks, splits.plan, 0, seed=0)
    return simple_features(batch.query.inputs.flatten(0, 2).numpy()), batch.query.labels.flatten().numpy()


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize(
    "classifier",
    [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        ExtraTreesClassifier(40, max_depth=12, random_state=0),
    ],
    ids=["linear", "trees"],
)
def test_a_score_that_never_sees_the_support_is_at_chance(name, classifier, load_generated):
    splits = load_generated(name)
    classifier.fit(*draw_queries(splits, splits.train[:150]))
    inputs, labels = draw_queries(splits, splits.test)
    flagged = classifier.predict(inputs) == 1
    accuracy = (flagged[labels == 1].mean() + (~flagged[labels == 0]).mean()) / 2
    # 6,600 windows of 60 tasks: twice the standard error over tasks is about 2 points.
    assert 0.46 < accuracy < 0.54


def test_the_same_classifier_does_learn_where_anomalies_are_the_same_in_all_tasks(load_generated):
    splits = load_generated("sts-smooth")
    classifier = ExtraTreesClassifier(40, max_depth=12, random_state=0)
    classifier.fit(*draw_queries(splits, splits.train[:150]))
    inputs, labels = draw_queries(splits, splits.test)
    assert (classifier.predict(inputs) == labels).mean() > 0.7


def test_a_context_and_a_generator_fix_a_task():
    context = draw_hard_contexts(2, np.random.default_rng(0))[0]
    first, again, other = (generate_task(context, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


def test_another_seed_gives_another_suite(load_generated):
    other = load("sts-context", options=LoadOptions(seed=1))
    fingerprints = {other.fingerprint, *(load_generated(name).fingerprint for name in SUITES)}
    assert len(fingerprints) == 3
