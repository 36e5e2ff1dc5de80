"""The models that come with the package: one folder each, with a card. Enters: a name. Leaves: a folder and its card.

A folder `zoo/NAME/` with `card.json` and a saved learner is a model; nothing else has to be registered.
"""

from fewone.zoo.cards import (
    Accuracy,
    ModelCard,
    ZooModel,
    advise,
    advise_on_array,
    fill_shape,
    find_model,
    fits,
    fitting_models,
    read_models,
    write_card,
)

__all__ = [
    "Accuracy",
    "ModelCard",
    "ZooModel",
    "advise",
    "advise_on_array",
    "fill_shape",
    "find_model",
    "fits",
    "fitting_models",
    "read_models",
    "write_card",
]
