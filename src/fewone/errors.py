"""Mistakes that a user can fix, as one kind of exception with a one-line message."""


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
