"""Mistakes that a user can fix, as one kind of exception with a one-line message."""


def say_count(number: int, thing: str, things: str = "") -> str:
    """A number of things in words.

    >>> say_count(1, "file"), say_count(2, "file"), say_count(0, "anomaly", "anomalies")
    ('1 file', '2 files', '0 anomalies')
    """
    return f"{number} {thing if number == 1 else things or thing + 's'}"


class FewoneError(Exception):
    """One line: what is wrong, where, and what to do. The command line prints it and exits with 2.

    >>> import fewone
    >>> try:
    ...     fewone.load("no such model")
    ... except fewone.FewoneError as error:
    ...     print(error)
    no model and no folder is called 'no such model'; ...
    """


class InputError(FewoneError, ValueError):
    """Values handed over that cannot be used: also a ValueError, as scikit-learn's callers expect.

    >>> import fewone
    >>> try:
    ...     fewone.Task.from_arrays("press 7", [[1.0, float("nan")]])
    ... except ValueError as error:
    ...     print(error)
    task press 7: normal: 1 of 1 examples hold NaN or infinity, the first is example 0; leave them out or fill them
    """


class FewoneWarning(UserWarning):
    """One line on something that went otherwise than asked but does not stop the work (a cache, a rounding).

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", FewoneWarning)
    """
