"""The steps in their order: see `down_revision` of each."""
