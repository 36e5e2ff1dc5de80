"""What a user does first, with the installed package alone: runs in a folder of its own, by `install.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import fewone
from fewone.zoo import read_models


def main() -> None:
    """Every model of the zoo is loaded; the first detector is fitted, asked, saved and loaded again."""
    names = [model.name for model in read_models()]
    assert {"series", "periodic", "pictures", "digits"} <= set(names), names
    kinds = {name: type(fewone.load(name)).__name__ for name in names if name != "pictures"}
    print(f"fewone {fewone.__version__} in {Path(fewone.__file__).parent}")
    print(f"zoo: {', '.join(kinds)}, pictures: {load_pictures()}")

    random = np.random.default_rng(0)
    waves = np.sin(np.arange(128) / 5 + random.uniform(0, 6, (30, 1))) + random.normal(0, 0.1, (30, 128))
    waves[10, 60:75] += 2 * random.normal(size=15)
    detector = fewone.load("series").fit(waves[:10])
    said = detector.predict(waves[10:])
    assert said[0] == -1 and (said[1:] == 1).all(), said
    detector.save("press-7")
    assert (fewone.load("press-7").decision_function(waves) == detector.decision_function(waves)).all()
    np.savetxt("normals.csv", waves[:10], delimiter=",")
    np.savetxt("new.csv", waves[10:], delimiter=",")
    optional = ("tyro", "rich", "h5py", "jinja2", "joblib", "matplotlib")
    print(
        f"fitted, asked, saved, loaded; of the optional packages imported: {[n for n in optional if n in sys.modules]}"
    )


def load_pictures() -> str:
    """Its weights come with an extra: loaded, or refused in one line that says so."""
    try:
        return f"loaded as {type(fewone.load('pictures')).__name__}"
    except fewone.FewoneError as error:
        assert "fewone[pictures]" in str(error) and "\n" not in str(error), error
        return "asks for its extra"


if __name__ == "__main__":
    main()
