"""Files and a detector -> a verdict per file, as rows, JSON and a page. What `fewone fit`, `score` and `watch` share.

Enters: names of files and how they are cut. Leaves: examples for a detector, and what it says of each file.
"""
