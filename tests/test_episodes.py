import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewone.episodes import (
    Examples,
    InputScaling,
    Moments,
    RowPool,
    Store,
    Task,
    generator_for,
)


@given(
    count=st.integers(1, 6),
    channels=st.integers(1, 3),
    offset=st.floats(-1e3, 1e3),
    spread=st.floats(1e-2, 1e3),
    seed=st.integers(0, 99),
)
def test_standardised_normals_have_mean_0_and_deviation_1_in_every_channel(count, channels, offset, spread, seed):
    normals = offset + spread * torch.randn(count, channels, 64, generator=generator_for(seed))
    result = Moments.of(normals).apply(normals)
    assert torch.allclose(result.mean((0, 2)), torch.zeros(channels), atol=0.02)
    assert torch.allclose(result.std((0, 2), correction=0), torch.ones(channels), atol=0.02)


def test_inputs_are_standardised_by_the_normals_alone():
    normals = torch.randn(2, 1, 50, generator=generator_for(0)) * 3 + 7
    queries = torch.randn(9, 1, 50, generator=generator_for(1)) * 100
    expected = (queries - normals.mean()) / normals.std(correction=0)
    assert torch.allclose(Moments.of(normals).apply(queries), expected, atol=1e-4)


@pytest.mark.parametrize("constant", [0.0, 5.0, 0.1, 1e6 / 3, -1e-3])
@pytest.mark.parametrize(("count", "length"), [(2, 64), (3, 37), (7, 2048)])
def test_a_constant_channel_divides_neither_by_zero_nor_by_rounding_noise(constant, count, length):
    normals = torch.randn(count, 2, length, generator=generator_for(0))
    normals[:, 1] = constant
    result = Moments.of(normals).apply(normals)
    assert torch.isfinite(result).all()
    assert result[:, 1].abs().max() <= abs(constant) * 1e-6


def test_a_batch_of_tasks_is_standardised_as_each_task_alone():
    normals = torch.randn(4, 2, 3, 32, generator=generator_for(0)) * torch.arange(1, 5).view(4, 1, 1, 1)
    queries = torch.randn(4, 7, 3, 32, generator=generator_for(1))
    together = Moments.of(normals).apply(queries)
    for task in range(4):
        assert torch.allclose(together[task], Moments.of(normals[task]).apply(queries[task]), atol=1e-6)


def test_images_are_standardised_over_both_axes_of_space():
    images = torch.randn(3, 2, 8, 8, generator=generator_for(0)) + 4
    moments = Moments.of(images, space=2)
    assert moments.mean.shape == (1, 2, 1, 1)
    assert torch.allclose(moments.mean.flatten(), images.mean((0, 2, 3)))


def test_the_moments_of_a_task_are_those_of_all_its_normals():
    values = torch.randn(30, 1, 16, generator=generator_for(0))
    store = Store(values)
    task = Task("t", RowPool(store, torch.arange(20)), RowPool(store, torch.arange(20, 30)))
    assert torch.allclose(task.moments.mean.squeeze(), values[:20].mean())
    assert torch.allclose(task.moments.deviation.squeeze(), values[:20].std(correction=0))


def test_preparation_makes_floats_of_bytes_and_changes_nothing_it_was_given():
    preparation = InputScaling(scale=1 / 255, shift=-0.5)
    values = torch.tensor([0, 51, 255], dtype=torch.uint8)
    expected = torch.tensor([-0.5, -0.3, 0.5])
    assert torch.allclose(preparation(values), expected)
    floats = torch.tensor([0.0, 51.0, 255.0])
    assert torch.allclose(preparation(floats), expected)
    assert floats.tolist() == [0.0, 51.0, 255.0]
    preparation.apply_in_place(floats)
    assert torch.allclose(floats, expected)
    assert InputScaling()(torch.zeros(2, dtype=torch.float64)).dtype == torch.float64


def test_preparation_refuses_scaling_before_standardisation():
    with pytest.raises(ValueError, match="meaningless"):
        InputScaling(scale=2.0, standardize=True)


def test_examples_weigh_alike_and_sum_to_one_in_each_task():
    examples = Examples.normals(torch.zeros(3, 5, 1, 8))
    assert len(examples) == 3
    assert torch.allclose(examples.weights.sum(1), torch.ones(3))
    assert examples.labels.sum() == 0
    assert examples[1].inputs.shape == (5, 1, 8)


def test_generators_of_the_same_keys_are_alike_on_every_machine_and_others_differ():
    assert torch.randint(1000, (4,), generator=generator_for(0, "train", 1)).tolist() == [339, 417, 533, 667]
    draws = {
        tuple(torch.randint(10**9, (2,), generator=generator_for(*keys)).tolist())
        for keys in ((0, "train", 1), (0, "train", 11), (1, "train", 1), (0, "test", 1), (0, "train1"), (0,))
    }
    assert len(draws) == 6


def test_halves_share_a_pool_without_overlap():
    pool = RowPool(Store(torch.zeros(7, 1)), torch.tensor([5, 3, 1, 0, 6, 2, 4]))
    adaptation, judging = pool.split_in_half()
    assert adaptation.index.tolist() == [5, 3, 1]
    assert judging.index.tolist() == [0, 6, 2, 4]
