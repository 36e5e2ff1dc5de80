"""Experiments: one frozen description, what the paper did on each dataset, and the run that joins all rooms.

Enters: an Experiment (from TOML, the command line or Python). Leaves: rows of results and a folder with the learner.
"""

from fewone.experiment import DataSettings, Experiment
from fewone.experiments.defaults import default_experiment
from fewone.experiments.parsing import parse_experiment, read_experiment

__all__ = ["DataSettings", "Experiment", "default_experiment", "parse_experiment", "read_experiment"]
