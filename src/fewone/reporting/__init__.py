"""Results -> the paper's tables beside ours, in one HTML page and in Markdown. Enters: rows. Leaves: files.

Computes no result and knows no learner.
"""
