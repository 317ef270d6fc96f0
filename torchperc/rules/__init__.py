"""The mistake-driven rule: conventions, trainer, mistake log, engines."""
