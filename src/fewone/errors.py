"""Mistakes that a user can mend, as one kind of exception with a one-line message."""


class FewoneError(Exception):
    """One line: what is wrong, where, and what to do. The command line prints it and exits with 2."""


class InputError(FewoneError, ValueError):
    """Values handed to the detector that it cannot use: also a ValueError, as scikit-learn's callers expect."""


class FewoneWarning(UserWarning):
    """One line on something that went otherwise than asked but does not stop the work (a cache, a rounding)."""
