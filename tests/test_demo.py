"""The demo: a short training is enough to see the whole story."""

from pathlib import Path

from fewone.demo import RIVALS, demonstrate, describe


def test_the_demo_trains_compares_and_writes_a_page(tmp_path: Path) -> None:
    told: list[str] = []
    rivals = {"max-diff": RIVALS["max-diff"]}
    shown = demonstrate(tmp_path, iterations=20, tell=told.append, test_tasks=4, rivals=rivals)
    rows = describe(shown.comparisons)
    assert [row[0] for row in rows] == ["fewone (support-distance)", RIVALS["max-diff"]]
    page = (tmp_path / "index.html").read_text()
    assert page.count("<svg") == 3 and "<script" not in page
    assert all(task.name in page for task in shown.episodes.tasks)
    assert len(told) == 2


def test_a_second_demo_finds_the_first_ones_learner(tmp_path: Path) -> None:
    rivals = {"max-diff": RIVALS["max-diff"]}
    first = demonstrate(tmp_path, iterations=3, tell=lambda text: None, test_tasks=3, rivals=rivals)
    progress: list[object] = []
    second = demonstrate(
        tmp_path, iterations=3, watch=progress.append, tell=lambda text: None, test_tasks=3, rivals=rivals
    )
    assert progress == []
    assert first.comparisons == second.comparisons
