"""Learning by rule: conventions, engines, the mistake log and the trainer."""
