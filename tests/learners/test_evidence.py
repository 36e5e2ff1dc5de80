"""The evidence against direct computations, its limits, and that only distance from the normals can raise it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student
from torch import Tensor

from fewone.episodes import Examples
from fewone.errors import FewoneError
from fewone.learners import LEARNERS
from fewone.learners import evidence_kinds as kinds_module
from fewone.learners.evidence import Evidence, log_tail
from fewone.learners.evidence_kinds import EvidenceKind, Features, View
from fewone.learners.evidence_kinds.series import (
    BAND,
    BENT,
    COARSE,
    DILATIONS,
    GROUPS,
    IN_UNITS,
    LARGEST_SHIFT,
    POINTS,
    RIVALS,
    SERIES_KINDS,
    TYPICAL,
    UNBEATEN,
    Convolutions,
    Rivals,
    bend,
    compare_shifted,
    pair_up,
    pair_up_in_units,
    resample,
    scale_windows,
    warp,
)
from fewone.networks import NetworkSettings

LIGHT = ("raw", "shape", "level", "movement", "own-raw", "own-level")


def build(*kinds: str) -> Evidence:
    learner = LEARNERS["evidence"](LEARNERS["evidence"].choose(evidence=kinds), NetworkSettings(), (0, 0))
    assert isinstance(learner, Evidence)
    return learner.eval()


def noise(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("freedom", [2.0, 3.5, 9.0, 40.0])
def test_the_tail_is_that_of_students_t(freedom: float) -> None:
    t = np.linspace(-5, 12, 400)
    found = log_tail(torch.tensor(t), torch.tensor(freedom, dtype=torch.float64)).numpy()
    np.testing.assert_allclose(found, student.logsf(t, freedom), rtol=0.06, atol=0.03)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_tail_falls_with_t_and_stays_finite(dtype: torch.dtype) -> None:
    t = torch.cat([torch.linspace(-50, 50, 5000, dtype=dtype), torch.tensor([1e3, 1e6, 1e15], dtype=dtype)])
    for freedom in (0.5, 3.0, 30.0):
        found = log_tail(t, torch.tensor(freedom, dtype=dtype))
        assert torch.isfinite(found).all()
        assert (found.diff() <= 1e-5).all()


def test_warping_equals_the_plain_recursion() -> None:
    queries, normals = noise(1, 2, 2, 20), noise(1, 3, 2, 20, seed=1)
    found = warp(queries, normals)[0, :, :, 0]
    for i, query in enumerate(queries[0].numpy()):
        for j, normal in enumerate(normals[0].numpy()):
            cost = ((query[:, :, None] - normal[:, None, :]) ** 2).mean(0)
            total = np.full((21, 21), np.inf)
            total[0, 0] = 0.0
            for a in range(20):
                for b in range(max(0, a - BAND), min(20, a + BAND + 1)):
                    total[a + 1, b + 1] = cost[a, b] + min(total[a, b], total[a, b + 1], total[a + 1, b])
            assert float(found[i, j]) == pytest.approx(total[20, 20] / 20, rel=1e-4)


def test_resampling_keeps_straight_lines_and_means() -> None:
    line = torch.linspace(-1, 1, 300)
    assert resample(line[None], 100)[0, 5:-5].numpy() == pytest.approx(
        line.view(100, 3).mean(-1)[5:-5].numpy(), abs=1e-4
    )
    longer = resample(torch.linspace(0, 1, 20)[None], 128)[0]
    assert (longer.diff() >= 0).all()
    assert resample(line[None], 300) is not None


def test_a_window_that_hardly_moves_stays_flat_when_scaled() -> None:
    assert scale_windows(1e-5 * noise(1, 1, 64)).abs().max() < 0.01
    assert scale_windows(50 * noise(1, 1, 64)).std(correction=0) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("name", sorted(SERIES_KINDS))
@pytest.mark.parametrize("shape", [(1, 16), (3, 50), (2, 200)])
def test_every_kind_takes_any_length_and_any_channels(name: str, shape: tuple[int, int]) -> None:
    learner = build(name)
    support, query = noise(2, 5, *shape), noise(2, 4, *shape, seed=1)
    seen, normals = learner.look(query), learner.look(support)
    (squares,) = learner.compare(seen, normals)
    assert squares.shape[:3] == (2, 4, 5)
    assert (squares >= 0).all()
    (same,) = learner.compare(normals, normals)
    # A query that is one of the normals is next to it.
    own = same.amax(-1).diagonal(dim1=1, dim2=2)
    assert (own <= 1e-4 * same.amax()).all()


def test_at_each_place_the_kernel_that_fits_best_wins_its_response() -> None:
    view, (curve,) = Rivals(), scale_windows(noise(1, 1, 40))
    kernels = view.weights[0, 1, :RIVALS, 0].numpy()  # the first group at a dilation of 2, of the curve itself
    padded = np.pad(curve[0].numpy(), 8)
    responses = np.array([[kernel @ padded[place : place + 17 : 2] for place in range(40)] for kernel in kernels])
    won = [np.where(responses.argmax(0) == number, responses.max(0).clip(0), 0).mean() for number in range(RIVALS)]
    (found,) = view(curve.unsqueeze(0))
    start = 2 * GROUPS * RIVALS  # behind the dilation of 1, and what the least responses win there
    np.testing.assert_allclose(
        found[0, 0, start : start + RIVALS].exp().numpy(), np.array(won) + UNBEATEN, rtol=1e-3, atol=1e-5
    )


def test_a_difference_counts_in_units_of_how_the_allowed_normals_vary() -> None:
    normals, queries = noise(1, 5, 6) * torch.linspace(0.1, 3.0, 6), noise(1, 3, 6, seed=1)
    allowed = torch.tensor([[[1.0, 1.0, 0.0, 1.0, 1.0]]])
    found = pair_up_in_units(queries, normals, allowed)[0, :, :, 0]
    variance = normals[0, [0, 1, 3, 4]].var(0)
    typical = variance.mean() + TYPICAL
    weights = 4 * typical / (3 * variance + typical)
    expected = ((queries[0, :, None] - normals[0]).square() * weights).mean(-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_single_normal_knows_no_unit() -> None:
    normals, queries = noise(1, 4, 6), noise(1, 3, 6, seed=1)
    alone = torch.tensor([[[0.0, 1.0, 0.0, 0.0]]])
    torch.testing.assert_close(pair_up_in_units(queries, normals, alone), pair_up(queries, normals))


@pytest.mark.parametrize("name", sorted(IN_UNITS))
def test_a_normal_that_is_judged_is_no_unit_of_its_own_distance(name: str) -> None:
    learner = build(f"own-{name}")
    support = noise(1, 4, 1, 40)
    far = torch.cat([support[:, :3], 1e3 * support[:, 3:]], 1)
    own = learner.observe(Examples.normals(far), support).own[0, 3, 0]
    rest = learner.observe(Examples.normals(support[:, :3]), far[:, 3:]).values[0, 0, 0]
    torch.testing.assert_close(own, rest, rtol=1e-3, atol=1e-3)


def test_values_are_log_distances_to_the_nearest_other_normal() -> None:
    learner = build("shape")
    support, query = noise(1, 4, 1, 128), noise(1, 3, 1, 128, seed=1)
    labels = torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    observed = learner.observe(Examples.of(support, labels), query)
    scaled = [scale_windows(part)[0, :, 0] for part in (support[:, [0, 1, 3]], query)]
    squares = (scaled[1][:, None] - scaled[0]).square().mean(-1)
    torch.testing.assert_close(observed.values[0, :, 0], 0.5 * (squares.amin(-1) + 1e-4).log(), rtol=1e-4, atol=1e-4)
    among = (scaled[0][:, None] - scaled[0]).square().mean(-1) + 1e9 * torch.eye(3)
    own = 0.5 * (among.amin(-1) + 1e-4).log()
    torch.testing.assert_close(observed.own[0, [0, 1, 3], 0], own, rtol=1e-4, atol=1e-4)


def test_leaving_one_out_is_adapting_to_the_rest() -> None:
    learner = build(*LIGHT)
    support = Examples.of(noise(1, 6, 2, 40), torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]))
    left = torch.tensor([0, 1, 3, 5])
    with torch.no_grad():
        found = learner.leave_one_out(support, left)
        for number, position in enumerate(left.tolist()):
            rest = [i for i in range(6) if i != position]
            scorer = learner.adapt(Examples.of(support.inputs[:, rest], support.labels[:, rest]))
            assert float(scorer(support.inputs[:, position : position + 1])) == pytest.approx(
                float(found[number]), abs=1e-4
            )


@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_normals_and_equal_normals_give_finite_scores(size: int) -> None:
    learner = build()
    equal = noise(1, 1, 1, 64).expand(1, size, 1, 64)
    for support in (noise(1, size, 1, 64), equal, torch.zeros(1, size, 1, 64)):
        with torch.no_grad():
            logits = learner.adapt(Examples.normals(support))(torch.cat([support, noise(1, 2, 1, 64, seed=3)], 1))
        assert torch.isfinite(logits).all()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 8),
    channels=st.integers(1, 3),
    length=st.integers(16, 90),
    double=st.booleans(),
)
def test_what_moves_away_along_any_direction_ends_up_anomalous(
    seed: int, size: int, channels: int, length: int, double: bool
) -> None:
    dtype = torch.float64 if double else torch.float32
    learner = build(*LIGHT).to(dtype)
    support = noise(1, size, channels, length, seed=seed).to(dtype)
    direction = noise(1, 1, channels, length, seed=seed + 1).to(dtype)
    factors = torch.tensor([1e2, 1e3, 1e4, 1e6, 1e12, 1e30], dtype=dtype).view(1, -1, 1, 1)
    with torch.no_grad():
        scorer = learner.adapt(Examples.normals(support))
        logits = scorer(support[:, :1] + factors * direction)[0]
        gained = scorer(factors * support[:, :1])[0]
    for found in (logits, gained):
        assert torch.isfinite(found).all()
        assert (found > 0).all()
        assert (found.diff() > -1e-3).all()


class Sums(View):
    def forward(self, inputs: Tensor) -> Features:
        return (inputs.flatten(1).sum(-1, keepdim=True),)


def compare_sums(queries: Features, normals: Features) -> Tensor:
    return (queries[0].unsqueeze(2) - normals[0].unsqueeze(1)).square()


def test_a_kind_registered_from_outside_is_used_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds_module.VIEWS, "sums", Sums)
    monkeypatch.setitem(kinds_module.KINDS, "sum", EvidenceKind("the sum", "sums", compare_sums))
    pictures = noise(1, 6, 3, 8, 8)
    with torch.no_grad():
        logits = build("sum").adapt(Examples.normals(pictures))(torch.stack([pictures[0, 0], pictures[0, 0] + 5])[None])
    assert logits[0, 1] > logits[0, 0]


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(FewoneError, match="no kind of evidence is called 'shap'; there are raw"):
        build("shap")


@pytest.mark.parametrize("channels", [1, 3])
def test_all_shifts_at_once_are_the_least_over_one_shift_after_the_other(channels: int) -> None:
    queries, normals = noise(2, 4, channels, POINTS), 3.0 + noise(2, 6, channels, POINTS, seed=1)
    plain = []
    for shift in range(-LARGEST_SHIFT, LARGEST_SHIFT + 1, 2):
        kept, left, right = POINTS - abs(shift), max(0, shift), max(0, -shift)
        plain.append(pair_up(queries[..., left : left + kept], normals[..., right : right + kept]))
    found = compare_shifted((queries, queries), (normals, normals))
    torch.testing.assert_close(found, torch.stack(plain).amin(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_pieces_bent_at_once_are_the_least_over_one_shift_after_the_other(channels: int) -> None:
    queries, normals = noise(2, 4, channels, COARSE), noise(2, 6, channels, COARSE, seed=1)
    around = torch.nn.functional.pad(normals.flatten(0, 1), (BAND, BAND), mode="replicate").unflatten(0, (2, 6))
    plain = []
    for shift in range(2 * BAND + 1):
        pieces = [part.unfold(-1, BENT, BENT) for part in (queries, around[..., shift : shift + COARSE])]
        plain.append((pieces[0].unsqueeze(2) - pieces[1].unsqueeze(1)).square().mean((3, 5)))  # (2, 4, 6, pieces)
    expected = torch.stack(plain).amin(0).mean(-1, keepdim=True)
    torch.testing.assert_close(bend(queries, normals), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [16, 128, 600])
def test_responses_of_all_dilations_in_one_product_are_those_of_one_convolution_after_the_other(length: int) -> None:
    view, flat = Convolutions(), noise(2, 1, length)
    dilations = [dilation for dilation in DILATIONS if 8 * dilation < length]
    plain = [view.respond(flat, number, dilation) for number, dilation in enumerate(dilations)]
    torch.testing.assert_close(view.respond_at_once(flat, dilations), torch.stack(plain, 1), rtol=1e-5, atol=1e-6)


def test_few_series_are_described_as_they_are_among_many() -> None:
    series = noise(200, 1, 64)
    for view in (Convolutions(), Convolutions(of_slope=True, keep_amplitude=True)):
        (among,), (alone,) = view(series), view(series[:1])
        torch.testing.assert_close(alone, among[:1], rtol=1e-5, atol=1e-5)


def test_the_tail_without_a_gradient_is_that_of_elementary_functions() -> None:
    t = torch.cat([torch.linspace(-30.0, 30.0, 4001), torch.tensor([-1e12, 0.0, 1e4, 1e12])])
    freedom = torch.full_like(t, 7.0)
    plain = log_tail(t, freedom)
    with torch.no_grad():
        torch.testing.assert_close(log_tail(t, freedom), plain, rtol=2e-6, atol=2e-6)


def test_kinds_of_one_part_and_of_many_give_what_each_gives_alone() -> None:
    learner = Evidence(("raw", "pieces", "level", "anywhere"))
    features = learner.look(noise(2, 5, 1, 40))
    distances = learner.compare(features, features)
    allowed = torch.ones(2, 1, 5)
    allowed[:, :, 3] = 0.0
    together = learner.measure(distances, allowed)
    for column, (kind, squares) in enumerate(zip(learner.kinds, distances, strict=True)):
        nearest = torch.where(allowed.unsqueeze(-1) > 0, squares, 1e30).amin(2)
        torch.testing.assert_close(together[..., column], 0.5 * (kind.reduce(nearest) + kind.floor).log())
