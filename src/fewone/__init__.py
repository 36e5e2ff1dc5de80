"""fewone: an anomaly detector for a new machine or class from a few normal examples, by meta-learning."""

__version__ = "0.1.0"
