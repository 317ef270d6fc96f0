"""Names of files that a run under a Trainer leaves in its folder."""

LAST = "last.ckpt"
"""The checkpoint, from which a run resumes."""
