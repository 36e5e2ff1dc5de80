"""Detectors behind HTTP: a folder of versions, a database of what happened, REST, streams, a page.

Enters: requests. Leaves: decisions that were stored before they are told. Uses the detectors' public face alone; needs
the extra `service`.
"""
