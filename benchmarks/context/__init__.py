"""Whether a sterile window helps a model: the same conversations with four forms of history, scored by what the database shows."""

from benchmarks.context.compare import add_options, run

__all__ = ["add_options", "run"]
